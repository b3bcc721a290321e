"""Every exception and warning of tracegrad.

Each error derives from `TracegradError` and from what NumPy, Python or PyTorch would raise in
the same place, so that ``except ValueError`` keeps working.  Each carries

- ``kind``: a stable identifier, fit for a program to test;
- ``loc``: the user's line (`tracegrad.source.SourceLoc`), quoted with a caret in the text;
- ``remedy``: what to write instead.
"""

from __future__ import annotations

from typing import Protocol


class Location(Protocol):
    """What an error needs to know of a place in the user's source."""

    def quote(self) -> str:
        """The place, its line and a caret, each line indented by two spaces."""


class TracegradError(Exception):
    """Base of all errors.  ``str(e)`` is message, quoted line, notes, remedy."""

    kind = "error"

    def __init__(
        self,
        message: str,
        *,
        loc: Location | None = None,
        remedy: str = "",
        kind: str | None = None,
        notes: tuple[tuple[str, Location | None], ...] = (),
    ) -> None:
        super().__init__(message)
        self.message = message
        self.loc = loc
        self.remedy = remedy
        self.notes = notes
        if kind is not None:
            self.kind = kind

    def at(self, loc: Location | None) -> TracegradError:
        """This error, placed at `loc` unless it already knows its place."""
        if self.loc is None:
            self.loc = loc
        return self

    def __str__(self) -> str:
        parts = [self.message]
        if self.loc is not None:
            parts.append(self.loc.quote())
        for text, loc in self.notes:
            parts.append("  " + text)
            if loc is not None:
                parts.append(loc.quote())
        if self.remedy:
            parts.append("  " + self.remedy)
        return "\n".join(parts)


class ShapeError(TracegradError, ValueError):
    """Shapes do not fit together."""

    kind = "shape"


class DTypeError(TracegradError, TypeError):
    """A dtype is not supported, or a result cannot be stored in the dtype of its target."""

    kind = "dtype"


class OutOfRangeError(TracegradError, OverflowError):
    """A Python integer does not fit the integer dtype it meets."""

    kind = "integer_range"


class IndexingError(TracegradError, IndexError):
    """An index is out of range or of the wrong form."""

    kind = "index"


class AxisError(TracegradError, ValueError, IndexError):
    """An axis is out of range or given twice; the bases are those of NumPy's AxisError."""

    kind = "axis"


class ArgumentError(TracegradError, TypeError):
    """An argument of a compiled function or of a tracegrad function is not acceptable."""

    kind = "argument"


class ValueArgumentError(TracegradError, ValueError):
    """An argument has the right type and a value that cannot be used (argnums, axis ...)."""

    kind = "argument_value"


class OptionError(TracegradError, TypeError):
    """An unknown option, or an option with an unknown value."""

    kind = "option"


class ConcretizationError(TracegradError, TypeError):
    """Python asked for the value of a traced array (`if`, `bool`, `int`, `float`, `item`)."""

    kind = "concretization"


class DataDependentShapeError(TracegradError, IndexError):
    """The shape of a result would depend on traced values."""

    kind = "data_dependent_shape"


class UnsupportedError(TracegradError, NotImplementedError, TypeError):
    """A function, method or dtype that tracegrad does not know; refused by name."""

    kind = "unsupported"


class MissingAttributeError(TracegradError, AttributeError):
    """A traced value has no such attribute or method."""

    kind = "attribute"


class EscapeError(TracegradError, TypeError):
    """A traced value reached code that needs a real array or number."""

    kind = "escape"


class LeakedTracerError(TracegradError, RuntimeError):
    """A traced value was used after its trace, or outside the transform that made it."""

    kind = "leaked_tracer"


class CaptureError(TracegradError, RuntimeError):
    """Something outside the arguments was read or written in a way a trace cannot follow."""

    kind = "unknown_capture"


