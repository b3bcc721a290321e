"""`EagerTensor`: a `tg.Tensor` at the prompt: real memory, a version, a gradient history."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from tracegrad import source
from tracegrad.eager import engine, hooks
from tracegrad.eager.history import Algebra, Node
from tracegrad.eager.recorder import EAGER
from tracegrad.errors import ArgumentError, AutogradError, ShapeError, UnsupportedError
from tracegrad.graph.array_views import apply_view, write_view
from tracegrad.graph.storage import Geometry, View
from tracegrad.ops.arithmetic import add
from tracegrad.trace.memory import Memory, Tracer
from tracegrad.trace.modes import STATE
from tracegrad.trace.tensor import Tensor
from tracegrad.views import family, legality


class EagerTensor(Tensor):
    """A tensor of the prompt.

    `root` is the base of a view and `within` the view of it; `node` and `nr` are the history as
    last computed (`EAGER.edge` has it up to date).
    """

    __slots__ = ("_grad", "_hooks", "_post", "accumulator", "lens", "node", "nr", "retained",
                 "root", "within")  # fmt: skip
    __hash__ = object.__hash__

    def __init__(self, *args: Any, **flags: Any) -> None:
        super().__init__(*args, **flags)
        self.node: Node | None = None
        self.nr = 0
        self.root: EagerTensor | None = None
        # Conjugates have no memory of their own: the tensor they read, and how.
        self.lens: tuple[EagerTensor, View] | None = None
        self.within = _WHOLE
        self.accumulator: weakref.ref[Any] | None = None
        self.retained = False
        self._grad: EagerTensor | None = None
        self._hooks: dict[int, Callable[..., Any]] | None = None
        self._post: dict[int, Callable[..., Any]] | None = None

    # -- memory

    @property
    def array(self) -> np.ndarray:
        """The elements, in the memory of the tensor."""
        assert self._array is not None
        if self.lens is not None:
            source_, view = self.lens
            return np.array(apply_view(view, source_.array))
        return self._array

    def store(self, value: Any) -> None:
        """Overwrite the elements, with no history and no checks."""
        if self.lens is not None:
            source_, view = self.lens
            write_view(view, source_.array, value)
        else:
            self.array[...] = value

    @property
    def contents(self) -> np.ndarray | None:
        return self.array

    @property
    def concrete(self) -> np.ndarray | None:
        """The elements when they are a constant, with no gradient to follow."""
        alias = self.alias
        if alias.requires_grad or (alias.storage.inference and alias.storage.dtype.is_inexact):
            return None
        return self.array

    def numpy(self) -> np.ndarray:
        """The elements as an ndarray that shares the memory.

        Raises kind numpy_requires_grad for a tensor that requires a gradient.
        """
        if self.alias.requires_grad:
            raise AutogradError(
                "numpy() of a tensor that requires a gradient",
                kind="numpy_requires_grad",
                loc=source.here(),
                remedy="Use x.detach().numpy().",
            )
        if self.lens is not None:
            raise AutogradError(
                "numpy() of a conjugate that is a view: NumPy has no such views",
                kind="unresolved_conjugate",
                loc=source.here(),
                remedy="Use x.clone().numpy().",
            )
        return self.array

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return np.array(self.numpy(), dtype, copy=copy)

    def __dlpack__(self, **keywords: Any) -> Any:
        return self.numpy().__dlpack__(**keywords)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()

    def __repr__(self) -> str:
        text = np.array2string(self.array, separator=", ", prefix="tensor(")
        if self.dtype not in (np.float64, np.int64, np.bool_) or not self.array.size:
            text += f", dtype={self.dtype}"
        if self.alias.storage.inference:
            return f"tensor({text})"
        if self.node is not None and not self.alias.is_stale:
            return f"tensor({text}, grad_fn={self.node!r})"
        return f"tensor({text}, requires_grad=True)" if self.requires_grad else f"tensor({text})"

    __str__ = __repr__

    def __reduce__(self) -> Any:
        return _unpickled, (np.array(self.array), self.alias.leaf)

    def __deepcopy__(self, memo: Any) -> Any:
        if self.alias.requires_grad and not self.alias.leaf:
            raise AutogradError(
                "only tensors without history can be deep-copied", kind="deepcopy_nonleaf",
                loc=source.here(), remedy="Use x.detach() or x.clone().",
            )  # fmt: skip
        return _unpickled(np.array(self.array), self.alias.leaf)

    # -- flags

    @property
    def requires_grad(self) -> bool:
        return self.alias.requires_grad

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        self.requires_grad_(value)

    def requires_grad_(self, requires_grad: bool = True) -> Any:
        """Ask for a gradient of this tensor, or no longer."""
        value, alias = bool(requires_grad), self.alias
        is_leaf = self.is_leaf
        legality.check_requires_grad(alias, value, is_leaf, STATE.inference, source.here())
        if not is_leaf or alias.leaf == value:
            return self
        alias.leaf = alias.own = value
        if not alias.is_view:
            alias.family.tracked = alias.family.leaf = value
        return self

    @property
    def is_leaf(self) -> bool:
        """Whether nothing tracked has made this tensor."""
        EAGER._refresh(self)
        return self.node is None

    def is_inference(self) -> bool:
        return self.alias.storage.inference

    @property
    def grad_fn(self) -> Node | None:
        """The node that made this tensor, up to date; None of leaves."""
        EAGER._refresh(self)
        return self.node

    @property
    def output_nr(self) -> int:
        """Which result of `grad_fn` this tensor is."""
        EAGER._refresh(self)
        return self.nr if self.node is not None else 0

    @property
    def _version(self) -> int:
        legality.check_version(self.alias, source.here())
        return self.alias.storage.version

    @property
    def _base(self) -> Any:
        """The tensor that this one is a tracked view of, or None."""
        return self.root

    # -- gradients

    @property
    def grad(self) -> Any:
        return self._grad

    @grad.setter
    def grad(self, value: Any) -> None:
        if value is not None:
            if not isinstance(value, EagerTensor):
                raise ArgumentError(
                    f"grad must be a Tensor or None, not {type(value).__name__}",
                    loc=source.here(),
                )
            if value.shape != self.shape:
                raise ShapeError(
                    f"a gradient of shape {value.shape} for a tensor of shape {self.shape}",
                    loc=source.here(),
                )
        self._grad = value

    @grad.deleter
    def grad(self) -> None:
        self._grad = None

    def set_node(self, node: Node | None, nr: int) -> None:
        """A new history; a retained gradient moves there, hooks stay with the old node."""
        if self.retained:
            if self.node is not None and self.node.retains is not None:
                self.node.retains.pop(self.nr, None)
            if node is not None:
                hooks.retain(node, nr, self)
        self.node, self.nr = node, nr

    def backward(
        self,
        gradient: Any = None,
        retain_graph: bool | None = None,
        create_graph: bool = False,
        inputs: Any = None,
    ) -> None:
        """Add the gradient of this tensor to ``.grad`` of the leaves it was made from."""
        engine.backward((self,), (gradient,), retain_graph, create_graph, inputs)

    def accumulate(self, algebra: Algebra, value: Any) -> None:
        """Add `value` to ``.grad``, then run the post-accumulate hooks."""
        g = algebra.tensor(value)
        if g.requires_grad:
            self._grad = g if self._grad is None else EAGER.apply(add, (self._grad, g))
        elif self._grad is None or self._grad.requires_grad:
            held = np.array(g.array)
            if self._grad is not None:
                held += self._grad.array
            self._grad = EAGER.base(held)
        else:
            if self._grad.shape != g.shape:
                raise ShapeError(
                    f"a gradient of shape {g.shape} is added to .grad of shape "
                    f"{self._grad.shape}", remedy="Set x.grad = None first.",
                )  # fmt: skip
            self._grad.array[...] += g.array
            self._grad.memory.version += 1
        for hook in list((self._post or {}).values()):
            hook(self)

    def register_hook(self, hook: Callable[[Any], Any]) -> hooks.Handle:
        """Call ``hook(gradient)`` with the gradient of this value; a tensor that it returns
        replaces the gradient."""
        return hooks.register(self, hook)

    def register_post_accumulate_grad_hook(self, hook: Callable[[Any], Any]) -> hooks.Handle:
        """Call ``hook(tensor)`` after the gradient of this leaf was added to ``.grad``."""
        return hooks.register_post(self, hook)

    def retain_grad(self) -> None:
        """Keep the gradient of a tensor that is not a leaf in ``.grad``."""
        hooks.retain_grad(self)

    @property
    def retains_grad(self) -> bool:
        return self.retained

    # -- leaving the history

    def detach_(self) -> Any:
        legality.check_detach_inplace(self.alias, source.here())
        EAGER.detach_in_place(self)
        return self

    @property
    def data(self) -> Any:
        """The same memory with a version of its own: no check sees what is written through it."""
        return EAGER.base(self.array)

    @data.setter
    def data(self, value: Any) -> None:
        """Take over the memory of another tensor; version, history and views stay."""
        if not isinstance(value, EagerTensor):
            raise ArgumentError(
                f"data must be a Tensor, not {type(value).__name__}", loc=source.here()
            )
        to = value.element_type
        if self.alias.requires_grad and not to.is_inexact:
            raise AutogradError(
                f"data of dtype {to.np} cannot replace that of a tensor that requires a gradient",
                kind="set_data",
                loc=source.here(),
            )
        if self.alias.is_view:
            raise UnsupportedError(
                "replacing the data of a view is not supported", loc=source.here(),
                remedy="Write it: with tg.no_grad(): x.copy_(value).",
            )  # fmt: skip
        self._take(value)

    def _take(self, value: EagerTensor) -> None:
        array, old = value.array, self.memory
        layout = value.layout.stride
        if value.shape == self.shape and value.element_type is self.element_type \
                and not self.alias.view:  # fmt: skip
            # Views taken before keep the old memory, the version and the name of their base.
            old.array, old.layout = array, layout  # type: ignore[assignment]
        else:
            if value.element_type is not self.element_type:
                self.accumulator = None
            memory = Memory(value.shape, value.element_type, old.version, trace=EAGER, array=array,
                            layout=layout)  # type: ignore[arg-type]  # fmt: skip
            before = self.alias
            self.alias = family.fresh(value.shape, value.element_type, before.own, None, memory)
            self.alias.leaf = self.alias.family.leaf = before.leaf
            self.alias.fresh_at = old.version
        self._array = array
        self.layout = Geometry(0, value.shape, layout)


_WHOLE = View()


def _unpickled(array: np.ndarray, requires_grad: bool) -> EagerTensor:
    x = EAGER.base(array)
    return x.requires_grad_() if requires_grad else x  # type: ignore[no-any-return]


def as_tensor(x: Any) -> EagerTensor:
    """`x` as a tensor of the prompt, sharing memory where it can."""
    if isinstance(x, EagerTensor):
        return x
    if isinstance(x, Tracer):
        EAGER.lift(x)  # refuses
    return EAGER.base(np.asarray(x))


EAGER.face = EagerTensor
