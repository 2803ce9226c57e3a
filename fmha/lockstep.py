"""Who asks for which K/V tile at the same moment: blocks of a q-outer kernel on the SMs, and their visits in time.

Blocks of one head that start together and do the same work ask for the same tile at the same time. Visits are gathered
by tile and moment (`Fronts`); how long blocks really stay in step is the matter of `fmha.merging`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmha.dispatch import Floats, Ints, blocks_in_order, deal
from fmha.errors import LimitError
from fmha.problem import Problem, Tiling
from fmha.units import ceil_div, format_count

SHRINKS = 0.9  # of the time of a visit: in proportion to the scores that a mask leaves in the tile
MOST_ROWS = 1 << 22
TICKS = 64  # of a visit: blocks that are closer than that ask at the same moment


@dataclass(frozen=True)
class Reach:
    """The K/V tiles that each Q tile sees, `first` <= j < `end`, and how long it is at them, in visits of whole tiles.

    first, end: [B, Tr]. partial: [B, Tr, p], the time of the last p visits; those before take `pace` each, [B, Tr]: 1,
    or less for a ragged last Q tile.
    """

    first: Ints
    end: Ints
    partial: Floats
    pace: Floats

    @property
    def whole(self) -> Ints:
        """Visits of a Q tile before the last p: [B, Tr]."""
        return np.maximum(self.end - self.first - self.partial.shape[-1], 0)

    @property
    def duration(self) -> Floats:
        """Time of each Q tile: [B, Tr]."""
        return np.asarray(self.whole * self.pace + self.partial.sum(axis=-1))

    def of(self, b: Ints, tile: Ints) -> Reach:
        """Of some Q tiles only: [tiles] instead of [B, Tr]."""
        return Reach(self.first[b, tile], self.end[b, tile], self.partial[b, tile], self.pace[b, tile])


def reach(problem: Problem, tiling: Tiling) -> Reach:
    """What every Q tile sees under the problem's masks.

    Raises:
        LimitError: more than `MOST_ROWS` query rows, counted once for all batch entries with the same padding.
    """
    p, Br, Bc = problem, tiling.Br, tiling.Bc
    rows_to_see = p.Nq * len({p.key_range(b) for b in range(p.B)})
    if rows_to_see > MOST_ROWS:
        raise LimitError(
            f"the model of the caches looks at {format_count(MOST_ROWS)} query rows at most, and this problem has "
            f"{format_count(rows_to_see)}: use a smaller N or equal lengths."
        )
    begins = np.arange(tiling.Tr(p)) * Br
    ends = np.minimum(begins + Br, p.Nq)
    pace = 1 - SHRINKS * (1 - (ends - begins) / Br)
    last = ceil_div(Br, Bc) + 1 if p.causal_offset is not None else 0
    known: dict[tuple[int, int], tuple[NDArray[Any], ...]] = {}
    for start, stop in {p.key_range(b) for b in range(p.B)}:
        # Rows see keys from `start` on, so the last row of a tile sees most.
        diagonal = stop if p.causal_offset is None else p.causal_offset
        high = np.clip(ends + diagonal, start, stop)
        first = np.where(high > start, start // Bc, 0)
        end = np.where(high > start, -(-high // Bc), first)
        j = end[:, None] + np.arange(-last, 1)
        most = np.clip(j * Bc, start, stop) - start  # keys that a row can see before K/V tile j
        before = _rising(ends[:, None] + diagonal - start, most) - _rising(begins[:, None] + diagonal - start, most)
        share = np.diff(before, axis=1) / (Br * Bc)
        partial = np.where(j[:, :-1] >= first[:, None], 1 - SHRINKS * (1 - share), 0.0)
        known[start, stop] = first, end, partial, pace
    if len(known) == 1:
        (alike,) = known.values()
        return Reach(*(np.broadcast_to(part, (p.B, *part.shape)) for part in alike))
    parts = [known[p.key_range(b)] for b in range(p.B)]
    return Reach(*(np.stack([part[k] for part in parts]) for k in range(4)))


def _rising(rows: Ints, most: Ints) -> Ints:
    """Keys that the rows before row number `rows` see when row i sees i + 1 of them, at least 0 and at most `most`."""
    row = np.clip(rows, 0, most)
    return np.asarray(row * (row + 1) // 2 + np.maximum(rows - most, 0) * most)


@dataclass(frozen=True)
class Walk:
    """Blocks of kernel 02 on the SMs, and their visits of *strips*, `strip` K/V tiles that are taken as one.

    total: blocks of the launch; the first `blocks` of them, in the order in which they are handed out, are followed.
    slots: places that they are dealt out to.
    Of each block: worker (head x Tr + Q tile), slot, start and duration (visits), first and end (tiles), whether it
    goes backward, and weight: how many blocks it stands for; the last third stands for those that are not followed.
    Of each visit: its block, strip (of a K/V head, numbered through), keys it loads, what its block has done before
    (visits), and moment (ticks of a visit).
    """

    total: int
    slots: int
    strip: int
    worker: Ints
    duration: Floats
    first: Ints
    end: Ints
    backward: NDArray[np.bool_]
    weight: Floats
    visit_block: Ints
    visit_strip: Ints
    visit_keys: Ints
    passed: Floats

    @property
    def blocks(self) -> int:
        """Blocks that are followed."""
        return len(self.worker)

    @cached_property
    def _dealt(self) -> tuple[Floats, Ints]:
        return deal(self.duration, self.slots)

    @property
    def start(self) -> Floats:
        """When each block begins: [blocks], visits."""
        return self._dealt[0]

    @property
    def slot(self) -> Ints:
        """The place of each block: [blocks]."""
        return self._dealt[1]

    @cached_property
    def moment(self) -> Ints:
        """When each visit begins: [visits], ticks."""
        return np.rint((self.start[self.visit_block] + self.passed) * TICKS).astype(np.int64)


def walk(problem: Problem, tiling: Tiling, slots: int, order: str = "head-major", most: int = 30_000) -> Walk:
    """Deal the blocks out to `slots` places and list their visits.

    most: about so many visits are listed. Beyond, K/V tiles are taken together in strips, down to a few of a head, and
    then only the first blocks are followed, at least three times as many as there are slots.
    """
    p, Bc = problem, tiling.Bc
    Tr, Tc, heads = tiling.Tr(p), tiling.Tc(p), p.B * p.H
    seen = reach(p, tiling)
    every = float((seen.end - seen.first).sum())  # visits of one head of each batch entry
    visits = max(every / (p.B * Tr), 1.0)  # of a block
    least = min(heads * Tr, 3 * slots)
    strips = 16 if p.causal_offset is not None else 8
    while strips > 4 and strips * least > most:
        strips //= 2
    strip = int(min(max(1, round(visits * heads * Tr / most)), max(1, Tc // strips)))
    follow = max(least, int(most * strip / visits))
    worker = blocks_in_order(order, heads, Tr, follow)
    head, tile = np.divmod(worker, Tr)
    b, h = np.divmod(head, p.H)
    seen = seen.of(b, tile)
    first, end, duration = seen.first, seen.end, seen.duration

    low, high = first // strip, -(-end // strip)
    count = np.where(end > first, high - low, 0)
    block = np.repeat(np.arange(len(worker)), count)
    at = np.arange(len(block)) - np.repeat(np.cumsum(count) - count, count) + low[block]
    backward = (order == "reversed K/V") & (tile % 2 == 1)
    from_tile, to_tile = np.maximum(at * strip, first[block]), np.minimum((at + 1) * strip, end[block])
    passed = time_to(seen, block, from_tile)
    if backward.any():
        back = duration[block] - time_to(seen, block, to_tile)
        passed = np.where(backward[block], back, passed)
    starts = np.array([p.key_range(entry)[0] for entry in range(p.B)])[b][block]
    stops = np.array([p.key_range(entry)[1] for entry in range(p.B)])[b][block]
    keys = np.minimum(to_tile * Bc, stops) - np.maximum(from_tile * Bc, starts)
    weight = np.ones(len(worker))
    if len(worker) < heads * Tr:
        last = slice(len(worker) - len(worker) // 3, None)
        weight[last] += (every * p.H - float((end - first).sum())) / max(float((end - first)[last].sum()), 1.0)
    kv_head = (b * p.Hk + h // p.group)[block]
    return Walk(
        heads * Tr, slots, strip, worker, duration, first, end, backward, weight,
        block, kv_head * ceil_div(Tc, strip) + at, keys, passed,
    )  # fmt: skip


def time_to(seen: Reach, block: Ints, j: Ints) -> Floats:
    """Time from a block's start until it comes to K/V tile j, for each visit. seen: of the blocks."""
    done = j - seen.first[block]
    late = seen.partial.shape[1]
    if not late:
        return np.asarray(done * seen.pace[block])
    sums = np.concatenate([np.zeros((len(seen.first), 1)), np.cumsum(seen.partial, axis=1)], axis=1)
    step = np.clip(late - (seen.end[block] - j), 0, late)
    return np.asarray(np.minimum(done, seen.whole[block]) * seen.pace[block] + sums[block, step])


@dataclass(frozen=True)
class Fronts:
    """Visits of one strip at one moment, by all blocks that are in step there. Rows are in time order.

    of_visit: the front of each visit of the walk. strip, moment, keys: which, when, how large. first: the strip was
    not used before.
    """

    of_visit: Ints
    strip: Ints
    moment: Ints
    keys: Ints
    first: NDArray[np.bool_]


def fronts(walked: Walk) -> Fronts:
    """The visits, gathered by strip and moment."""
    strip, moment = walked.visit_strip, walked.moment
    by_time = np.lexsort((strip, moment))
    new = np.ones(len(strip), np.bool_)
    new[1:] = (np.diff(moment[by_time]) != 0) | (np.diff(strip[by_time]) != 0)
    front = np.empty(len(strip), np.int64)
    front[by_time] = np.cumsum(new) - 1
    rows = by_time[new]
    first = np.zeros(len(rows), np.bool_)
    first[np.unique(strip[rows], return_index=True)[1]] = True
    keys = np.zeros(len(rows), np.int64)
    np.maximum.at(keys, front, walked.visit_keys)
    return Fronts(front, strip[rows], moment[rows], keys, first)
