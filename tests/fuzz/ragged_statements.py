"""Statements over parts of arrays whose length depends on the loop's indices.

A *length* is Python text (``i``, ``n - i``, ``i - j``); `pieces` are views of one length,
so that expressions of them fit together, and now and then do not.
"""

from __future__ import annotations

from tests.fuzz.loop_statements import Statements

# Vectors of one length: {a} is a vector, {q} a square matrix, {j} some index.
PIECES = {
    "{i}": (
        "{a}[:{i}]",
        "{q}[{i}, :{i}]",
        "{q}[:{i}, {i}]",
        "{q}[{j}, :{i}]",
        "{q}[:{i}, {j}]",
        "{a}[:{i}][::-1]",
        "{a}[::-1][:{i}]",
        "{a}[n - {i}:]",
        "{a}[{i} - n:][:{i}]",
        "{a}[k[:{i}]]",
        "{q}.T[{j}, :{i}]",
        "np.arange({i}) * 0.1",
        "{q}[:{i}, :{i}].diagonal()",
        "({q}[:{i}, :{i}] @ {a}[:{i}]) * 0.1",
        "np.sum({q}[:{i}], axis=1) * 0.1",
        "{q}[:{i}, :{j}].sum(axis=1) * 0.1",
    ),
    "n - {i}": (
        "{a}[{i}:]",
        "{q}[{i}, {i}:]",
        "{q}[{i}:, {j}]",
        "{a}[:n - {i}]",
        "{a}[::-1][{i}:]",
    ),
    "n - {i} - 1": (
        "{a}[{i} + 1:]",
        "{q}[{i} + 1:, {i}]",
        "{q}[{i}, {i} + 1:]",
        "{q}[{i} + 1:, {j}]",
        "{a}[:n - {i} - 1]",
        "{a}[-1:{i}:-1]",
        "{a}[:-{i} - 1]",
        "{q}[{i} + 1:, :{j}].sum(axis=1) * 0.1",
    ),
    "{i} + 1": (
        "{a}[:{i} + 1]",
        "{q}[{i}, :{i} + 1]",
        "{a}[{i}::-1]",
        "{q}[:{i} + 1, {j}]",
        "np.cumsum({a}[:{i} + 1]) * 0.1",
        "np.ones({i} + 1)",
    ),
}
BETWEEN = (  # lengths that two indices decide
    "{a}[{j}:{i}]",
    "{q}[{j}:{i}, {j}]",
    "{q}[{i}, {j}:{i}]",
    "{a}[{j} + 1:{i} + 1]",
    "{a}[{i}:{j}:-1]",
)
ODD = (  # whose length NumPy clips or wraps
    "{a}[-{i}:]",
    "{a}[:-{i}]",
    "{a}[{i} - 2:{i} + 3]",
    "{a}[{i}::2]",
    "{a}[:{i}:2]",
    "{a}[{i}:2 * {i}]",
    "{a}[{i} // 2:{i}]",
    "{a}[:{i} * 2]",
    "{a}[{i} % 4:]",
    "{a}[:min({i}, 5)]",
    "{a}[max({i} - 2, 0):{i} + 1]",
    "{a}[{i} - 1::-1]",
    "{q}[:{i}, 1:{i} - 1].ravel()",
)
MAPS = (
    "np.sin({0})",
    "np.exp({0} * 0.1)",
    "np.where({0} > 0.1, {1}, 0.2)",
    "np.where({0} > {1}, {0}, 0.5 * ({1}))",
    "({0}) * ({1})",
    "({0}) - 0.5 * ({1})",
    "({0}) + {2}",
    "np.maximum({0}, {1})",
    "({0}) / (2.0 + ({1}) ** 2)",
    "({0})[::-1]",
    "np.tanh({0} * {2})",
    "({0}).copy()",
    "np.clip({0}, -0.5, {2})",
    "np.cumsum({0}) * 0.1",
    "np.flip({0})",
    "np.abs({0})",
    "-({0})",
    "np.sort({0})",
    "np.full_like({0}, {2})",
)
REDUCTIONS = (
    "np.sum({0})",
    "np.sum(({0}) * ({1}))",
    "(({0}) @ ({1})) * 0.1",
    "np.dot({0}, {1}) * 0.1",
    "np.mean({0})",
    "np.max({0})",
    "({0}).min()",
    "np.prod({0})",
    "np.std({0})",
    "({0}).var()",
    "np.linalg.norm({0})",
    "len({0}) * 0.1",
    "({0}).shape[0] * 0.05",
    "({0}).size * 0.05",
    "np.sum(np.where({0} > 0.0, {0}, {1}))",
    "np.vdot({0}, {1}) * 0.1",
    "np.inner({0}, {1}) * 0.1",
    "np.argmax({0}) * 0.1",
    "np.count_nonzero({0} > 0.2) * 0.1",
    "np.sum({0}, initial=0.5)",
    "np.max({0}, initial=-1.0)",
    "np.einsum('a,a->', {0}, {1}) * 0.1",
    "np.sum(np.outer({0}, {1})) * 0.05",
    "np.sum(np.diff({0}))",
    "np.sum(np.concatenate([{0}, {1}])) * 0.3",
    "np.sum(np.stack([{0}, {1}])[0])",
)
FORMS = (  # whole statements; {p} and {r} are of one length, {p} may be written, {s} is a number
    "{p} += 0.1 * ({r})",
    "{p} = {r}",
    "{p} *= 0.5",
    "{p} -= ({s}) * ({r})",
    "{p} = {s}",
    "{p} = 0.5 * {p} + {r}",
    "{b} = {r}\n{p} = {b} * 0.5",
    "{b} = {p}\n{b} *= 0.9",
    "{b} = {p}\n{b} += {r}\ns += {b}.sum() * 0.1",
    "{b} = {r}\ns += np.sum({b}) * 0.1",
    "{b} = {p}.copy()\n{b} *= {s}\nt = np.sum({b})",
    "{b} = {p}.copy()\n{p} = {s}\ns += np.sum({b}) * 0.2",
    "{b} = np.zeros_like({p})\n{b} += {r}\n{p} = {b}",
    "{b} = np.zeros(len({p}))\n{b}[...] = {r}\ns += {b}.mean() * 0.1",
    "{p}[...] = {r}",
    "np.multiply({p}, 0.5, out={p})",
    "np.copyto({p}, {r})",
    "{p}[::-1] += {r}",
    "{p}[::2] *= 0.5",
    "for e in {p}:\n    s += e * 0.1",
    "for h, e in enumerate({p}):\n    s += e * h * 0.1",
    "for e, h in zip({p}, {r}):\n    t += e * h * 0.1",
)
BLOCKS = (  # parts of square matrices
    "{q}[:{i}, {i}:] *= 0.5",
    "{q}[{i} + 1:, {i} + 1:] -= 0.1 * np.outer({q}[{i} + 1:, {i}], {q}[{i}, {i} + 1:])",
    "{q}[{i} + 1:, {i}] /= 2.0 + {q}[{i}, {i}] ** 2",
    "{q}[:{i}, :{i}] = 0.9 * {q}[:{i}, :{i}].T",
    "s += np.sum({q}[:{i}, :{i}]) * 0.05",
    "{q}[:{i}] *= x[:{i}, None]",
    "{q}[:, :{i}] += 0.1 * x[:{i}]",
    "{q}[:{i}, :{i}] += 0.1 * (x[:{i}, None] * y[None, :{i}])",
    "x[:{i}] = {q}[:{i}, :{i}] @ x[:{i}] * 0.2",
    "x += 0.05 * np.sum({q}[:{i}], axis=0)",
    "x += 0.05 * {q}[:, :{i}].sum(axis=1)",
    "A[:{i}] *= 0.9",
    "A[{i}:, 1] = B[{i}:, 0]",
    "B[0] += 0.1 * A[:{i}].sum(0)",
    "B[0] = A[:{i} + 1].max(axis=0)",
    "B[-1] += 0.1 * x[:{i}] @ A[:{i}]",
    "{q}[{i}, :{i}] = {q}[:{i}, {i}]",
    "{q}[{i}, {i}] = 2.0 + ({q}[{i}, :{i}] @ {q}[{i}, :{i}]) * 0.1",
    "{q}[{i}:, {j}] += 0.1 * {q}[{i}:, :{j}] @ x[:{j}]",
    "{q}[:{i}, :{j}] *= 0.7",
    "s += np.sum({q}[:{i}, :{j}] * {q}[:{i}, :{j}]) * 0.05",
    "s += {q}[{i}, :{j}] @ {q}[:{j}, {j}] * 0.1",
    "{q}[{i}, {j}] -= 0.1 * ({q}[{i}, :{j}] @ {q}[:{j}, {j}])",
    "{q}[{i}, {j}] = np.dot({q}[{i}, :{j}], {q}[{j}, :{j}]) * 0.1",
    "{q}[{i}, {j}] /= 2.0 + {q}[{j}, {j}] ** 2",
    "{q}[{i}, {j}] = {q}[{j}, {i}]",
    "{q}[{i}, {j}], {q}[{j}, {i}] = {q}[{j}, {i}] * 0.5, {q}[{i}, {j}] * 1.0",
    "{q}[[{i}, {j}]] = {q}[[{j}, {i}]]",
    "x[[{i}, {j}]] = x[[{j}, {i}]] * 0.5",
    "x[{i}] += 0.1 * {q}[{i}, {j}] * x[{j}]",
    "x[{i}] -= 0.1 * {q}[{i}, :{i}] @ x[:{i}]",
    "x[{i}] = (x[{i}] - {q}[{i}, {i} + 1:] @ x[{i} + 1:] * 0.1) / (2.0 + {q}[{i}, {i}] ** 2)",
    "y[1:{i} + 1] = y[:{i}]",
    "y[:{i}] = y[1:{i} + 1]",
    "y[:{i}] += y[:{i}][::-1]",
    "y[:{i}] += y[{i} - 1::-1] * 0.1",
    "y[:{i}] = 0.5 * (x[:{i}] + x[1:{i} + 1])",
    "{q}[1:{i}, {i}] = {q}[:{i} - 1, {i}]",
    "np.add.at(x, k[:{i}], 0.1 * y[:{i}])",
    "x[k[:{i}]] = 0.1 * y[:{i}]",
    "x[:{i}], y[:{i}] = y[:{i}].copy(), x[:{i}].copy()",
    "u = 0.5 * u\nu[:{i}] += x[:{i}]",
    "u = np.where(np.arange(n) < {i}, u, 0.3 * x)",
    "u = np.concatenate([x[:{i}], y[{i}:]])",
    "u = np.concatenate([u[{i}:], u[:{i}]])",
    "u = np.roll(u, {i})",
    "last = np.sum(x[:{i}])",
    "r = x[:{i} + 1]",
    "r = x[:{i}] * 1.0\nr = np.append(r, s)\nt = r.sum() * 0.1",
    "s += np.sum(np.tril({q})[{i}]) * 0.1",
    "s += np.trace({q}[:{i}, :{i}]) * 0.1",
    "s += np.linalg.norm({q}[{i}:, {i}:]) * 0.05",
    "x[:{i}] = y[:{i} + 1]",
    "x[:{i} + 2] = y[{i}:{i} + 2]",
    "x[{i}:{i} + 3] = 0.2 * y[{i}:{i} + 3]",
    "x[{i} - 1:{i} + 1] += 0.1",
    "x[{i} - 1:{i} + 2] = x[{i} - 1:{i} + 2].sum() * 0.2",
    "A[:{i}, {i} % m] = x[:{i}]",
    "A[{i} - 1] += 0.1 * A[:{i}].sum(0)",
    "A[{i}][:2] = 0.5 * A[-{i}][:2]",
    "A[{i} - n] *= 0.9",
    "x[::-1][{i}] = 0.5 * x[{i} % 3]",
    "x[-{i} - 1] *= 0.7",
    "x[n - 1 - {i}] += 0.1 * x[{i} - 1]",
)


