"""Partition of a functional graph into kernels.

Every node gets a role: VIRTUAL nodes (views, constants, patterns) are recomputed where they are
read; POINT nodes compute one element from elements; REDUCE nodes accumulate; NEST nodes bring
their own loops.  POINT and REDUCE nodes over one iteration space at one *level* share a kernel.

A node's level is the number of kernel boundaries on the longest way to it: reading a value of
the same kernel keeps the level, reading a stored one adds 1.  Nodes of one level and one space
therefore never depend on each other through a third kernel, and the whole pass is linear.
Updates that run in place wait for the readers of what they overwrite.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto

from tracegrad.graph.ir import Node, Operand, Value
from tracegrad.graph.op import Nest, Point, Reduction, Trait
from tracegrad.ops.branch import CONTROL, carried
from tracegrad.ops.create import ConstantAttrs
from tracegrad.ops.views import ViewAttrs
from tracegrad.schedule.effects import Effects, updated
from tracegrad.types import Shape

MAX_NODES = 400  # of one kernel: compilers are slower than linear beyond
MAX_DEPTH = 64  # of values absorbed into one another: they are written by recursion


class Role(Enum):
    VIRTUAL = auto()
    CONSTANT = auto()  # a buffer that is filled before the call
    POINT = auto()
    ABSORBED = auto()  # a POINT node evaluated inside the one update that stores it
    REDUCE = auto()
    NEST = auto()
    LOOP = auto()  # a region run again and again


@dataclass(slots=True, eq=False)
class Group:
    """The nodes of one kernel, in order; `space` is the iteration space of POINT and REDUCE."""

    space: Shape
    nodes: list[Node] = field(default_factory=list)
    level: int = 0


@dataclass(slots=True, eq=False)
class Fusion:
    """Kernels in launch order, the role of every node (by its results) and its producer."""

    groups: list[Group]
    role: dict[Value, Role]
    node_of: dict[Value, Node]


def fuse(effects: Effects) -> Fusion:
    """Choose kernels; see the module's text."""
    return _Fuser(effects).run()


