"""Bytes at each level for one kernel that goes over K and V tile by tile: q-outer (kernel 02) and kv-outer.

The model works tile by tile: L1 by the tiles that an SM used last, merging by who is in step (`fmha.lockstep`), L2 by
stack distances (`fmha.reuse`) over all tiles in time order. It is a model of expected values, fitted to one GPU.
"""

from __future__ import annotations

import numpy as np

from fmha.dispatch import Floats, Ints
from fmha.levels import Caches, Levels, TensorBytes
from fmha.lockstep import Fronts, Walk, fronts, walk
from fmha.problem import Problem, Tiling
from fmha.reuse import bytes_between, mean_survival, survival
from fmha.traffic import closed_form

_NEVER_MISSED = 0.25  # of L2: tiles that come again after fewer bytes are there (a miss in 10^6)


def q_outer_levels(
    problem: Problem,
    tiling: Tiling,
    caches: Caches,
    *,
    sms: int,
    blocks_per_sm: int,
    rounds: float = 1.0,
    order: str = "head-major",
    write_lse: bool = False,
    function: str = "fmha101",
) -> Levels:
    """Bytes at each level of one run of a q-outer kernel whose caches are cold at the start.

    Args:
        blocks_per_sm: blocks that an SM holds at once.
        rounds: loads that a thread makes one after the other to fetch its part of a K or V tile.
        order: one of `fmha.dispatch.BLOCK_ORDERS`.

    Raises:
        ProblemError: unknown block order.
    """
    p = problem
    walked = walk(p, tiling, sms * blocks_per_sm, order)
    resident = min(blocks_per_sm, max(1.0, walked.total / sms))
    in_l1 = _l1_share(walked, p, tiling, caches, sms, resident)
    merged = fronts(walked, caches, sms, rounds, resident, 1 - in_l1)

    requested = closed_form(p, tiling, "q-outer", write_lse=write_lse).by_tensor
    kv_read = requested.get("K", (0, 0))[0]
    rows = 2 * p.d * p.itemsize  # K and V of one key
    followed = float(walked.visit_keys.sum())
    wanted = followed * rows
    beyond = float(walked.visit_keys @ (1 - in_l1)[walked.visit_block]) * rows if len(in_l1) else 0.0
    asked = float(merged.requests @ merged.keys) * rows
    missed = _missed(p, tiling, caches, walked, merged, rows)
    scale = 2 * kv_read / wanted if wanted else 0.0
    dram = _all_misses(missed, asked, scale, p, merged, rows)
    half = 0.5 * scale
    kv = TensorBytes(
        read=float(kv_read),
        l1_hits=half * (wanted - beyond),
        merged=half * (beyond - asked),
        l2_hits=half * asked - dram / 2,
        dram_read=dram / 2,
    )
    vector = p.B * p.H * p.Nq * p.d * p.itemsize
    passing = vector + caches.copies * (2 * p.B * p.Hk * p.Nk * p.d * p.itemsize + vector)
    clean = 1 - mean_survival(passing, caches.l2_room, caches.ways)
    by_tensor = {
        "Q": TensorBytes(read=float(vector), dram_read=float(vector)),
        "K": kv,
        "V": kv,
        "O": TensorBytes(written=float(vector), dram_written=vector * clean),
    }
    if "LSE" in requested:
        size = float(requested["LSE"][1])
        by_tensor["LSE"] = TensorBytes(written=size, dram_written=size * clean)
    return Levels(function, by_tensor)


def _all_misses(missed: float, asked: float, scale: float, p: Problem, merged: Fronts, rows: int) -> float:
    """DRAM bytes of K and V of the whole run: every real key once, and what is missed again in proportion."""
    if not asked:
        return 0.0
    strips = np.unique(merged.strip, return_index=True)[1]
    once_followed = float(merged.keys[strips].sum()) * rows
    stops = [p.key_range(b) for b in range(p.B)]
    once = sum(stop - start for start, stop in stops) * p.Hk * rows
    once = min(once, asked * scale)
    again = (missed - once_followed) * scale
    return min(max(once + again, once), asked * scale)


