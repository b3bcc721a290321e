"""`Recorder`: what tracing and running at the prompt share, which is all tracking of aliases.

Two recorders derive from it: `trace.tracer.Trace` writes a graph down, `eager.recorder.EagerTrace`
computes at once and keeps gradient nodes.  Which write is legal, which view is of which kind and
what requires a gradient is decided here and in `tracegrad.views`, once for both.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from tracegrad import source
from tracegrad.errors import GradientWarning, UnsupportedError, ViewMutationError
from tracegrad.graph.ir import Literal, Operand
from tracegrad.graph.op import Attrs, NoGradient, OpDef
from tracegrad.graph.storage import Geometry, Step, Strided, View, advance
from tracegrad.ops.handles import copy
from tracegrad.ops.views import as_strided
from tracegrad.trace.memory import Tracer
from tracegrad.trace.modes import STATE, is_tracking
from tracegrad.views import family, legality
from tracegrad.views.family import Alias, CreationKind


class Recorder(ABC):
    """Makes tracers of class `face` and knows what may be done to them."""

    # Whether operations run at once, on arrays that are all known.
    eager: ClassVar[bool] = False
    face: type[Tracer]
    open: bool = True  # a trace that is over records no more
    exact_views: bool = False
    # Refuse writes whose operands overlap the target, as PyTorch does (of the outermost recorder).
    strict: bool = False
    parent: Any = None
    names: Any = None
    lookup_array: Callable[[np.ndarray], Tracer | None] | None = None

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        """``x.trace()`` of user code finds the recorder, not the array's method of that name."""
        numpy = self.face.numpy_scalars  # type: ignore[attr-defined]
        raise UnsupportedError(
            f"{'ndarray' if numpy else 'Tensor'}.trace() is not supported",
            loc=source.here(),
            remedy=f"Write {'np.trace(x)' if numpy else 'x.diagonal().sum()'}.",
        )

    # -- what each recorder does in its own way

    @abstractmethod
    def place(self) -> source.SourceLoc | None:
        """The user's current line, stamped on what is recorded next."""

    @abstractmethod
    def lift(self, x: Tracer) -> Tracer:
        """`x` as a tracer of this recorder."""

    @abstractmethod
    def concrete(
        self, array: np.ndarray | float | int, *, scalar: bool = False, weak: bool = False
    ) -> Tracer:
        """A new array with these contents; the caller's memory stays apart."""

    @abstractmethod
    def apply(
        self,
        op: OpDef,
        operands: Sequence[Tracer | Literal],
        attrs: Attrs | None = None,
        *,
        hint: str = "",
        layout: tuple[int, ...] | None = None,
        scalar: bool = False,
        weak: bool = False,
    ) -> Any:
        """A pure op; returns a tracer of its fresh result, or a tuple of several."""

    @abstractmethod
    def compose(
        self,
        build: Callable[..., Operand],
        operands: Sequence[Tracer | Literal],
        *,
        hint: str = "",
        scalar: bool = False,
        weak: bool = False,
    ) -> Tracer:
        """What ``build(builder, *operands)`` makes of several ops; one result."""

    @abstractmethod
    def embed(self, x: Tracer) -> Tracer:
        """The contents of `x`, which are known, as a value of the recording."""

    @abstractmethod
    def detach_in_place(self, x: Tracer) -> None:
        """PyTorch's ``detach_`` of a base; views taken before follow it from the next write on."""

    @abstractmethod
    def _view(
        self,
        x: Tracer,
        alias: Alias,
        layout: Geometry,
        steps: tuple[Step, ...],
        output: int,
        readonly: bool,
    ) -> Tracer: ...

    @abstractmethod
    def _strided(self, x: Tracer, alias: Alias, layout: Geometry) -> Tracer: ...

    @abstractmethod
    def _detached(self, x: Tracer, alias: Alias) -> Tracer: ...

    @abstractmethod
    def _write(
        self,
        target: Tracer,
        op: OpDef,
        xs: Sequence[Tracer | Literal],
        attrs: Attrs,
        tracked: bool,
    ) -> None:
        """Do the write, and `family.record_write`."""

    def _refresh(self, x: Tracer) -> None:  # noqa: B027 (a graph needs none)
        """Bring the history of a view up to date after writes to its family."""

    def mark(self) -> int:
        """A place in the recording, for `check_saved`."""
        return 0

    def check_saved(self, first: int, operands: Sequence[Any]) -> None:  # noqa: B027 (at the
        # prompt saving is checked when it happens)
        """Refuse inference tensors among `operands` that what was recorded since `first` keeps
        for its backward."""

    # -- reading and views

    def read(
        self,
        x: Tracer,
        *steps: Step,
        layout: tuple[int, ...] | None = None,
        scalar: bool = False,
        weak: bool = False,
    ) -> Tracer:
        """The elements of `x` that the steps select, copied now into a storage of their own."""
        chain = View().then(*steps, base=x.sizes)
        if not chain:
            return self.apply(  # type: ignore[no-any-return]
                copy, (x,), layout=layout, scalar=scalar, weak=weak
            )
        hint = x.memory.base.hint if x.memory.base is not None else ""
        return self.apply(  # type: ignore[no-any-return]
            as_strided,
            (x,),
            as_strided.attrs(chain),
            hint=hint,
            layout=layout,
            scalar=scalar,
            weak=weak,
        )

    def view(
        self,
        x: Tracer,
        *steps: Step,
        origin: str = "view",
        output: int = -1,
        readonly: bool = False,
    ) -> Tracer:
        """A handle into the storage of `x`; the caller has checked that no copy is needed.

        `output` >= 0 marks one of the several views of a multi-output call.
        """
        loc = self.place()
        x = self.lift(x)
        self._check_use(x)
        alias = family.view_of(
            x.alias,
            steps,
            grad=is_tracking(),
            inference=STATE.inference,
            multi_output=output >= 0,
            op_name=origin,
            output_nr=max(output, 0),
            loc=loc,
        )
        layout = x.layout
        for step in steps:
            stepped = advance(layout, step)
            assert stepped is not None, "a view was asked for where a copy is needed"
            layout = stepped
        return self._view(x, alias, layout, steps, output, readonly or x.readonly)

    def strided(
        self, x: Tracer, size: tuple[int, ...], stride: tuple[int, ...], offset: int
    ) -> Tracer:
        """PyTorch's ``as_strided``: a view of the storage of `x`, `offset` counted from its
        start, whatever part of it `x` is.  The caller has checked that it lies inside."""
        loc = self.place()
        x = self.lift(x)
        self._check_use(x)
        if x.alias.ruled:
            raise UnsupportedError(
                "as_strided() of a view that a custom Function returned",
                loc=loc,
                remedy="Take it of a clone() of that view.",
            )
        step = Strided(size, stride, offset)
        alias = family.view_of(
            x.alias,
            (),
            grad=is_tracking(),
            inference=STATE.inference,
            op_name="as_strided",
            loc=loc,
        )
        alias.view = View().then(step, base=x.memory.shape)
        return self._strided(x, alias, Geometry(offset, size, stride))

    def detach(self, x: Tracer) -> Tracer:
        """The same elements as a tensor without history (PyTorch's ``detach``)."""
        loc = self.place()
        x = self.lift(x)
        return self._detached(x, family.detached(x.alias, loc))

    # -- writes

    def write(
        self,
        target: Tracer,
        op: OpDef,
        operands: Sequence[Tracer | Literal],
        attrs: Attrs | None = None,
        *,
        allow_overlap: bool = False,
    ) -> None:
        """Write the value of ``op(operands)`` (exactly `target`'s type) through `target`."""
        self.place()
        target = self.lift(target)
        attrs = op.attrs() if attrs is None else attrs
        xs = [self.lift(x) if isinstance(x, Tracer) else x for x in operands]
        self.check_write(target, xs, allow_overlap=allow_overlap)
        tracked = self._use(op, [x for x in xs if x is not target]) or (
            is_tracking() and target.alias.requires_grad
        )
        self._write(target, op, xs, attrs, tracked)

    def _is_strict(self) -> bool:
        outermost: Any = self
        while outermost.parent is not None:
            outermost = outermost.parent
        return bool(outermost.strict)

    def check_write(
        self, target: Tracer, operands: Sequence[Tracer | Literal], *, allow_overlap: bool = False
    ) -> None:
        """PyTorch's checks before an in-place op, in its order (kinds, then overlap)."""
        tracked = target.alias.requires_grad or any(
            isinstance(x, Tracer) and x.alias.requires_grad for x in operands
        )
        loc, grad = self.place(), is_tracking()
        legality.check_inference_write(target.alias, STATE.inference, loc)
        legality.check_write(target.alias, tracked, grad, loc, self.exact_views)
        if grad and tracked:
            self._refresh(target)
            legality.check_leaf(target.alias, tracked, grad, loc)
        if target.scalar:
            raise ViewMutationError(
                "a scalar cannot be written in place",
                kind="scalar_inplace",
                loc=loc,
                remedy="Write x[i:i+1] or x[i, ...] instead of x[i].",
            )
        strict = self._is_strict()
        if not allow_overlap or strict:
            legality.check_overlap(target.alias, loc)
        for x in operands if strict else ():
            if isinstance(x, Tracer) and x is not target:
                legality.check_operand(target.alias, x.alias, loc)

    # -- use

    def _use(self, op: OpDef, xs: Sequence[Tracer | Literal]) -> bool:
        """Check operands of a differentiable op; True when the result requires a gradient."""
        if not is_tracking() or isinstance(op.derivative, NoGradient):
            return False
        tracked = False
        for x in xs:
            if isinstance(x, Tracer) and x.concrete is None:
                self._check_use(x)
                tracked |= x.alias.requires_grad
        return tracked

    def _check_use(self, x: Tracer) -> None:
        """Refuse a restricted view whose family was written since."""
        alias = x.alias
        if not is_tracking() or x.concrete is not None:
            return
        if alias.precedes_leaf:
            source.warn(
                GradientWarning(
                    "a view taken before requires_grad_() on its base is used: no gradient flows "
                    "back through it; take the view afterwards"
                )
            )
        if alias.kind is CreationKind.DEFAULT:
            return
        loc = self.place()
        legality.check_use(alias, True, loc, self.exact_views)
        if alias.kind is CreationKind.NO_GRAD and alias.family.tracked:
            self._warn_no_grad(alias, loc)

    def _warn_no_grad(self, alias: Alias, loc: source.SourceLoc | None) -> None:
        """A view that claims a gradient and has none is being used."""
        source.warn(
            GradientWarning(
                "a view made inside no_grad is used with gradients on: it carries no gradient"
            )
        )
