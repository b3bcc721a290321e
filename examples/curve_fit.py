"""`scipy.optimize.curve_fit` with a compiled model and its compiled Jacobian.

The data are NIST's Misra1a (monomolecular adsorption); NIST certifies the result to eleven digits.

    python examples/curve_fit.py
"""

import numpy as np
from scipy.optimize import curve_fit

import tracegrad as tg

VOLUME = np.array(
    [
        77.6,
        114.9,
        141.1,
        190.8,
        239.9,
        289.0,
        332.8,
        378.4,
        434.8,
        477.3,
        536.8,
        593.1,
        689.1,
        760.0,
    ]
)
PRESSURE = np.array(
    [
        10.07,
        14.73,
        17.94,
        23.93,
        29.61,
        35.18,
        40.02,
        44.82,
        50.76,
        55.05,
        61.01,
        66.40,
        75.47,
        81.78,
    ]
)
CERTIFIED = np.array([2.3894212918e02, 5.5015643181e-04])


@tg.compile
def model(x, b1, b2):
    return b1 * (1.0 - np.exp(-b2 * x))


@tg.compile
def jacobian(x, b1, b2):
    """The derivative of each value by the two parameters, a column each: since element i of the
    model depends on the parameters alone, the columns are gradients of the sum by copies of
    them."""

    def total(p1, p2):
        return np.sum(p1 * (1.0 - np.exp(-p2 * x)))

    ones = np.ones_like(x)
    d1, d2 = tg.grad(total, argnums=(0, 1))(b1 * ones, b2 * ones)
    return np.stack([d1, d2], axis=1)


def main():
    start = (500.0, 1e-4)
    found, covariance = curve_fit(model, VOLUME, PRESSURE, p0=start, jac=jacobian)
    deviation = np.sqrt(np.diag(covariance))
    print("       found            certified        standard error")
    for name, value, certified, error in zip(
        ("b1", "b2"), found, CERTIFIED, deviation, strict=True
    ):
        print(f"{name}     {value:<15.9g}  {certified:<15.9g}  {error:.2g}")
    print(f"relative difference {np.abs(found / CERTIFIED - 1).max():.0e}")
    return found, CERTIFIED


if __name__ == "__main__":
    main()
