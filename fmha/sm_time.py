"""Time of kernels 03 to 13 on the SMs: what the visits of their K/V tiles cost, and when the last SM is done.

A visit takes the longer of tensor cores and shared memory, and then the issue slots of all other instructions: with two
warps a scheduler, and that is what registers leave, a warp in its softmax hardly ever meets one that multiplies.
Kernels 03 to 07 multiply with ordinary instructions, and those overlap in part with shared memory. Constants:
`fmha.model_facts_tiled`; what barriers cost blocks of one thread a score is kernel 02's (`fmha.model_facts`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from fmha.compiled import spilled_bytes
from fmha.dispatch import Floats, blocks_in_order, deal
from fmha.errors import LimitError
from fmha.hardware import Gpu
from fmha.kernels import Kernel
from fmha.lockstep import Reach, reach
from fmha.model_facts import HIDDEN
from fmha.model_facts import VISIT_CLOCKS as BARRIER_CLOCKS
from fmha.model_facts_tiled import (
    BLOCK_CLOCKS,
    HIDES,
    HIDES_FMA,
    MMA_BY_WARPS,
    MMA_OF_PEAK,
    NORM,
    ROUND_CLOCKS,
    SPILL_CLOCKS,
    VISIT_CLOCKS,
)
from fmha.plan import Plan
from fmha.problem import Problem, Tiling
from fmha.units import ceil_div
from fmha.visit_costs import ON_TENSOR_CORES, ONE_SCORE, VisitCost, visit_cost

SCHEDULERS = 4  # of an SM; each starts one instruction of a warp a clock


@dataclass(frozen=True)
class SmTime:
    """Time of a launch without L2 and device memory, microseconds.

    resources: the least that each needs alone. together_us: what they take as far as they do not overlap. busy: share
    of SMs x time that works. visit_us: what a visit of a whole tile takes a block, while others share its SM.
    """

    resources: dict[str, float]
    together_us: float
    busy: float
    visit_us: float


def sm_time(kernel: Kernel, plan: Plan, gpu: Gpu, blocks_per_sm: int, order: str) -> SmTime:
    """Time of one of the kernels of `fmha.visit_costs.COSTED`.

    Args:
        blocks_per_sm: blocks that an SM can hold at once.
        order: of the blocks, one of `fmha.dispatch.BLOCK_ORDERS`.

    Raises:
        LimitError: the GPU lacks what the kernel is built on.
    """
    check_gpu(kernel, plan.problem, gpu)
    (launch,) = plan.launches
    cost = visit_cost(kernel.number, plan)
    there = min(blocks_per_sm, ceil_div(launch.grid, gpu.sms))
    warps = there * cost.warps / SCHEDULERS  # of a scheduler
    alone = _clocks_alone(kernel, plan, gpu, cost, warps)
    masked = cost.masked / SCHEDULERS * _slower(warps, HIDES)
    visits, partial = _visits(plan.problem, plan.tiling)
    spilled = spilled_bytes(kernel.number, plan.defines.get("HEAD_DIM", 0), plan.tiling.Br, plan.tiling.Bc)
    together = _together(kernel, cost, alone, warps) + SPILL_CLOCKS * spilled
    start = BLOCK_CLOCKS * 2 / warps
    spent = visits * together + partial * masked + start * (visits > 0)  # clocks of an SM: [B, Tr]
    busy = _busy(plan, spent, gpu.sms, there, order)
    clock = gpu.sms * gpu.boost_ghz * 1e3 * busy  # of all SMs that work, in a microsecond
    heads, seen = plan.problem.H, float(visits.sum())
    resources = {name: heads * seen * clocks / clock for name, clocks in alone.items()}
    visit_us = together * there / (gpu.boost_ghz * 1e3)
    return SmTime(resources, heads * float(spent.sum()) / clock, busy, visit_us)


def wavefronts(kernel: Kernel, plan: Plan) -> float:
    """Turns of the shared-memory banks in all visits of a run of one of `fmha.visit_costs.COSTED`: without Q and O.

    Counted from the tiles; not access by access, as `fmha.bank_kernels` does for kernels 01 and 02.
    """
    visits, _ = _visits(plan.problem, plan.tiling)
    return plan.problem.H * float(visits.sum()) * visit_cost(kernel.number, plan).wavefronts


def check_gpu(kernel: Kernel, problem: Problem, gpu: Gpu) -> None:
    """Whether the GPU has what the kernel is built on: asynchronous copies, tensor cores for the numbers.

    Raises:
        LimitError: it has not.
    """
    if kernel.number in (*ONE_SCORE, "06"):
        return
    missing = ""
    if float(gpu.compute) < 8.0:
        missing = "asynchronous copies or matrix instructions that begin with compute capability 8.0"
    elif kernel.number in ON_TENSOR_CORES and not _matrix_peak(problem, gpu):
        missing = f"matrix units for {_matrix_type(problem)}, whose speed would have to be known"
    if missing:
        raise LimitError(
            f"kernel {kernel.number} ({kernel.name}) needs {missing}, and the {gpu.name} "
            f"({gpu.compute}) has none: choose an A100 or a newer GPU."
        )


def mma_flops_per_clock(problem: Problem, gpu: Gpu, warps: float) -> float:
    """What `mma.sync` reaches on one SM with so many warps a scheduler, FLOPs a clock."""
    peak = _matrix_peak(problem, gpu) * 1e12 / (gpu.sms * gpu.boost_ghz * 1e9)
    by_warps = np.interp([warps], [w for w, _ in MMA_BY_WARPS], [share for _, share in MMA_BY_WARPS])
    return peak * MMA_OF_PEAK.get(gpu.compute.split(".")[0], 1.0) * float(by_warps[0])


def _matrix_type(problem: Problem) -> str:
    return "tf32" if problem.dtype == "fp32" else problem.dtype


def _matrix_peak(problem: Problem, gpu: Gpu) -> float:
    return gpu.matrix_peaks.get(_matrix_type(problem), 0.0)


def _clocks_alone(kernel: Kernel, plan: Plan, gpu: Gpu, cost: VisitCost, warps: float) -> dict[str, float]:
    """Clocks of a visit on one SM, by resource."""
    found = {
        "shared memory": cost.wavefronts * 128 / gpu.limits.smem_bytes_per_clock,
        "issue slots": cost.instructions / SCHEDULERS,
    }
    if kernel.number in ON_TENSOR_CORES:
        found["tensor cores"] = cost.products / mma_flops_per_clock(plan.problem, gpu, warps)
    return found


def _slower(warps: float, power: float) -> float:
    """How much longer what is not hidden takes than with two warps a scheduler."""
    return float((2 / warps) ** power)


def _together(kernel: Kernel, cost: VisitCost, alone: dict[str, float], warps: float) -> float:
    """Clocks of a visit, waiting included."""
    waits = (VISIT_CLOCKS + ROUND_CLOCKS * cost.rounds) * 2 / warps
    if kernel.number in ONE_SCORE:
        waits += BARRIER_CLOCKS / (warps * SCHEDULERS / cost.warps) ** HIDDEN
    issue, smem = alone["issue slots"], alone["shared memory"]
    if kernel.number in ON_TENSOR_CORES:
        return max(alone["tensor cores"], smem) + issue * _slower(warps, HIDES) + waits
    return float((issue**NORM + smem**NORM) ** (1 / NORM)) * _slower(warps, HIDES_FMA) + waits


@lru_cache(maxsize=64)
def _visits(problem: Problem, tiling: Tiling) -> tuple[Floats, Floats]:
    """K/V tiles that each Q tile visits, and how many of them have keys that some row does not see: [B, Tr] each."""
    seen: Reach = reach(problem, tiling)
    visits = np.asarray(seen.end - seen.first, dtype=float)
    if problem.causal_offset is None:
        return visits, np.zeros_like(visits)
    return visits, np.minimum(visits, ceil_div(tiling.Br, tiling.Bc))


def _busy(plan: Plan, spent: Floats, sms: int, there: int, order: str) -> float:
    """Share of SMs x time that works, when blocks last as long as `spent` says: [B, Tr]."""
    p, Tr = plan.problem, plan.tiling.Tr(plan.problem)
    heads = p.B * p.H
    if float(np.ptp(spent)) == 0.0:
        return heads * Tr / (ceil_div(heads * Tr, sms) * sms)  # equal blocks; the last ones spread over the SMs
    few = min(heads, max(1, 4 * sms * there // Tr))  # more heads are more of the same: four waves show the tail
    head, tile = np.divmod(blocks_in_order(order, few, Tr), Tr)
    lasts = spent[head // p.H, tile]
    _, slot = deal(lasts, sms * there)
    work = np.bincount(slot % sms, lasts, sms)  # blocks of an SM share its time: it is done when all of them are
    total = float(work.sum()) * heads / few
    return total / (total + float((work.max() - work).sum())) if total else 1.0


__all__ = ["SmTime", "check_gpu", "mma_flops_per_clock", "sm_time", "wavefronts"]
