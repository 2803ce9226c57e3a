"""Which block goes to which SM, and when: block orders, dealing, waves.

A GPU hands out the blocks of a grid in the order of their index, each to the SM that has room first. `slots` are places
for a block: an SM that holds b blocks at once has b of them. Slot s lies on SM s mod SMs, so that the first blocks fall
on different SMs.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from fmha.errors import ProblemError
from fmha.units import ceil_div

BlockOrder = Literal["head-major", "tile-major", "reversed K/V", "heavy-first"]
BLOCK_ORDERS: tuple[BlockOrder, ...] = get_args(BlockOrder)
MEANING: dict[BlockOrder, str] = {
    "head-major": "all Q tiles of a head, then the next head: what the kernels do",
    "tile-major": "the first Q tile of every head, then the second: all heads' K and V are in use at once",
    "reversed K/V": "head-major, and every other Q tile goes over K and V from the last tile to the first",
    "heavy-first": "head by head, the Q tile that sees most first: with a causal mask the tail is short",
}

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


def check_block_order(order: str) -> BlockOrder:
    """`order` itself, or a ProblemError that names the orders."""
    for known in BLOCK_ORDERS:
        if order == known:
            return known
    raise ProblemError(f"block order {str(order)[:40]!r} is not known: use {', '.join(BLOCK_ORDERS)}.")


def blocks_in_order(order: str, heads: int, tiles: int, first: int | None = None) -> Ints:
    """The workers head x tiles + tile in the order in which they are handed out: [heads x tiles], or the `first` ones.

    "heavy-first" takes the Q tiles of a head from the last to the first: under a causal mask the last sees most.
    """
    known = check_block_order(order)
    place = np.arange(heads * tiles if first is None else min(first, heads * tiles), dtype=np.int64)
    if known == "tile-major":
        tile, head = np.divmod(place, heads)
        return np.asarray(head * tiles + tile)
    if known == "heavy-first":
        head, tile = np.divmod(place, tiles)
        return np.asarray(head * tiles + tiles - 1 - tile)
    return place


def deal(duration: Floats, slots: int, at: float = 0.0) -> tuple[Floats, Ints]:
    """Start and slot of every block: two arrays [blocks].

    Blocks are taken in the order of `duration`; each starts where room is first, from `at` on, in the lowest such slot.
    """
    count = len(duration)
    if count and (duration == duration[0]).all():
        turn, slot = np.divmod(np.arange(count, dtype=np.int64), slots)
        return at + turn * float(duration[0]), slot
    free = [(at, slot) for slot in range(slots)]
    start, chosen, replace = list[float](), list[int](), heapq.heapreplace
    for lasts in duration.tolist():
        begins, place = free[0]
        start.append(begins)
        chosen.append(place)
        replace(free, (begins + lasts, place))
    return np.array(start, np.float64), np.array(chosen, np.int64)


@dataclass(frozen=True)
class Waves:
    """Blocks in turns over the slots of a GPU.

    waves: turns, the last one perhaps not full. last: blocks in it. busy: share of slots x time that works, when all
    blocks last equally long.
    """

    blocks: int
    slots: int

    @property
    def waves(self) -> int:
        """How many turns there are."""
        return ceil_div(self.blocks, self.slots)

    @property
    def last(self) -> int:
        """Blocks of the last turn."""
        return self.blocks - (self.waves - 1) * self.slots if self.blocks else 0

    @property
    def busy(self) -> float:
        """Share of slots x time that works: what the tail leaves."""
        return self.blocks / (self.waves * self.slots) if self.blocks else 0.0
