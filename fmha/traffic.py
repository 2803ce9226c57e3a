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

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmha.events import INIT_PHASES, PHASES, TENSORS, emit
from fmha.problem import Problem, Tiling
from fmha.schedule import Order, check_order
from fmha.units import ceil_div

EVENT_VISITS = 50_000


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
        ProblemError: unknown order. LimitError: "events" for a problem with too many.
    """
    visits = problem.B * problem.H * tiling.Tr(problem) * tiling.Tc(problem)
    if method == "events" or (method == "auto" and visits <= EVENT_VISITS):
        return count(emit(problem, tiling, order, write_lse=write_lse), check_order(order))
    return closed_form(problem, tiling, order, write_lse=write_lse)


def count(events: NDArray[np.void], order: Order) -> Traffic:
    """Add up an event table."""
    phase, nbytes = events["phase"], events["nbytes"]
    # bincount's weights are float64: exact below 2^53 bytes, which MAX_EVENTS keeps far away.
    per_phase = np.bincount(phase, weights=nbytes, minlength=len(PHASES)).astype(np.int64)
    moved: dict[str, list[int]] = {name: [0, 0] for name in TENSORS}
    init = 0
    for index, what in enumerate(PHASES):
        if index in INIT_PHASES:
            init += int(per_phase[index])
        elif what.is_load or what.is_store:
            moved[what.tensor][0 if what.is_load else 1] += int(per_phase[index])
    by_tensor = {name: (read, write) for name, (read, write) in moved.items() if read or write}
    return Traffic(order, "events", by_tensor, init, int(events["flops"].sum()))


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
    for b in range(p.B):
        visited = _visited(p, tiling, b)
        keys, rows = keys + visited[0] * p.H, rows + visited[1] * p.H
        pairs, tile_keys = pairs + visited[2] * p.H, tile_keys + visited[3] * p.H
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


def _visited(problem: Problem, tiling: Tiling, b: int) -> tuple[int, int, int, int]:
    """Summed over the (Q tile, K/V tile) pairs of one head that see each other:

    keys of the K/V tile; rows of the Q tile; rows x keys; and over K/V tiles seen by anyone: their keys.
    """
    p, Br, Bc = problem, tiling.Br, tiling.Bc
    start, stop = p.key_range(b)
    first_tile, end_tile = start // Bc, ceil_div(stop, Bc)
    if start == stop:
        return 0, 0, 0, 0
    offset = p.causal_offset
    if offset is None:
        tiles, keys = end_tile - first_tile, stop - start
        return ceil_div(p.Nq, Br) * keys, p.Nq * tiles, p.Nq * keys, keys
    last_row = np.minimum((np.arange(ceil_div(p.Nq, Br), dtype=np.int64) + 1) * Br, p.Nq) - 1
    sees = last_row + offset  # the furthest key of the tile's last row
    tile = np.minimum(sees // Bc, end_tile - 1)  # the furthest K/V tile that is visited
    some = sees >= start
    rows = np.minimum(Br, p.Nq - (last_row // Br) * Br)[some]
    reach = np.minimum((tile[some] + 1) * Bc, stop) - start
    tiles = tile[some] - first_tile + 1
    if not some.any():
        return 0, 0, 0, 0
    return int(reach.sum()), int((rows * tiles).sum()), int((rows * reach).sum()), int(reach.max())


def compulsory_bytes(problem: Problem) -> int:
    """What no algorithm can avoid: Q, K, V read once, O written once (K and V once per K/V head)."""
    p = problem
    return (2 * p.B * p.H * p.Nq + 2 * p.B * p.Hk * p.Nk) * p.d * p.itemsize


def theorem2_bytes(problem: Problem, sram_bytes: int) -> float:
    """FlashAttention's Theorem 2, N^2 d^2 / M accesses for each head, in bytes: the growth, not the constant.

    M is the SRAM size in *elements* of the problem's dtype: `sram_bytes / itemsize`.
    Source: FlashAttention, section 3.2.
    """
    p = problem
    accesses = Fraction(p.B * p.H * p.Nq * p.Nk * p.d * p.d * p.itemsize, sram_bytes)
    return float(accesses) * p.itemsize
