"""Which blocks ask for the same K/V tile at the same moment: a q-outer kernel followed in time, strip after strip.

Between L1 and L2, requests of the SMs of one cluster (GPC) for the same line become one, four at most, when they come
within some tens of nanoseconds, or while the line is on its way from DRAM. Probes on an H200 showed that; the list of
units in Nsight Compute's Profiling Guide has one there that tries to combine reads, the L2 request coalescer.

So it matters how close in time blocks are. What decides it, as time stamps and counters show: a block that comes first
to a tile waits until it comes from DRAM; those close behind wait for the same lines and go on together with it, and
those further behind find the tile in L2, gain what the first one waits, and cannot pass it. A block whose loads are
under way while it computes waits for nothing, and nobody gains on it. Nor is there anything to gain where one block is
a little faster than all others, as the last of a ragged head is in kernels 02 to 05: it waits at each tile, alone, and
they find it in L2. Otherwise blocks drift apart: SMs differ by nanoseconds a visit, and blocks that share an SM by much
more, because its schedulers take turns (`fmha.pace`). A slot that is free takes the next block, so heads whose blocks
wait for DRAM end later, and blocks of one head begin at different times.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fmha.dispatch import Floats, Ints, blocks_in_order
from fmha.levels import Caches
from fmha.lockstep import Reach, reach, time_to
from fmha.pace import Pace
from fmha.problem import Problem, Tiling
from fmha.reuse import survival
from fmha.units import ceil_div

# Measured with a kernel that does nothing but load.
WAITS_US = 0.215  # longer for a line from DRAM than for one from L2
L1_SOONER_US = 0.13  # comes a line from L1 than from L2: some 230 clocks
WINDOW_US = 0.035  # by so much a request may come after another that it joins, when L2 holds the line
GROUP_SMS = 18  # of a cluster, at most
# Fitted.
SM_US = 0.0005  # SMs differ, in every load
CLUSTER = 2e-3  # clusters differ, of a visit
LOST_TOGETHER = 384  # bytes that L2 loses at once
# Assumed, without much weight.
FIRST_US = 0.03  # blocks of the first wave begin so far apart
BETWEEN_BLOCKS = 0.3  # visits from the last visit of a block to the first of the next
_STRIPS, _STRIPS_CAUSAL, _LEAST_STRIPS = 8, 16, 4  # of a head
_NORMAL = np.random.default_rng(0).standard_normal(1 << 16)


class InStep(NamedTuple):
    """Shares of the bytes of K and V that blocks load. neighbour: found in L1, because another block on the same SM
    has loaded them just before. asked: of the others, those that make a request to L2; the rest joins one."""

    neighbour: float
    asked: float


def in_step(
    problem: Problem,
    tiling: Tiling,
    pace: Pace,
    caches: Caches,
    *,
    sms: int,
    blocks_per_sm: int,
    order: str = "head-major",
    most: int = 15_000,
) -> InStep:
    """Follow the blocks of a run whose caches are cold at the start. The same arguments give the same result.

    Args:
        order: one of `fmha.dispatch.BLOCK_ORDERS`.
        most: strips that are followed, about; at least two waves are. The last third stands for all that come later.
    """
    blocks = problem.B * problem.H * tiling.Tr(problem)
    there = min(blocks_per_sm, max(1, ceil_div(blocks, sms)))
    work = _work(problem, tiling, pace, order, most, 2 * min(sms * there, blocks))
    run = _Run(problem, tiling, pace, caches, work, sms, there)
    while run.step():
        pass
    return run.found(blocks)


@dataclass(frozen=True)
class _Work:
    """The blocks that are followed, in the order in which they are handed out, and what each has to do.

    kv_head, low, high, backward: [blocks], strips from `low` on and before `high`. lasts, keys: [blocks, strips] time
    in microseconds and keys of each.
    """

    kv_head: Ints
    low: Ints
    high: Ints
    backward: NDArray[np.bool_]
    lasts: Floats
    keys: Ints

    @property
    def blocks(self) -> int:
        return len(self.low)


def _work(p: Problem, tiling: Tiling, pace: Pace, order: str, most: int, least: int) -> _Work:
    Tr, Tc, heads = tiling.Tr(p), tiling.Tc(p), p.B * p.H
    strips = _STRIPS if p.causal_offset is None else _STRIPS_CAUSAL
    while strips > _LEAST_STRIPS and strips * least > most:
        strips //= 2
    strip = max(1, ceil_div(Tc, strips))
    strips = ceil_div(Tc, strip)
    worker = blocks_in_order(order, heads, Tr, min(heads * Tr, max(least, most // strips)))
    head, tile = np.divmod(worker, Tr)
    b, h = np.divmod(head, p.H)
    seen = reach(p, tiling).of(b, tile)
    if not pace.shrinks:
        seen = replace(seen, pace=np.ones_like(seen.pace), partial=np.where(seen.partial > 0, 1.0, 0.0))
    high = np.where(seen.end > seen.first, -(-seen.end // strip), 0)
    lasts, keys = _of_strips(seen, strips, strip, tiling.Bc)
    backward = (order == "reversed K/V") & (tile % 2 == 1)
    low = np.minimum(seen.first // strip, high)
    return _Work(b * p.Hk + h // p.group, low, high, backward, lasts * pace.visit_us, keys)


def _of_strips(seen: Reach, strips: int, strip: int, Bc: int) -> tuple[Floats, Ints]:
    """Time (visits) and keys of each strip of each block: [blocks, strips]; 0 where it sees none of it."""
    edge = np.arange(strips + 1) * strip
    tile = np.clip(edge[None, :], seen.first[:, None], seen.end[:, None])
    block = np.repeat(np.arange(len(seen.first)), strips + 1)
    passed = time_to(seen, block, tile.ravel()).reshape(tile.shape)
    return np.diff(passed, axis=1), np.diff(tile, axis=1) * Bc


def clusters(sms: int) -> list[int]:
    """SMs of each cluster, in the order in which they get their first block: as even as pairs of SMs allow."""
    many = max(1, ceil_div(sms, GROUP_SMS))
    least = sms // many // 2 * 2
    larger = (sms - many * least) // 2
    sizes = [least + 2 * (n < larger) for n in range(many)]
    sizes[-1] += sms - sum(sizes)
    return sizes


class _Run:
    """The slots of a GPU, each at the beginning of a strip of its block, or (`at` infinite) done. Microseconds."""

    def __init__(
        self, p: Problem, tiling: Tiling, pace: Pace, caches: Caches, work: _Work, sms: int, there: int
    ) -> None:
        self.pace, self.caches, self.work, self.there = pace, caches, work, there
        slots = min(sms * there, work.blocks)
        self.normal, self.drawn = _NORMAL, 0
        sizes = clusters(sms)
        of_sm = np.repeat(np.arange(len(sizes)), sizes)
        self.sm = np.arange(slots) % sms
        self.cluster, self.clusters = of_sm[self.sm], len(sizes)
        by_sm = (
            self._draw(sms) * SM_US * pace.drift * pace.rounds
            + (self._draw(len(sizes)) * CLUSTER)[of_sm] * pace.visit_us
        )
        self.drift = by_sm[self.sm]
        self.uneven = 1 + pace.uneven * (np.arange(slots) // sms / max(there - 1, 1) - 0.5) * (there > 1)
        # While one waits, the others on the SM go on.
        self.jitter, self.waits = np.full(slots, pace.apart_us), np.full(slots, WAITS_US * pace.rounds / there)
        if pace.fewer is not None and slots < sms * there:
            few = (np.bincount(self.sm) < there)[self.sm]
            self.uneven[few] = pace.fewer.visit_us / pace.visit_us if pace.visit_us else 1.0
            self.jitter[few], self.waits[few] = pace.fewer.apart_us, WAITS_US * pace.rounds / max(there - 1, 1)
        self.jitter *= pace.drift
        self.speed = np.maximum(0.5, 1 + pace.drift * pace.speeds * self._draw(work.blocks))

        # By strip: when the first block was done with it (loads ahead: began it), and its latest use.
        self.strips = work.lasts.shape[1]
        size = p.B * p.Hk * self.strips
        self.ready, self.used = np.full(size, -np.inf), np.full(size, -np.inf)
        self.owed = 0.0  # strips that L2 has lost and nobody has waited for, less than one
        row = 2 * p.d * p.itemsize
        self.tile_bytes, self.head_bytes = row * tiling.Bc, caches.copies * float(row) * p.Nk
        self.beside = (1 + caches.copies) * slots * tiling.Br * p.d * p.itemsize  # Q and O of all slots
        self.block_us = max(float(work.lasts.sum(axis=1).max(initial=0.0)), 1e-9)
        self.room = caches.l1_bytes / self.tile_bytes / there if pace.rounds else 0.0  # tiles of a block

        self.turned = bool(work.backward.any())
        # Keys: of all that is followed, and of its last third.
        self.wanted, self.near, self.asked = np.zeros(2), np.zeros(2), np.zeros(2)
        self.late = work.blocks - work.blocks // 3
        self.block, self.next = np.arange(slots), slots
        self.done = np.zeros(slots, np.int64)  # strips of its block
        self.at = np.abs(self._draw(slots)) * FIRST_US
        self._hand_out(np.arange(slots))

    def _draw(self, count: int) -> Floats:
        """Normal numbers, always the same ones."""
        if self.drawn + count > len(self.normal):
            self.drawn = 0
        found = self.normal[self.drawn : self.drawn + count]
        self.drawn += count
        return found if len(found) == count else np.resize(self.normal, count)

    def _hand_out(self, slots: Ints) -> None:
        """Give new blocks to slots whose block has no strip left, to those that are free first."""
        while len(slots):
            block = self.block[slots]
            over = slots[self.done[slots] >= (self.work.high - self.work.low)[block]]
            over = over[np.argsort(self.at[over], kind="stable")]
            taken = over[: max(0, self.work.blocks - self.next)]
            self.at[over[len(taken) :]], self.done[over[len(taken) :]] = np.inf, -1
            self.block[taken], self.done[taken] = self.next + np.arange(len(taken)), 0
            self.next += len(taken)
            slots = taken

    def step(self) -> bool:
        """Every slot that is not far ahead of the others does one strip; whether any had one to do."""
        work, busy = self.work, self.at < np.inf
        if not busy.any():
            return False
        place = np.where(busy, work.low[self.block] + self.done, 0)
        if self.turned:
            place = np.where(busy & work.backward[self.block], work.high[self.block] - 1 - self.done, place)
        lasts = work.lasts[self.block, place]
        soon = max(float((self.at + lasts).min()), float(self.at.min() + lasts[busy].max() / 2))
        chosen = np.flatnonzero(self.at <= soon + 1e-9)
        at, block, place, lasts = self.at[chosen], self.block[chosen], place[chosen], lasts[chosen]
        key = work.kv_head[block] * self.strips + place
        visits = lasts / self.pace.visit_us if self.pace.visit_us else np.ones(len(lasts))
        lasts = lasts * self.uneven[chosen] * self.speed[block]
        jitter, waits = self.jitter[chosen], self.waits[chosen]
        order = np.lexsort((at + lasts, key))  # who is faster leads from the second tile on
        leads = order[_changes(key[order])]
        from_dram = np.zeros(len(chosen), np.bool_)
        from_dram[leads] = self._missing(key[leads], at[leads])

        end = at + lasts + self.drift[chosen] * visits + np.where(from_dram, waits * visits, 0.0)
        self.ready[key[from_dram]] = end[from_dram]
        steps, window, share = np.sqrt(visits), np.full(len(visits), WINDOW_US), np.full(len(visits), 0.5)
        if self.pace.rounds:
            together = from_dram | (end <= self.ready[key])
            end = np.maximum(end, self.ready[key])  # who is behind goes on with the first, at best
            window, share = np.where(together, WINDOW_US + WAITS_US, window), np.where(together, 1.0, share)
            # In every visit they wait for one another, so what they differ by does not add up.
            steps = np.where(together, np.minimum(steps, np.maximum(1.0, jitter / (2 * waits))), steps)
            if self.there > 1 and not self.pace.uneven:
                later, first = self._beside(key, chosen, at)
                sooner = L1_SOONER_US * self.pace.rounds * visits[later]
                end[later] = np.maximum(end[first], end[later] - sooner)
        middle = (at + end - lasts) / 2 + jitter * steps * share * self._draw(len(chosen))
        end += jitter * steps * self._draw(len(chosen))
        np.maximum.at(self.used, key, at)
        self._count(block >= self.late, key, middle, window, chosen, work.keys[block, place])

        self.at[chosen] = np.maximum(end, at)
        self.done[chosen] += 1
        over = chosen[self.done[chosen] >= (work.high - work.low)[block]]
        self.at[over] += BETWEEN_BLOCKS * self.pace.visit_us
        self._hand_out(over)
        return True

    def _beside(self, key: Ints, slot: Ints, at: Floats) -> tuple[Ints, Ints]:
        """Who finds tiles in L1, because another block on the SM has just loaded them, and that block."""
        if self.room <= 0:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        sm = self.sm[slot]
        order = np.lexsort((at, key, sm))
        same = ~(_changes(key[order]) | _changes(sm[order]))[1:]
        close = same & (np.diff(at[order]) < self.room * self.pace.visit_us)
        return order[1:][close], order[:-1][close]

    def _missing(self, key: Ints, at: Floats) -> NDArray[np.bool_]:
        """Whether blocks have to wait for DRAM at a strip: it is new, or L2 has lost enough of it since."""
        new = np.asarray(self.ready[key] == -np.inf)
        since = at - self.used[key]
        old = ~new & (since > 0.2 * self.block_us)
        if old.any():
            running = np.count_nonzero(np.bincount(self.work.kv_head[self.block[self.at < np.inf]]))
            between = (running * self.head_bytes + self.beside) * np.minimum(since[old] / self.block_us, 4.0)
            between += self.caches.copies * self.tile_bytes
            distance, held = _held_by_distance(self.caches.read_ways)
            lost = 1 - np.interp(between / max(self.caches.l2_bytes, 1e-9), distance, held, right=0.0)
            pieces = self.tile_bytes / LOST_TOGETHER / max(self.pace.rounds, 1.0)  # of a load; each may be lost
            # So many strips in proportion, evenly spread.
            owed = self.owed + np.cumsum(1 - (1 - lost) ** pieces)
            new[old] = np.diff(np.floor(owed), prepend=np.floor(self.owed)) > 0
            self.owed = float(owed[-1] % 1.0)
        return new

    def _count(self, late: NDArray[np.bool_], key: Ints, at: Floats, window: Floats, slot: Ints, keys: Ints) -> None:
        """Loads, those that a neighbour's tile in L1 answers, and requests to L2."""
        self.wanted += keys.sum(), keys[late].sum()
        left = np.arange(len(key))
        if self.there > 1:
            near, _ = self._beside(key, slot, at)
            self.near += keys[near].sum(), keys[near][late[near]].sum()
            other = np.ones(len(key), np.bool_)
            other[near] = False
            left = np.flatnonzero(other)
        if self.caches.merging_sms > 1 and len(left):
            group = key[left] * self.clusters + self.cluster[slot[left]]
            request = _requests(group, at[left], window[left], self.caches.merging_sms)
            many = int(request.max()) + 1
            asked = np.zeros(many, np.int64)  # where a mask leaves less to one block than to another: the most
            np.maximum.at(asked, request, keys[left])
            of_late = np.bincount(request, late[left], many) > 0
            self.asked += asked.sum(), asked[of_late].sum()
            return
        self.asked += keys[left].sum(), keys[left][late[left]].sum()

    def found(self, blocks: int) -> InStep:
        """Of a run of so many blocks: the last third of those that were followed stands for the rest."""
        rest = max(0.0, blocks / self.work.blocks - 1) * float(self.wanted[0]) / max(float(self.wanted[1]), 1.0)
        wanted, near, asked = (float(part[0] + rest * part[1]) for part in (self.wanted, self.near, self.asked))
        beyond = wanted - near
        return InStep(near / wanted if wanted else 0.0, min(1.0, asked / beyond) if beyond > 0 else 1.0)


