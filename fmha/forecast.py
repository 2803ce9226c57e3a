"""What a run of a kernel will do on a GPU: bytes at every level, and time, before anything is launched.

Bytes are those of `fmha.caches` and `fmha.cache_naive`. Time is that of the scarcest resource of each function: turns
of the shared-memory banks, issue slots, multiply-adds, L2, DRAM; the busiest SM counts. Each resource is reached to a
degree that was measured on an H200 (`fmha.model_facts`). On other GPUs it is an estimate that nothing here has checked.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from fmha.bank_kernels import smem_use
from fmha.cache_naive import naive_levels
from fmha.caches import q_outer_levels
from fmha.dispatch import Waves, blocks_in_order, check_block_order, deal
from fmha.errors import LimitError
from fmha.hardware import KIB, Gpu
from fmha.kernels import Kernel, Launch, Plan
from fmha.levels import Caches, Levels, TensorBytes, caches_of, together
from fmha.lockstep import reach
from fmha.model_facts import (
    BACKGROUND_READ,
    BACKGROUND_WRITE,
    COLUMN_CLOCKS,
    DRAM_REACHED,
    ERRORS_OF_THE_MODEL,
    FITTED,
    HIDDEN,
    HOW_THE_MODEL_WORKS,
    L2_REACHED,
    LAUNCH_US,
    LIMITS_OF_THE_MODEL,
    NAIVE_REGISTERS,
    OUTPUT,
    SCHEDULERS,
    SCORES,
    SOFTMAX,
    SOFTMAX_ROW,
    VISIT_CLOCKS,
    WARPS_TO_ISSUE,
    WAVEFRONTS_REACHED,
    Constant,
    Error,
)
from fmha.occupancy import Occupancy, occupancy
from fmha.problem import Problem, Tiling
from fmha.tile_designs import COMPILED
from fmha.units import ceil_div

MOST_VISITS = 30_000
MODELLED = ("01", "02")  # kernels whose accesses are written down; a forecast of another raises LimitError


@dataclass(frozen=True)
class FunctionForecast:
    """One launched function. Times in microseconds.

    resources: the least time that each resource needs. busy: share of SMs x time that works. launch_us: what every
    launch takes.
    """

    function: str
    levels: Levels
    held: Occupancy
    waves: Waves
    resources: dict[str, float]
    busy: float
    launch_us: float = LAUNCH_US

    @property
    def binds(self) -> str:
        """The resource that takes longest."""
        return max(self.resources, key=lambda name: self.resources[name])

    @property
    def time_us(self) -> float:
        """Time of the function."""
        return self.launch_us + self.resources[self.binds]


@dataclass(frozen=True)
class Forecast:
    """A run of a kernel: its functions one after the other, each with cold caches."""

    kernel: str
    functions: tuple[FunctionForecast, ...]

    @property
    def levels(self) -> Levels:
        """Bytes of all functions together, without the background."""
        return together((f.levels for f in self.functions), self.kernel)

    @property
    def time_us(self) -> float:
        """Time of the run."""
        return sum(f.time_us for f in self.functions)

    @property
    def longest(self) -> FunctionForecast:
        """The function that takes longest."""
        return max(self.functions, key=lambda f: f.time_us)

    @property
    def background(self) -> TensorBytes:
        """DRAM bytes that no block asks for, in proportion to the time: a profiler counts them too."""
        return TensorBytes(dram_read=BACKGROUND_READ * self.time_us, dram_written=BACKGROUND_WRITE * self.time_us)

    @property
    def dram_read(self) -> float:
        """What `dram__bytes_read.sum` will show."""
        return self.levels.all.dram_read + self.background.dram_read

    @property
    def dram_written(self) -> float:
        """What `dram__bytes_write.sum` will show."""
        return self.levels.all.dram_written + self.background.dram_written


def forecast(
    kernel: Kernel,
    problem: Problem,
    tiling: Tiling,
    gpu: Gpu,
    *,
    order: str = "head-major",
    registers: Mapping[str, int] | None = None,
    l2_bytes: int | None = None,
    most: int = MOST_VISITS,
) -> Forecast:
    """Bytes and time of a run of `kernel`.

    Args:
        order: of the blocks, one of `fmha.dispatch.BLOCK_ORDERS`; the kernels as they are: head-major.
        registers: of a thread, by function, as a build reports them; otherwise what nvcc 13.0 gave for sm_90.
        l2_bytes: another size of L2 than the GPU's.
        most: visits of K/V tiles that are followed one by one (kernel 02); 8,000 takes a few milliseconds and is off by
            a few percent more, 30,000 up to 60.

    Raises:
        ProblemError, LimitError: as `Kernel.plan`; ProblemError for an unknown block order; LimitError for a kernel or
        a GPU that the model does not know.
    """
    check_block_order(order)
    if not gpu.is_cuda:
        raise LimitError(f"kernels here are CUDA and the {gpu.name} does not run them: choose an NVIDIA GPU.")
    if kernel.number not in ("01", "02"):
        raise LimitError(f"kernel {kernel.number} ({kernel.name}) is not modelled: choose kernel 01 or 02.")
    plan = kernel.plan(problem, tiling, gpu)
    held = {launch.function: _held(launch, plan, gpu, registers or {}) for launch in plan.launches}
    caches = {launch.function: _caches(gpu, launch, held[launch.function].blocks, l2_bytes) for launch in plan.launches}
    sms = gpu.sms
    if kernel.number == "02":
        levels: tuple[Levels, ...] = (_flash_levels(plan, caches["fmha101"], sms, held["fmha101"].blocks, most, order),)
    else:
        per_sm = {function: one.blocks for function, one in held.items()}
        levels = naive_levels(problem, plan.requested, caches, sms=sms, blocks_per_sm=per_sm)
    banks = smem_use(kernel, problem, tiling, gpu)
    functions = []
    for launch, bytes_of in zip(plan.launches, levels, strict=True):
        room = held[launch.function]
        waves = Waves(launch.grid, max(1, room.blocks) * sms)
        busy = _busy(problem, tiling, waves, order, sms) if kernel.number == "02" else _even(launch.grid, sms)
        wavefronts = banks.of(launch.function).wavefronts
        resources = _resources(plan, launch, bytes_of, room, gpu, wavefronts, busy)
        functions.append(FunctionForecast(launch.function, bytes_of, room, waves, resources, busy))
    return Forecast(kernel.number, tuple(functions))


def time_us(kernel: Kernel, problem: Problem, tiling: Tiling, gpu: Gpu, *, most: int = MOST_VISITS) -> float:
    """`forecast(...).time_us` in head-major order; of kernel 02 without following the caches where they cannot matter.

    If even the requested bytes would pass L2 and DRAM faster than the slowest other resource, the caches need not be
    followed: the number is the same.

    Raises:
        ProblemError, LimitError: as `forecast`.
    """
    if kernel.number != "02" or not gpu.is_cuda:
        return forecast(kernel, problem, tiling, gpu, most=most).time_us
    plan = kernel.plan(problem, tiling, gpu)
    (launch,) = plan.launches
    room = _held(launch, plan, gpu, {})
    busy = _busy(problem, tiling, Waves(launch.grid, max(1, room.blocks) * gpu.sms), "head-major", gpu.sms)
    moved = float(plan.requested.requested_bytes)
    at_most = Levels(launch.function, {"all": TensorBytes(read=moved, dram_read=moved)})
    wavefronts = smem_use(kernel, problem, tiling, gpu).wavefronts
    resources = _resources(plan, launch, at_most, room, gpu, wavefronts, busy)
    if max(resources, key=lambda name: resources[name]) in ("L2", "DRAM"):
        levels = _flash_levels(plan, _caches(gpu, launch, room.blocks, None), gpu.sms, room.blocks, most)
        resources = _resources(plan, launch, levels, room, gpu, wavefronts, busy)
    return LAUNCH_US + max(resources.values())


def _flash_levels(plan: Plan, caches: Caches, sms: int, blocks: int, most: int, order: str = "head-major") -> Levels:
    """Bytes of kernel 02, of which an SM holds `blocks` blocks. A thread loads d / Br numbers of a K or V tile."""
    return q_outer_levels(
        plan.problem, plan.tiling, caches, sms=sms, blocks_per_sm=blocks, order=order, most=most,
        rounds=ceil_div(plan.problem.d, plan.tiling.Br),
    )  # fmt: skip


def _held(launch: Launch, plan: Plan, gpu: Gpu, registers: Mapping[str, int]) -> Occupancy:
    """Blocks that an SM holds; at least 1, since the plan was accepted."""
    known = registers.get(launch.function) or NAIVE_REGISTERS.get(launch.function)
    if known is None:
        known = COMPILED.get((plan.tiling.Br, plan.tiling.Bc)) or (60 if launch.block > 512 else 40)
    smem = launch.smem_bytes + launch.static_smem_bytes
    found = occupancy(gpu, threads=launch.block, smem_bytes=smem, registers=known)
    return found if found.blocks else replace(found, blocks=1, warps=ceil_div(launch.block, gpu.warp))


def _caches(gpu: Gpu, launch: Launch, blocks: int, l2_bytes: int | None) -> Caches:
    """Caches while a function runs; each block takes 1 KiB more than it asks for."""
    found = caches_of(gpu, blocks * (launch.smem_bytes + launch.static_smem_bytes + KIB))
    return found if l2_bytes is None else replace(found, l2_bytes=max(0, l2_bytes))


def _even(blocks: int, sms: int) -> float:
    """Share of SMs x time that works when all blocks last equally long and the last ones spread over the SMs."""
    return blocks / (ceil_div(blocks, sms) * sms)


def _busy(problem: Problem, tiling: Tiling, waves: Waves, order: str, sms: int) -> float:
    """The same for kernel 02, whose blocks last as long as they have K/V tiles to visit."""
    if problem.causal_offset is None and problem.lens_k is None and problem.left_pad is None:
        return _even(waves.blocks, sms)
    seen = reach(problem, tiling)
    Tr, heads = tiling.Tr(problem), problem.B * problem.H
    # More heads are more of the same: four waves of blocks show the tail.
    few = min(heads, max(1, 4 * waves.slots // Tr))
    head, tile = np.divmod(blocks_in_order(order, few, Tr), Tr)
    duration = seen.of(head // problem.H, tile).duration
    _, slot = deal(duration, waves.slots)
    # Blocks that share an SM share its time, so an SM is done when all that it was dealt is.
    work = np.bincount(slot % sms, duration, sms)
    idle = float((work.max() - work).sum())
    total = float(work.sum()) * heads / few
    return total / (total + idle) if total else 1.0


def _resources(
    plan: Plan, launch: Launch, levels: Levels, held: Occupancy, gpu: Gpu, wavefronts: int, busy: float
) -> dict[str, float]:
    """Least time of each resource in microseconds. `busy` spreads work over SMs; DRAM and L2 serve all of them."""
    p = plan.problem
    clock = gpu.boost_ghz * 1e3  # clocks a microsecond
    blocks_there = min(held.blocks, ceil_div(launch.grid, gpu.sms))
    warps = blocks_there * ceil_div(launch.block, gpu.warp)
    issue = SCHEDULERS * gpu.sms * clock * (1 - math.exp(-warps / WARPS_TO_ISSUE)) * busy
    banks = gpu.limits.smem_bytes_per_clock / 128 * gpu.sms * clock
    turns = wavefronts / (banks * WAVEFRONTS_REACHED)
    elements = p.B * p.H * p.Nq * p.Nk
    found: dict[str, float] = {}
    flops = 2.0 * elements * p.d
    if launch.function == "naive_scores":
        found["issue slots"] = elements / 32 * (SCORES[0] + SCORES[1] * p.d) / issue
    elif launch.function == "naive_output":
        found["issue slots"] = elements / 32 * (OUTPUT[0] + OUTPUT[1] * p.d) / issue
    elif launch.function == "naive_softmax":
        found["issue slots"] = (elements / 32 * SOFTMAX + p.B * p.H * p.Nq * SOFTMAX_ROW) / issue
        flops = 5.0 * elements
    else:
        flops = float(plan.requested.flops)
        Bc = plan.tiling.Bc
        visits = plan.requested.by_tensor.get("K", (0, 0))[0] / (Bc * p.d * p.itemsize)
        turns += visits * (VISIT_CLOCKS + COLUMN_CLOCKS * Bc) / blocks_there**HIDDEN / (gpu.sms * clock)
    found["shared memory"] = turns / busy
    found["fp32 units"] = flops / (gpu.fp32_tflops * 1e6 * busy)
    if gpu.l2_gbps:
        found["L2"] = levels.l2 / (gpu.l2_gbps * 1e3 * L2_REACHED)
    found["DRAM"] = levels.dram / (gpu.hbm_gbps * 1e3 * DRAM_REACHED)
    return found


__all__ = [
    "ERRORS_OF_THE_MODEL",
    "FITTED",
    "HOW_THE_MODEL_WORKS",
    "LIMITS_OF_THE_MODEL",
    "MOST_VISITS",
    "Constant",
    "Error",
    "Forecast",
    "FunctionForecast",
    "forecast",
    "time_us",
]
