"""`export`: a compiled function as C source and a header, which need no Python to run."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from tracegrad.aot.export import check_memory, export_program
from tracegrad.aot.view import Signature
from tracegrad.compiled import BoundCompiled, CompiledFunction, compile
from tracegrad.errors import ExportError
from tracegrad.loops.interpret import run_program
from tracegrad.loops.program import Place
from tracegrad.spec import spec
from tracegrad.specialise import Specialisation
from tracegrad.trace.signature import Kind


def export(
    f: Callable[..., Any],
    specs: Sequence[spec | str | np.ndarray],
    path: str | os.PathLike[str],
    *,
    name: str | None = None,
    overwrite: bool = False,
    version: str = "0.1.0",
) -> Path:
    """Write `f` (a function, a compiled one, or a transform) for arguments like `specs` as C99.

    In place of a spec an array (or NumPy scalar) may be given: the example then runs on its values,
    otherwise on random ones.

    The folder `path` receives ``name.c``, ``name.h``, an example program with test vectors, a
    Makefile, a README and a manifest.  Arguments that `f` writes are written in the caller's
    arrays by the C function too.  Needs no compiler.

    Raises:
        ExportError: arguments or results that are not arrays, captured arrays, a name that C
            cannot have, a folder that is in use.
    """
    if isinstance(f, BoundCompiled) or not callable(f):
        raise ExportError(
            "export needs a function, not a bound method",
            remedy="Export a function that calls the method.",
        )
    owner = f if isinstance(f, CompiledFunction) else compile(f)
    rng = np.random.default_rng(0)
    chosen: list[spec] = []
    values: list[Any] = []
    given: Sequence[Any] = specs
    for s in given:
        is_value = isinstance(s, (np.ndarray, np.generic))
        made_of = spec(s.shape, s.dtype) if is_value else spec.parse(s) if isinstance(s, str) else s
        if not isinstance(made_of, spec):
            raise ExportError(
                f"specs[{len(chosen)}] is of type {type(s).__name__}",
                remedy="Give for each argument an array, a tg.spec(shape), or text "
                'such as "f8[3]".',
            )
        chosen.append(made_of)
        values.append(s if is_value else made_of.example(rng))
    args = tuple(values)
    call = owner._signature.describe(args, {})
    call = replace(
        call,
        leaves=tuple(
            replace(leaf, name=s.name) if s.name else leaf
            for leaf, s in zip(call.leaves, chosen, strict=True)
        ),
    )
    # One thread: exported loops run in order, and need no memory for more.
    made = Specialisation(owner.fn, call, replace(owner.options, copy_outputs=True, threads=1))
    _check_exportable(made, owner._signature.name)
    program = made.lowering.plan.program
    check_memory(program)
    inputs = [np.array(x) for x in args]
    outputs = [np.zeros(_shape(b.shape), b.dtype.np) for b in program.at(Place.OUTPUT)]
    flat = [x.reshape(-1).copy() for x in inputs]
    status, _ = run_program(program, flat, [o.reshape(-1) for o in outputs])
    if status:
        raise ExportError(
            "the function stops with an error on the sample arguments",
            remedy="Integer arguments are sampled in 0..2.",
        )
    title = (
        owner._signature.name
        + "("
        + ", ".join(f"{leaf.name}: {s}" for leaf, s in zip(call.leaves, chosen, strict=True))
        + ")"
    )
    return export_program(
        program,
        Signature(title),
        path,
        name or owner._signature.name,
        inputs,
        outputs,
        version=version,
        overwrite=overwrite,
    )


def _shape(shape: Sequence[Any]) -> tuple[int, ...]:
    return tuple(int(n) for n in shape)


def _check_exportable(made: Specialisation, name: str) -> None:
    graph = made.traced.graph
    for x in (*graph.inputs, *graph.outputs):
        if x.type.dtype.is_complex:
            raise ExportError(
                f"{name} takes or returns {x.type.dtype.np} arrays",
                remedy="Export a function of real arrays with a last axis of 2: "
                "z = x.view(np.complex128)[..., 0].",
            )
    outside = made.traced.outside
    if outside.arrays:
        raise ExportError(
            f"{name} reads {outside.arrays[0].path}, an array outside its arguments",
            remedy="Pass it as an argument.",
        )
    for o in made.traced.outputs:
        if o.index is None and o.value is not None and o.kind is Kind.STATIC:
            raise ExportError(
                f"{name} returns {o.value!r}, which is not an array",
                remedy="Return arrays and numbers that depend on the arguments.",
            )