class _Fuser:
    def __init__(self, effects: Effects) -> None:
        self.effects = effects
        self.nodes = effects.graph.nodes
        self.outputs = {x for x in effects.graph.outputs if isinstance(x, Value)}
        self.position = {r: k for k, n in enumerate(self.nodes) for r in n.results}
        self.node_of = {r: n for n in self.nodes for r in n.results}
        self.uses: dict[Value, list[Node]] = {}
        for node in self.nodes:
            for x in node.values():
                self.uses.setdefault(x, []).append(node)
        self.overwritten = {
            n.operands[at]: k
            for k, n in enumerate(self.nodes)
            for at, r in updated(n)
            if r in effects.in_place
        }
        self.role: dict[Value, Role] = {}
        self.level: dict[Value, int] = {}

    def run(self) -> Fusion:
        self._assign_roles()
        groups: dict[tuple[object, ...], Group] = {}
        for k, node in enumerate(self.nodes):
            role = self.role[node.results[0]]
            level = self._level(node, role)
            for r in node.results:
                self.level[r] = level
            if role in (Role.VIRTUAL, Role.ABSORBED, Role.CONSTANT):
                continue
            space = (
                node.operands[0].type.shape
                if role is Role.REDUCE
                else node.result.shape
                if role is Role.POINT
                else None
            )
            key = (level, k) if role in (Role.NEST, Role.LOOP) else (level, space)
            group = groups.get(key)
            if group is None:
                group = groups[key] = Group(space or (), level=level)
            group.nodes.append(node)
        ordered = sorted(
            groups.values(), key=lambda g: (g.level, self.position[g.nodes[0].results[0]])
        )
        return Fusion([part for g in ordered for part in _chunks(g)], self.role, self.node_of)

    # -- roles

    def _assign_roles(self) -> None:
        for node in self.nodes:
            role = self._role(node)
            for r in node.results:
                self.role[r] = role
        for node in self.nodes:
            if isinstance(node.op.lowering, Nest) and not node.op.has(Trait.READS_ONCE):
                first = 1 if node.op.has(Trait.UPDATES_FIRST) else 0
                for x in node.operands[first:]:
                    self._materialise(x)
            elif isinstance(node.attrs, CONTROL):
                held = {at for at, _ in carried(node)}
                for k, x in enumerate(node.operands):
                    if k not in held:
                        self._materialise(x)
        for node in reversed(self.nodes):
            if node.op.has(Trait.READS_ONCE):
                for x in node.operands[1:]:
                    self._absorb(x, node)

    def _role(self, node: Node) -> Role:
        lowering = node.op.lowering
        if isinstance(node.attrs, ConstantAttrs):
            return Role.CONSTANT
        if isinstance(node.attrs, CONTROL):
            return Role.LOOP
        if isinstance(lowering, Reduction):
            return Role.REDUCE
        if isinstance(lowering, Nest):
            return Role.NEST
        assert isinstance(lowering, Point), f"{node.op.name} cannot be lowered"
        stored = node.result in self.outputs or node.result in self.effects.keep
        virtual = not node.operands or (
            node.op.has(Trait.VIEW) and isinstance(node.attrs, ViewAttrs)
        )
        return Role.VIRTUAL if virtual and not stored else Role.POINT

    def _materialise(self, x: Operand) -> None:
        if isinstance(x, Value) and self.role.get(x) is Role.VIRTUAL:
            self.role[x] = Role.POINT

    def _absorb(self, x: Operand, into: Node) -> None:
        """Evaluate `x` inside the update `into`, when only it needs `x` and memory allows; a
        view that would read what the update has overwritten is stored first."""
        tree: list[Value] = []
        if self._absorbable(x, into, self.position[into.result], tree):
            for v in tree:
                self.role[v] = Role.ABSORBED
        else:
            self._materialise(x)

    def _absorbable(self, x: Operand, user: Node, at: int, tree: list[Value]) -> bool:
        """Collect into `tree` the single-use POINT nodes below `x`; False where reading inside
        the update at position `at` would see overwritten memory."""
        stack: list[tuple[Operand, Node, int]] = [(x, user, 0)]
        update = self.nodes[at]
        while stack:
            y, by, depth = stack.pop()
            if not isinstance(y, Value):
                continue
            role = self.role.get(y)
            if (
                role is Role.POINT
                and len(self.uses[y]) == 1
                and y not in self.outputs
                and y not in self.effects.keep
                and len(tree) < MAX_NODES
                and depth < MAX_DEPTH
                and (by is user or _reads_same_index(by))
            ):
                tree.append(y)
                stack.extend((z, self.node_of[y], depth + 1) for z in self.node_of[y].operands)
            elif role is Role.VIRTUAL:
                node = self.node_of[y]
                if (
                    isinstance(node.attrs, ViewAttrs)
                    and self._same_region(node, update)
                    and (by is user or _reads_same_index(by))
                ):
                    continue
                stack.extend((z, node, depth + 1) for z in node.operands)
            elif (
                self.overwritten.get(y, at + 1) <= at
                or y is update.operands[0]
                and by is not update
            ):
                return False
        return True

    def _same_region(self, view: Node, update: Node) -> bool:
        """A read of exactly the elements that the update writes, in the same order."""
        return view.operands[0] is update.operands[0] and getattr(
            update.attrs, "view", None
        ) == getattr(view.attrs, "view", None)

    # -- levels

    def _level(self, node: Node, role: Role) -> int:
        if updates := updated(node):
            return max(
                self._need_all(node), *(self._after_readers(node, at, r) for at, r in updates)
            )
        if role is Role.REDUCE or (role is Role.POINT and _reads_same_index(node)):
            space = node.operands[0].type.shape if role is Role.REDUCE else node.result.shape
            return max((self._need(x, space) for x in node.operands), default=0)
        return self._need_all(node)

    def _need_all(self, node: Node) -> int:
        return max((self._need(x, None) for x in node.operands), default=0)

    def _need(self, x: Operand, space: Shape | None) -> int:
        """The lowest level at which a node over `space` can read `x`."""
        role = self.role.get(x) if isinstance(x, Value) else None
        if role is None or role is Role.CONSTANT or not isinstance(x, Value):
            return 0
        if role in (Role.VIRTUAL, Role.ABSORBED):
            return self.level[x]
        return self.level[x] if role is Role.POINT and x.shape == space else self.level[x] + 1

    def _after_readers(self, node: Node, at: int, updated_to: Value) -> int:
        """The first level after every earlier reader of operand `at`, which is overwritten."""
        base = node.operands[at]
        if updated_to not in self.effects.in_place or not isinstance(base, Value):
            return 0
        level = 0
        stack = [base]
        while stack:
            for reader in self.uses.get(stack.pop(), ()):
                result = reader.results[0]
                if reader is node or self.position[result] > self.position[updated_to]:
                    continue
                if self.role[result] is Role.VIRTUAL or (self.role[result] is Role.ABSORBED):
                    stack.append(result)
                else:
                    level = max(level, self.level[result] + 1)
        return level


def _reads_same_index(node: Node) -> bool:
    lowering = node.op.lowering
    return isinstance(lowering, Point) and lowering.same_index


def _chunks(group: Group) -> list[Group]:
    """The group in pieces of at most MAX_NODES nodes."""
    if len(group.nodes) <= MAX_NODES:
        return [group]
    return [
        Group(group.space, group.nodes[k : k + MAX_NODES], group.level)
        for k in range(0, len(group.nodes), MAX_NODES)
    ]
