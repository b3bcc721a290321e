"""Statements that stand in the loops of random programs."""

from __future__ import annotations

from dataclasses import dataclass

from tests.fuzz.draw import Draw

INDEX = (
    "{i}",
    "{i}",
    "{i}",
    "{i} - 1",
    "-{i}",
    "n - 1 - {i}",
    "{i} % 3",
    "{i} // 2",
    "-1 - {i}",
    "{i} % n",
    "({i} + 1) % n",
    "2 * {i} % n",
    "{i} - n",
    "min({i}, 4)",
    "{i}",
    "k[{i}]",
)
VECTORS = (
    "{v}[{i} - 1:{i} + 1]",
    "{v}[{i}:{i} + 3]",
    "{v}[:-{i}]",
    "{v}[:{i}]",
    "{v}[{i}:]",
    "{v}[{i}::2]",
    "{v}[{i}:{i} + 2]",
    "{v}[{i}:{i} + 1]",
    "{v}[::-1][{i}:{i} + 2]",
    "{v}[{i} - 2:{i}]",
    "{v}[{i} + 1:{i} - n - 1:-1]",
    "{v}[-{i}:]",
    "{v}[{i} % 2::2]",
)
ROWS = (
    "{m}[{i}]",
    "{m}[{i} - 1]",
    "{m}[{i}, 1:-1]",
    "{m}[{i} % 3]",
    "{m}[::-1][{i}]",
    "{m}[n - 1 - {i}, ::2]",
    "{m}.T[:, {i}]",
)
NUMBERS = (
    "{i} / n",
    "np.sin({i} * 0.1)",
    "{i} ** 2 * 0.01",
    "0.5 * {i} / (1 + {i})",
    "float({i}) * 0.1",
    "({i} % 3) * 0.2",
    "(n - {i}) * 0.05",
    "1.0 / ({i} + 1)",
    "np.sqrt({i})",
    "0.9 ** {i}",
    "np.float64({i}) * 0.1",
    "({i} & 1)",
    "abs({i} - 4) * 0.1",
)


