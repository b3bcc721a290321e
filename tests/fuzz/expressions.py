"""Names and expressions of the Array face, drawn from the variables that there are."""

from __future__ import annotations

import numpy as np

from tests.fuzz.draw import Draw, Live, is_small

_UNARY = (
    "np.sin({})",
    "np.cos({})",
    "np.tanh({})",
    "np.exp(-np.square({}))",
    "-{}",
    "np.square({})",
    "np.arctan({})",
    "np.sqrt(1.0 + np.square({}))",
    "np.abs({})",
    "np.reciprocal(2.0 + np.square({}))",
    "({}) ** 2",
    "np.log1p(np.square({}))",
)
_BINARY = (
    "{} + {}",
    "{} - {}",
    "{} * {}",
    "{} * {}",
    "{} / (2.0 + np.square({}))",
    "np.maximum({}, {})",
    "np.minimum({}, {})",
    "np.hypot({}, 1.0 + np.square({}))",
    "np.where({0} > {1}, {0}, 0.5 * {1})",
    "np.arctan2({}, 2.0 + np.square({}))",
)


class Expressions:
    """Mixin of `NumpyProgram`."""

    draw: Draw
    live: Live

    # -- what there is

    def arrays(self, rank: int = 0) -> list[str]:
        return [
            k for k, v in self.live.names.items() if isinstance(v, np.ndarray) and v.ndim >= rank
        ]

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(self.live.names[name].shape)

    def kind(self, name: str) -> str:
        return str(self.live.names[name].dtype.kind)

    def array(self, rank: int = 0) -> str:
        """An array's name; recent ones more often.  Raises IndexError when there is none."""
        names = self.arrays(rank)
        return names[-1] if self.draw.chance(0.3) else self.draw.pick(names)

    def target(self, rank: int = 0) -> str:
        names = [k for k in self.arrays(rank) if self.live.names[k].flags.writeable]
        return self.draw.pick(names)

    # -- expressions

    def leaf(self) -> str:
        d = self.draw
        scalars = [k for k, v in self.live.names.items() if isinstance(v, (np.generic, float))]
        if scalars and d.chance(0.2):
            return d.pick(scalars)
        if d.chance(0.12):
            return d.number()
        name = self.array()
        shape = self.shape(name)
        if shape and d.chance(0.5):
            return f"{name}[{d.basic(shape)}]"
        if len(shape) >= 2 and d.chance(0.15):
            return f"{name}.T"
        return name

    def fitting(self, shape: tuple[int, ...], depth: int) -> str:
        """An expression that broadcasts to `shape`."""
        d = self.draw
        for _ in range(12):
            text = self.expression(depth)
            value = self.live.value(text)
            if value is None or not is_small(value):
                continue
            if len(np.shape(value)) <= len(shape) and _broadcasts(np.shape(value), shape):
                return text
        return d.number()

    def expression(self, depth: int) -> str:
        d = self.draw
        if depth == 0 or d.chance(0.15):
            return self.leaf()
        if d.chance(0.4):
            return d.pick(_UNARY).format(self.expression(depth - 1))
        if d.chance(0.12):
            return self.reduction()
        left, right = self.expression(depth - 1), self.expression(depth - 1)
        return f"({d.pick(_BINARY)})".format(left, right)

    def reduction(self) -> str:
        d = self.draw
        name = self.array()
        rank = len(self.shape(name))
        of = d.of("sum", "sum", "mean", "max", "min", "prod", "var")
        given = [name]
        if rank and d.chance(0.6):
            axis = d.between(-rank, rank - 1)
            given.append(f"axis={axis}" if d.chance(0.8) else f"axis={tuple(range(rank))[:2]}")
        if d.chance(0.2):
            given.append("keepdims=True")
        return f"np.{of}({', '.join(given)})"


def _broadcasts(shape: tuple[int, ...], to: tuple[int, ...]) -> bool:
    try:
        return np.broadcast_shapes(shape, to) == to
    except ValueError:
        return False
