"""What a run of a kernel will do on a GPU: bytes at every level, and time, before anything is launched.

Bytes are those of `fmha.caches` and `fmha.cache_naive`. Time of kernels 01 and 02 is that of the scarcest resource of
each function: turns of the shared-memory banks, issue slots, multiply-adds, L2, DRAM; the busiest SM counts. Each
resource is reached to a degree that was measured on an H200 (`fmha.model_facts`). Time of kernels 03 to 13 is that of
`fmha.sm_time`, or that of L2 or DRAM if one takes longer. On other GPUs all of it is an estimate that nothing here has
checked.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from fmha.bank_kernels import smem_use, smem_wavefronts
from fmha.cache_naive import naive_levels
from fmha.caches import q_outer_levels
from fmha.compiled import spilled_stores
from fmha.dispatch import Waves, blocks_in_order, check_block_order, deal
from fmha.errors import LimitError
from fmha.forecast_parts import Forecast, FunctionForecast, caches_beside, held, memory_times
from fmha.hardware import Gpu
from fmha.kernels import Kernel, Launch, Plan
from fmha.levels import Caches, Levels, TensorBytes
from fmha.lockstep import reach
from fmha.model_facts import (
    COLUMN_CLOCKS,
    ERRORS_OF_THE_MODEL,
    FITTED,
    HIDDEN,
    HOW_THE_MODEL_WORKS,
    LAUNCH_US,
    LIMITS_OF_THE_MODEL,
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
from fmha.occupancy import Occupancy
from fmha.pace import Pace, pace
from fmha.problem import Problem, Tiling
from fmha.sm_time import check_gpu, sm_time
from fmha.units import ceil_div
from fmha.visit_costs import COSTED, LONGEST_FIRST, ONE_SCORE, visit_cost

MOST_VISITS = 30_000
MODELLED = ("01", "02")  # kernels whose accesses are written down: bytes at all levels and time, checked by counters
TIMED = (*MODELLED, *COSTED)  # those with a forecast; one of another raises LimitError


def forecast(
    kernel: Kernel,
    problem: Problem,
    tiling: Tiling,
    gpu: Gpu,
    *,
    order: str | None = None,
    registers: Mapping[str, int] | None = None,
    l2_bytes: int | None = None,
    most: int = MOST_VISITS,
    drift: float = 1.0,
) -> Forecast:
    """Bytes and time of a run of `kernel`.

    Args:
        order: of the blocks, one of `fmha.dispatch.BLOCK_ORDERS`; None: as the kernel has it.
        registers: of a thread, by function, as a build reports them; otherwise what nvcc 13.0 gave for sm_90.
        l2_bytes: another size of L2 than the GPU's.
        most: visits of K/V tiles that are followed one by one (not of kernel 01); 8,000 takes a few milliseconds and is
            off by a few percent more, 30,000 up to 60.
        drift: how many times as fast as was fitted blocks come out of step (not of kernel 01).

    Raises:
        ProblemError, LimitError: as `Kernel.plan`; ProblemError for an unknown block order; LimitError for a kernel or
        a GPU that the model does not know.
    """
    order = check_block_order(order or own_order(kernel))
    if not gpu.is_cuda:
        raise LimitError(f"kernels here are CUDA and the {gpu.name} does not run them: choose an NVIDIA GPU.")
    if kernel.number not in TIMED:
        known = ", ".join(TIMED[:-1])
        raise LimitError(f"kernel {kernel.number} ({kernel.name}) is not modelled: choose {known} or {TIMED[-1]}.")
    plan = kernel.plan(problem, tiling, gpu)
    if kernel.number in COSTED:
        check_gpu(kernel, problem, gpu)
    rooms = {launch.function: held(kernel, launch, plan, gpu, registers or {}) for launch in plan.launches}
    caches = {
        launch.function: caches_beside(gpu, launch, rooms[launch.function].blocks, l2_bytes) for launch in plan.launches
    }
    sms = gpu.sms
    wavefronts: dict[str, int] = {}
    if kernel.number in MODELLED:
        used = smem_use(kernel, problem, tiling, gpu)
        wavefronts = {launch.function: used.of(launch.function).wavefronts for launch in plan.launches}
    levels: tuple[Levels, ...]
    if kernel.number == "01":
        per_sm = {function: one.blocks for function, one in rooms.items()}
        levels = naive_levels(problem, plan.requested, caches, sms=sms, blocks_per_sm=per_sm)
    else:
        (function,) = rooms
        fast = pace_of(kernel, plan, gpu, rooms[function].blocks, wavefronts.get(function, 0))._replace(drift=drift)
        levels = (_flash_levels(kernel, plan, caches[function], sms, rooms[function].blocks, most, order, fast),)
    functions = []
    for launch, bytes_of in zip(plan.launches, levels, strict=True):
        room = rooms[launch.function]
        waves = Waves(launch.grid, max(1, room.blocks) * sms)
        if kernel.number in COSTED:
            spent = sm_time(kernel, plan, gpu, room.blocks, order)
            resources, busy, together_us = spent.resources | memory_times(bytes_of, gpu), spent.busy, spent.together_us
        else:
            busy = _busy(problem, tiling, waves, order, sms) if kernel.number == "02" else _even(launch.grid, sms)
            turns = wavefronts[launch.function]
            resources, together_us = _resources(plan, launch, bytes_of, room, gpu, turns, busy), 0.0
        functions.append(
            FunctionForecast(launch.function, bytes_of, room, waves, resources, busy, together_us=together_us)
        )
    return Forecast(kernel.number, tuple(functions))


def own_order(kernel: Kernel) -> str:
    """The order in which a kernel's blocks are handed out, one of `fmha.dispatch.BLOCK_ORDERS`."""
    return "heavy-first" if kernel.number in LONGEST_FIRST else "head-major"


