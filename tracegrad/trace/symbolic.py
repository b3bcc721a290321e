"""The index of a loop that is one node: an integer that is known only as an expression.

It adds and multiplies like an int.  A comparison, or a bound that NumPy would wrap or clip, asks
whether something holds for all indices; where the answer changes inside the loop, the trace
starts again with the loop split there.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, NoReturn

from tracegrad import dims
from tracegrad.dims import Dim, Expr, Mod
from tracegrad.ops.control import PositionAttrs, position
from tracegrad.trace.modes import STATE, current_trace


class Retrace(BaseException):
    """The trace must start again; what was learned is in the loop's `Decision`.

    No `Exception`, so that user code does not take it for one of its own.
    """


class SymbolicInt:
    """An integer expression over loop indices; stands where traced code has an int."""

    __slots__ = ("dim",)
    __array_priority__ = 1000.0

    def __init__(self, dim: Expr) -> None:
        self.dim = dim

    # -- arithmetic

    def _with(
        self,
        other: Any,
        op: Callable[[Dim, Dim], Dim],
        plain: Callable[..., Any],
        swapped: bool = False,
    ) -> Any:
        dim = dim_of(other)
        if dim is None:
            value = self.value()
            if value is None or not _is_number(other):
                return NotImplemented
            return plain(other, value) if swapped else plain(value, other)
        return integer(op(dim, self.dim) if swapped else op(self.dim, dim))

    def __add__(self, other: Any) -> Any:
        return self._with(other, dims.add, operator.add)

    def __radd__(self, other: Any) -> Any:
        return self._with(other, dims.add, operator.add, True)

    def __sub__(self, other: Any) -> Any:
        return self._with(other, _sub, operator.sub)

    def __rsub__(self, other: Any) -> Any:
        return self._with(other, _sub, operator.sub, True)

    def __mul__(self, other: Any) -> Any:
        return self._with(other, dims.mul, operator.mul)

    def __rmul__(self, other: Any) -> Any:
        return self._with(other, dims.mul, operator.mul, True)

    def __neg__(self) -> Any:
        return integer(dims.mul(self.dim, -1))

    def __pos__(self) -> SymbolicInt:
        return self

    def _divided(self, other: Any, op: Callable[[Dim, int], Dim], plain: Callable[..., Any]) -> Any:
        if type(other) is int and other > 0:
            return integer(op(self.dim, other))
        _check_divisor(other)
        value = self.value()
        return NotImplemented if value is None else plain(value, other)

    def __floordiv__(self, other: Any) -> Any:
        return self._divided(other, dims.floordiv, operator.floordiv)

    def __mod__(self, other: Any) -> Any:
        return self._divided(other, dims.mod, operator.mod)

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    def __truediv__(self, other: Any) -> Any:
        _check_divisor(other)
        return operator.truediv(self.value(), _plain(other))

    def __rtruediv__(self, other: Any) -> Any:
        if type(other) in (int, float, bool):
            _check_divisor(self)
        return operator.truediv(_plain(other), self.value())

    def __rfloordiv__(self, other: Any) -> Any:
        return self._under(other, operator.floordiv)

    def __rmod__(self, other: Any) -> Any:
        return self._under(other, operator.mod)

    def _under(self, other: Any, plain: Callable[..., Any]) -> Any:
        if type(other) in (int, float, bool):
            _check_divisor(self)
            if type(other) is not float:
                raise Unrollable("it divides an integer by the index")
        return plain(other, self.value())

    def __pow__(self, other: Any) -> Any:
        if type(other) is int and 0 <= other <= 4:
            return integer(dims.product([self.dim] * other))
        return operator.pow(self.value(), _plain(other))

    def __rpow__(self, other: Any) -> Any:
        return operator.pow(_plain(other), self.value())

    def __invert__(self) -> Any:
        return -self - 1

    def __abs__(self) -> Any:
        return self if is_nonnegative(self.dim) else -self

    def __round__(self, digits: int | None = None) -> Any:
        return self

    __trunc__ = __floor__ = __ceil__ = __pos__

    def __and__(self, other: Any) -> Any:
        if type(other) is int and other > 0 and other & (other + 1) == 0:
            return self % (other + 1)
        raise Unrollable("it takes the index apart into bits")

    __rand__ = __and__

    def __rshift__(self, other: Any) -> Any:
        return self // (1 << operator.index(other))

    def __lshift__(self, other: Any) -> Any:
        return self * (1 << operator.index(other))

    @property
    def real(self) -> SymbolicInt:
        return self

    @property
    def imag(self) -> int:
        return 0

    # -- NumPy's protocols: an index is a Python int there

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        return getattr(ufunc, method)(*map(_plain, inputs), **kwargs)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        plain = tuple([_plain(e) for e in x] if isinstance(x, list) else _plain(x) for x in args)
        return func(*plain, **kwargs)

    # -- comparisons

    def __lt__(self, other: Any) -> Any:
        return self._ordered(other, lambda a, b: _sub(_sub(b, a), 1), operator.lt)

    def __le__(self, other: Any) -> Any:
        return self._ordered(other, lambda a, b: _sub(b, a), operator.le)

    def __gt__(self, other: Any) -> Any:
        return self._ordered(other, lambda a, b: _sub(_sub(a, b), 1), operator.gt)

    def __ge__(self, other: Any) -> Any:
        return self._ordered(other, _sub, operator.ge)

    def _ordered(
        self, other: Any, gap: Callable[[Dim, Dim], Dim], plain: Callable[..., Any]
    ) -> Any:
        dim = dim_of(other)
        if dim is None:
            return plain(self.value(), other)
        return Condition(gap(self.dim, dim), equal=False)

    def __eq__(self, other: object) -> Any:
        dim = dim_of(other)
        if dim is None:
            return operator.eq(self.value(), other) if _is_number(other) else False
        return Condition(_sub(self.dim, dim), equal=True)

    def __ne__(self, other: object) -> Any:
        same = self == other
        return ~same if isinstance(same, Condition) else not same

    def __hash__(self) -> int:
        raise Unrollable("it uses the index as a key")

    def __bool__(self) -> bool:
        return bool(self != 0)

    # -- as a value

    def value(self) -> Any:
        """The index as a traced integer."""
        return as_value(self.dim)

    def __index__(self) -> int:
        raise Unrollable("it needs the value of the index")

    __int__ = __index__

    def __float__(self) -> float:
        raise Unrollable("it needs the value of the index")

    def __repr__(self) -> str:
        raise Unrollable("it writes the index as text")

    def __format__(self, spec: str) -> str:
        raise Unrollable("it formats the index")


class Condition:
    """``gap >= 0`` (or ``gap == 0``), not yet asked; `negated` turns it round."""

    __slots__ = ("equal", "gap", "negated")

    def __init__(self, gap: Dim, equal: bool, negated: bool = False) -> None:
        self.gap, self.equal, self.negated = gap, equal, negated

    def __invert__(self) -> Condition:
        return Condition(self.gap, self.equal, not self.negated)

    def __bool__(self) -> bool:
        holds = is_zero(self.gap) if self.equal else is_nonnegative(self.gap)
        return holds != self.negated

    def __and__(self, other: Any) -> Any:
        return bool(self) & other

    def __or__(self, other: Any) -> Any:
        return bool(self) | other

    __rand__, __ror__ = __and__, __or__


class Unrollable(BaseException):
    """The innermost open loop cannot be one node, because of what the text says of its body."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        for trace in reversed(STATE.traces):
            if trace.loop is not None:
                trace.loop.decision.give_up(reason)


