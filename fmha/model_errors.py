"""By how much the forecast is off, against what was measured: one row for each recorded run of a kernel.

An error is predicted / measured - 1. Levels: "requested", "l2" (asked of L2 by SMs), "dram" (read and written),
"smem" (wavefronts of shared memory), "time".
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from fmha.bank_kernels import smem_use
from fmha.forecast import MODELLED, Forecast, forecast
from fmha.hardware import Gpu
from fmha.kernels import KERNELS, SECTOR
from fmha.measurement import Entry, Recording
from fmha.problem import Problem, Tiling
from fmha.roofline import DRAM_READ, DRAM_WRITE, L2_SECTORS, SMEM_WAVEFRONTS

LOADS = "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"
STORES = "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum"
LEVELS = ("requested", "l2", "dram", "smem", "time")
# (median, worst) of the shipped recordings, rounded up, beside `fmha.model_facts.ERRORS_OF_THE_MODEL`. Tested.
STATED: dict[str, tuple[float, float]] = {"requested": (0.0, 0.0), "smem": (0.003, 0.11)}
_ANY_TILE = (32, 32)  # of kernel 01, which has its own


class Off(NamedTuple):
    """The errors of one recorded run."""

    kernel: str
    problem: Problem
    tiling: tuple[int, int] | None
    errors: dict[str, float]


class Spread(NamedTuple):
    """Errors of many runs: the median and the largest, both without their sign, and of how many runs."""

    median: float
    worst: float
    runs: int


def measured(entry: Entry) -> dict[str, float]:
    """What the hardware counted, by level: bytes, wavefronts, and microseconds; what was not read is missing."""
    loads, stores = entry.counter(LOADS), entry.counter(STORES)
    sectors, wavefronts = entry.counter(L2_SECTORS), entry.counter(SMEM_WAVEFRONTS)
    read, written = entry.counter(DRAM_READ), entry.counter(DRAM_WRITE)
    found = {
        "requested": None if loads is None or stores is None else SECTOR * (loads + stores),
        "l2": None if sectors is None else SECTOR * sectors,
        "dram": None if read is None or written is None else read + written,
        "smem": wavefronts,
        "time": entry.time.median_us if entry.time else None,
    }
    return {name: value for name, value in found.items() if value}


def errors(said: Forecast, wavefronts: int, counted: dict[str, float]) -> dict[str, float]:
    """Errors of a forecast at each level that was measured. wavefronts: predicted, of the whole run."""
    predicted = {
        "requested": said.levels.requested, "l2": said.levels.l2, "dram": said.dram_read + said.dram_written,
        "smem": float(wavefronts), "time": said.time_us,
    }  # fmt: skip
    return {name: predicted[name] / counted[name] - 1 for name in LEVELS if name in counted}


def off(number: str, problem: Problem, tiling: tuple[int, int] | None, gpu: Gpu, entry: Entry) -> Off:
    """The errors for one entry of a recording on `gpu`."""
    kernel, tiles = KERNELS[number], Tiling(*(tiling or _ANY_TILE))
    said = forecast(kernel, problem, tiles, gpu)
    wavefronts = smem_use(kernel, problem, tiles, gpu).wavefronts
    return Off(number, problem, tiling, errors(said, wavefronts, measured(entry)))


def against(recordings: Iterable[Recording]) -> list[Off]:
    """All recorded runs with counters of kernels 01 and 02 whose source is still the same."""
    return [
        off(entry.name, run.problem, entry.tiling, recording.device.gpu, entry)
        for recording in recordings
        for run in recording.runs
        for entry in run.entries
        if entry.name in MODELLED and entry.counters and not entry.stale
    ]


def spread(rows: Sequence[Off], level: str) -> Spread:
    """The errors at one level; zeros where nothing was measured."""
    values = [abs(row.errors[level]) for row in rows if level in row.errors]
    return Spread(statistics.median(values), max(values), len(values)) if values else Spread(0.0, 0.0, 0)


def spearman(one: Sequence[float], other: Sequence[float]) -> float:
    """Spearman's rank correlation of two lists of equally many numbers, none twice: 1 where the order is the same."""
    first, second = (np.argsort(np.argsort(np.asarray(values))).astype(float) for values in (one, other))
    return float(np.corrcoef(first, second)[0, 1])
