"""Random programs of the Array face: plain NumPy code around views and writes."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.fuzz.draw import Draw, Live, is_small
from tests.fuzz.program import Arg, Program
from tests.fuzz.python_forms import PythonForms

_AUG = ("+=", "+=", "*=", "-=", "=", "=")


class NumpyProgram(PythonForms):
    """Writes one program; `make` is the whole of it."""

    def __init__(self, seed: int) -> None:
        self.draw = Draw(seed)
        self.args = self._arguments()
        self.live = Live({"np": np, **{a.name: a.make() for a in self.args}})
        self.statements: list[str] = []

    # -- arguments

    def _arguments(self) -> tuple[Arg, ...]:
        d = self.draw
        single = d.chance(0.15)
        out = []
        for k in range(d.between(1, 3)):
            dtype = "float64"
            if single:
                dtype = d.of("float32", "float32", "float64")
            elif k and d.chance(0.2):
                dtype = d.of("int64", "int32", "bool")
            order = d.of("C", "C", "C", "F", "strided", "reversed")
            out.append(Arg("xyz"[k], d.shape(), dtype, order, d.between(0, 99)))
        return tuple(out)

    # -- statements

    def statement(self) -> str:
        return self.draw.weighted(
            (
                (5, self.view),
                (4, self.binding),
                (2, self.buffer),
                (7, self.write),
                (3, self.alias),
                (3, self.shift),
                (2, self.element),
                (2, self.swap),
                (2, self.mask),
                (3, self.gather),
                (3, self.loop),
                (1, self.out),
                (2, self.regroup),
                (1, self.joined),
                (1, self.product),
                (2, self.rows),
                (1, self.unpacked),
                (2, self.helper),
                (2, self.container),
                (2, self.pieces),
                (3, self.rearranged),
                (3, self.poured),
            )
        )

    def view(self) -> str:
        d = self.draw
        name = self.array()
        shape = self.shape(name)
        rank = len(shape)
        forms = [
            f"{name}.T",
            f"{name}[...]",
            f"{name}.reshape(-1)",
            f"{name}.ravel()",
            f"np.squeeze({name})",
            f"np.expand_dims({name}, {d.between(0, rank)})",
            f"np.transpose({name})",
            f"{name}[()]",
            f"{name}.copy()",
            f"{name}.flatten()",
            f"np.broadcast_to({name}, {(2, *shape)})",
            f"np.atleast_2d({name})",
        ]
        if rank:
            forms += [f"np.flip({name}, {d.between(0, rank - 1)})", f"{name}[::-1]"]
        if rank >= 2:
            forms += [
                f"{name}.swapaxes(0, {rank - 1})",
                f"np.moveaxis({name}, 0, -1)",
                f"{name}.T.reshape(-1)",
                f"{name}.diagonal()",
            ]
        text = f"{name}[{d.basic(shape)}]" if rank and d.chance(0.6) else d.pick(forms)
        return f"{self.live.fresh()} = {text}"

    def regroup(self) -> str:
        d = self.draw
        name = self.array()
        size = int(self.live.names[name].size)
        factors = [(size,), (1, size)] + [(k, size // k) for k in (2, 3, 4) if size % k == 0]
        order = ", order='F'" if d.chance(0.2) else ""
        source = name if d.chance(0.6) else f"{name}.T"
        return f"{self.live.fresh()} = {source}.reshape({d.pick(factors)}{order})"

    def binding(self) -> str:
        return f"{self.live.fresh()} = {self.expression(2)}"

    def buffer(self) -> str:
        d = self.draw
        name = self.array()
        shape = self.shape(name) if d.chance(0.6) else d.shape()
        text = d.of(
            f"np.zeros({shape})",
            f"np.ones({shape})",
            f"np.zeros_like({name})",
            f"np.full({shape}, 0.5)",
            f"np.zeros({shape}, order='F')",
            f"np.empty_like({name})",
            f"np.arange({d.between(0, 4)}) * 0.5",
            f"np.zeros({shape}, dtype=np.float32)",
            f"np.ones({shape}, dtype=int)",
        )
        variable = self.live.fresh("b")
        made = f"{variable} = {text}"
        return f"{made}; {variable}[...] = {d.number()}" if "empty" in text else made

    def write(self, names: tuple[str, ...] = ()) -> str:
        d = self.draw
        name = d.pick(names) if names else self.target()
        shape = self.shape(name)
        place = f"{name}[{d.basic(shape)}]" if shape or d.chance(0.9) else f"{name}[()]"
        part = self.live.value(place)
        value = self.fitting(np.shape(part), d.between(0, 2))
        return f"{place} {d.pick(_AUG)} {value}"

    def alias(self) -> str:
        d = self.draw
        name = self.target()
        if d.chance(0.15):
            scalars = [k for k, v in self.live.names.items() if isinstance(v, np.generic)]
            name = d.pick(scalars or [name])
        op = d.of("+=", "*=", "-=")
        return f"{name} {op} {self.fitting(np.shape(self.live.names[name]), d.between(0, 2))}"

    def shift(self) -> str:
        d = self.draw
        name = self.target(1)
        rank = len(self.shape(name))
        op = d.pick(_AUG)
        lead = "" if rank < 2 or d.chance(0.5) else ":, "
        right, left = f"{name}[{lead}1:]", f"{name}[{lead}:-1]"
        forms = [
            f"{right} {op} {left}",
            f"{left} {op} {right}",
            f"{name}[:] {op} {name}[::-1]",
            f"{name}[::-1] {op} {name}",
            f"{right} {op} 0.5 * {left} + {right}",
            f"{name}[::2] {op} {name}[:-1:2]",
        ]
        if rank == 2:
            forms += [f"{name}[...] {op} {name}.T", f"{name}.T[...] {op} {name}"]
        return d.pick(forms)

    def at(self, name: str) -> str:
        return ", ".join(str(self.draw.between(-n, n - 1)) for n in self.shape(name))

    def element(self) -> str:
        """An element kept across a write of the place it came from."""
        d = self.draw
        name = self.target(1)
        kept, place = self.live.fresh("s"), f"{name}[{self.at(name)}]"
        write = d.of(
            f"{place} = {d.number()}",
            f"{place} += {kept}",
            f"{name} *= 0.5",
            f"{kept} += 1.0",
            f"{kept} *= {place}",
        )
        return f"{kept} = {place}\n{write}"

    def swap(self) -> str:
        d = self.draw
        name = self.target(1)
        n = self.shape(name)[0]
        i, j = d.between(-n, n - 1), d.between(-n, n - 1)
        if d.chance(0.5):
            t = self.live.fresh("t")
            return f"{t} = {name}[{i}]\n{name}[{i}] = {name}[{j}]\n{name}[{j}] = {t}"
        return f"{name}[{i}], {name}[{j}] = {name}[{j}], {name}[{i}]"

    def mask(self) -> str:
        d = self.draw
        name = self.target(1)
        shape = self.shape(name)
        if d.chance(0.35):
            bits = [d.chance(0.5) for _ in range(shape[0])]
            mask = f"np.array({bits}, dtype=bool)"
        else:
            mask = d.of(f"{name} > 0.2", f"np.sin({name}) < {d.number()}")
            others = [k for k in self.arrays(1) if self.shape(k) == shape]
            mask = f"{d.pick(others)} > 0.1" if d.chance(0.4) else mask
            if d.chance(0.3):
                bound = self.live.fresh("m")
                return (
                    f"{bound} = {mask}\n{name}[{bound}] = "
                    f"{d.pick(others)}[{bound}] * {name}[{bound}]"
                )
        return f"{name}[{mask}] {d.pick(_AUG)} {d.number()}"

    def indices(self, n: int) -> str:
        d = self.draw
        rows = [d.between(-n, n - 1) for _ in range(d.between(1, 4))]
        return f"{rows}" if d.chance(0.6) else f"np.array({rows})"

    def gather(self) -> str:
        d = self.draw
        name = self.target(1)
        shape = self.shape(name)
        index = self.indices(shape[0])
        if len(shape) >= 2 and d.chance(0.3):
            index = d.of(
                f"{index}, {d.slice(shape[1])}",
                f":, {self.indices(shape[1])}",
                f"{index}, {d.between(0, shape[1] - 1)}",
            )
        place = f"{name}[{index}]"
        if d.chance(0.3):
            return f"{self.live.fresh()} = {place}"
        value = self.fitting(np.shape(self.live.value(place)), d.between(0, 1))
        if d.chance(0.3):
            return f"np.add.at({name}, {index if ',' not in index else f'({index})'}, {value})"
        return f"{place} {d.pick(_AUG)} {value}"

    def loop(self) -> str:
        d = self.draw
        if d.chance(0.4):
            name = self.target(1)
            n = self.shape(name)[0]
            step = d.of(
                f"{name}[i] = 0.5 * {name}[i - 1] + {name}[i]",
                f"{name}[i] += {name}[i - 1] * {d.number()}",
                f"{name}[{n - 1} - i] *= np.sin({name}[i])",
            )
            return f"for i in range(1, {n}):\n    {step}"
        body = [
            d.of(self.write, self.shift, self.alias, self.swap)() for _ in range(d.between(1, 2))
        ]
        lines = [line for text in body for line in text.split("\n")]
        return "\n".join([f"for _ in range({d.between(0, 3)}):", *(f"    {x}" for x in lines)])

    def out(self) -> str:
        d = self.draw
        name = self.target(1)
        place = d.of(name, f"{name}[1:]", f"{name}[::-1]", f"{name}[:-1]")
        a = self.fitting(np.shape(self.live.value(place)), 1)
        b = self.fitting(np.shape(self.live.value(place)), 0)
        return f"np.{d.of('add', 'multiply', 'subtract')}({a}, {b}, out={place})"

    def joined(self) -> str:
        d = self.draw
        a, b = self.array(), self.array()
        of = d.of(
            "np.concatenate(({}, {}))",
            "np.stack(({}, {}))",
            "np.stack(({}, {}), axis=-1)",
            "np.concatenate(({}, {}), axis=-1)",
            "np.outer({}, {})",
            "np.where({} > 0, {}, 0)",
        )
        return f"{self.live.fresh()} = {of.format(a, b)}"

    def product(self) -> str:
        a, b = self.array(1), self.array(1)
        return f"{self.live.fresh()} = {self.draw.of('{} @ {}', '{} @ {}.T', '{}.T @ {}')}".format(
            a, b
        )

    # -- the whole

    def append(self, statement: str) -> bool:
        """Keep a statement if it runs and leaves moderate numbers behind."""
        held = {k: v for k, v in self.live.names.items() if k != "__builtins__"}
        try:
            self.live.run(statement)
        except Exception:
            # A failed block may have written: start over from the arguments.
            self._replay()
            return False
        values = [v for v in self.live.names.values() if isinstance(v, (np.ndarray, np.generic))]
        if all(
            is_small(v) and v.size <= 64 and v.ndim <= 4 and v.dtype.kind in "fiub" for v in values
        ):
            self.statements.append(statement)
            return True
        self.live.names = held
        self._replay()
        return False

    def _replay(self) -> None:
        self.live.names = {"np": np, **{a.name: a.make() for a in self.args}}
        for statement in self.statements:
            self.live.run(statement)

    def make(self) -> Program:
        d = self.draw
        wanted = d.between(2, 9)
        for _ in range(6 * wanted):
            if len(self.statements) == wanted:
                break
            try:
                statement = self.statement()
            except (IndexError, ValueError):
                continue  # nothing there that the statement needs
            self.append(statement)
        if d.chance(0.05):
            self.statements.append(self._mistake())
        return Program(self.args, tuple(self.statements), self._results())

    def _mistake(self) -> str:
        d = self.draw
        name = self.target()
        n = len(self.shape(name))
        return d.of(
            f"{name}[{', '.join(['9'] * max(n, 1))}] = 0.0",
            f"e = np.sum({name}, axis=7)",
            f"{name} += np.ones((5, 7))",
            f"e = {name}.reshape(7, 11)",
            f"np.broadcast_to({name}, {(2, *self.shape(name))})[0] = 1.0",
            f"e = np.concatenate(({name}, np.ones((2, 5, 1, 1, 1))))",
            f"e = {name} @ np.ones((9, 2))",
            f"{name}[..., ...] = 0.0",
        )

    def _results(self) -> tuple[str, ...]:
        d = self.draw
        names: list[Any] = [
            k for k, v in self.live.names.items() if isinstance(v, (np.ndarray, np.generic))
        ]
        chosen = [k for k in names if d.chance(0.6)] or names[-1:]
        return tuple(chosen)


def make(seed: int) -> Program:
    return NumpyProgram(seed).make()
