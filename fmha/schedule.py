"""Loop orders: who visits what, in which sequence. Integers only; no bytes, no time.

One function per order returns a `Schedule`. A *worker* is one thread block; a *visit* is one worker handling one
K/V tile. Rows are in program order within a worker, and worker after worker (kernel after kernel for `naive`).

- `q-outer` (FlashAttention-2, the tutorial's kernel): a worker owns one Q tile and streams the K/V tiles.
- `kv-outer` (FlashAttention, Algorithm 1): a worker owns one (batch, head); K/V tiles outside, Q tiles inside,
  with O, l, m read and written on every visit.
- `naive` (FlashAttention, Algorithm 0): three kernels, S = QK^T, P = softmax S, O = PV; a worker owns the rows of
  one Q tile in each; S and P go through HBM; nothing is skipped, a mask only changes values.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from fmha.errors import ProblemError
from fmha.mask import FULL, SKIP, tile_kinds
from fmha.problem import Problem, Tiling

Order = Literal["q-outer", "kv-outer", "naive"]
ORDERS: tuple[Order, ...] = get_args(Order)

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Schedule:
    """Visits in row order; every array has one entry per visit: worker, b, h, Q tile i, K/V tile j, mask kind.

    `workers` is the number of workers (per kernel, for naive), also those that visit nothing.
    """

    order: Order
    workers: int
    worker: Ints
    b: Ints
    h: Ints
    i: Ints
    j: Ints
    kind: NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.worker)


def check_order(order: str) -> Order:
    """`order` itself, or a ProblemError that names the orders."""
    for known in ORDERS:
        if order == known:
            return known
    raise ProblemError(f"order={str(order)[:40]!r} is not known: use {', '.join(ORDERS)}.")


def schedule(problem: Problem, tiling: Tiling, order: str) -> Schedule:
    """The visits of any order. See the module's text."""
    makers = {"q-outer": q_outer, "kv-outer": kv_outer, "naive": naive}
    return makers[check_order(order)](problem, tiling)


def q_outer(problem: Problem, tiling: Tiling) -> Schedule:
    """Worker (b, h, i) visits the K/V tiles j that its rows can see, in rising j."""
    kinds = tile_kinds(problem, tiling)
    by_head = np.broadcast_to(kinds[:, None], (problem.B, problem.H, *kinds.shape[1:]))
    b, h, i, j = np.nonzero(by_head != SKIP)
    worker = (b * problem.H + h) * kinds.shape[1] + i
    return Schedule("q-outer", problem.B * problem.H * kinds.shape[1], worker, b, h, i, j, by_head[b, h, i, j])


def kv_outer(problem: Problem, tiling: Tiling) -> Schedule:
    """Worker (b, h) goes over K/V tiles j, and for each over the Q tiles i that can see it."""
    kinds = tile_kinds(problem, tiling).swapaxes(1, 2)
    by_head = np.broadcast_to(kinds[:, None], (problem.B, problem.H, *kinds.shape[1:]))
    b, h, j, i = np.nonzero(by_head != SKIP)
    return Schedule("kv-outer", problem.B * problem.H, b * problem.H + h, b, h, i, j, by_head[b, h, j, i])


def naive(problem: Problem, tiling: Tiling) -> Schedule:
    """Worker (b, h, i) meets every tile j in each of the three kernels; the visits of one kernel are listed."""
    Tr, Tc = tiling.Tr(problem), tiling.Tc(problem)
    b, h, i, j = (axis.ravel() for axis in np.indices((problem.B, problem.H, Tr, Tc)))
    worker = (b * problem.H + h) * Tr + i
    return Schedule("naive", problem.B * problem.H * Tr, worker, b, h, i, j, np.full(len(b), FULL, np.uint8))
