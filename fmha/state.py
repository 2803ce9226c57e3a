"""Replay of an event table over arrays: m, l, alpha, O, and what is resident where.

Two runners share one set of formulas (`tile_scores`, `online_update`, `accumulate`): `replay`, which takes all visits
of equal rank at once (fast; gives the state after every visit), and `fmha.machine`, one event after another.

Precision "float64" is the yardstick. Precision "dtype" computes as a kernel for that dtype would: inputs rounded to
it, scores, m, l and O in fp32, P rounded to it before P V, O rounded to it at the end. That holds for what naive (S)
and kv-outer (O) keep in HBM on the way, too: their bytes are counted in the problem's dtype, their digits are fp32's.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fmha.errors import InputError, LimitError, ProblemError, SimulationError
from fmha.events import CODE
from fmha.mask import row_bounds
from fmha.problem import DTYPES, Problem, Tiling, cast, check_memory
from fmha.reference import check_dense, check_inputs, check_overflow
from fmha.schedule import Order
from fmha.units import format_count

Precision = Literal["float64", "dtype"]
Array = NDArray[Any]

_S, _SOFTMAX = CODE["S"], CODE["softmax"]
MAX_SCORES = 1 << 32
_SCORES_AT_ONCE = 1 << 22


@dataclass(frozen=True)
class Arithmetic:
    """How numbers are rounded: `work` is the type of scores, m, l, O; `dtype` rounds Q, K, V, P and the result."""

    work: type[np.floating[Any]]
    dtype: str | None

    @classmethod
    def of(cls, problem: Problem, precision: str) -> Arithmetic:
        """The arithmetic of a precision name, or a ProblemError."""
        if precision == "float64":
            return cls(np.float64, None)
        if precision == "dtype":
            return cls(np.float32, problem.dtype)
        raise ProblemError(f'precision={str(precision)[:40]!r} is not known: use "float64" or "dtype".')

    def stored(self, array: ArrayLike) -> Array:
        """The values as they are when kept in the problem's dtype."""
        return np.asarray(array, np.float64) if self.dtype is None else cast(array, self.dtype)

    @property
    def name(self) -> str:
        """The precision of scores and sums, for messages."""
        return "float64" if self.dtype is None else "fp32"

    def inputs(self, problem: Problem, Q: ArrayLike, K: ArrayLike, V: ArrayLike) -> tuple[Array, Array, Array]:
        """Q, K, V as stored, or an InputError for what does not fit the problem or the dtype's range."""
        rounded = []
        for name, array in zip("QKV", check_inputs(problem, Q, K, V), strict=True):
            tile = self.stored(array)
            if self.dtype is not None and not np.isfinite(tile).all():
                raise InputError(
                    f"{name} holds {array[~np.isfinite(tile)][0]:g}, beyond {self.dtype}'s largest finite number "
                    f"{DTYPES[self.dtype].max_finite:g}: divide {name} by a power of ten, or use another dtype."
                )
            rounded.append(tile)
        return rounded[0], rounded[1], rounded[2]


def tile_scores(q: Array, k: Array, scale: float, visible: NDArray[np.bool_]) -> Array:
    """S = Qi Kj^T * scale, -inf where a row may not look: q [..., Br, d], k [..., Bc, d] -> [..., Br, Bc]."""
    return np.where(visible, (q @ k.swapaxes(-1, -2)) * q.dtype.type(scale), q.dtype.type(-np.inf))


def online_update(
    m: Array, l: Array, S: Array  # the papers' letter
) -> tuple[Array, Array, Array, Array]:  # fmt: skip
    """One step of the online softmax: m, l [..., Br] and S [..., Br, Bc] -> m_new, alpha, P, l_new.

    m_new = max(m, rowmax S); alpha = exp(m - m_new); P = exp(S - m_new); l_new = alpha l + rowsum P.
    A row that has seen no key keeps m = -inf, l = 0 and alpha = 1.
    Source: FlashAttention-2, Algorithm 1, lines 9-10. The exponent of alpha is m_old - m_new; version 1 of that paper
    prints its inverse.
    """
    m_new = np.maximum(m, S.max(axis=-1))
    shift = np.where(np.isfinite(m_new), m_new, m.dtype.type(0))
    alpha = np.where(m == m_new, m.dtype.type(1), np.exp(np.where(m == m_new, 0, m - shift), dtype=m.dtype))
    P = np.exp(S - shift[..., None])
    return m_new, alpha, P, alpha * l + P.sum(axis=-1)