def _l1_share(walked: Walk, p: Problem, tiling: Tiling, caches: Caches, sms: int, resident: float) -> Floats:
    """Share of each block's K/V visits that its SM's L1 holds: [blocks].

    A block finds what the block before it on its slot used last, as far as LRU keeps it. Blocks that share an SM run
    out of step; they find each other's tile at their first step only.
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
    if resident > 1:
        neighbour = np.flatnonzero(np.arange(walked.blocks) >= sms)
        other = neighbour - sms
        start_together = (kv_head[neighbour] == kv_head[other]) & (walked.first[neighbour] == walked.first[other])
        start_together &= (walked.slot[neighbour] % sms == walked.slot[other] % sms) & (room * resident >= 1)
        share[neighbour[start_together]] = np.maximum(
            share[neighbour[start_together]], 1 / np.maximum(visits[neighbour[start_together]], 1)
        )
    return np.minimum(share, 1.0)


def _found(walked: Walk, before: Ints, after: Ints, room: int) -> Ints:
    """Tiles of block `after` that LRU still holds from block `before`, with place for `room` tiles."""
    low = np.maximum(walked.first[before], walked.first[after])
    high = np.minimum(walked.end[before], walked.end[after])
    was, now = walked.backward[before], walked.backward[after]
    widest, lowest = np.maximum(walked.end[before], walked.end[after]), np.minimum(walked.first[before], walked.first[after])
    turned_down = high - np.maximum(low, widest - room)  # forward, then backward: the last tiles are near
    turned_up = np.minimum(high, lowest + room) - low  # backward, then forward
    # The same way twice: between two uses of a tile all others of the block before have passed.
    length = walked.end[before] - walked.first[before]
    again = np.where(length <= room, high - low, 0)
    return np.maximum(np.where(was == now, again, np.where(now, turned_down, turned_up)), 0)


def _missed(p: Problem, tiling: Tiling, caches: Caches, walked: Walk, merged: Fronts, rows: int) -> float:
    """Bytes of K and V that the fronts read from DRAM.

    The first request of a front misses when the strip is new or did not survive; the others find it, unless L2 cannot
    even hold the strip itself.
    """
    if not len(merged.strip):
        return 0.0
    kv = merged.keys * float(rows)
    first = np.zeros(len(kv), np.bool_)
    first[np.unique(merged.strip, return_index=True)[1]] = True
    room = caches.l2_room
    own = survival(caches.copies * kv, room, None) if room > 0 else np.zeros(len(kv))
    vector = tiling.Br * p.d * p.itemsize
    widest = caches.copies * 2 * p.Nk * p.d * p.itemsize * min(p.B * p.Hk, walked.blocks) + walked.blocks * vector * 3
    if widest <= _NEVER_MISSED * room:
        held = np.where(first, 0.0, own)
    else:
        held = np.where(first, 0.0, own * _held(caches, walked, merged, kv, vector))
    lone = np.minimum(merged.requests, 1.0)
    return float(((1 - held) * lone * kv + (merged.requests - lone) * (1 - own) * kv).sum())


def _held(caches: Caches, walked: Walk, merged: Fronts, kv: Floats, vector: int) -> Floats:
    """Probability that each front's strip survived in L2 since it was used last."""
    blocks = walked.blocks
    strips = int(merged.strip.max()) + 1
    # A block reads its Q tile when it starts and writes its O tile when it ends; both only pass through.
    tile = np.concatenate([merged.strip, strips + np.arange(2 * blocks)])
    nbytes = np.concatenate(
        [caches.copies * kv, np.full(blocks, float(vector)), np.full(blocks, float(caches.copies * vector))]
    )
    at = np.concatenate([merged.moment / 64, walked.start, walked.start + walked.duration])
    order = np.argsort(at, kind="stable")
    size = np.zeros(int(tile.max()) + 1)
    np.maximum.at(size, tile, nbytes)  # a strip counts whole, also where a mask leaves less of it
    between = np.empty(len(tile))
    between[order] = bytes_between(tile[order], size[tile[order]])
    return survival(between[: len(kv)], caches.l2_room, caches.ways)
