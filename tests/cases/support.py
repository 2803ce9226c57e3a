"""What the case files share: every order and several tilings through the API, and the same numbers through the CLI."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fmha import Problem, Run, Tiling, simulate
from fmha.cli import main
from fmha.schedule import ORDERS

TILES = (Tiling(1, 1), Tiling(2, 3), Tiling(3, 2), Tiling(64, 64))
TOLERANCE = {"fp32": 1e-5, "fp16": 2e-3, "bf16": 1.6e-2}


def runs(p: Problem, Q: Any, K: Any, V: Any, precisions: tuple[str, ...] = ("float64", "dtype")) -> list[Run]:
    """The problem in every order, tiling and precision."""
    return [
        simulate(p, t, Q, K, V, order, precision=precision)
        for order in ORDERS
        for t in TILES
        for precision in precisions
    ]


def check(run: Run, O: Any, LSE: Any = None, printed: float = 1e-6) -> None:
    """A run's results equal the printed ones; within the dtype's tolerance where it rounds. No NaN anywhere."""
    tolerance = printed if run.precision == "float64" else max(printed, TOLERANCE[run.problem.dtype])
    for array in (run.O, run.LSE, run.m, run.l, run.alpha):
        assert not np.isnan(array).any()
    expected = np.asarray(O, float).reshape(run.O.shape)
    assert np.abs(run.O - expected).max() <= tolerance
    assert np.linalg.norm(run.O - expected) <= tolerance * max(np.linalg.norm(expected), 1)
    if LSE is not None:
        np.testing.assert_allclose(run.LSE.ravel(), np.ravel(LSE), rtol=tolerance, atol=tolerance)


def column(*values: float) -> np.ndarray:
    """Values along the sequence: [1, 1, N, 1]."""
    return np.array(values, float).reshape(1, 1, -1, 1)


def save(path: Path, Q: Any, K: Any, V: Any, **more: Any) -> str:
    """An .npz file for `--file`."""
    np.savez(path, Q=Q, K=K, V=V, **more)
    return str(path)


def by_cli(capsys: pytest.CaptureFixture[str], line: str) -> dict[str, Any]:
    """What a command prints as JSON; NaN in it is an error."""
    assert main([*line.split(), "--json"]) == 0
    text = capsys.readouterr().out
    assert "NaN" not in text
    out: dict[str, Any] = json.loads(text)
    return out
