"""Each example runs as a user would run it, and finds what it looks for."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

ROOT = Path(__file__).parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def load(name: str) -> ModuleType:
    pytest.importorskip("scipy")
    spec = importlib.util.spec_from_file_location(
        f"example_{name}", ROOT / "examples" / f"{name}.py"
    )
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_runs_as_a_program(path: Path, tmp_path: Path) -> None:
    if "scipy" in path.read_text():
        pytest.importorskip("scipy")
    done = subprocess.run(
        [sys.executable, str(path)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() and done.stderr == ""


def test_heat_inverse_recovers_the_plate(capsys: pytest.CaptureFixture[str]) -> None:
    found, k, true_k = load("heat_inverse").main()
    assert np.abs(k - true_k)[1:-1, 1:-1].max() < 0.025
    assert found.fun < 0.003
    assert "initial plate kept  True" in capsys.readouterr().out


def test_logistic_regression_is_at_its_minimum() -> None:
    found, right = load("logistic_regression").main()
    assert right >= 0.95
    assert found.fun < 0.1704
    np.testing.assert_allclose(found.x, [0.1, -0.28, -0.59, 2.21, 2.39], atol=0.01)


def test_mlp_learns() -> None:
    history, accuracy = load("mlp_iris").main(steps=200)
    assert history[-1] < 0.08 < 1.0 < history[0]
    assert accuracy >= 0.94


def test_masked_loss_finds_the_parameters_and_ignores_the_missing() -> None:
    found, true_p, to_signal, missing = load("masked_loss").main()
    np.testing.assert_allclose(found.x, true_p, atol=0.08)
    assert np.all(to_signal[missing] == 0.0)
    assert np.all(to_signal[~missing] != 0.0)


def test_curve_fit_agrees_with_nist() -> None:
    found, certified = load("curve_fit").main()
    np.testing.assert_allclose(found, certified, rtol=1e-7)


def test_kalman_likelihood_agrees_with_the_published_fit() -> None:
    nile, target, errors, true = load("kalman_likelihood").main()
    np.testing.assert_allclose(np.exp(nile.x), [1469.1, 15099.0], rtol=1e-3)
    np.testing.assert_allclose(-nile.fun, -632.54, atol=0.01)
    assert np.all(np.abs(target.x - np.log(true)) < 2 * errors)


def test_lorenz_finds_the_lyapunov_exponent_in_little_memory() -> None:
    growth, short, differences, sizes, slope, again = load("lorenz_sensitivity").main()
    assert abs(growth.mean() - 0.906) < 0.03
    np.testing.assert_allclose(short, differences, rtol=1e-5)
    assert sizes[1] <= 2**20 < sizes[0] / 8
    np.testing.assert_allclose(slope, again, rtol=1e-9)


def test_nile_is_cobbs() -> None:
    lines = (ROOT / "examples" / "data" / "nile.csv").read_text().splitlines()
    years, flow = zip(*(map(int, line.split(",")) for line in lines[1:]), strict=True)
    assert years == tuple(range(1871, 1971))
    assert np.mean(flow) == 919.35 and (min(flow), max(flow)) == (456, 1370)


def test_iris_is_fishers() -> None:
    lines = (ROOT / "examples" / "data" / "iris.csv").read_text().splitlines()
    rows = [line.split(",") for line in lines[1:]]
    x = np.array([[float(cell) for cell in row[:4]] for row in rows])
    assert x.shape == (150, 4)
    assert [sum(row[4] == s for row in rows) for s in ("setosa", "versicolor", "virginica")] == [
        50, 50, 50,
    ]  # fmt: skip
    np.testing.assert_allclose(x.mean(axis=0), [5.843333, 3.057333, 3.758, 1.199333], atol=1e-6)
    # The two rows that differ in the copy of the UCI repository.
    assert rows[34][:4] == ["4.9", "3.1", "1.5", "0.2"]
    assert rows[37][:4] == ["4.9", "3.6", "1.4", "0.1"]
