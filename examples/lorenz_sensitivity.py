"""How fast does the Lorenz system forget?  Gradients through thousands of Runge-Kutta steps.

An ensemble of trajectories takes 4000 steps, written in place as NumPy code would.  The loop is
one loop of the compiled program, and so is its gradient: 4000 steps backwards, in time
proportional to their number.  The gradient of a final state by the initial one grows like
exp(lambda * t), where lambda is the largest Lyapunov exponent, about 0.906 for these parameters.
A memory limit makes the backward loop compute most states again instead of keeping them.

    python examples/lorenz_sensitivity.py
"""

import re

import numpy as np

import tracegrad as tg

COUNT, STEPS, DT = 32, 4000, 0.01
PARAMETERS = np.array([10.0, 28.0, 8.0 / 3.0])


def advance(state, p, steps):
    """`steps` classical Runge-Kutta steps of all trajectories, written into `state` (3, count)."""
    slopes = np.zeros((4, *state.shape))
    for _ in range(steps):
        for stage, part in enumerate((0.0, 0.5, 0.5, 1.0)):
            x, y, z = state + part * DT * slopes[stage - 1]
            slopes[stage, 0] = p[0] * (y - x)
            slopes[stage, 1] = x * (p[1] - z) - y
            slopes[stage, 2] = x * y - p[2] * z
        state += DT / 6.0 * (slopes[0] + 2.0 * slopes[1] + 2.0 * slopes[2] + slopes[3])


def along(state, p, steps, direction):
    """The sum of the final states' components along a direction."""
    advance(state, p, steps)
    return np.sum(direction @ state)


def workspace(gradient, *args):
    """Bytes beside arguments and results, from the report."""
    report = gradient.explain(*args)
    return int(re.search(r"arena +([\d,]+) bytes", report)[1].replace(",", ""))


def main():
    rng = np.random.default_rng(0)
    start = rng.normal(0.0, 5.0, (3, COUNT)) + [[0.0], [0.0], [25.0]]
    advance(start, PARAMETERS, 500)  # onto the attractor, in plain NumPy
    direction = np.ones(3) / np.sqrt(3.0)

    short = tg.grad(along, argnums=1)(start.copy(), PARAMETERS, 100, direction)
    h = 1e-6 * np.eye(3)
    differences = [
        (along(start.copy(), PARAMETERS + d, 100, direction)
         - along(start.copy(), PARAMETERS - d, 100, direction)) / 2e-6
        for d in h
    ]  # fmt: skip
    print(f"by the parameters   {short}  after 100 steps")
    print(f"by differences      {np.array(differences)}")

    free = tg.grad(along)
    slope = free(start.copy(), PARAMETERS, STEPS, direction)
    growth = np.log(np.linalg.norm(slope, axis=0)) / (STEPS * DT)
    print(f"largest gradient    {np.abs(slope).max():.1e}  after {STEPS} steps")
    print(f"Lyapunov exponent   {growth.mean():.3f} +- {growth.std() / np.sqrt(COUNT):.3f}")

    limited = tg.grad(along, memory_limit="1MB")
    again = limited(start.copy(), PARAMETERS, STEPS, direction)
    sizes = [workspace(g, start.copy(), PARAMETERS, STEPS, direction) for g in (free, limited)]
    kept, cut = (f"{size / 2**20:.2f} MB" for size in sizes)
    print(f"workspace           {kept}, with memory_limit {cut}")
    print(f"same gradient       {np.array_equal(slope, again)}")
    return growth, short, differences, sizes, slope, again


if __name__ == "__main__":
    main()