def outside_change(restore: Callable[[], None]) -> None:
    """Traced code changes something outside: no loop does that once for all iterations.

    `restore` takes the change back when the trace starts again.
    """
    if not STATE.traces or STATE.traces[0].rolling is None:
        return
    if any(trace.loop is not None for trace in STATE.traces):
        raise Unrollable("it changes something outside the function")
    STATE.traces[0].rolling.undo.append(restore)


def integer(dim: Dim) -> int | SymbolicInt:
    return dim if isinstance(dim, int) else SymbolicInt(dim)


def dim_of(x: Any) -> Dim | None:
    """An int or index as a `Dim`; None for everything else."""
    if isinstance(x, SymbolicInt):
        return x.dim
    if isinstance(x, bool) or not isinstance(x, int):
        return None
    return x


def as_value(dim: Dim) -> Any:
    """An index expression as a scalar of traced code (a Python int there: weak)."""
    trace = current_trace()
    assert trace is not None
    trace.place()
    value = trace.builder.emit(position, (), PositionAttrs(dim))
    return trace._base(value, False, scalar=trace.face.numpy_scalars, weak=True)  # type: ignore


def _sub(a: Dim, b: Dim) -> Dim:
    return dims.add(a, dims.mul(b, -1))


def _check_divisor(x: Any) -> None:
    """Python's error for a division of numbers by zero; splits where the index decides."""
    if isinstance(x, SymbolicInt) and is_zero(x.dim) or type(x) in (int, float) and x == 0:
        raise ZeroDivisionError("division by zero")


