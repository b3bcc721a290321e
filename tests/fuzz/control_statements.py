"""Statements that call `scan`, `fori_loop`, `while_loop`, `cond` and `switch` from within loops."""

from __future__ import annotations

from tests.fuzz.loop_statements import Statements


class Controlled(Statements):
    """Mixin of the generator of loops; functions of a statement have fresh names."""

    def controlled(self) -> str:
        d = self.draw
        return d.of(self.scanned, self.counted, self.repeated, self.chosen, self.switched)()

    def inner(self, carry: str) -> str:
        """A loop of Python in the body of a function, or nothing."""
        d = self.draw
        i = d.pick(self.indices) if self.indices else "9"
        if d.chance(0.6):
            return ""
        head = d.of(f"range({i})", "range(9)", "range(2)", "range(n)", "range(0)")
        return (
            f"    for g in {head}:\n"
            f"        {carry} = {carry} * 0.9 + {d.of('x[g % n]', 'g * 0.01', 'c')} * 0.1\n"
        )

    def scanned(self) -> str:
        d = self.draw
        f = self.fresh("f")
        xs = d.of("x", "y", "(x, y)", "A", "np.arange(n) * 0.1", "(x, A)")
        taken = d.of("e[0] + np.sum(e[1])", "np.sum(e[0]) * np.mean(e[1])")
        item = taken if xs.startswith("(") else d.of("np.sum(e)", "np.sum(np.sin(e))")
        reverse = d.of("", "", ", reverse=True")
        write = d.of("", "", "", "    z[0] = a * 0.5\n", "    z[1:] *= 0.9\n")
        return (
            f"def {f}(a, e):\n{self.inner('a')}{write}"
            f"    return 0.5 * a + {item} * {self.number()}, a * {d.of('1.0', item)}\n"
            f"s, q = tg.scan({f}, np.float64(s), {xs}{reverse})\n"
            f"u = {d.of('u + 0.1 * q', 'q', 'u * np.tanh(q)')}"
        )

    def counted(self) -> str:
        d = self.draw
        f = self.fresh("f")
        i = d.pick(self.indices) if self.indices else "4"
        low, high = d.of(("0", "4"), ("0", i), (i, "n"), ("1", "n"), ("2", "2"), (i, f"{i} + 3"))
        body = d.of(
            f"    return 0.5 * v + x[g] * {self.number()}",
            f"    x[g] = 0.5 * x[g] + v * 0.1\n    return v * 0.9 + {self.number()} * 0.1",
            f"    return v * 0.5 + np.sum(x[:g]) * {d.number()} * 0.1",
            "    return v * 0.5 + S[g, g] * g",
        )
        if d.chance(0.25):
            return (
                f"def {f}(g, v):\n    v[g] = v[g] * 0.5 + v[g - 1] * 0.2\n    return v\n"
                f"u = tg.fori_loop({low}, {high}, {f}, u, max_trips=n + 2)"
            )
        return (
            f"def {f}(g, v):\n{self.inner('v')}{body}\n"
            f"s = tg.fori_loop({low}, {high}, {f}, np.float64(s), max_trips=n + 2)"
        )

    def repeated(self) -> str:
        d = self.draw
        if d.chance(0.4):
            return (
                "q, u = tg.while_loop(lambda v: v[0] > 0.3, "
                f"lambda v: (v[0] * 0.5, v[1] * 0.9 + {self.number()} * 0.1), "
                "(np.abs(s) * 0.1 + 1.0, u), max_trips=60)\ns += q"
            )
        return (
            f"s = tg.while_loop(lambda v: np.abs(v) > 0.5, lambda v: v * 0.5 + {d.number()} * 0.1, "
            f"np.float64(s), max_trips=80)"
        )

    def chosen(self) -> str:
        d = self.draw
        i = d.pick(self.indices)
        test = d.of(f"x[{i}] > 0.1", "s > t", "np.sum(y) > 0.0", f"{i} > 3", f"k[{i}] == 2")
        if d.chance(0.5):
            then, other = self.fresh("f"), self.fresh("f")
            write = d.of(
                f"x[{i}] = {self.number()}",
                f"y[:{i}] *= 0.5",
                f"u[{i}:] = {self.number()}",
                f"A[{i}] = B[{i}] * 0.5",
                f"S[{i}, :{i}] += 0.1 * x[:{i}]",
            )
            otherwise = d.of("None", "y[0] * 1.0", "None")
            result = "None" if otherwise == "None" else "np.sum(x)"
            tail = "" if result == "None" else "s = "
            return (
                f"def {then}():\n    {write}\n    return {result}\n"
                f"def {other}():\n    return {otherwise}\n"
                f"{tail}tg.cond({test}, {then}, {other})"
            )
        return d.of(
            f"s = tg.cond({test}, lambda: s * 0.5, lambda: {self.number()} * 1.0 + s)",
            f"u = tg.cond({test}, lambda: u * 0.5, lambda: np.sin(x))",
            f"u = tg.cond({test}, lambda v: v[::-1] * 0.9, lambda v: v * x[{i}], u)",
            f"s = s + tg.cond({test}, lambda: np.sum(x[:{i}]), lambda: y[{i}] * 1.0)",
            f"s, t = tg.cond({test}, lambda a, e: (e * 0.5, a), lambda a, e: (a, e * 0.9), "
            "np.float64(s), np.float64(t))",
        )

    def switched(self) -> str:
        d = self.draw
        i = d.pick(self.indices)
        at = d.of(f"k[{i}] % 3", f"{i} % 3", f"{i}", f"k[{i}]", f"{i} - 2")
        return d.of(
            f"s = tg.switch({at}, [lambda: s * 0.5, lambda: s + {self.number()}, "
            "lambda: np.sum(x)])",
            f"u = tg.switch({at}, [lambda v: v * 0.5, lambda v: np.sin(v), "
            f"lambda v: v + x[{i}]], u)",
            f"s += tg.switch({at}, [lambda: x[{i}], lambda: np.sum(x[:{i}]), lambda: S[0, {i}]])",
        )
