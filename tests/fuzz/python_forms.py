"""Statements of the Array face that lean on Python: iteration, unpacking, helpers, containers."""

from __future__ import annotations

from tests.fuzz.expressions import Expressions


class PythonForms(Expressions):
    """Mixin of `NumpyProgram`; each method writes one statement."""

    def rows(self) -> str:
        """Iteration over the first axis: views of rows, or scalars of a vector."""
        d = self.draw
        name = self.target(1)
        if len(self.shape(name)) == 1:
            total = self.live.fresh("s")
            return d.of(
                f"{total} = 0.0\nfor e in {name}:\n    {total} += e * e",
                f"{total} = 1.0\nfor i, e in enumerate({name}):\n"
                f"    {name}[i] = e * {total}\n    {total} = 0.5 * e",
            )
        return d.of(
            f"for r in {name}:\n    r *= 0.5",
            f"for r in {name}:\n    r[0] = r[-1]",
            f"for r in {name}.T:\n    r += 1.0",
            f"for i, r in enumerate({name}):\n    r[...] = r[::-1] * i",
            f"for r, q in zip({name}, {name}[::-1]):\n    r += 0.5 * q",
        )

    def unpacked(self) -> str:
        name = self.array(1)
        n = self.shape(name)[0]
        names = [self.live.fresh("u") for _ in range(n)]
        text = f"{', '.join(names)}, = {name}"
        if len(self.shape(name)) > 1 and self.live.names[name].flags.writeable:
            text += f"\n{names[-1]} {self.draw.of('+=', '*=')} {names[0]}"
        return text

    def helper(self) -> str:
        """A function of the program that writes its argument, or returns a view of it."""
        d = self.draw
        name, g = self.target(1), self.live.fresh("g")
        body = d.of(
            "a[0] = 0.5\n    return a[-1:]",
            "a *= 2.0\n    return a",
            "a = a * 2.0\n    a[0] = 1.0\n    return a",
            "a[1:] -= a[:-1]\n    return a.T",
            f"{name}[0] = 0.25\n    return a[0]",
            "a += 1.0\n    return np.sum(a)",
        )
        return f"def {g}(a):\n    {body}\n{self.live.fresh()} = {g}({name})"

    def container(self) -> str:
        """Views kept in a list or dictionary and written through it."""
        d = self.draw
        name, box = self.target(1), self.live.fresh("c")
        return d.of(
            f"{box} = [{name}[:1], {name}[1:]]\nfor p in {box}:\n    p += 1.0",
            f"{box} = [{name}, {name}[::-1]]\n{box}[1] *= 0.5\n{box}[0][0] = 1.5",
            f"{box} = {{'a': {name}}}\n{box}['a'] += 0.5",
            f"{box} = np.array([{name}.sum(), {name}.max(), 1.0])",
            f"{box} = np.array([e for e in {name}])",
            f"{box} = sum([{name}[0], {name}[-1]])",
            f"{box} = max({name}.shape) * {name}",
        )

    def pieces(self) -> str:
        """NumPy's split family: plain views, which may be written."""
        d = self.draw
        name, parts = self.target(1), self.live.fresh("p")
        form = d.of("np.array_split({}, 2)", "np.split({}, [1])", "np.array_split({}, 2, axis=-1)")
        return (
            f"{parts} = {form.format(name)}\n{parts}[{d.of(0, 1)}][...] "
            f"{d.of('+=', '*=', '=')} {d.number()}"
        )

    def rearranged(self) -> str:
        d = self.draw
        name = self.array(1)
        form = d.of(
            "np.roll({}, 1)",
            "np.roll({}, -1, axis=0)",
            "np.cumsum({})",
            "np.flip({})",
            "np.repeat({}, 2)",
            "np.tile({}, 2)",
            "np.cumsum({}, axis=0)",
            "np.diff({})",
            "np.einsum('i...->...i', {})",
            "np.einsum('ii->i', {})",
            "np.einsum('ij', {})",
            "np.take({}, [0, 0])",
            "np.clip({}, -0.5, 0.5)",
            "np.triu(np.atleast_2d({}))",
            "np.argmax({}, axis=0)",
            "np.einsum('i...->i', {})",
            "np.einsum('i...,i...->...', {0}, {0})",
            "np.linalg.norm({})",
            "np.ptp({})",
            "np.vstack(({0}, {0}))",
            "np.copy({})",
            "{}.astype(np.float32)",
            "{} > 0.1",
            "np.sum({0}, where={0} > 0.0)",
            "np.cumprod({})",
            "np.count_nonzero({})",
            "np.dot({0}, {0}.T)",
            "np.inner({0}, {0})",
            "np.trace(np.outer({0}, {0}))",
        )
        return f"{self.live.fresh()} = {form.format(name)}"

    def poured(self) -> str:
        """Writes by functions: fill, copyto, put, swaps of whole arrays, ufuncs with where."""
        d = self.draw
        name = self.target(1)
        return d.of(
            f"{name}.fill(0.5)",
            f"np.copyto({name}, {name}[::-1])",
            f"np.copyto({name}, 0.5, where={name} > 0.2)",
            f"{name}.T[...] = 1.0",
            f"np.sin({name}, out={name})",
            f"np.add({name}, 1.0, out={name}, where={name} > 0.0)",
            f"{name}[:], {name}[...] = {name}[::-1], {name} * 2.0",
            f"np.multiply.at({name}, [0], 2.0)",
            f"np.subtract.at({name}, [0, 0], 0.5)",
            f"{name} **= 2",
            f"{name} /= 2.0",
            f"{name}[0] //= 1",
            f"{name} %= 2",
            f"{name}[None][0, 0] += 1.0",
            f"{name}[...][::-1][:1] = 0.1",
            f"{name}.reshape(-1)[0] = 0.3",
        )