class ImpureCallError(TracegradError, RuntimeError):
    """Traced code called a function whose result changes from call to call."""

    kind = "impure_call"


class TraceRecursionError(TracegradError, RecursionError):
    """The traced function calls itself without end."""

    kind = "recursion"


class GradientError(TracegradError, TypeError):
    """A gradient was asked for that does not exist."""

    kind = "gradient"


class ViewMutationError(TracegradError, RuntimeError):
    """A write, or the use of a view, that PyTorch's autograd rules forbid.

    ``kind`` is one of the kinds of the views specification (`no_grad_view_inplace`,
    `multi_output_view_inplace`, `overlap`, ...).  ``direct`` is true when the view itself is
    being written, false when it is used after its base or another view of it was written.
    """

    kind = "view_mutation"

    def __init__(
        self,
        message: str,
        *,
        direct: bool = True,
        op_name: str = "",
        output_nr: int = 0,
        **keywords,
    ) -> None:  # type: ignore[no-untyped-def]
        super().__init__(message, **keywords)
        self.direct = direct
        self.op_name = op_name
        self.output_nr = output_nr


class AutogradError(TracegradError, RuntimeError):
    """An eager gradient, hook or flag that PyTorch refuses; ``kind`` says which
    (``no_grad_fn``, ``backward_twice``, ``saved_modified``, ``hook_no_grad``, ...)."""

    kind = "autograd"


class RuntimeIndexError(TracegradError, IndexError):
    """An index computed at run time was out of range; no argument has been written."""

    kind = "out_of_bounds"


class RuntimeValueError(TracegradError, ValueError):
    """A value computed at run time is outside the domain of an operation."""

    kind = "runtime_value"


class RuntimeMemoryError(TracegradError, MemoryError):
    """There was no memory for what a loop keeps of each iteration; no argument has been written."""

    kind = "out_of_memory"


class MemoryLimitError(TracegradError, MemoryError):
    """`Options(memory_limit=...)` cannot be kept; the text names the smallest limit that can."""

    kind = "memory_limit"


class ParseError(TracegradError, ValueError):
    """Text IR, or a spec such as ``f8[n,3]``, does not parse."""

    kind = "parse"


class VerifyError(TracegradError, AssertionError):
    """An internal invariant of a graph or a kernel does not hold; carries the text around it."""

    kind = "verify"


class ToolchainError(TracegradError, RuntimeError):
    """The compiler is missing or failed; carries tool, flags and the user's line.

    ``stderr`` is what the tool said, ``source`` the path where the text it was given is kept,
    ``line`` the first line of that text it complained about.
    """

    kind = "toolchain"

    def __init__(
        self,
        message: str,
        *,
        tool: str = "",
        flags: tuple[str, ...] = (),
        stderr: str = "",
        source: str = "",
        line: int | None = None,
        **keywords,
    ) -> None:  # type: ignore[no-untyped-def]
        super().__init__(message, **keywords)
        self.tool = tool
        self.flags = flags
        self.stderr = stderr
        self.source = source
        self.line = line


class ExportError(TracegradError, ValueError):
    """`tg.export` cannot write what was asked."""

    kind = "export"


class GradientCheckError(TracegradError, AssertionError):
    """`tg.check_grads` found a derivative that disagrees with finite differences."""

    kind = "check_grads"


class TracegradWarning(UserWarning):
    """Base of all warnings; ``kind`` names it, the frame is the user's."""

    kind = "warning"


class RecompileWarning(TracegradWarning):
    """A function keeps being specialised anew."""

    kind = "recompile"


class PerformanceWarning(TracegradWarning):
    """Something will be slower than it needs to be."""

    kind = "performance"


class GradientWarning(TracegradWarning):
    """A gradient is zero or absent where one might expect it."""

    kind = "gradient"


class NoCompilerWarning(TracegradWarning):
    """No C compiler was found; the NumPy reference runs instead."""

    kind = "no_compiler"