@dataclass
class Statements:
    """Writes statements; `scalars`, `vectors`, `matrices` are names that may be read."""

    draw: Draw

    def __post_init__(self) -> None:
        d = self.draw
        self.n, self.m = d.between(8, 11), d.between(3, 5)
        self.scalars = ["s", "t"]
        self.vectors = ["x", "y", "z"]
        self.matrices = ["A", "B"]
        self.indices: list[str] = []
        self.count = 0

    def fresh(self, letter: str) -> str:
        self.count += 1
        return f"{letter}{self.count}"

    # -- expressions

    def index(self, depth_free: bool = True) -> str:
        d = self.draw
        i = d.pick(self.indices)
        return d.pick(INDEX).format(i=i)

    def number(self) -> str:
        """A scalar expression."""
        d = self.draw
        i = d.pick(self.indices)
        return d.of(
            lambda: f"{d.pick(self.vectors)}[{self.index()}]",
            lambda: f"{d.pick(self.vectors)}[{self.index()}]",
            lambda: d.pick(self.scalars),
            lambda: d.pick(self.scalars),
            lambda: d.number(),
            lambda: "c",
            lambda: d.pick(NUMBERS).format(i=i),
            lambda: f"A[{self.index()}, {d.pick(self.indices)} % m]",
            lambda: f"np.sum({d.pick(ROWS).format(m=d.pick(self.matrices), i=i)})",
            lambda: f"S[{d.pick(self.indices)}, {d.pick(self.indices)}]",
            lambda: f"np.sum({d.pick(VECTORS).format(v=d.pick(self.vectors), i=i)})",
            lambda: f"np.sin({d.pick(self.vectors)}[{self.index()}])",
            lambda: f"np.dot({d.pick(self.vectors)}, {d.pick(self.vectors)}) * 0.1",
        )()

    def vector(self) -> str:
        """An expression of n elements."""
        d = self.draw
        v, w = d.pick(self.vectors), d.pick(self.vectors)
        return d.of(
            f"0.5 * {v} + 0.3 * {w}",
            f"np.sin({v})",
            f"np.tanh({v} * {self.number()})",
            f"{v}[::-1] * 0.9",
            f"np.roll({v}, 1)",
            f"0.4 * {v} + {self.number()} * 0.1",
            f"{v}.copy()",
            f"S[{self.index()}] * 0.5",
            f"S[:, {self.index()}]",
            v,
            f"np.where({v} > 0.1, {w}, 0.2)",
            "np.zeros(n)",
            f"A[:, 1] * {v}",
        )

    # -- statements

    def accumulate(self) -> str:
        d = self.draw
        s = d.of("s", "s", "t", "w")
        return d.of(
            f"{s} = 0.5 * {s} + {self.number()}",
            f"{s} += {self.number()}",
            f"{s} = {s} + {self.number()} * {self.number()}",
            f"{s} *= 0.9",
            f"s, t = t * 0.5 + {self.number()}, s",
            "s, t = t, s",
            f"{s} = np.tanh({s}) + {self.number()}",
            f"{s} = {self.number()}",
            f"t = s\ns = 0.3 * s + {self.number()}",
            f"{s} = max(np.float64({s}), np.float64({self.number()}))",
            f"{s} = {s} - c",
        )

    def element(self) -> str:
        d = self.draw
        v = d.of("x", "y", "z", "u")
        return d.of(
            f"{v}[{self.index()}] = {self.number()}",
            f"{v}[{self.index()}] += {self.number()}",
            f"{v}[{self.index()}] *= 0.5",
            f"A[{self.index()}, 1] = {self.number()}",
            f"S[{d.pick(self.indices)}, {d.pick(self.indices)}] = {self.number()}",
            f"B[{d.pick(self.indices)}, {d.pick(self.indices)} % m] += {self.number()}",
            f"np.add.at({v}, [0, 1], {self.number()})",
            f"np.add.at({v}, {d.pick(self.indices)}, 0.1)",
            f"k[{d.pick(self.indices)}] += 1",
            f"k[0] = {d.pick(self.indices)} % 3",
        )

    def sliced(self) -> str:
        d = self.draw
        i = d.pick(self.indices)
        part = d.pick(VECTORS).format(v=d.of("x", "y", "u"), i=i)
        return d.of(
            f"{part} = {self.number()}",
            f"{part} *= 0.5",
            f"{part} += 0.1",
            f"{part} = {part} * 0.7",
            "y[1:-1] = 0.5 * (x[2:] + x[:-2])",
            "x[1:-1] += 0.1 * (x[2:] - 2 * x[1:-1] + x[:-2])",
            f"x[...] = {self.vector()}",
            f"u[:] = {self.vector()}",
            f"x[x > 0.5] = {d.number()}",
            "y *= 0.9",
            f"y += 0.1 * {self.vector()}",
            f"T[{i}] = {self.vector()}",
            f"S[:, {i}] *= 0.5",
            f"T[:, {i}] += {self.vector()}",
            f"np.multiply(x, {d.number()}, out=x)",
            f"x[{i}:] = x[{i}] * 0.5",
        )

    def rebound(self) -> str:
        d = self.draw
        u = d.of("u", "u", "z", "x")
        return d.of(
            f"{u} = {self.vector()}",
            f"{u} = 0.5 * {u} + 0.2 * {self.vector()}",
            f"{u} = {u} + 0.1",
            f"p = {u}\n{u} = np.sin({u})",
            f"{u} = {u}[::-1]",
            f"{u} = {u} * 0.9\n{u}[{self.index()}] = {self.number()}",
            f"{u}[0] = 0.5\n{u} = {u} * 0.9",
            f"{u} = 0.5 * {u}\np = {u}",
        )

    def born(self) -> str:
        d = self.draw
        b = self.fresh("b")
        return d.of(
            f"{b} = np.zeros(n)\n{b}[{self.index()}] = {self.number()}\ns += {b}.sum()",
            f"{b} = {self.number()}\nt = {b} * 0.5",
            f"{b} = {self.vector()}\nx += 0.1 * {b}",
            f"{b} = x[{self.index()}]\nx[{self.index()}] = {self.number()}\ns += {b}",
            f"{b} = np.array([s, t, 1.0])\ns = {b}[{d.pick(self.indices)} % 3] * 0.5",
            f"{b} = np.full(n, {self.number()})\nz = {b}",
        )

    def row(self) -> str:
        d = self.draw
        i = d.pick(self.indices)
        return d.of(
            f"A[{i}] += 0.1 * A[{i} - 1]",
            f"A[{i}, 1:-1] = {self.number()}",
            f"r = A[{i}]\nr *= 0.5",
            f"r = A[{i}]\nr[0] = {self.number()}",
            f"B[{i}] = A[n - 1 - {i}]",
            f"A[{i} - 1] = B[{i}] * 0.5",
            f"A[:, {i} % m] *= 0.5",
            f"s += A[{i}] @ B[{i}] * 0.1",
            f"A[{i}] = np.tanh(A[{i}] + B[{i} % 3])",
            f"T[{i}, :] = S[:, {i}]",
        )

    def swap(self) -> str:
        return self.draw.of(
            "x, y = y, x",
            "x, y, z = y, z, x",
            "y[1:-1] = 0.5 * (x[2:] + x[:-2])\nx, y = y, x",
            "u, x = x, u",
            "tmp = x\nx = y\ny = tmp",
            "A, B = B, A",
            "z[1:] = x[:-1] * 0.5\nx, z = z, x",
        )

    def levels(self) -> str:
        return self.draw.of(
            "new = 0.5 * cur + 0.3 * prev\nprev = cur\ncur = new",
            "prev, cur = cur, np.sin(cur)",
            "prev = cur\ncur = cur * 0.9",
            "prev[1:] = 0.5 * cur[:-1]\nprev, cur = cur, prev",
        )

    def held(self) -> str:
        """A value that is read before a write and used after it, or kept to the next time."""
        i = self.draw.pick(self.indices)
        return self.draw.of(
            f"old = x[{i}]\nx[{i}] = {self.number()}\ns += old",
            f"q = last\nlast = {self.number()}\ns += 0.1 * q",
            f"old = x.copy()\nx[{i}] = 0.3\ns += old[{i}]",
            f"v = x[1:]\nv[0] = {self.number()}",
            f"last = {self.number()}",
        )

    def container(self) -> str:
        i = self.draw.pick(self.indices)
        return self.draw.of(
            f"out.append({self.number()})",
            f"out.append({i})",
            "state = (state[1], 0.5 * state[0] + 0.1)",
            "pair = {'a': pair['b'], 'b': np.sin(pair['a'])}",
            f"box[0] = {self.number()}",
            f"box[1] += {i}",
            "cell = [s, t]\ns = cell[0]",
            f"count['n'] += {self.number()}",
            "state = (state[0] * 0.9, state[1] + s)",
        )

    def odd(self) -> str:
        d = self.draw
        i = d.pick(self.indices)
        return d.of(
            f"if {i} == 5:\n    continue",
            f"if {i} > 6:\n    break",
            "pos = pos + 1\ns += x[pos % n]",
            f"with tg.no_grad():\n    y[{i}] = x[{i}] * 2",
            f"with tg.no_grad():\n    h = x[{i}] ** 2\ns += h",
            f"s += helper(x, {i})",
            f"u = scaled(u, {self.number()})",
            "s = step(s, y)",
            f"s += sum([x[j] for j in range({d.between(2, 9)})])",
            f"s += sum(x[j] * {i} for j in range(3))",
            f"s += [q for q in range(9)][{i} % 3]",
            "g = tg.grad(energy)(x)\nx = x - 0.01 * g",
            f"s += tg.grad(cube)(x[{i}]) * 0.1",
            f"pos = {i}",
            f"obj.value = {self.number()}",
            "obj.push(s)\ns += obj.value",
            f"try:\n    s += x[{i} + 1]\nexcept IndexError:\n    s += 1.0",
            f"s += {{0: 0.1, 1: 0.2}}.get({i}, 0.3)",
            f"s += len(str({i}))",
            f"j = 0\nwhile j < 3:\n    s += x[j] * {i}\n    j += 1",
            "s += float(pos) * 0.01",
            f"s += (lambda a: a * {i})(0.1)",
            f"s += x[[{i}, 0]].sum()",
            f"s += x[k[{i}]] + x[k].sum()",
        )
