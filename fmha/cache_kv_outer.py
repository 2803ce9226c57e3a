"""Bytes at each level for the kv-outer order (FlashAttention, Algorithm 1), in closed form.

A worker owns a head. For every K/V tile it goes over all its Q tiles and reads and writes O, l, m: so Q, O, l and m of
the heads that run at once pass through the caches once a K/V tile. No recorded kernel works like that; the model is
plain LRU without merging, and the initialisation of O, l, m is left out, as in `fmha.traffic`.
"""

from __future__ import annotations

from fmha.levels import Caches, Levels, TensorBytes
from fmha.problem import Problem, Tiling
from fmha.reuse import mean_survival
from fmha.traffic import closed_form

_STATISTIC = 4  # bytes of l or m of a row


def kv_outer_levels(problem: Problem, tiling: Tiling, caches: Caches, *, sms: int, blocks_per_sm: int = 1) -> Levels:
    """Bytes at each level of one run with cold caches, but for O, l, m that were just initialised.

    Args:
        blocks_per_sm: blocks, that is heads, that an SM holds at once.
    """
    p = problem
    moved = closed_form(p, tiling, "kv-outer").by_tensor
    vector, statistics = p.Nq * p.d * p.itemsize, 2 * _STATISTIC * p.Nq
    at_once = min(p.B * p.H, sms * blocks_per_sm)
    # What passes between two uses of a Q tile: all Q, O, l, m of the heads at work.
    sweep = at_once * (vector + caches.copies * (vector + statistics))
    in_l2 = sweep <= caches.l2_bytes
    resident = -(-at_once // sms)
    tiles = 2 * tiling.Bc * p.d * p.itemsize
    in_l1 = resident * (2 * vector + statistics + tiles) <= caches.l1_bytes

    by_tensor: dict[str, TensorBytes] = {}
    for name, (read, written) in moved.items():
        size = float(p.B * p.H * (vector if name in "QO" else _STATISTIC * p.Nq))
        if name in "KV":
            size = float(p.Hk * sum(stop - start for start, stop in (p.key_range(b) for b in range(p.B)))) * (
                p.d * p.itemsize
            )
            together = p.group == 1 or at_once >= p.group  # heads that share K and V go over it side by side
            missed = min(float(read), size) if caches.l2_bytes > 0 and together else float(read)
            by_tensor[name] = TensorBytes(read=float(read), l2_hits=read - missed, dram_read=missed)
        elif name == "Q":
            once = min(float(read), size)
            hits = read - once if in_l1 else 0.0
            missed = once if in_l2 else read - hits
            by_tensor[name] = TensorBytes(
                read=float(read), l1_hits=hits, l2_hits=read - hits - missed, dram_read=missed
            )
        else:
            missed = 0.0 if in_l2 else float(read)
            left = min(float(written), size) * mean_survival(
                sweep * p.B * p.H / max(at_once, 1), caches.dirty_room, caches.ways
            )
            leaves = (min(float(written), size) if in_l2 else float(written)) - left
            by_tensor[name] = TensorBytes(
                read=float(read), written=float(written), l2_hits=read - missed, dram_read=missed, dram_written=leaves
            )
    return Levels("kv-outer", by_tensor)
