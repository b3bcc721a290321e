"""Logistic regression by SciPy with compiled gradient and Hessian: two species of iris.

python examples/logistic_regression.py
"""

from pathlib import Path

import numpy as np
from scipy.optimize import minimize

import tracegrad as tg

DATA = Path(__file__).parent / "data" / "iris.csv"


def load():
    """Standardised measurements of versicolor and virginica with a column of ones, and 0 or 1."""
    rows = [line.split(",") for line in DATA.read_text().splitlines()[1:]]
    rows = [row for row in rows if row[4] != "setosa"]
    x = np.array([[float(cell) for cell in row[:4]] for row in rows])
    x = (x - x.mean(axis=0)) / x.std(axis=0)
    label = np.array([float(row[4] == "virginica") for row in rows])
    return np.column_stack([np.ones(len(x)), x]), label


@tg.compile
def loss(w, x, label):
    """Mean negative log-likelihood with a weak prior on the weights."""
    score = x @ w
    fit = np.mean(np.logaddexp(0.0, score) - label * score)
    return fit + 0.5e-2 * np.sum(w[1:] ** 2)


def main():
    x, label = load()
    gradient = tg.value_and_grad(loss)
    found = minimize(gradient, np.zeros(x.shape[1]), args=(x, label), jac=True, method="BFGS")
    _, slope = gradient(found.x, x, label)
    right = np.mean((x @ found.x > 0) == (label > 0.5))

    print(f"flowers     {len(label)}")
    print(
        f"loss        {loss(np.zeros(5), x, label):.4f} -> {found.fun:.4f} "
        f"in {found.nit} iterations"
    )
    print(f"|gradient|  {np.abs(slope).max():.1e}")
    print(f"weights     {np.round(found.x, 2)}")
    print(f"accuracy    {right:.0%}")
    return found, right


if __name__ == "__main__":
    main()
