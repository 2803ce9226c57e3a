"""A recording as a bench would write it, with times that are invented: for tests only."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from fmha.check import HeadRows, check, error_map
from fmha.hardware import DriverFacts
from fmha.inputs import load
from fmha.kernels import kernel
from fmha.measurement import Build, Device, Entry, ErrorMap, FunctionUse, Recording, Run, State, Timing
from fmha.problem import Problem, Tiling
from fmha.reference import reference

FACTS = DriverFacts(
    "NVIDIA H200", "9.0", 132, 1_980_000, 3_201_000, 6144, 60 << 20, 143_771 << 20, 233_472, 232_448, 2048, 1024, 32,
    65_536,
)  # fmt: skip
DEVICE = Device(FACTS, "580.1.2", "13.0", "2026.1", "2.11.0")
SMALL = Problem(H=2, N=128, d=16)
TILES = Tiling(32, 32)
# function -> metric -> value, as Nsight Compute would say; requested sectors are filled in by `counters_for`
L1 = "l1tex__t_sectors_pipe_lsu_mem_global_op_"
SHARED = "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum"
CONFLICTS = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum"


def timing(median_us: float) -> Timing:
    return Timing(median_us, 0.97 * median_us, 1.06 * median_us, 0.95 * median_us, 30, 3)


def counters_for(entry: Entry, more_sectors: int = 0) -> dict[str, dict[str, float]]:
    """Counters that agree with the prediction to the byte, or have some sectors more."""
    name = "fmha101" if entry.name == "02" else "naive_scores"
    read = sum(r for r, _ in entry.requested.values())
    written = sum(w for _, w in entry.requested.values())
    return {
        name: {
            f"{L1}ld.sum": read / 32 + more_sectors,
            f"{L1}st.sum": written / 32,
            "lts__t_bytes.sum": 0.4 * (read + written),
            "dram__bytes_read.sum": 30_000.0,
            "dram__bytes_write.sum": 9_000.0,
            SHARED: 4_000_000.0,
            CONFLICTS: 3_600_000.0,
            "gpu__time_duration.sum": 900_000.0,
        }
    }


def entry_of(number: str, problem: Problem, tiling: Tiling, median_us: float, *, off: float = 0.0) -> Entry:
    """A kernel's entry with a true check of a result that is `off` from float64 in one element."""
    chosen = kernel(number)
    plan = chosen.plan(problem, tiling)
    made = load("random", problem)
    O = reference(problem, made.Q, made.K, made.V).O.astype(np.float32)
    O[0, 0, 0, 0] += off
    arrays: tuple[Any, ...] = (*(a.astype(np.float32) for a in (made.Q, made.K, made.V)), O)
    rows = np.arange(problem.Nq)
    cells = error_map(problem, HeadRows(0, 0, rows), *arrays)
    functions = tuple(FunctionUse(launch.function, 40, 0, launch.static_smem_bytes, 2) for launch in plan.launches)
    return Entry(
        number, chosen.title, "fp32", (tiling.Br, tiling.Bc) if chosen.tiled else None, chosen.source_hash(),
        Build("nvcc 13.0", "sm_90", ("-O3", "-DBR=32"), 2.5, False, functions), check(problem, *arrays),
        ErrorMap(0, 0, (0, problem.Nq), tuple(tuple(float(x) for x in row) for row in cells)),
        timing(median_us) if not off else None, dict(plan.requested.by_tensor),
    )  # fmt: skip


def recording(
    number: str = "02",
    problem: Problem = SMALL,
    tiling: Tiling = TILES,
    *,
    median_us: float = 1200.0,
    counters: bool = True,
    off: float = 0.0,
) -> Recording:
    """One run: the kernel, its rival, peers in two precisions, one that is absent."""
    mine = entry_of(number, problem, tiling, median_us, off=off)
    if counters:
        mine = dataclasses.replace(mine, counters=counters_for(mine))
    rival = entry_of("01" if number == "02" else "02", problem, tiling, 2000.0)
    fair = dataclasses.replace(mine.check, ok=True, not_finite=0) if mine.check else None
    peers = (
        Entry("sdpa-efficient", "SDPA, memory-efficient", "fp32", check=fair, time=timing(40.0)),
        Entry("torch-eager", "torch, three operations", "fp32", check=fair, time=timing(300.0)),
        Entry("sdpa-flash", "SDPA, FlashAttention-2", "bf16", check=fair, time=timing(12.0)),
        Entry("sdpa-flash", "SDPA, FlashAttention-2", "fp32", absent="not offered by torch here: no fp32"),
    )
    made = "2026-11-29T12:00:00+00:00"
    before, after = State(1980, 3201, 31, 120.0), State(1965, 3201, 44, 512.5)
    run = Run(problem, "random", 0, made, (mine, rival, *peers), before, after)
    return Recording(DEVICE, made, (run,), "fmha test")
