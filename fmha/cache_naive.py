"""Bytes at each level for the three functions of naive attention (kernel 01), in closed form.

Every block of a function does the same work, so nothing has to be followed block by block. What neighbours share is
read off the block index: a tile of Q or P by blocks next to one another, of K or V by blocks a row or a pair apart.
S and P are streams: each byte is used once and passes L2. Caches are cold before each function.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fmha.levels import Caches, Levels, TensorBytes
from fmha.merging import coherence, in_step_visits
from fmha.problem import Problem
from fmha.reuse import mean_survival
from fmha.traffic import Traffic
from fmha.units import ceil_div

# Of 01_naive.cu.
TILE, CHUNK = 64, 32

_GROUPS = 1 << 16


@dataclass(frozen=True)
class _Grid:
    """Blocks of a matrix product: of a head, rows x columns; `steps` chunks each."""

    heads: int
    rows: int
    columns: int
    steps: int

    @property
    def blocks(self) -> int:
        return self.heads * self.rows * self.columns

    def different(self, neighbours: int) -> tuple[float, float]:
        """Of `neighbours` blocks next to one another: the share that are the first to ask for their row's tile, and for
        their column's."""
        count = max(1, min(self.blocks // neighbours, _GROUPS))
        index = np.arange(count * neighbours, dtype=np.int64).reshape(count, neighbours)
        row = index // self.columns
        column = index % self.columns + row // self.rows * self.columns
        first = [1 + (np.diff(np.sort(key, axis=1), axis=1) != 0).sum(axis=1) for key in (row, column)]
        return float(first[0].mean()) / neighbours, float(first[1].mean()) / neighbours

    def in_step(self, resident: float) -> float:
        """Share of merging that is left on average, over all steps of all blocks."""
        v0 = in_step_visits(1, resident)  # a chunk's loads are unrolled: a thread waits once
        return float(coherence(np.arange(self.steps) + 1.0, v0).mean())


def naive_levels(
    problem: Problem, requested: Traffic, caches: dict[str, Caches], *, sms: int, blocks_per_sm: dict[str, int]
) -> tuple[Levels, Levels, Levels]:
    """Bytes at each level of `naive_scores`, `naive_softmax`, `naive_output`, each with cold caches.

    Args:
        requested: of the kernel's plan.
        caches, blocks_per_sm: by function.
    """
    p = problem
    heads, matrix = p.B * p.H, requested.by_tensor["S"][1]
    pitch = matrix // (4 * heads * p.Nq)
    Tr, Tc, Td = ceil_div(p.Nq, TILE), ceil_div(pitch, TILE), ceil_div(p.d, TILE)
    size = dict.fromkeys("QO", 4 * heads * p.Nq * p.d) | dict.fromkeys("KV", 4 * p.B * p.Hk * p.Nk * p.d)
    read = {name: float(moved[0]) for name, moved in requested.by_tensor.items()}

    function = "naive_scores"
    cache = caches[function]
    grid = _Grid(heads, Tr, Tc, ceil_div(p.d, CHUNK))
    row_bytes = cache.copies * (4.0 * p.Nk * p.d + 4 * TILE * pitch) + 4 * TILE * p.d  # until a tile of K comes again
    parts = _product(grid, cache, sms, blocks_per_sm[function], read["Q"], read["K"])
    q = _reused(parts[0], float(size["Q"]), 0.0, cache)
    k = _reused(parts[1], float(size["K"]), row_bytes, cache)
    passing = cache.copies * (matrix + size["K"]) + size["Q"]
    scores = Levels(function, {"Q": q, "K": k, "S": _written(float(matrix), passing, cache)})

    function = "naive_softmax"
    cache = caches[function]
    again = read["S"] - matrix  # of rows that are too long for shared memory, soon after
    by_tensor = {
        "S": TensorBytes(read=read["S"], l2_hits=again, dram_read=float(matrix)),
        "P": _written(float(matrix), matrix * (1 + cache.copies), cache),
    }
    if "LSE" in requested.by_tensor:
        by_tensor["LSE"] = _written(float(requested.by_tensor["LSE"][1]), matrix * (1 + cache.copies), cache)
    softmax = Levels(function, by_tensor)

    function = "naive_output"
    cache = caches[function]
    grid = _Grid(heads, Tr, Td, pitch // CHUNK + (pitch % CHUNK > 0))
    at_once = sms * blocks_per_sm[function]
    parts = _product(grid, cache, sms, blocks_per_sm[function], read["P"], read["V"])
    # Between two waves of blocks, a wave's rows of P pass.
    wave = float(min(at_once / Td, Tr)) * TILE * pitch * 4 + cache.copies * 4.0 * p.Nk * p.d
    waves = max(1.0, Tr * Td / at_once)
    sweeps = waves if p.group == 1 else waves * p.group
    v = _reused(parts[1], float(size["V"]), wave, cache, times=sweeps)
    pair = _reused(parts[0], float(matrix), 0.0, cache)
    passing = matrix + cache.copies * (size["V"] + size["O"])
    output = Levels(function, {"P": pair, "V": v, "O": _written(float(size["O"]), passing, cache)})
    return scores, softmax, output


def _product(
    grid: _Grid, caches: Caches, sms: int, blocks_per_sm: int, row_read: float, column_read: float
) -> tuple[TensorBytes, TensorBytes]:
    """What L1 and merging leave of the operand that a row of blocks shares, and of that which a column shares.

    Blocks that share an SM are `sms` apart in the grid; they find each other's first chunk in L1 and no other.
    """
    resident = min(blocks_per_sm, max(1.0, grid.blocks / sms))
    step_bytes = (row_read + column_read) / max(grid.blocks * grid.steps, 1)
    fits = resident > 1 and caches.l1_bytes >= resident * step_bytes
    same_row = max(0.0, 1 - sms / grid.columns) if fits else 0.0
    left = grid.in_step(resident)
    parts = []
    first_ones = grid.different(caches.merging_sms)
    for read, first, shared in ((row_read, first_ones[0], same_row), (column_read, first_ones[1], 0.0)):
        hits = read * shared / grid.steps
        parts.append(TensorBytes(read=read, l1_hits=hits, merged=(read - hits) * left * (1 - first)))
    return parts[0], parts[1]


def _reused(part: TensorBytes, once: float, between: float, caches: Caches, times: float | None = None) -> TensorBytes:
    """What L2 and DRAM see of a tensor of `once` bytes that is read again after `between` other bytes.

    times: how often it is gone over in all, all blocks of a wave together; None: as often as L2 is asked.
    """
    asked = part.l2_read
    sweeps = max(1.0, asked / once if times is None else times)
    lost = between >= caches.l2_bytes
    missed = min(asked, sweeps * once if lost else once) if caches.l2_bytes > 0 else asked
    return TensorBytes(part.read, 0.0, part.l1_hits, part.merged, asked - missed, missed)


def _written(size: float, passing: float, caches: Caches) -> TensorBytes:
    """A tensor that is written at an even pace while `passing` bytes go through L2."""
    return TensorBytes(written=size, dram_written=size * (1 - mean_survival(passing, caches.dirty_room, caches.ways)))
