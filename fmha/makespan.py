"""How long a run takes by the clock of `fmha.timeline`, from the events of one head: all heads cost the same.

For comparing settings: thousands of blocks in the time that the events of a few take.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fmha.dispatch import Floats, blocks_in_order, deal
from fmha.events import emit
from fmha.hardware import Gpu
from fmha.problem import Problem, Tiling
from fmha.schedule import check_order
from fmha.timeline import MAX_SMS, clock, covered_us, evened
from fmha.units import ceil_div


def durations_us(
    problem: Problem, tiling: Tiling, order: str, gpu: Gpu, block_order: str = "head-major", stages: int = 1
) -> list[Floats]:
    """How long each block of a head lasts when it has an SM for itself, for each kernel: arrays [workers of a head].

    Raises:
        ProblemError, LimitError: as `emit` and `clock`.
    """
    one = problem.replace(B=1, H=1, Hk=1, lens_k=None, left_pad=None)
    tiles = tiling.Tr(one)
    if order == "q-outer" and one.causal is None and tiles > 4:
        # Every Q tile sees all keys, so two stand for the whole ones (in turns: some orders go backward in every
        # other), and the last, which may be ragged, for itself.
        few = 3 if tiles % 2 else 4
        less = one.replace(Nq=one.Nq - (tiles - few) * tiling.Br, Nk=one.Nk)
        (part,) = durations_us(less, tiling, order, gpu, block_order, stages)
        return [np.concatenate([np.resize(part[:2], tiles - 1), part[-1:]])]
    events = clock(emit(one, tiling, order), gpu, one.dtype, MAX_SMS, block_order=block_order, stages=stages)
    new = np.ones(len(events), np.bool_)
    new[1:] = (events["worker"][1:] != events["worker"][:-1]) | (events["kernel"][1:] != events["kernel"][:-1])
    first = np.flatnonzero(new)
    lasts = np.maximum.reduceat(events["t1"], first) - np.minimum.reduceat(events["t0"], first)
    kernel = events["kernel"][first]
    return [lasts[kernel == k] for k in np.unique(kernel)]


def dealt_us(
    durations: Sequence[Floats],
    heads: int,
    sms: int,
    *,
    owns_tiles: bool = True,
    block_order: str = "head-major",
    blocks_per_sm: int = 1,
) -> tuple[float, float]:
    """When the last block of `heads` such heads ends, microseconds, and the share of SMs x time without a block.

    Args:
        durations: as `durations_us` gives them. owns_tiles: a block is a Q tile, and block orders apply; not kv-outer.
    """
    at = worked = 0.0
    for lasts in durations:
        count = heads * len(lasts)
        every = np.tile(lasts, heads)
        if owns_tiles:
            every = every[blocks_in_order(block_order, heads, len(lasts))]
        every = every * min(blocks_per_sm, ceil_div(count, sms))
        start, slot = deal(evened(every), sms * blocks_per_sm, at)
        ends = start + every
        worked += covered_us(slot % sms, start, ends)
        at = float(ends.max())
    idle = 1.0 - worked / (at * sms) if at else 0.0
    return at, idle if idle > 1e-9 else 0.0  # below that it is a sum of floating-point numbers that should be 0


def makespan_us(
    problem: Problem,
    tiling: Tiling,
    order: str,
    gpu: Gpu,
    sms: int,
    *,
    block_order: str = "head-major",
    blocks_per_sm: int = 1,
    stages: int = 1,
) -> tuple[float, float]:
    """`dealt_us` of a whole problem: as `clock` has it for all events.

    For problems without padding: every batch entry has all its keys.

    Raises:
        ProblemError, LimitError: as `emit` and `clock`.
    """
    return dealt_us(
        durations_us(problem, tiling, order, gpu, block_order, stages), problem.B * problem.H, sms,
        owns_tiles=check_order(order) != "kv-outer", block_order=block_order, blocks_per_sm=blocks_per_sm,
    )  # fmt: skip
