"""Between what bytes asked of L2 are expected: whose requests merge hangs on nanoseconds that no model of tiles knows.

Blocks are followed as if they came out of step half, and twice, as fast as was fitted; what lies between, and a tenth
more on either side, held the counters in all but a few of the settings that were ever measured (`fmha.model_record`).
"""

from __future__ import annotations

from typing import NamedTuple

from fmha.forecast import Forecast, forecast
from fmha.hardware import Gpu
from fmha.kernels import Kernel
from fmha.levels import caches_of
from fmha.problem import Problem, Tiling

DRIFTS = (0.5, 2.0)  # times what was fitted
SLACK = 0.1


class Range(NamedTuple):
    """Bytes, the least and the most."""

    least: float
    most: float


def l2_range(
    said: Forecast,
    kernel: Kernel,
    problem: Problem,
    tiling: Tiling,
    gpu: Gpu,
    *,
    order: str | None = None,
    l2_bytes: int | None = None,
) -> Range | None:
    """Of a run whose forecast is `said`; None for kernel 01, whose blocks are not followed, and
    for a GPU whose SMs are not taken to merge requests.

    Args:
        order, l2_bytes: as `fmha.forecast.forecast`.
    """
    if kernel.number == "01" or caches_of(gpu, 0).merging_sms == 1:
        return None
    found = [said.levels.l2] + [
        forecast(kernel, problem, tiling, gpu, order=order, l2_bytes=l2_bytes, drift=drift).levels.l2
        for drift in DRIFTS
    ]
    return widened(found, said.levels.requested + said.levels.spilled)


def widened(found: list[float], requested: float) -> Range:
    """From the least to the most of some predictions and `SLACK` beyond; L2 is never asked for more than requested,
    spilled registers included."""
    return Range((1 - SLACK) * min(found), min((1 + SLACK) * max(found), requested))


__all__ = ["DRIFTS", "SLACK", "Range", "l2_range", "widened"]
