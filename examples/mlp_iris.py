"""A two-layer network trained on Fisher's iris data with Adam, parameters in a dictionary.

The optimiser's step is written into the parameter arrays in place, as NumPy code does.

    python examples/mlp_iris.py
"""

from pathlib import Path

import numpy as np

import tracegrad as tg

DATA = Path(__file__).parent / "data" / "iris.csv"
SPECIES = ("setosa", "versicolor", "virginica")


def load():
    """Standardised measurements (150, 4) and one-hot species (150, 3)."""
    rows = [line.split(",") for line in DATA.read_text().splitlines()[1:]]
    x = np.array([[float(cell) for cell in row[:4]] for row in rows])
    x = (x - x.mean(axis=0)) / x.std(axis=0)
    return x, np.eye(3)[[SPECIES.index(row[4]) for row in rows]]


def init(rng, hidden=8):
    return {
        "w1": rng.standard_normal((4, hidden)) / 2.0,
        "b1": np.zeros(hidden),
        "w2": rng.standard_normal((hidden, 3)) / np.sqrt(hidden),
        "b2": np.zeros(3),
    }


def logits(params, x):
    hidden = np.tanh(x @ params["w1"] + params["b1"])
    return hidden @ params["w2"] + params["b2"]


def loss(params, x, target):
    """Mean cross entropy."""
    z = logits(params, x)
    z -= np.max(z, axis=1, keepdims=True)
    log_sum = np.log(np.sum(np.exp(z), axis=1))
    return np.mean(log_sum - np.sum(z * target, axis=1))


def adam_step(params, grads, state, rate=0.02):
    """One step of Adam, in place."""
    state["t"] += 1
    t = state["t"]
    for name, g in grads.items():
        m, v = state["m"][name], state["v"][name]
        m += 0.1 * (g - m)
        v += 0.001 * (g**2 - v)
        params[name] -= rate * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)


def main(steps=300):
    rng = np.random.default_rng(3)
    x, target = load()
    order = rng.permutation(len(x))
    train, test = order[:100], order[100:]
    params = init(rng)
    state = {
        "t": 0,
        "m": {k: np.zeros_like(p) for k, p in params.items()},
        "v": {k: np.zeros_like(p) for k, p in params.items()},
    }
    step = tg.value_and_grad(loss)
    predict = tg.compile(logits)

    def accuracy(rows):
        return np.mean(predict(params, x[rows]).argmax(axis=1) == target[rows].argmax(axis=1))

    print("step   loss    train  test")
    history = []
    for k in range(steps + 1):
        value, grads = step(params, x[train], target[train])
        history.append(float(value))
        if k % 60 == 0:
            print(f"{k:>4}   {value:.4f}  {accuracy(train):.0%}   {accuracy(test):.0%}")
        if k < steps:
            adam_step(params, grads, state)
    return history, accuracy(test)


if __name__ == "__main__":
    main()
