"""Which keys a query row may look at, and what that makes of a tile.

Every mask offered so far lets a row see one contiguous run of keys (causal, right padding, left padding),
so a mask is two integers a row. A mask that is not an interval gets its place here.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fmha.problem import Problem, Tiling, check_memory
from fmha.units import ceil_div

SKIP, PARTIAL, FULL = 0, 1, 2


def row_bounds(problem: Problem, b: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """First and one-past-last visible key of every query row of batch entry b: two arrays [Nq].

    A row that sees no key has first == last.
    """
    start, stop = problem.key_range(b)
    low = np.full(problem.Nq, start, np.int64)
    high = np.full(problem.Nq, stop, np.int64)
    offset = problem.causal_offset
    if offset is not None:
        high = np.clip(np.arange(problem.Nq, dtype=np.int64) + offset + 1, start, stop)
    return low, high


def visible_pairs(problem: Problem) -> int:
    """(query, key) pairs that the mask leaves visible, over all batch entries and query heads.

    Each takes 4 d FLOPs in the forward pass: the useful arithmetic, whatever tiles a kernel visits.
    """
    alike = {problem.key_range(b): b for b in range(problem.B)}  # batch entries with the same padding see the same
    pairs = {}
    for key_range, b in alike.items():
        low, high = row_bounds(problem, b)
        pairs[key_range] = int((high - low).sum())
    return problem.H * sum(pairs[problem.key_range(b)] for b in range(problem.B))


def keep(problem: Problem) -> NDArray[np.bool_]:
    """The keep-mask, True = may look: [B, Nq, Nk] (the same for every head)."""
    check_memory(2 * problem.B * problem.Nq * problem.Nk, f"a mask of {problem.Nq} x {problem.Nk}")
    keys = np.arange(problem.Nk)
    out = np.empty((problem.B, problem.Nq, problem.Nk), np.bool_)
    for b in range(problem.B):
        low, high = row_bounds(problem, b)
        out[b] = (keys >= low[:, None]) & (keys < high[:, None])
    return out


def tile_kinds(problem: Problem, tiling: Tiling) -> NDArray[np.uint8]:
    """SKIP (no pair of the tile is visible), PARTIAL, or FULL (all are): [B, Tr, Tc].

    Only real rows and real keys of a ragged last tile count, so it can be FULL.
    """
    Tr, Tc = tiling.Tr(problem), tiling.Tc(problem)
    check_memory((problem.B + 8) * Tr * Tc + 64 * problem.Nq, f"a map of {Tr} x {Tc} tiles")
    kinds = np.empty((problem.B, Tr, Tc), np.uint8)
    first_row = np.arange(Tr) * tiling.Br
    for b in range(problem.B):
        low, high = row_bounds(problem, b)
        tile_start, tile_stop = key_tile_bounds(problem, tiling, b)
        # Over the rows of a tile: who sees anything of [tile_start, tile_stop), and who sees all of it.
        shape = (Tr, Tc)
        any_low = np.minimum.reduceat(low, first_row)[:, None]
        any_high = np.maximum.reduceat(high, first_row)[:, None]
        all_low = np.maximum.reduceat(low, first_row)[:, None]
        all_high = np.minimum.reduceat(high, first_row)[:, None]
        seen = (any_low < tile_stop) & (any_high > tile_start) & (tile_stop > tile_start)
        seen &= np.broadcast_to(any_high > any_low, shape)
        full = seen & (all_low <= tile_start) & (all_high >= tile_stop)
        kinds[b] = np.where(full, FULL, np.where(seen, PARTIAL, SKIP))
    return kinds


def key_tile_bounds(problem: Problem, tiling: Tiling, b: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """First and one-past-last real key of each K/V tile of batch entry b: two arrays [Tc]."""
    start, stop = problem.key_range(b)
    first = np.arange(ceil_div(problem.Nk, tiling.Bc), dtype=np.int64) * tiling.Bc
    return np.clip(first, start, stop), np.clip(first + tiling.Bc, start, stop)
