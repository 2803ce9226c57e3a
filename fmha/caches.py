"""Bytes at each level for one kernel that goes over K and V tile by tile: q-outer (kernel 02) and kv-outer.

The model works tile by tile: L1 by the tiles that an SM used last, merging by following the blocks in time
(`fmha.in_step`), L2 by stack distances (`fmha.reuse`) over all tiles in time order. It is a model of expected values,
fitted to one GPU.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fmha.dispatch import Floats, Ints
from fmha.in_step import InStep, in_step
from fmha.levels import SCATTERED, Caches, Levels, TensorBytes
from fmha.lockstep import TICKS, Fronts, Walk, fronts, walk
from fmha.pace import Pace
from fmha.problem import Problem, Tiling
from fmha.reuse import bytes_between, mean_survival, survival
from fmha.traffic import closed_form

SURELY_HELD = 0.6  # of L2
DEFAULT_PACE = Pace(apart_us=0.02, uneven=0.08)


def q_outer_levels(
    problem: Problem,
    tiling: Tiling,
    caches: Caches,
    *,
    sms: int,
    blocks_per_sm: int,
    pace: Pace = DEFAULT_PACE,
    most: int = 30_000,
    order: str = "head-major",
    write_lse: bool = False,
    function: str = "fmha101",
) -> Levels:
    """Bytes at each level of one run of a q-outer kernel whose caches are cold at the start.

    Args:
        blocks_per_sm: blocks that an SM holds at once.
        pace: how long a visit takes, and for how many loads in it a block waits.
        most: visits that are followed one by one, see `fmha.lockstep.walk`; fewer are faster and less exact.
        order: one of `fmha.dispatch.BLOCK_ORDERS`.

    Raises:
        ProblemError: unknown block order. LimitError: a problem with too many rows, see `fmha.lockstep.reach`.
    """
    p = problem
    walked = walk(p, tiling, sms * blocks_per_sm, order, most)
    resident = min(blocks_per_sm, max(1.0, walked.total / sms))
    gathered = fronts(walked)
    held = _held(p, tiling, caches, walked, gathered)
    close = in_step(p, tiling, pace, caches, sms=sms, blocks_per_sm=blocks_per_sm, order=order, most=most)
    kv, visits = _loaded(p, tiling, caches, walked, close, pace, resident)
    missed = _missed(p, tiling, caches, walked, gathered, held, visits)
    kv = replace(kv, l2_hits=visits.all_asked - missed, dram_read=missed)
    vector = p.B * p.H * p.Nq * p.d * p.itemsize
    passing = vector + caches.copies * (2 * p.B * p.Hk * p.Nk * p.d * p.itemsize + vector)
    clean = 1 - mean_survival(passing, caches.dirty_room, caches.ways)
    by_tensor = {
        "Q": TensorBytes(read=float(vector), dram_read=float(vector)),
        "K": kv,
        "V": kv,
        "O": TensorBytes(written=float(vector), dram_written=vector * clean),
    }
    lse = closed_form(p, tiling, "q-outer", write_lse=write_lse).by_tensor.get("LSE")
    if lse:
        by_tensor["LSE"] = TensorBytes(written=float(lse[1]), dram_written=lse[1] * clean)
    return Levels(function, by_tensor)


def q_outer_l2(
    problem: Problem,
    tiling: Tiling,
    caches: Caches,
    *,
    sms: int,
    blocks_per_sm: int,
    pace: Pace = DEFAULT_PACE,
    most: int = 30_000,
) -> float:
    """`q_outer_levels(...).l2` in head-major order, without what only the bytes of DRAM need.

    Raises:
        LimitError: a problem with too many rows, see `fmha.lockstep.reach`.
    """
    p = problem
    walked = walk(p, tiling, sms * blocks_per_sm, most=most)
    resident = min(blocks_per_sm, max(1.0, walked.total / sms))
    close = in_step(p, tiling, pace, caches, sms=sms, blocks_per_sm=blocks_per_sm, most=most)
    kv, _ = _loaded(p, tiling, caches, walked, close, pace, resident)
    vector = float(p.B * p.H * p.Nq * p.d * p.itemsize)
    return Levels("", {"Q": TensorBytes(read=vector), "K": kv, "V": kv, "O": TensorBytes(written=vector)}).l2


class _Visits(NamedTuple):
    """Bytes of K and V together that each visit loads, finds in no L1, and asks of L2: [visits]. scale: makes them K's
    in the run."""

    loads: Floats
    beyond: Floats
    asked: Floats
    scale: float

    @property
    def all_asked(self) -> float:
        """Bytes of K that the run asks of L2."""
        return self.scale * float(self.asked.sum())


def _loaded(
    p: Problem, tiling: Tiling, caches: Caches, walked: Walk, close: InStep, pace: Pace, resident: float
) -> tuple[TensorBytes, _Visits]:
    """One of K and V as far as L2, and what it is summed up from.

    close: what blocks that are close to one another have in common.
    """
    read = closed_form(p, tiling, "q-outer").by_tensor.get("K", (0, 0))[0]
    loads = walked.visit_keys * walked.weight[walked.visit_block] * (2 * p.d * p.itemsize)
    beyond, wanted = loads, float(loads.sum())
    if pace.rounds:  # copies that are under way during computation go past L1
        beyond = loads * (1 - _l1_share(walked, p, tiling, caches, resident))[walked.visit_block]
        once = _once(p, tiling) / read * wanted / max(float(beyond.sum()), 1e-9) if read else 0.0
        beyond = beyond * max(1 - close.neighbour, min(once, 1.0))
    passed = float(beyond.sum())
    visits = _Visits(loads, beyond, beyond * close.asked, read / wanted if wanted else 0.0)
    l1_hits = max(0.0, visits.scale * (wanted - passed))
    merged = visits.scale * (passed - float(visits.asked.sum()))
    return TensorBytes(read=float(read), l1_hits=l1_hits, merged=merged), visits


def _once(p: Problem, tiling: Tiling) -> float:
    """Bytes of all keys that are seen, each once."""
    return float(closed_form(p, tiling, "kv-outer").by_tensor.get("K", (0, 0))[0] / p.group)


def _missed(
    p: Problem, tiling: Tiling, caches: Caches, walked: Walk, gathered: Fronts, held: Floats, visits: _Visits
) -> float:
    """Bytes of K (and as many of V) that come from DRAM in the whole run: each once, and those that L2 lost.

    The first request of a front misses what is not held; the others find it, if L2 can hold the strip at all.
    """
    if caches.l2_bytes <= 0:
        return visits.all_asked
    once = _once(p, tiling)
    rows = 2 * p.d * p.itemsize  # K and V of one key
    loads, keys, beyond, asked = (
        np.bincount(gathered.of_visit, values, len(gathered.keys))
        for values in (visits.loads, walked.visit_keys, visits.beyond, visits.asked)
    )
    size = loads / np.maximum(keys, 1) * gathered.keys
    lone = np.minimum(beyond, size)
    fits = caches.copies * gathered.keys * rows <= caches.l2_bytes
    again = np.where(gathered.first, 0.0, (1 - held) * lone) + np.where(fits, 0.0, np.maximum(asked - lone, 0.0))
    return min(once + visits.scale * float(again.sum()), visits.all_asked)


def _l1_share(walked: Walk, p: Problem, tiling: Tiling, caches: Caches, resident: float) -> Floats:
    """Share of each block's K/V visits that its SM's L1 holds: [blocks].

    A block finds what the block before it on its slot used last, as far as LRU keeps it. What it finds of blocks beside
    it on the SM is the matter of `fmha.in_step`.
    """
    tile_bytes = 2 * tiling.Bc * p.d * p.itemsize
    room = int(caches.l1_bytes / resident // tile_bytes)
    share = np.zeros(walked.blocks)
    visits = walked.end - walked.first
    if room < 1:
        return share
    Tr = tiling.Tr(p)
    head = walked.worker // Tr
    kv_head = head // p.H * p.Hk + head % p.H // p.group
    order = np.lexsort((walked.start, walked.slot))
    before, after = order[:-1], order[1:]
    same = (walked.slot[before] == walked.slot[after]) & (kv_head[before] == kv_head[after])
    before, after = before[same], after[same]
    found = _found(walked, before, after, room)
    share[after] = found / np.maximum(visits[after], 1)
    return np.minimum(share, 1.0)


def _found(walked: Walk, before: Ints, after: Ints, room: int) -> Ints:
    """Tiles of block `after` that LRU still holds from block `before`, with place for `room` tiles."""
    low = np.maximum(walked.first[before], walked.first[after])
    high = np.minimum(walked.end[before], walked.end[after])
    was, now = walked.backward[before], walked.backward[after]
    widest, lowest = (
        np.maximum(walked.end[before], walked.end[after]),
        np.minimum(walked.first[before], walked.first[after]),
    )
    turned_down = high - np.maximum(low, widest - room)  # forward, then backward: the last tiles are near
    turned_up = np.minimum(high, lowest + room) - low  # backward, then forward
    # The same way twice: between two uses of a tile all others of the block before have passed.
    length = walked.end[before] - walked.first[before]
    again = np.where(length <= room, high - low, 0)
    return np.maximum(np.where(was == now, again, np.where(now, turned_down, turned_up)), 0)


def _held(p: Problem, tiling: Tiling, caches: Caches, walked: Walk, gathered: Fronts) -> Floats:
    """Share of each front's strip that L2 still holds: 0 when it is new."""
    kv = gathered.keys * float(2 * p.d * p.itemsize)
    strips = int(gathered.strip.max(initial=-1)) + 1
    blocks, vector = walked.blocks, float(tiling.Br * p.d * p.itemsize)
    size = np.zeros(strips)
    np.maximum.at(size, gathered.strip, caches.copies * kv)  # whole, also where a mask leaves less of it
    # So little never meets in one set; the longest wait between two uses could be all of it.
    if size.sum() + blocks * vector * (1 + caches.copies) < SURELY_HELD * caches.l2_bytes:
        return np.where(gathered.first, 0.0, 1.0)
    # A block reads its Q tile when it starts and writes its O tile when it ends; both only pass through.
    tile = np.concatenate([strips + np.arange(2 * blocks), gathered.strip])
    size = np.concatenate([size, np.full(blocks, caches.copies * vector), np.full(blocks, vector)])
    at = np.concatenate([walked.start + walked.duration, walked.start, gathered.moment / TICKS])
    order = np.argsort(at, kind="stable")
    between = np.empty(len(tile))
    between[order] = bytes_between(tile[order], size[tile[order]])
    apart = between[2 * blocks :]
    if caches.copies > 1:
        apart = np.where(_scattered(walked, gathered), SCATTERED * apart, apart)
    # Less one byte: what fills the cache to the last byte still fits.
    return survival(apart + size[gathered.strip] - 1, caches.l2_bytes, caches.read_ways)


def _scattered(walked: Walk, gathered: Fronts) -> NDArray[np.bool_]:
    """Whether the blocks that run are spread over a head, so that few of them use the strip at that moment: [fronts].

    A line has its place in one half of L2, and a copy in the other if SMs there use it. A copy that is lost is fetched
    from the other half, which counts as a use there. So when blocks come one after the other, each use by either half
    keeps the line itself, and between two of them passes less: of the lines that all blocks touch meanwhile, those of
    the other half's SMs only where their copies are lost, half of the lines. When all come at once, as without a mask,
    there is no such help.
    """
    moment, half_a_tick = gathered.moment / TICKS, 0.5 / TICKS
    ends = np.sort(walked.start + walked.duration)
    running = np.searchsorted(np.sort(walked.start), moment + half_a_tick) - np.searchsorted(ends, moment + half_a_tick)
    members = np.bincount(gathered.of_visit, minlength=len(moment))
    return np.asarray(members * 8 <= running)
