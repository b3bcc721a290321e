"""The passes of ``opt``: names on the command line, and what each turns into what."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tracegrad.cli.failure import CommandError
from tracegrad.graph.ir import Graph
from tracegrad.loops.program import Program

Unit = Graph | Program | str


@dataclass(frozen=True, slots=True)
class Pass:
    """`run(unit, numbers)` with the numbers after the colon; `takes` is Graph or Program."""

    name: str
    about: str
    run: Callable[[Any, tuple[int, ...]], Unit]
    takes: type = Graph
    wants_inputs: bool = False


def apply(spelled: str, unit: Unit) -> Unit:
    """The unit that the pass `spelled` (as ``vjp:0,2``) makes of `unit`.

    Raises:
        CommandError: an unknown pass, arguments that it does not take, the wrong kind of unit.
    """
    name, colon, listed = spelled.partition(":")
    known = next((p for p in PASSES if p.name == name), None)
    if known is None:
        raise CommandError(
            f"unknown pass {name!r}", remedy=f"Passes are: {', '.join(p.name for p in PASSES)}."
        )
    if bool(colon) != known.wants_inputs:
        wants = f"{name}:0 or {name}:0,2" if known.wants_inputs else name
        raise CommandError(f"pass {spelled!r} is written {wants}")
    if not isinstance(unit, known.takes):
        kinds = {Graph: "a graph", Program: "a loop program", str: "C text"}
        raise CommandError(f"pass {name} takes {kinds[known.takes]}, not {kinds[type(unit)]}")
    return known.run(unit, _input_numbers(spelled, listed, unit) if colon else ())


def _input_numbers(spelled: str, listed: str, unit: Unit) -> tuple[int, ...]:
    try:
        numbers = tuple(int(word) for word in listed.split(","))
    except ValueError:
        raise CommandError(f"pass {spelled!r}: inputs are numbers, as in vjp:0,2") from None
    count = len(unit.inputs) if isinstance(unit, Graph) else 0
    for k in numbers:
        if not 0 <= k < count:
            raise CommandError(f"pass {spelled!r}: the graph has inputs 0 to {count - 1}")
    return numbers


def _functionalize(graph: Graph, _: tuple[int, ...]) -> Unit:
    from tracegrad.aliasing.functionalize import functionalize
    from tracegrad.aliasing.pairs import real_graph

    return functionalize(real_graph(graph))


def _expand(graph: Graph, _: tuple[int, ...]) -> Unit:
    from tracegrad.pipeline import joint

    return joint(graph)


def _vjp(graph: Graph, wrt: tuple[int, ...]) -> Unit:
    from tracegrad.autodiff.vjp import vjp_graph

    return vjp_graph(graph, wrt)


def _value_and_grad(graph: Graph, wrt: tuple[int, ...]) -> Unit:
    from tracegrad.autodiff.vjp import vjp_graph

    if not graph.outputs or graph.outputs[0].type.shape or not graph.outputs[0].type.dtype.is_float:
        raise CommandError("value_and_grad takes a graph whose first output is a float scalar")
    seeds = [1.0, *[None] * (len(graph.outputs) - 1)]
    return vjp_graph(graph, wrt, seeds=seeds)


def _jvp(graph: Graph, wrt: tuple[int, ...]) -> Unit:
    from tracegrad.autodiff.jvp import jvp_graph

    return jvp_graph(graph, wrt)


def _simplify(graph: Graph, _: tuple[int, ...]) -> Unit:
    from tracegrad.rewrite.driver import simplify

    return simplify(graph)


def _cse(graph: Graph, _: tuple[int, ...]) -> Unit:
    from tracegrad.rewrite.driver import cse

    return cse(graph)


def _dce(graph: Graph, _: tuple[int, ...]) -> Unit:
    from tracegrad.rewrite.cleanup import remove_dead

    return remove_dead(graph)


def _drop_grafts(graph: Graph, _: tuple[int, ...]) -> Unit:
    from tracegrad.rewrite.cleanup import drop_grafts

    return drop_grafts(graph)


def _schedule(graph: Graph, _: tuple[int, ...]) -> Unit:
    from tracegrad.schedule.plan import make_plan

    return make_plan(graph).program


def _emit(program: Program, _: tuple[int, ...]) -> Unit:
    from tracegrad.codegen.unit import render

    return render(program, shim=False, embed_all=True).text


PASSES = (
    Pass("functionalize", "views become reads, writes become new values", _functionalize),
    Pass("expand", "write the transforms inside the graph out", _expand),
    Pass("vjp", "append the cotangents of the inputs named", _vjp, wants_inputs=True),
    Pass(
        "value_and_grad",
        "append the gradient of output 0 with respect to the inputs named",
        _value_and_grad,
        wants_inputs=True,
    ),
    Pass("jvp", "append the tangents of the outputs", _jvp, wants_inputs=True),
    Pass("drop-grafts", "once gradients are taken: remove what only they needed", _drop_grafts),
    Pass("simplify", "all rewriting rules, equal nodes merged, dead ones removed", _simplify),
    Pass("cse", "merge equal nodes", _cse),
    Pass("dce", "remove nodes without use", _dce),
    Pass("schedule", "graph to loop program", _schedule),
    Pass("emit", "loop program to C", _emit, takes=Program),
)
