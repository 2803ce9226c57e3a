"""Every setting of a kernel that was ever counted on an H200, set by set, and what is said of it.

Errors that hold of them are those that the pages state. L2 bytes are 32 x `lts__t_sectors_srcunit_tex.sum`, the median
of all runs of a setting that were counted; DRAM bytes are reads plus writes.
"""

from __future__ import annotations

import json
from functools import lru_cache, partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fmha import ladder
from fmha.edge import dram_doubt
from fmha.forecast import Forecast, forecast, own_order
from fmha.hardware import GPUS, Gpu
from fmha.kernels import KERNELS, SECTOR
from fmha.measurement import shipped
from fmha.problem import Problem, Tiling

LOADS, STORES = (f"l1tex__t_sectors_pipe_lsu_mem_global_op_{op}.sum" for op in ("ld", "st"))
L2, DRAM_READ, DRAM_WRITE = "lts__t_sectors_srcunit_tex.sum", "dram__bytes_read.sum", "dram__bytes_write.sum"
H200 = GPUS["H200"]


class Case(NamedTuple):
    """One measured setting. time_us: the median of timed runs, or what ncu measured once; registers by function."""

    kernel: str
    problem: Problem
    tiling: Tiling
    gpu: Gpu
    registers: dict[str, int]
    counters: dict[str, dict[str, float]]
    time_us: float

    def total(self, metric: str) -> float:
        return sum(metrics[metric] for metrics in self.counters.values())

    @property
    def l2(self) -> float:
        again = repeated().get((self.kernel, self.problem, self.tiling), ())
        return SECTOR * float(np.median([self.total(L2), *again]))

    @property
    def dram(self) -> float:
        return self.total(DRAM_READ) + self.total(DRAM_WRITE)


@lru_cache(maxsize=1)
def repeated() -> dict[tuple[str, Problem, Tiling], list[int]]:
    """Sectors that L2 was asked for in other runs of a setting, on two more H200s."""
    entries = json.loads((Path(__file__).parent / "counters_h200_repeated.json").read_text())["entries"]
    return {
        (e["kernel"], Problem(**e["problem"]), Tiling(*e["tiling"])): [r[0] for r in e["runs"]] + e.get("more", [])
        for e in entries
    }


@lru_cache(maxsize=1)
def recorded() -> tuple[Case, ...]:
    return tuple(
        Case(
            entry.name, run.problem, Tiling(*(entry.tiling or (32, 32))), recording.device.gpu,
            {use.function: use.registers for use in entry.build.functions}, entry.counters, entry.time.median_us,
        )
        for recording in shipped() for run in recording.runs for entry in run.entries
        if entry.is_kernel and entry.name in ("01", "02") and entry.counters and entry.time and entry.build
    )  # fmt: skip


@lru_cache(maxsize=1)
def of_the_ladder() -> tuple[Case, ...]:
    """All thirteen kernels at N=4096, as they come with the app."""
    return tuple(
        Case(
            entry.name, run.problem.replace(dtype=entry.dtype), Tiling(*(entry.tiling or (32, 32))),
            recording.device.gpu, {use.function: use.registers for use in entry.build.functions}, entry.counters,
            entry.time.median_us,
        )
        for recording in ladder.shipped() for run in recording.runs for entry in run.entries
        if entry.is_kernel and entry.counters and entry.time and entry.build
    )  # fmt: skip


@lru_cache(maxsize=8)
def _from_file(name: str, which: str | None = None) -> tuple[Case, ...]:
    entries = json.loads((Path(__file__).parent / name).read_text())["entries"]
    gpu = recorded()[0].gpu
    return tuple(
        Case(
            e["kernel"], Problem(**e["problem"]), Tiling(*e["tiling"]), gpu,
            {name: int(c["launch__registers_per_thread"]) for name, c in e["counters"].items()}, e["counters"],
            sum(c["gpu__time_duration.sum"] for c in e["counters"].values()) / 1e3,
        )
        for e in entries
        if which is None or e["set"] == which
    )  # fmt: skip


SETS = {
    "recorded": recorded,
    # Chosen to be hard: K and V beyond L2, whole heads a wave, GQA, ragged, other tiles. They refuted the first
    # version; that blocks which wait for DRAM stay in step was found with them.
    "read afterwards": partial(_from_file, "counters_h200.json"),
    # Each of these was read for one version of the model, and the next knows it; test_forecast_blind.py tells how that
    # one fared. Of kernels 01 and 02:
    "read later": partial(_from_file, "counters_h200_later.json"),
    "read again": partial(_from_file, "counters_h200_again.json"),
    # Of kernels 02 to 13, whose blocks are followed in time; last, drawn at random.
    "read third": partial(_from_file, "counters_h200_third.json"),
    "read fourth": partial(_from_file, "counters_h200_fourth.json"),
    "the ladder": of_the_ladder,
    "random": partial(_from_file, "counters_h200_random.json", "first"),
    "random again": partial(_from_file, "counters_h200_random.json", "second"),
    # When the model was as it is now:
    "random, used for nothing": partial(_from_file, "counters_h200_random.json", "last"),
}
USED = [name for name in SETS if name != "random, used for nothing"]


@lru_cache(maxsize=10)
def cases(which: str) -> list[tuple[Case, Forecast]]:
    return [(c, forecast(KERNELS[c.kernel], c.problem, c.tiling, c.gpu, registers=c.registers)) for c in SETS[which]()]


def doubted(case: Case, found: Forecast) -> bool:
    """Whether nothing is said of DRAM."""
    kernel, places = KERNELS[case.kernel], found.functions[0].held.blocks
    return case.kernel != "01" and bool(
        dram_doubt(case.problem, case.tiling, case.gpu, own_order(kernel), blocks_per_sm=places)
    )