def time_us(kernel: Kernel, problem: Problem, tiling: Tiling, gpu: Gpu, *, most: int = MOST_VISITS) -> float:
    """`forecast(...).time_us`, but for kernels that go over K/V tiles without following caches that cannot matter.

    If even the requested bytes would pass L2 and DRAM faster than what else takes time, the caches need not be
    followed: the number is the same.

    Raises:
        ProblemError, LimitError: as `forecast`.
    """
    if kernel.number not in ("02", *COSTED) or not gpu.is_cuda:
        return forecast(kernel, problem, tiling, gpu, most=most).time_us
    plan = kernel.plan(problem, tiling, gpu)
    (launch,) = plan.launches
    room = held(kernel, launch, plan, gpu, {})
    moved = float(plan.requested.requested_bytes)
    memory = memory_times(Levels(launch.function, {"all": TensorBytes(read=moved, dram_read=moved)}), gpu)
    wavefronts = 0
    if kernel.number == "02":
        busy = _busy(problem, tiling, Waves(launch.grid, max(1, room.blocks) * gpu.sms), own_order(kernel), gpu.sms)
        wavefronts = smem_wavefronts(kernel, problem, tiling, gpu)
        there = max(_of_sms(plan, launch, room, gpu, wavefronts, busy).values())
    else:
        there = sm_time(kernel, plan, gpu, room.blocks, own_order(kernel)).together_us
    if max(memory.values()) > there:
        caches = caches_beside(gpu, launch, room.blocks, None)
        fast = pace_of(kernel, plan, gpu, room.blocks, wavefronts)
        levels = _flash_levels(kernel, plan, caches, gpu.sms, room.blocks, most, own_order(kernel), fast)
        memory = memory_times(levels, gpu)
    return LAUNCH_US + max(there, *memory.values())


def pace_of(kernel: Kernel, plan: Plan, gpu: Gpu, blocks: int, wavefronts: int = 0) -> Pace:
    """How fast the blocks of a q-outer kernel are, of which an SM holds `blocks`.

    Args:
        wavefronts: of shared memory in the whole run; for kernel 02 only.
    """
    (launch,) = plan.launches
    there = min(blocks, ceil_div(launch.grid, gpu.sms))
    found = _pace(kernel, plan, gpu, there, wavefronts)
    if there == 1 or launch.grid >= there * gpu.sms:
        return found
    return found._replace(fewer=_pace(kernel, plan, gpu, there - 1, wavefronts))