def _plain(x: Any) -> Any:
    return x.value() if isinstance(x, SymbolicInt) else x


def _is_number(x: Any) -> bool:
    return isinstance(x, (float, complex)) or hasattr(x, "dtype")


# -------------------------------------------------------------------------------- questions


def _affine(e: Dim) -> tuple[str, int, Dim]:
    """``e`` as ``a*i + b`` in the index of the innermost loop that it depends on; remainders
    unroll their loop by their modulus."""
    assert isinstance(e, Expr)
    for monomial, _ in e.terms:
        for atom in monomial:
            if isinstance(atom, Mod):
                _repeat(atom)
    names = {s.name for s in dims.symbols(e)}
    open_loops = (t.loop.name for t in reversed(STATE.traces) if t.loop is not None)
    name = next((n for n in open_loops if n in names), None)
    if name is None:
        raise Unrollable("the index of a loop that is over decides")
    a = dims.coefficient(e, name)
    rest = dims.substitute(e, {name: 0})
    if not a or not (isinstance(rest, int) or a in (1, -1)):
        raise Unrollable("a question about the index is not linear in it")
    return name, a, rest


def _split(name: str, *points: Dim) -> NoReturn:
    from tracegrad.trace.loop_plan import open_loop

    open_loop(name).split(points)


def _repeat(atom: Mod) -> NoReturn:
    from tracegrad.trace.loop_plan import open_loop

    names = {s.name for s in dims.symbols(atom.e)}
    if len(names) != 1 or atom.k > 16:
        raise Unrollable("a remainder of the index decides")
    open_loop(names.pop()).repeat(atom.k)


def is_nonnegative(e: Dim) -> bool:
    """Whether ``e >= 0``; splits or unrolls the loop where it depends on the index."""
    lo, hi = dims.bounds(e)
    if lo is not None and lo >= 0:
        return True
    if hi is not None and hi < 0:
        return False
    name, a, b = _affine(e)
    # a*i + b >= 0 changes its answer at this index.
    at = dims.mul(dims.floordiv(b, abs(a)), -1 if a > 0 else 1)
    _split(name, at if a > 0 else dims.add(at, 1))


def is_zero(e: Dim) -> bool:
    """Whether ``e == 0``; splits or unrolls the loop where it depends on the index."""
    answer = dims.is_equal(e, 0)
    if answer is not None:
        return answer
    name, a, b = _affine(e)
    if isinstance(b, int) and b % a:
        return False
    at = dims.mul(dims.floordiv(b, abs(a)), -1 if a > 0 else 1)
    _split(name, at, dims.add(at, 1))
