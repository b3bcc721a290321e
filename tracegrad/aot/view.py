"""What the templates of an exported folder are filled with: one frozen model, made once."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tracegrad.codegen.unit import SourceUnit, comment_text
from tracegrad.dtypes import DType
from tracegrad.errors import ArgumentError, ExportError
from tracegrad.loops.program import Place, Program
from tracegrad.runtime.artifact import Leaf, as_leaf, leaf_of

_PER_LINE = 6
# Other compilers and machines round elementary functions in other ways; gradients add that up.
_TOLERANCE = {32: "1e-4", 64: "1e-9"}


@dataclass(frozen=True, slots=True)
class Signature:
    """What a person is told: `title` of the function, one text per input and output (or none)."""

    title: str
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ArrayView:
    """One array parameter; `values` are its sample values as a C initialiser."""

    name: str
    c_name: str
    c_type: str
    const: str
    macro: str
    type: str
    shape: tuple[int, ...]
    shape_text: str
    size: int
    room: int
    role: str
    note: str
    doc: str
    values: str
    comparison: str


@dataclass(frozen=True, slots=True)
class StatusView:
    code: int
    text: str


@dataclass(frozen=True, slots=True)
class ExportView:
    """Everything the templates may say."""

    name: str
    macro: str
    title: str
    version: str
    workspace: int
    prototype: str
    arguments: str
    inputs: tuple[ArrayView, ...]
    outputs: tuple[ArrayView, ...]
    statuses: tuple[StatusView, ...]

    @property
    def arrays(self) -> tuple[ArrayView, ...]:
        return self.inputs + self.outputs


def make_view(
    program: Program,
    signature: Signature,
    unit: SourceUnit,
    version: str,
    sample_inputs: Sequence[np.ndarray],
    sample_outputs: Sequence[np.ndarray],
) -> ExportView:
    """The model of `program`, whose C source is `unit`.

    Raises:
        ExportError: samples that do not fit the program.
    """
    inputs = [leaf_of(b) for b in program.at(Place.INPUT)]
    outputs = [leaf_of(b) for b in program.at(Place.OUTPUT)]
    prototype, names = _prototype(unit.header, program.name)
    assert len(names) == len(inputs) + len(outputs) + 1, "inputs, outputs and the workspace"
    in_names, out_names = names[: len(inputs)], names[len(inputs) : -1]
    samples = (
        _samples("input", inputs, sample_inputs),
        _samples("output", outputs, sample_outputs),
    )
    hints = [b.hint for b in (*program.at(Place.INPUT), *program.at(Place.OUTPUT))]
    notes = [*signature.inputs] or hints[: len(inputs)]
    out_notes = [*signature.outputs] or hints[len(inputs) :]
    macro = program.name.upper()
    macros = _macros(names[:-1])
    return ExportView(
        name=program.name,
        macro=macro,
        title=_in_comment(signature.title),
        version=version,
        workspace=program.arena_nbytes,
        prototype=prototype,
        arguments=", ".join(
            [f"tg_in_{n}" for n in in_names]
            + [f"tg_out_{n}" for n in out_names]
            + ["tg_ws" if program.arena_nbytes else "NULL"]
        ),
        inputs=tuple(map(_input_view, inputs, in_names, macros, notes, samples[0])),
        outputs=tuple(
            map(_output_view, outputs, out_names, macros[len(inputs) :], out_notes, samples[1])
        ),
        statuses=tuple(
            StatusView(code, _in_comment(site.message))
            for code, site in enumerate(program.checks, 1)
        ),
    )


def _macros(names: Sequence[str]) -> list[str]:
    """Upper-case names, numbered where two differ in case only."""
    upper = [n.upper() for n in names]
    return [n if upper.count(n) == 1 else f"{n}_{at}" for at, n in enumerate(upper)]


def _prototype(header: str, name: str) -> tuple[str, list[str]]:
    """The declaration of the public function, and the names of its parameters in order."""
    found = re.search(rf"^int\s+{name}\s*\(([^)]*)\)", header, re.MULTILINE)
    assert found is not None, "a header declares the function it is named by"
    # A qualifier of the parameter, not of its type; C++ does not know it.
    params = [" ".join(p.replace("restrict", " ").split()) for p in found[1].split(",")]
    params = [re.sub(r"\*\s+(?=\w)", "*", p) for p in params]
    indent = ",\n" + " " * (len(name) + 5)
    names = [re.findall(r"\w+", p)[-1] for p in params]
    return f"int {name}({indent.join(params)});", names


def _samples(what: str, leaves: Sequence[Leaf], values: Sequence[np.ndarray]) -> list[np.ndarray]:
    if len(values) != len(leaves):
        raise ExportError(f"{len(leaves)} sample {what}s needed, {len(values)} given")
    readable = [Leaf(leaf.name, leaf.dtype, leaf.shape) for leaf in leaves]
    try:
        return [as_leaf(leaf, value) for leaf, value in zip(readable, values, strict=True)]
    except ArgumentError as error:
        raise ExportError(f"sample {what}: {error.message}") from error


def _input_view(leaf: Leaf, c_name: str, macro: str, note: str, sample: np.ndarray) -> ArrayView:
    role = "input, also written" if leaf.written else "input"
    return _view(leaf, c_name, macro, role, note, sample, "" if leaf.written else "const ")


def _output_view(leaf: Leaf, c_name: str, macro: str, note: str, sample: np.ndarray) -> ArrayView:
    return _view(leaf, c_name, macro, "output", note, sample, "")


def _view(
    leaf: Leaf, c_name: str, macro: str, role: str, note: str, sample: np.ndarray, const: str
) -> ArrayView:
    size = int(np.prod(leaf.shape, dtype=np.int64))
    note = f": {_in_comment(note)}" if note else ""
    shape = " x ".join(map(str, leaf.shape)) or "one number"
    written = ", also written" if leaf.written else ""
    return ArrayView(
        name=leaf.name,
        c_name=c_name,
        c_type=leaf.dtype.c,
        const=const,
        macro=macro,
        type=leaf.describe(),
        shape=leaf.shape,
        shape_text=shape,
        size=size,
        room=max(1, size),  # C has no arrays of no elements
        role=role,
        note=note,
        doc=f"{leaf.dtype.c}, {shape}{written}{note}",
        values=initializer(sample, leaf.dtype),
        comparison=_comparison(leaf.dtype, c_name, sample),
    )


def _comparison(dtype: DType, c_name: str, sample: np.ndarray) -> str:
    """The C condition under which element ``i`` of an output is as expected."""
    got, want = f"tg_out_{c_name}[i]", f"tg_want_{c_name}[i]"
    if not dtype.is_float:
        return f"{got} == {want}"
    finite = np.abs(sample[np.isfinite(sample)].astype(np.float64))
    scale = repr(float(finite.max())) if finite.size else "0.0"
    return f"tg_agree((double){got}, (double){want}, {scale}, {_TOLERANCE[dtype.bits]})"


def _in_comment(text: str) -> str:
    """`text` on one line that cannot end a comment or a table cell."""
    return comment_text(text).replace("|", "/")


def initializer(array: np.ndarray, dtype: DType) -> str:
    """The elements of `array` as C constants that give exactly the same values."""
    words = [_literal(value, dtype) for value in array.reshape(-1)] or ["0"]
    lines = [words[i : i + _PER_LINE] for i in range(0, len(words), _PER_LINE)]
    return ",\n".join("    " + ", ".join(line) for line in lines)


def _literal(value: np.generic, dtype: DType) -> str:
    if dtype.is_bool:
        return str(int(value))
    if dtype.is_integer:
        number = int(value)
        if dtype.kind == "u":
            return f"UINT{dtype.bits}_C({number})"
        # The most negative number has no constant of its own type.
        is_least = number == -(2 ** (dtype.bits - 1))
        return (
            f"(-INT{dtype.bits}_C({-number - 1}) - 1)"
            if is_least
            else (f"INT{dtype.bits}_C({number})")
        )
    suffix = "f" if dtype.bits == 32 else ""
    if np.isnan(value):
        return "NAN"
    if np.isinf(value):
        return "INFINITY" if float(value) > 0 else "-INFINITY"
    # The shortest decimal that reads back as this value in this type.
    text = str(value)
    return text + suffix if any(c in text for c in ".e") else f"{text}.0{suffix}"
