"""Replay of an event table over arrays: m, l, alpha, O, and what is resident where.

Two runners share one set of formulas (`tile_scores`, `online_update`):

- `replay` takes all visits of equal rank at once (fast; gives the state after every visit);
- `Machine` takes one event after another and is strict: a tile that is out of range, a read of what was not loaded or
  not computed, bytes that do not match the tile, or more shared memory than allowed raise `SimulationError`.

Precision "float64" is the yardstick. Precision "dtype" computes as a kernel for that dtype would: inputs rounded to
it, scores, m, l and O in fp32, P rounded to it before P V, O rounded to it at the end. That holds for what naive (S)
and kv-outer (O) keep in HBM on the way, too: their bytes are counted in the problem's dtype, their digits are fp32's.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fmha.errors import InputError, LimitError, ProblemError, SimulationError
from fmha.events import CODE, PHASES, Phase
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
# The order within a visit: what must have been computed on the same tile by the same worker just before.
_FOLLOWS = {"m": "S", "P": "m", "O": "P", "O_norm": "P"}


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
    """What the player draws, tile by tile, in float32; rows and keys beyond the last are 0, skipped tiles NaN.

    S: [B, H, Tr, Tc, Br, Bc], masked scores -inf; P: the weights exp(S - m_new) of the same shape;
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
            "use a smaller N or fewer heads; traffic() counts any size."
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
            O[w] = _accumulate(O[w], alpha, pv, l[w], l_new, self.normalized)
            l[w] = l_new
            trace_m[w, :, j], trace_l[w, :, j], trace_alpha[w, :, j] = m[w], l_new, alpha
            if tiles is not None:
                tiles.S[b, h, i, j], tiles.P[b, h, i, j] = S, P
                tiles.O[b, h, i, j] = O[w, :, :record_columns]
        if not self.normalized:
            O = np.divide(O, l[..., None], out=np.zeros_like(O), where=l[..., None] > 0)
        with np.errstate(divide="ignore"):
            LSE = np.where(l > 0, np.where(np.isfinite(m), m, 0) + np.log(l), -np.inf)
        _carry(trace_m, -np.inf)
        _carry(trace_l, 0.0)
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


def _accumulate(O: Array, alpha: Array, pv: Array, l: Array, l_new: Array, normalized: bool) -> Array:
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


def _carry(trace: Array, start: float) -> None:
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


