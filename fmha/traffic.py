"""Requested bytes and FLOPs: counted from events, and in closed form.

*Requested* bytes are what thread blocks load and store beyond their registers and shared memory: the papers'
two-level model. Caches do not enter. What is counted, per loop order (`itemsize` bytes an element of Q, K, V, S, P,
O; 4 bytes for each of l, m, LSE; only real rows of a ragged tile; only K/V tiles that a mask leaves visible):

- q-outer: Q once, K and V tiles once per visit, O once, and LSE once when it is written;
- kv-outer: K and V tiles once, and per visit Q, O, l, m read and O, l, m written; initialisation apart;
- naive (Algorithm 0): Q, K, V, S, P read once, S, P, O written once; a mask saves nothing.

With grouped heads (Hk < H) every query head loads its own copy of the K/V tiles.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmha.errors import ProblemError
from fmha.events import INIT_PHASES, PHASES, TENSORS, emit
from fmha.problem import Problem, Tiling, check_whole
from fmha.schedule import Order, check_order
from fmha.units import ceil_div

EVENT_VISITS = 50_000
_TILES_AT_ONCE = 1 << 20
METHODS = ("auto", "events", "closed")


@dataclass(frozen=True)
class Traffic:
    """Bytes and FLOPs of one forward pass. `by_tensor` maps a tensor to (bytes read, bytes written)."""

    order: Order
    method: str
    by_tensor: dict[str, tuple[int, int]]
    init_write_bytes: int
    flops: int

    @property
    def requested_read_bytes(self) -> int:
        """Bytes loaded into SMs."""
        return sum(read for read, _ in self.by_tensor.values())

    @property
    def requested_write_bytes(self) -> int:
        """Bytes stored by SMs, without initialisation."""
        return sum(write for _, write in self.by_tensor.values())

    @property
    def requested_bytes(self) -> int:
        """Bytes loaded and stored, without initialisation."""
        return self.requested_read_bytes + self.requested_write_bytes

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "order": self.order,
            "method": self.method,
            "requested_bytes": self.requested_bytes,
            "requested_read_bytes": self.requested_read_bytes,
            "requested_write_bytes": self.requested_write_bytes,
            "init_write_bytes": self.init_write_bytes,
            "flops": self.flops,
            "by_tensor": {name: {"read": read, "write": write} for name, (read, write) in self.by_tensor.items()},
        }


def traffic(
    problem: Problem, tiling: Tiling, order: str = "q-outer", *, write_lse: bool = False, method: str = "auto"
) -> Traffic:
    """Requested bytes and matrix FLOPs of one forward pass.

    Args:
        write_lse: q-outer also stores LSE.
        method: "events" counts the event table, "closed" evaluates the closed form, "auto" counts events up to
            `EVENT_VISITS` visits. The two are equal, to the byte.

    Raises:
        ProblemError: unknown order or method. LimitError: "events" for a problem with too many.
    """
    if method not in METHODS:
        raise ProblemError(f"method={str(method)[:40]!r} is not known: use {', '.join(METHODS)}.")
    visits = problem.B * problem.H * tiling.Tr(problem) * tiling.Tc(problem)
    if method == "events" or (method == "auto" and visits <= EVENT_VISITS):
        return count(emit(problem, tiling, order, write_lse=write_lse), check_order(order))
    return closed_form(problem, tiling, order, write_lse=write_lse)


def count(events: NDArray[np.void], order: Order) -> Traffic:
    """Add up an event table."""
    phase, nbytes = events["phase"], events["nbytes"]
    per_phase = _exact_sums(phase, nbytes, len(PHASES))
    moved: dict[str, list[int]] = {name: [0, 0] for name in TENSORS}
    init = 0
    for index, what in enumerate(PHASES):
        if index in INIT_PHASES:
            init += per_phase[index]
        elif what.is_load or what.is_store:
            moved[what.tensor][0 if what.is_load else 1] += per_phase[index]
    by_tensor = {name: (read, write) for name, (read, write) in moved.items() if read or write}
    return Traffic(order, "events", by_tensor, init, sum(_exact_sums(phase, events["flops"], len(PHASES))))


def _exact_sums(group: NDArray[np.integer[Any]], values: NDArray[np.int64], groups: int) -> list[int]:
    """Sum of `values` in each group, as Python integers, for values >= 0.

    bincount adds in float64, exact below 2^53, and one huge tile makes more FLOPs than that; halves of 31 bits
    stay exact for 2^22 rows at a time.
    """
    totals = [0] * groups
    for first in range(0, len(values), 1 << 22):
        part, value = group[first : first + (1 << 22)], values[first : first + (1 << 22)]
        low = np.bincount(part, weights=value & 0x7FFFFFFF, minlength=groups)
        high = np.bincount(part, weights=value >> 31, minlength=groups)
        totals = [total + int(lo) + (int(hi) << 31) for total, lo, hi in zip(totals, low, high, strict=True)]
    return totals


def closed_form(problem: Problem, tiling: Tiling, order: str, *, write_lse: bool = False) -> Traffic:
    """The same numbers without events: sums over Q tiles or K/V tiles in integers, for any N.

    Written independently of the schedule: it asks only how far the rows of a tile can see.
    """
    p, known = problem, check_order(order)
    q_rows = p.B * p.H * p.Nq
    item, vector, four = p.itemsize, p.d * p.itemsize, 4
    if known == "naive":
        matrix = q_rows * p.Nk * item
        keys = p.B * p.H * p.Nk * vector
        moved = {
            "Q": (q_rows * vector, 0), "K": (keys, 0), "V": (keys, 0), "S": (matrix, matrix), "P": (matrix, matrix),
            "O": (0, q_rows * vector),
        }  # fmt: skip
        return Traffic(known, "closed form", moved, 0, 4 * q_rows * p.Nk * p.d)
    keys = rows = pairs = tile_keys = 0
    for key_range, entries in Counter(p.key_range(b) for b in range(p.B)).items():
        visited = _visited(p, tiling, *key_range)
        heads = entries * p.H
        keys, rows = keys + visited[0] * heads, rows + visited[1] * heads
        pairs, tile_keys = pairs + visited[2] * heads, tile_keys + visited[3] * heads
    flops = 4 * pairs * p.d
    if known == "q-outer":
        moved = {
            "Q": (q_rows * vector, 0), "K": (keys * vector, 0), "V": (keys * vector, 0), "O": (0, q_rows * vector),
        }  # fmt: skip
        if write_lse:
            moved["LSE"] = (0, q_rows * four)
        return Traffic(known, "closed form", _nonzero(moved), 0, flops)
    moved = {
        "Q": (rows * vector, 0), "K": (tile_keys * vector, 0), "V": (tile_keys * vector, 0),
        "O": (rows * vector, rows * vector), "m": (rows * four, rows * four), "l": (rows * four, rows * four),
    }  # fmt: skip
    return Traffic(known, "closed form", _nonzero(moved), q_rows * (vector + 2 * four), flops)


def _nonzero(moved: dict[str, tuple[int, int]]) -> dict[str, tuple[int, int]]:
    return {name: pair for name, pair in moved.items() if pair != (0, 0)}


def _visited(problem: Problem, tiling: Tiling, start: int, stop: int) -> tuple[int, int, int, int]:
    """Summed over the (Q tile, K/V tile) pairs of one head that see each other, when keys start to stop - 1 are real:

    keys of the K/V tile; rows of the Q tile; rows x keys; and over K/V tiles seen by anyone: their keys.
    """
    p, Br, Bc = problem, tiling.Br, tiling.Bc
    first_tile, end_tile = start // Bc, ceil_div(stop, Bc)
    if start == stop:
        return 0, 0, 0, 0
    offset = p.causal_offset
    if offset is None:
        tiles, keys = end_tile - first_tile, stop - start
        return ceil_div(p.Nq, Br) * keys, p.Nq * tiles, p.Nq * keys, keys
    Tr, keys, tile_rows, pairs, furthest = ceil_div(p.Nq, Br), 0, 0, 0, 0
    for first_i in range(0, Tr, _TILES_AT_ONCE):
        i = np.arange(first_i, min(first_i + _TILES_AT_ONCE, Tr), dtype=np.int64)
        last_row = np.minimum((i + 1) * Br, p.Nq) - 1
        sees = last_row + offset  # the furthest key of the tile's last row
        some = sees >= start
        rows = (last_row - i * Br + 1)[some]
        tile = np.minimum(sees[some] // Bc, end_tile - 1)  # the furthest K/V tile that is visited
        reach = np.minimum((tile + 1) * Bc, stop) - start
        keys, pairs = keys + int(reach.sum()), pairs + int((rows * reach).sum())
        tile_rows += int((rows * (tile - first_tile + 1)).sum())
        furthest = max(furthest, int(reach.max(initial=0)))
    return keys, tile_rows, pairs, furthest


def compulsory_bytes(problem: Problem) -> int:
    """What no algorithm can avoid: Q, K, V read once, O written once (K and V once per K/V head)."""
    p = problem
    return (2 * p.B * p.H * p.Nq + 2 * p.B * p.Hk * p.Nk) * p.d * p.itemsize


def theorem2_bytes(problem: Problem, sram_bytes: int) -> float:
    """FlashAttention's Theorem 2, N^2 d^2 / M accesses for each head, in bytes: the growth, not the constant.

    M is the SRAM size in *elements* of the problem's dtype: `sram_bytes / itemsize`.
    Source: FlashAttention, section 3.2.

    Raises:
        ProblemError: `sram_bytes` is not at least 1.
    """
    p = problem
    sram_bytes = check_whole("sram_bytes", sram_bytes, 1, 1 << 50, ProblemError)
    accesses = Fraction(p.B * p.H * p.Nq * p.Nk * p.d * p.d * p.itemsize, sram_bytes)
    return float(accesses) * p.itemsize
