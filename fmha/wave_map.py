"""Blocks on SMs over time, as a picture has them: who is where, when SMs idle, how long the tail is.

Time counts *visits* of whole K/V tiles, so it holds for any speed. Blocks are dealt out as in `fmha.dispatch`; a visit
of a tile that a mask cuts takes less (`fmha.lockstep.reach`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmha.dispatch import blocks_in_order, deal
from fmha.lockstep import reach
from fmha.problem import Problem, Tiling

MAX_BLOCKS = 20_000  # that are followed; the picture of more would be the same stripes again


@dataclass(frozen=True)
class WaveMap:
    """What runs where.

    total: blocks of the launch; blocks: the first ones of them, which are followed. slots: places for a block; slot s
    is on SM s mod SMs. end: when the last followed block ends, visits. busy: share of slots x time that works.
    starving: when the first slot has nothing left to do, visits. head, tile: [rows, bins] of the block that a slot
    works on in the middle of a time bin; -1: none. sm: [rows], whose slots the rows are.
    """

    total: int
    blocks: int
    slots: int
    end: float
    busy: float
    starving: float
    head: NDArray[np.int32]
    tile: NDArray[np.int32]
    sm: NDArray[np.int64]

    @property
    def tail(self) -> float:
        """Share of the time during which some slots have nothing left to do."""
        return 1 - self.starving / self.end if self.end else 0.0


def wave_map(
    problem: Problem,
    tiling: Tiling,
    *,
    sms: int,
    blocks_per_sm: int,
    order: str = "head-major",
    bins: int = 320,
    most_rows: int = 264,
) -> WaveMap:
    """Deal out the blocks of a q-outer kernel and look at `bins` moments.

    Args:
        order: one of `fmha.dispatch.BLOCK_ORDERS`.
        most_rows: slots that are shown at most; of more, those of some evenly spaced SMs.

    Raises:
        ProblemError: unknown block order.
    """
    Tr, heads, slots = tiling.Tr(problem), problem.B * problem.H, sms * blocks_per_sm
    worker = blocks_in_order(order, heads, Tr)[:MAX_BLOCKS]
    head, tile = np.divmod(worker, Tr)
    lasts = reach(problem, tiling).duration[head // problem.H, tile]
    start, slot = deal(lasts, slots)
    ends = start + lasts
    end = float(ends.max(initial=0.0))
    last_of_slot = np.zeros(slots)
    np.maximum.at(last_of_slot, slot, ends)
    busy = float(lasts.sum()) / (slots * end) if end else 0.0

    shown = np.arange(sms)
    if slots > most_rows:
        shown = np.unique(np.linspace(0, sms - 1, max(1, most_rows // blocks_per_sm)).astype(np.int64))
    row_slots = (shown[:, None] + sms * np.arange(blocks_per_sm)).ravel()
    found = running_at(row_slots, (np.arange(bins) + 0.5) / bins * end, slot, start, ends)
    return WaveMap(
        heads * Tr, len(worker), slots, end, busy, float(last_of_slot.min()) if end else 0.0,
        np.where(found >= 0, head[found], -1).astype(np.int32), np.where(found >= 0, tile[found], -1).astype(np.int32),
        np.repeat(shown, blocks_per_sm),
    )  # fmt: skip


def running_at(
    slots: NDArray[np.int64], moments: NDArray[Any], slot: NDArray[np.int64], start: NDArray[Any], ends: NDArray[Any]
) -> NDArray[np.int64]:
    """The interval (of a block, of an event) on each of `slots` at each of `moments`, -1: none: [slots, moments]."""
    order = np.lexsort((start, slot))
    far = float(ends.max(initial=0.0)) + 1.0
    keys = slot[order] * far + start[order]
    place = np.searchsorted(keys, slots[:, None] * far + moments, side="right") - 1
    block = order[np.maximum(place, 0)]
    there = (place >= 0) & (slot[block] == slots[:, None]) & (ends[block] > moments)
    return np.where(there, block, -1)