@dataclass
class Machine:
    """One event at a time over HBM and each worker's shared memory; every illegal access raises.

    `hbm` holds whole tensors by name, `smem[worker]` the resident tiles by slot name, `peak_smem_bytes` the most any
    worker held. Naive's workers of one head share K and V, because Algorithm 0 reads each once: whoever loads a tile
    loads it for all, and `run` looks ahead for that, since rows are in order only within a worker.
    """

    problem: Problem
    tiling: Tiling
    Q: ArrayLike
    K: ArrayLike
    V: ArrayLike
    order: Order = "q-outer"
    precision: Precision = "float64"
    smem_limit_bytes: int | None = None
    hbm: dict[str, Array] = field(init=False)
    smem: dict[int, dict[str, tuple[tuple[int, ...], Array]]] = field(init=False, default_factory=dict)
    peak_smem_bytes: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        p = self.problem
        self.arithmetic = Arithmetic.of(p, self.precision)
        Q, K, V = self.arithmetic.inputs(p, self.Q, self.K, self.V)
        self.hbm = {"Q": Q, "K": K, "V": V}
        self.bounds = [row_bounds(p, b) for b in range(p.B)]
        self._fetched: set[tuple[int, int, str, int]] = set()  # naive: (b, h, tensor, j) that some worker loads
        self._kernel: dict[int, int] = {}  # worker -> the kernel it is in
        self._last: dict[int, tuple[str, tuple[int, ...]]] = {}  # worker -> latest formula and the tile it was for
        self._pending: dict[int, tuple[Array, Array]] = {}  # worker -> P, l_new, computed with m_new

    def run(self, events: NDArray[np.void]) -> Machine:
        """Take every event in turn."""
        if self.order == "naive":
            shared = events[np.isin(events["phase"], (CODE["load_K"], CODE["load_V"]))]
            self._fetched.update((int(e["b"]), int(e["h"]), PHASES[e["phase"]].tensor, int(e["j"])) for e in shared)
        with np.errstate(over="ignore", invalid="ignore"):
            for event in events:
                self.step(event)
        return self

    def output(self) -> Array:
        """O [B, H, Nq, d] as it lies in HBM at the end, rounded to the dtype.

        Raises:
            SimulationError: a row of O was never stored.
        """
        O = self.hbm.get("O")
        if O is None or np.isnan(O).any():
            raise SimulationError(f"{'all' if O is None else 'some'} rows of O were never stored to HBM.")
        return self.arithmetic.stored(O).astype(self.arithmetic.work, copy=False)

    def step(self, event: np.void) -> None:
        """Take one event.

        Raises:
            SimulationError: the event is illegal here; the text names the event, the tile and the access.
        """
        if event["phase"] >= len(PHASES):
            raise SimulationError(f"phase={event['phase']} is out of range 0 to {len(PHASES) - 1}.")
        phase = PHASES[event["phase"]]
        self._check_range(event, phase)
        worker, kernel = int(event["worker"]), int(event["kernel"])
        slots = self.smem.setdefault(worker, {})
        if self._kernel.setdefault(worker, kernel) != kernel:  # shared memory does not outlive a kernel
            self._kernel[worker] = kernel
            slots.clear()
            self._last.pop(worker, None)
        if phase.is_load:
            self._load(event, phase.tensor, slots)
        elif phase.is_store:
            self._store(event, phase.code, phase.tensor, slots)
        else:
            self._check_sequence(event, phase)
            getattr(self, f"_do_{phase.code}")(event, slots)
        self._check_smem(event, slots)

    # --- memory -------------------------------------------------------------------------------------------------

    def _where(self, event: np.void, tensor: str) -> tuple[Any, ...]:
        """Index of the event's tile in the whole tensor in HBM; only real rows and keys."""
        p, t = self.problem, self.tiling
        b, h, i, j = (int(event[name]) for name in "bhij")
        rows = slice(i * t.Br, min((i + 1) * t.Br, p.Nq))
        start, stop = (0, p.Nk) if self.order == "naive" else p.key_range(b)
        keys = slice(min(max(j * t.Bc, start), stop), max(min((j + 1) * t.Bc, stop), start))
        if tensor in ("K", "V"):
            return (b, h // p.group, keys)
        return (b, h, rows, keys) if tensor in ("S", "P") else (b, h, rows)

    def _load(self, event: np.void, tensor: str, slots: dict[str, tuple[tuple[int, ...], Array]]) -> None:
        if tensor not in self.hbm:
            raise SimulationError(f"{_name(event)} loads {tensor}, but nothing has written {tensor} to HBM.")
        tile = self.hbm[tensor][self._where(event, tensor)]
        if np.isnan(tile).any():
            raise SimulationError(f"{_name(event)} loads a tile of {tensor} that nothing has written to HBM.")
        self._check_bytes(event, tensor, tile)
        where = self._tag(event, tensor)
        slots[tensor if tensor not in ("S", "P") else f"{tensor}{where[-1]}"] = (where, tile.copy())

    def _store(self, event: np.void, code: str, tensor: str, slots: dict[str, tuple[tuple[int, ...], Array]]) -> None:
        p = self.problem
        shape = {"O": (p.B, p.H, p.Nq, p.d), "S": (p.B, p.H, p.Nq, p.Nk), "P": (p.B, p.H, p.Nq, p.Nk)}
        if tensor not in self.hbm:
            self.hbm[tensor] = np.full(shape.get(tensor, (p.B, p.H, p.Nq)), np.nan, self.arithmetic.work)
        where = self._where(event, tensor)
        target = self.hbm[tensor][where]
        if code.startswith("init_"):
            value: Array = np.full(target.shape, -np.inf if tensor == "m" else 0.0)
        elif tensor == "LSE":
            m, l = self._need(event, slots, "m"), self._need(event, slots, "l")
            with np.errstate(divide="ignore"):
                value = np.where(l > 0, np.where(np.isfinite(m), m, 0) + np.log(l), -np.inf)
        else:
            slot = f"{tensor}{int(event['j'])}" if f"{tensor}{int(event['j'])}" in slots else tensor
            value = self._need(event, slots, slot)
        self._check_bytes(event, tensor, target)
        if tensor == "O" and self.order == "q-outer" and self._last.get(int(event["worker"]), ("",))[0] != "normalize":
            raise SimulationError(f'{_name(event)} must follow "{PHASES[CODE["normalize"]].maths}", and does not.')
        rounds = tensor == "P" or (tensor == "O" and self.order != "kv-outer")
        self.hbm[tensor][where] = self.arithmetic.stored(value) if rounds else value

    def _tag(self, event: np.void, tensor: str) -> tuple[int, ...]:
        b, h, i, j = (int(event[name]) for name in "bhij")
        if tensor in ("K", "V"):
            return (b, h, j)
        return (b, h, i, j) if tensor in ("S", "P") else (b, h, i)

    def _need(self, event: np.void, slots: dict[str, tuple[tuple[int, ...], Array]], slot: str) -> Array:
        """The resident tile this event reads, and it must be the tile the event speaks of."""
        if (int(event["b"]), int(event["h"]), slot, int(event["j"])) in self._fetched:
            return self.hbm[slot][self._where(event, slot)]
        if slot not in slots:
            raise SimulationError(f"{_name(event)} reads {slot}, but worker {event['worker']} has not loaded it.")
        where, tile = slots[slot]
        wanted = self._tag(event, slot.rstrip("0123456789"))
        if where != wanted:
            raise SimulationError(
                f"{_name(event)} reads {slot} of tile {wanted}, but the resident {slot} is tile {where}."
            )
        return tile

    def _check_range(self, event: np.void, phase: Phase) -> None:
        p, t = self.problem, self.tiling
        # A worker that sees no key, and initialisation, concern no K/V tile: j = -1.
        no_tile = phase.code == "normalize" or (
            phase.tensor not in ("K", "V", "S", "P") and (phase.is_load or phase.is_store)
        )
        for name, count, low in (
            ("b", p.B, 0), ("h", p.H, 0), ("i", t.Tr(p), 0), ("j", t.Tc(p), -1 if no_tile else 0),
        ):  # fmt: skip
            if not low <= event[name] < count:
                raise SimulationError(f"{_name(event)}: {name}={event[name]} is out of range 0 to {count - 1}.")

    def _check_sequence(self, event: np.void, phase: Phase) -> None:
        """S, m_new, P, O follow one another on one tile: each reads what the one before has left."""
        worker, tile = int(event["worker"]), self._tag(event, "S")
        needed = _FOLLOWS.get(phase.code)
        if needed is not None and self._last.get(worker) != (needed, tile):
            raise SimulationError(
                f'{_name(event)} must follow "{PHASES[CODE[needed]].maths}" of the same tile, and does not.'
            )
        self._last[worker] = (phase.code, tile)

    def _check_bytes(self, event: np.void, tensor: str, tile: Array) -> None:
        size = 4 if tensor in ("m", "l", "LSE") else self.problem.itemsize
        if event["nbytes"] != tile.size * size:
            raise SimulationError(
                f"{_name(event)} says {event['nbytes']} bytes, but the tile of {tensor} has {tile.size * size}."
            )

    def _check_smem(self, event: np.void, slots: dict[str, tuple[tuple[int, ...], Array]]) -> None:
        held = sum(
            tile.size * (self.problem.itemsize if slot in ("Q", "K", "V") else 4) for slot, (_, tile) in slots.items()
        )
        self.peak_smem_bytes = max(self.peak_smem_bytes, held)
        if self.smem_limit_bytes is not None and held > self.smem_limit_bytes:
            raise SimulationError(
                f"{_name(event)}: worker {event['worker']} holds {held} bytes of shared memory, "
                f"{held - self.smem_limit_bytes} more than the {self.smem_limit_bytes} allowed."
            )

    # --- arithmetic ---------------------------------------------------------------------------------------------

    def _statistics(
        self, event: np.void, slots: dict[str, tuple[tuple[int, ...], Array]]
    ) -> tuple[Array, Array, Array]:
        """m, l, O of the worker's rows; a q-outer worker starts from -inf, 0, 0 without loading them."""
        tag = self._tag(event, "m")
        if "m" not in slots:
            rows = self.hbm["Q"][self._where(event, "Q")]
            work = self.arithmetic.work
            slots["m"] = (tag, np.full(len(rows), -np.inf, work))
            slots["l"] = (tag, np.zeros(len(rows), work))
            slots["O"] = (tag, np.zeros(rows.shape, work))
        return self._need(event, slots, "m"), self._need(event, slots, "l"), self._need(event, slots, "O")

    def _visible(self, event: np.void, k: Array) -> NDArray[np.bool_]:
        b = int(event["b"])
        rows = self._where(event, "Q")[2]
        keys = self._where(event, "K")[2]
        low, high = self.bounds[b][0][rows, None], self.bounds[b][1][rows, None]
        index = np.arange(keys.start, keys.stop)
        return (index >= low) & (index < high)

    def _do_S(self, event: np.void, slots: dict[str, tuple[tuple[int, ...], Array]]) -> None:
        q, k = self._need(event, slots, "Q"), self._need(event, slots, "K")
        slots["S"] = (self._tag(event, "S"), tile_scores(q, k, self.problem.scale, self._visible(event, k)))

    def _do_m(self, event: np.void, slots: dict[str, tuple[tuple[int, ...], Array]]) -> None:
        m, l, _ = self._statistics(event, slots)
        m_new, alpha, P, l_new = online_update(m, l, self._need(event, slots, "S"))
        tag = self._tag(event, "m")
        # The formulas of the next phase are evaluated with this one; they take effect with `_do_P`.
        slots["alpha"] = (tag, alpha)
        self._pending[int(event["worker"])] = (P, l_new)
        slots["m"] = (tag, m_new)

    def _do_P(self, event: np.void, slots: dict[str, tuple[tuple[int, ...], Array]]) -> None:
        self._need(event, slots, "alpha")
        P, l_new = self._pending.pop(int(event["worker"]))
        slots["l_old"] = slots["l"]
        slots["S"] = (self._tag(event, "S"), P)  # the score tile becomes the weight tile, in place
        slots["l"] = (self._tag(event, "l"), l_new)

    def _do_O(self, event: np.void, slots: dict[str, tuple[tuple[int, ...], Array]], normalized: bool = False) -> None:
        P, v, alpha = (self._need(event, slots, name) for name in ("S", "V", "alpha"))
        pv = self.arithmetic.stored(P).astype(self.arithmetic.work, copy=False) @ v
        l_old, l_new, O = (self._need(event, slots, name) for name in ("l_old", "l", "O"))
        slots["O"] = (self._tag(event, "O"), _accumulate(O, alpha, pv, l_old, l_new, normalized))
        del slots["l_old"]

    def _do_O_norm(self, event: np.void, slots: dict[str, tuple[tuple[int, ...], Array]]) -> None:
        self._do_O(event, slots, normalized=True)

    def _do_normalize(self, event: np.void, slots: dict[str, tuple[tuple[int, ...], Array]]) -> None:
        _, l, O = self._statistics(event, slots)
        done = np.divide(O, l[:, None], out=np.zeros_like(O), where=l[:, None] > 0)
        slots["O"] = (self._tag(event, "O"), done)

    def _do_softmax(self, event: np.void, slots: dict[str, tuple[tuple[int, ...], Array]]) -> None:
        tiles = range(self.tiling.Tc(self.problem))
        for j in tiles:
            if slots.get(f"S{j}", (None,))[0] != (*self._tag(event, "S")[:3], j):
                raise SimulationError(f"{_name(event)} reads S of tile {j}, but it is not resident.")
        S = np.concatenate([slots[f"S{j}"][1] for j in tiles], axis=-1)
        m, l = np.full(len(S), -np.inf, S.dtype), np.zeros(len(S), S.dtype)
        _, _, E, total = online_update(m, l, S)
        P = np.divide(E, total[:, None], out=np.zeros_like(E), where=total[:, None] > 0)
        for j in tiles:
            where, tile = slots.pop(f"S{j}")
            first = j * self.tiling.Bc
            slots[f"P{j}"] = (where, P[:, first : first + tile.shape[1]])

    def _do_PV(self, event: np.void, slots: dict[str, tuple[tuple[int, ...], Array]]) -> None:
        P, v = self._need(event, slots, f"P{int(event['j'])}"), self._need(event, slots, "V")
        pv = self.arithmetic.stored(P).astype(self.arithmetic.work, copy=False) @ v
        previous = slots["O"][1] if "O" in slots else np.zeros_like(pv)
        slots["O"] = (self._tag(event, "O"), previous + pv)
        del slots[f"P{int(event['j'])}"]


def _name(event: np.void) -> str:
    place = ", ".join(f"{name}={event[name]}" for name in "bhij")
    return f'"{PHASES[event["phase"]].maths}" of worker {event["worker"]} ({place})'