@dataclass(frozen=True)
class Replay:
    """What a replay leaves. Rows that see no key: O = 0, LSE = -inf.

    O: [B, H, Nq, d]; LSE: [B, H, Nq]; m, l, alpha: [B, H, Nq, Tc], the state of each row after K/V tile j (after a
    tile the row's Q tile skipped: unchanged, alpha = 1). For naive Tc is 1: one softmax over the whole row.
    """

    O: Array  # the papers' letter
    LSE: Array
    m: Array
    l: Array
    alpha: Array
    tiles: TileRecord | None = None


@dataclass(frozen=True)
class TileRecord:
    """What the player draws, tile by tile, in float32; skipped tiles are NaN.

    S: [B, H, Tr, Tc, Br, Bc], -inf where masked and where a ragged tile has no row or key;
    P: the weights exp(S - m_new), of the same shape;
    O: [B, H, Tr, Tc, Br, columns], the first columns of the accumulator after the visit.
    """

    S: NDArray[np.float32]
    P: NDArray[np.float32]
    O: NDArray[np.float32]


def replay(
    events: NDArray[np.void],
    problem: Problem,
    tiling: Tiling,
    Q: ArrayLike,
    K: ArrayLike,
    V: ArrayLike,
    precision: str = "float64",
    record_columns: int | None = None,
) -> Replay:
    """Follow the visits of an event table of any order. Errors as `Machine` for tiles that do not exist.

    With `record_columns` the result also has `tiles`, with that many columns of O (not for naive).
    """
    is_naive = bool((events["phase"] == _SOFTMAX).any())
    check_size(problem, tiling, "naive" if is_naive else "q-outer", record_columns)
    arithmetic = Arithmetic.of(problem, precision)
    Q, K, V = arithmetic.inputs(problem, Q, K, V)
    # Overflow is not warned about on the way: its result is looked for, once, at the end.
    with np.errstate(over="ignore", invalid="ignore"):
        if is_naive:
            done = _replay_naive(problem, arithmetic, Q, K, V)
        else:
            visits = events[events["phase"] == _S]
            _check_tiles(visits, problem, tiling)
            if record_columns is None:  # a tile larger than the problem would be padded for nothing
                tiling = _not_larger(tiling, problem)
            normalized = bool((events["phase"] == CODE["O_norm"]).any())
            done = _Lockstep(problem, tiling, arithmetic, Q, K, V, normalized).run(visits, record_columns)
    check_overflow(problem, done.O, done.LSE, arithmetic.name)
    return done