def _pace(kernel: Kernel, plan: Plan, gpu: Gpu, there: int, wavefronts: int) -> Pace:
    """Of blocks on SMs that hold `there` of them."""
    p, t = plan.problem, plan.tiling
    if kernel.number in COSTED:
        visit_us = sm_time(kernel, plan, gpu, there, own_order(kernel)).visit_us
        rounds = visit_cost(kernel.number, plan).rounds
    else:
        visits = p.H * float(reach(p, t).duration.sum())
        visit_us = _fmha101_turns(plan, wavefronts, there, gpu) * gpu.sms * there / visits if visits else 0.0
        rounds = 1
    if kernel.number in ("02", *ONE_SCORE):  # a thread loads number after number
        rounds = max(1, ceil_div(p.d, t.Br * (4 if kernel.number == "05" else 1)))
    elif kernel.number == "06":  # time stamps: who comes first to a tile waits half as often as the time has it
        rounds = ceil_div(rounds, 2)
    return pace(kernel.number, visit_us, rounds, there)


def _flash_levels(
    kernel: Kernel, plan: Plan, caches: Caches, sms: int, blocks: int, most: int, order: str, fast: Pace
) -> Levels:
    """Bytes of a q-outer kernel, of which an SM holds `blocks` blocks."""
    (launch,) = plan.launches
    found = q_outer_levels(
        plan.problem, plan.tiling, caches, sms=sms, blocks_per_sm=blocks, order=order, most=most, pace=fast,
        function=launch.function,
    )  # fmt: skip
    return replace(found, spilled=spilled_to_l2(kernel, plan))


def spilled_to_l2(kernel: Kernel, plan: Plan) -> float:
    """Bytes of registers that the threads of a q-outer kernel store because they have too few: L1 passes stores on to
    L2, and answers the loads. As nvcc 13.0 compiled it for sm_90."""
    (launch,), tiling = plan.launches, plan.tiling
    once, each_visit = spilled_stores(kernel.number, plan.defines.get("HEAD_DIM", 0), tiling.Br, tiling.Bc)
    if not once and not each_visit:
        return 0.0
    seen = reach(plan.problem, tiling)
    visits = plan.problem.H * float((seen.end - seen.first).sum())
    return launch.block * (once * launch.grid + each_visit * visits)


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
    return _of_sms(plan, launch, held, gpu, wavefronts, busy) | memory_times(levels, gpu)


def _of_sms(plan: Plan, launch: Launch, held: Occupancy, gpu: Gpu, wavefronts: int, busy: float) -> dict[str, float]:
    """Least time of each resource of the SMs, microseconds, for kernels 01 and 02."""
    p = plan.problem
    clock = gpu.boost_ghz * 1e3  # clocks a microsecond
    blocks_there = min(held.blocks, ceil_div(launch.grid, gpu.sms))
    warps = blocks_there * ceil_div(launch.block, gpu.warp)
    issue = SCHEDULERS * gpu.sms * clock * (1 - math.exp(-warps / WARPS_TO_ISSUE)) * busy
    turns = _turns(wavefronts, gpu)
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
        turns = _fmha101_turns(plan, wavefronts, blocks_there, gpu)
    found["shared memory"] = turns / busy
    found["fp32 units"] = flops / (gpu.fp32_tflops * 1e6 * busy)
    return found


def _turns(wavefronts: int, gpu: Gpu) -> float:
    """What turns of the shared-memory banks take, spread over all SMs, microseconds."""
    banks = gpu.limits.smem_bytes_per_clock / 128 * gpu.sms * gpu.boost_ghz * 1e3
    return wavefronts / (banks * WAVEFRONTS_REACHED)


def _fmha101_turns(plan: Plan, wavefronts: int, blocks_there: int, gpu: Gpu) -> float:
    """The same for kernel 02, with its waits at barriers."""
    p, Bc = plan.problem, plan.tiling.Bc
    visits = plan.requested.by_tensor.get("K", (0, 0))[0] / (Bc * p.d * p.itemsize)
    waits = visits * (VISIT_CLOCKS + COLUMN_CLOCKS * Bc) / blocks_there**HIDDEN
    return _turns(wavefronts, gpu) + waits / (gpu.sms * gpu.boost_ghz * 1e3)


__all__ = [
    "ERRORS_OF_THE_MODEL",
    "FITTED",
    "HOW_THE_MODEL_WORKS",
    "LIMITS_OF_THE_MODEL",
    "MODELLED",
    "MOST_VISITS",
    "TIMED",
    "Constant",
    "Error",
    "Forecast",
    "FunctionForecast",
    "forecast",
    "own_order",
    "pace_of",
    "time_us",
]