class Ragged(Statements):
    """Mixin of the generator of loops."""

    def two(self) -> tuple[str, str]:
        """The index that decides, and another one (or the same)."""
        i = self.draw.pick(self.indices)
        return i, self.draw.pick(self.indices)

    def piece(self, form: str, i: str, j: str) -> str:
        d = self.draw
        return form.format(a=d.of("x", "y", "z", "u"), q=d.of("S", "T"), i=i, j=j)

    def pieces(self, count: int) -> list[str]:
        """Vectors of one length; in one case of forty one of another length."""
        d = self.draw
        i, j = self.two()
        if len(self.indices) > 1 and d.chance(0.25):
            i, j = self.indices[-2:] if d.chance(0.5) else self.indices[-2:][::-1]
            forms: tuple[str, ...] = BETWEEN
            return [self.piece(d.pick(forms[:3]), i, j) for _ in range(count)]
        if d.chance(0.15):
            form = d.pick(ODD)
            return [self.piece(form, i, j) for _ in range(count)]
        length = d.pick(tuple(PIECES))
        found = [self.piece(d.pick(PIECES[length]), i, j) for _ in range(count)]
        if d.chance(0.025):
            found[-1] = self.piece(d.pick(PIECES[d.pick(tuple(PIECES))]), i, j)
        return found

    def mapped(self, *parts: str) -> str:
        """An expression of the parts' length."""
        d = self.draw
        if d.chance(0.4):
            return parts[0]
        return d.pick(MAPS).format(parts[0], parts[-1], self.number())

    def reduced(self) -> str:
        a, b, c = self.pieces(3)
        return self.draw.pick(REDUCTIONS).format(self.mapped(a, c), b)

    def ragged(self) -> str:
        """A write into a part, or a value born of one."""
        d = self.draw
        p, a, b = self.pieces(3)
        if "(" in p or "*" in p:  # no place to write to
            p = self.piece("{a}[:{i}]", d.pick(self.indices), "")
        return d.pick(FORMS).format(p=p, r=self.mapped(a, b), s=self.number(), b=self.fresh("b"))

    def block_of(self) -> str:
        i, j = self.two()
        return self.piece(self.draw.pick(BLOCKS), i, j)

    def summed(self) -> str:
        d = self.draw
        return d.of(
            lambda: f"s += {self.reduced()}",
            lambda: f"t = 0.5 * t + {self.reduced()}",
            lambda: f"x[{self.index()}] = {self.reduced()}",
            lambda: f"S[{d.pick(self.indices)}, {d.pick(self.indices)}] += {self.reduced()}",
            lambda: f"y[{self.index()}] -= 0.1 * {self.reduced()}",
            lambda: f"x *= np.tanh({self.reduced()})",
        )()

    def triangular_head(self) -> str:
        """The range of an inner loop that an outer index bounds."""
        d = self.draw
        i = d.pick(self.indices)
        return d.of(
            f"range({i})",
            f"range({i})",
            f"range({i} + 1)",
            f"range({i} + 1, n)",
            f"range({i}, n)",
            f"range({i} - 1, -1, -1)",
            f"range(n - 1, {i}, -1)",
            f"range({i}, -1, -1)",
            f"range(n - {i})",
            f"range(1, {i})",
            f"range(0, {i}, 2)",
            f"range({i} // 2)",
            f"range(max({i} - 2, 0), {i})",
            f"range(min({i}, 4))",
            f"range({i} - 3, {i})",
            f"reversed(range({i}))",
            f"range({i} % 4)",
            f"range({i}, {i})",
            f"range({i}, {i} + 3)",
            f"range({i} - n)",
            f"range({i} * {i} // 4)",
            f"range(k[{i}])",
            f"range(k[{i}])",
            f"range(k[{i} - 1], k[{i}])",
            f"range(k[{i}] - 1, -1, -1)",
            f"range({i}, {i} + k[{i}])",
            f"range(min(k[0], {i}))",
        )