def check_size(problem: Problem, tiling: Tiling, order: Order, record_columns: int | None = None) -> None:
    """Refuse what would take minutes or more memory than allowed, before anything is allocated.

    Raises:
        LimitError: it would.
    """
    p = problem
    scores = p.B * p.H * p.Nq * p.Nk
    if scores > MAX_SCORES:
        raise LimitError(
            f"{format_count(scores)} scores would take minutes, and {format_count(MAX_SCORES)} are allowed: "
            "use a smaller N or fewer heads; counting bytes alone has no such limit."
        )
    if order == "naive":
        return check_dense(p, 8)
    t = tiling if record_columns is not None else _not_larger(tiling, p)
    Tr, Tc, Br, Bc = t.Tr(p), t.Tc(p), t.Br, t.Bc
    rows, keys = p.B * p.H * Tr * Br, p.B * p.Hk * Tc * Bc
    history = 3 * rows * Tc
    held = 4 * rows * p.d + 4 * keys * p.d
    step = 5 * max(Br * Bc, min(_SCORES_AT_ONCE, rows * Bc))
    record = 0 if record_columns is None else rows * Tc * (Bc + min(record_columns, p.d) // 2)
    check_memory(8 * (2 * history + held + step + record), f"a simulation of {Tr} x {Tc} tiles, Br={Br}, Bc={Bc},")


def _not_larger(tiling: Tiling, problem: Problem) -> Tiling:
    return Tiling(min(tiling.Br, problem.Nq), min(tiling.Bc, problem.Nk))


def _check_tiles(events: NDArray[np.void], problem: Problem, tiling: Tiling) -> None:
    limits = (("b", problem.B), ("h", problem.H), ("i", tiling.Tr(problem)), ("j", tiling.Tc(problem)))
    for name, count in limits:
        wrong = (events[name] < 0) | (events[name] >= count)
        if wrong.any():
            row = int(np.flatnonzero(wrong)[0])
            raise SimulationError(
                f"event {row} visits {name}={events[name][row]}, but {name} runs from 0 to {count - 1}."
            )


class _Lockstep:
    """All row tiles advance together: visit number r of every (b, h, i) is one batched step."""

    def __init__(
        self,
        problem: Problem,
        tiling: Tiling,
        arithmetic: Arithmetic,
        Q: Array,
        K: Array,
        V: Array,
        normalized: bool,
    ) -> None:
        self.problem, self.tiling, self.arithmetic, self.normalized = problem, tiling, arithmetic, normalized
        self.Tr, self.Tc = tiling.Tr(problem), tiling.Tc(problem)
        self.q, self.k, self.v = (
            _tiles(array, rows) for array, rows in ((Q, tiling.Br), (K, tiling.Bc), (V, tiling.Bc))
        )
        bounds = [row_bounds(problem, b) for b in range(problem.B)]
        padded = self.Tr * tiling.Br
        self.low, self.high = (
            np.stack([np.pad(pair[side], (0, padded - problem.Nq)) for pair in bounds]) for side in (0, 1)
        )

    def run(self, visits: NDArray[np.void], record_columns: int | None = None) -> Replay:
        p, Br, Bc = self.problem, self.tiling.Br, self.tiling.Bc
        row_tiles, work = p.B * p.H * self.Tr, self.arithmetic.work
        m = np.full((row_tiles, Br), -np.inf, work)
        l = np.zeros((row_tiles, Br), work)
        O = np.zeros((row_tiles, Br, p.d), work)
        trace_m = np.full((row_tiles, Br, self.Tc), np.nan, work)
        tiles = None if record_columns is None else self._empty_record(record_columns)
        trace_l, trace_alpha = trace_m.copy(), np.ones((row_tiles, Br, self.Tc), work)

        tile = (visits["b"].astype(np.int64) * p.H + visits["h"]) * self.Tr + visits["i"]
        by_tile = np.argsort(tile, kind="stable")
        tile_sorted = tile[by_tile]
        rank = np.arange(len(tile)) - np.searchsorted(tile_sorted, tile_sorted)
        by_rank = np.argsort(rank, kind="stable")
        edges = np.searchsorted(rank[by_rank], np.arange(rank.max() + 2)) if len(rank) else [0]
        # Tiles of one rank do not depend on one another, so a rank may be taken in portions of bounded memory.
        portion = max(1, _SCORES_AT_ONCE // (Br * Bc))
        spans = ((a, min(a + portion, stop)) for first, stop in pairwise(edges) for a in range(first, stop, portion))
        for first, stop in spans:
            now = visits[by_tile[by_rank[first:stop]]]
            w, b, h, i, j = tile_sorted[by_rank[first:stop]], now["b"], now["h"], now["i"], now["j"]
            rows = i[:, None] * Br + np.arange(Br)
            keys = j[:, None] * Bc + np.arange(Bc)
            low, high = self.low[b[:, None], rows], self.high[b[:, None], rows]
            visible = (keys[:, None, :] >= low[..., None]) & (keys[:, None, :] < high[..., None])
            S = tile_scores(self.q[b, h, i], self.k[b, h // p.group, j], p.scale, visible)
            m[w], alpha, P, l_new = online_update(m[w], l[w], S)
            pv = self.arithmetic.stored(P).astype(work, copy=False) @ self.v[b, h // p.group, j]
            O[w] = accumulate(O[w], alpha, pv, l[w], l_new, self.normalized)
            l[w] = l_new
            trace_m[w, :, j], trace_l[w, :, j], trace_alpha[w, :, j] = m[w], l_new, alpha
            if tiles is not None:
                tiles.S[b, h, i, j], tiles.P[b, h, i, j] = S, P
                tiles.O[b, h, i, j] = O[w, :, :record_columns]
        if not self.normalized:
            O = np.divide(O, l[..., None], out=np.zeros_like(O), where=l[..., None] > 0)
        with np.errstate(divide="ignore"):
            LSE = np.where(l > 0, np.where(np.isfinite(m), m, 0) + np.log(l), -np.inf)
        carry(trace_m, -np.inf)
        carry(trace_l, 0.0)
        return Replay(
            self.arithmetic.stored(self._rows(O)).astype(work, copy=False),
            self._rows(LSE[..., None])[..., 0],
            self._rows(trace_m),
            self._rows(trace_l),
            self._rows(trace_alpha),
            tiles,
        )

    def _empty_record(self, columns: int) -> TileRecord:
        head = (self.problem.B, self.problem.H, self.Tr, self.Tc, self.tiling.Br)
        S = np.full((*head, self.tiling.Bc), np.nan, np.float32)
        return TileRecord(S, S.copy(), np.full((*head, min(columns, self.problem.d)), np.nan, np.float32))

    def _rows(self, array: Array) -> Array:
        """[row tiles, Br, x] -> [B, H, Nq, x]."""
        p = self.problem
        return np.ascontiguousarray(array.reshape(p.B, p.H, self.Tr * self.tiling.Br, -1)[:, :, : p.Nq])


def accumulate(O: Array, alpha: Array, pv: Array, l: Array, l_new: Array, normalized: bool) -> Array:
    """O = alpha O + P V (FlashAttention-2), or Algorithm 1's O = (alpha l O + P V) / l_new, kept normalised."""
    if not normalized:
        return alpha[..., None] * O + pv
    total = (alpha * l)[..., None] * O + pv
    return np.divide(total, l_new[..., None], out=np.zeros_like(total), where=l_new[..., None] > 0)


def _tiles(array: Array, rows: int) -> Array:
    """[B, H, N, d] -> [B, H, tiles, rows, d], the last tile filled up with zeros (which are never visible)."""
    B, H, N, d = array.shape
    count = -(-N // rows)
    padded = np.zeros((B, H, count * rows, d), array.dtype)
    padded[:, :, :N] = array
    return padded.reshape(B, H, count, rows, d)


def carry(trace: Array, start: float) -> None:
    """Fill what no visit wrote with the state before it, along the last axis, in place."""
    before = np.full(trace.shape[:-1], start, trace.dtype)
    for j in range(trace.shape[-1]):
        column = trace[..., j]
        np.copyto(column, before, where=np.isnan(column))
        before = column


def _replay_naive(problem: Problem, arithmetic: Arithmetic, Q: Array, K: Array, V: Array) -> Replay:
    """Algorithm 0. S stays in fp32 (or float64) here, also where a real fp16 pipeline would overflow."""
    k, v = (np.repeat(x, problem.group, axis=1) for x in (K, V))
    low, high = (
        np.stack(x)[:, None, :, None] for x in zip(*(row_bounds(problem, b) for b in range(problem.B)), strict=True)
    )
    keys = np.arange(problem.Nk)
    S = tile_scores(Q, k, problem.scale, (keys >= low) & (keys < high))
    m0, l0 = np.full(S.shape[:-1], -np.inf, S.dtype), np.zeros(S.shape[:-1], S.dtype)
    m, _, E, l = online_update(m0, l0, S)
    P = arithmetic.stored(np.divide(E, l[..., None], out=np.zeros_like(E), where=l[..., None] > 0))
    with np.errstate(divide="ignore"):
        LSE = np.where(l > 0, np.where(np.isfinite(m), m, 0) + np.log(l), -np.inf)
    O = arithmetic.stored(P.astype(S.dtype, copy=False) @ v).astype(S.dtype, copy=False)
    return Replay(O, LSE, m[..., None], l[..., None], np.ones_like(m)[..., None])