def _changes(values: Ints) -> NDArray[np.bool_]:
    """Where a value differs from the one before it; also at the first."""
    new = np.ones(len(values), np.bool_)
    np.not_equal(values[1:], values[:-1], out=new[1:])
    return new


def _requests(group: Ints, at: Floats, window: Floats, most: int) -> Ints:
    """The number of the request that each makes or joins: one joins another that was made in its group, if it comes
    within its `window`, and if it is among the `most` of it."""
    order = np.lexsort((at, group))
    group, at, window = group[order], at[order], window[order]
    apart = _changes(group)
    apart[1:] |= np.diff(at) > window.max(initial=0.0)
    begins = np.flatnonzero(apart)  # of runs in which requests may join one another
    ends = np.append(begins[1:], len(order))
    first = (np.arange(len(order)) - np.repeat(begins, ends - begins)) % most == 0  # where all of a run are close
    close = at[ends - 1] - at[begins] <= np.minimum.reduceat(window, begins) if len(begins) else np.zeros(0, np.bool_)
    for begin, end in zip(begins[~close].tolist(), ends[~close].tolist(), strict=True):
        closes, many = -np.inf, 0
        for n, (now, wide) in enumerate(zip(at[begin:end].tolist(), window[begin:end].tolist(), strict=True), begin):
            first[n] = many == most or now > closes
            if first[n]:
                closes, many = now + wide, 0
            many += 1
    request = np.empty(len(order), np.int64)
    request[order] = np.cumsum(first) - 1
    return request


@lru_cache(maxsize=8)
def _held_by_distance(ways: int | None) -> tuple[Floats, Floats]:
    """`fmha.reuse.survival` at distances from 0 to twice the cache, in units of it; nothing survives beyond."""
    distance = np.linspace(0.0, 2.0, 401)
    return distance, survival(distance, 1.0, ways)


__all__ = ["InStep", "clusters", "in_step"]
