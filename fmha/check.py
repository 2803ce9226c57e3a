"""The one check: is O what attention in float64 gives, as nearly as the precision allows?

The rule: the error against float64 is at most twice that of the plain computation in the same precision (matrix
product, softmax, matrix product), plus two roundings of what is added up for one row (P |V|), which matter where the
plain computation happens to be exact; each row in which it is gets them. How near the plain computation comes is partly
luck, because it depends on the order in which its sums are added up. So where a result misses the mark that the matrix
library's order sets, the plain computation is done again in the orders of a simple loop, forwards and backwards, and
the largest of its errors counts.

Every number of O must be finite; the comparison itself covers all rows, or a sample of them where float64 would take
too long.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fmha.mask import row_bounds
from fmha.problem import DTYPES, Problem, cast

Array = NDArray[Any]
BUDGET = 1 << 26  # scores that are computed in float64
_SCORES_AT_ONCE = 1 << 22
_FACTOR = 2.0
_ROUNDINGS = 2.0


@dataclass(frozen=True)
class HeadRows:
    """Query rows of one head, rising: what a check looks at."""

    b: int
    h: int
    rows: NDArray[np.int64]


@dataclass(frozen=True)
class Check:
    """What a check found. Errors are absolute differences of O, and of LSE where it was given.

    worst: (b, h, row, column) of the largest error. not_finite: NaN or infinite numbers in all of O.
    """

    ok: bool
    verdict: str
    rows: int
    rows_checked: int
    max_abs: float
    max_abs_allowed: float
    relative: float
    relative_allowed: float
    plain_max_abs: float
    plain_relative: float
    not_finite: int
    worst: tuple[int, int, int, int]
    lse_max_abs: float | None = None
    lse_allowed: float | None = None


@dataclass(frozen=True)
class Truth:
    """What results are compared with, for some rows of a problem: made once for many results of the same Q, K, V."""

    rows: int
    parts: tuple[_Part, ...]


@dataclass(frozen=True)
class _Part:
    """Rows of one head: O and LSE in float64, those of the plain computation, the largest P |V|, and the sum of its
    squares over rows in which the plain computation is exact."""

    head: HeadRows
    exact: tuple[Array, Array]
    plain: tuple[Array, Array]
    summed: float
    exact_squares: float


def choose_rows(problem: Problem, budget: int = BUDGET, seed: int = 0) -> tuple[HeadRows, ...]:
    """All rows where their scores stay within `budget`; else a sample over the heads, with the first and last row of
    each, and with the first and last head."""
    p = problem
    heads = p.B * p.H
    if heads * p.Nq * p.Nk <= budget:
        return tuple(HeadRows(bh // p.H, bh % p.H, np.arange(p.Nq)) for bh in range(heads))
    rng = np.random.default_rng(seed)
    most = max(1, budget // (8 * p.Nk))  # heads: at least eight rows of each
    chosen = np.arange(heads)
    if heads > most:
        middle = rng.choice(np.arange(1, heads - 1), size=max(0, most - 2), replace=False)
        chosen = np.unique(np.concatenate([[0, heads - 1], middle]))
    share = max(2, budget // (len(chosen) * p.Nk))
    out = []
    for bh in chosen:
        rows = np.arange(p.Nq)
        if p.Nq > share:
            rows = np.unique([0, p.Nq - 1, *rng.choice(p.Nq, size=share - 2, replace=False)])
        out.append(HeadRows(int(bh) // p.H, int(bh) % p.H, rows.astype(np.int64)))
    return tuple(out)


def check(
    problem: Problem,
    Q: ArrayLike,
    K: ArrayLike,
    V: ArrayLike,
    O: ArrayLike,
    LSE: ArrayLike | None = None,
    *,
    rows: tuple[HeadRows, ...] | None = None,
    finite: int | None = None,
    truth: Truth | None = None,
) -> Check:
    """Compare O [B, H, Nq, d] (and LSE [B, H, Nq]) with attention in float64 over the inputs as stored in the dtype.

    Args:
        rows: which rows; `choose_rows(problem)` by default.
        finite: how many numbers of O are finite, where someone counted them already.
        truth: of the same problem and inputs, where it was made already (`truth_of`); then `rows` are its.
    """
    p = problem
    Q, K, V, O = (np.asarray(array) for array in (Q, K, V, O))
    known = truth_of(p, Q, K, V, rows) if truth is None else truth
    not_finite = O.size - (int(np.isfinite(O).sum()) if finite is None else finite)
    seen = _Errors()
    for part in known.parts:
        seen.add(part, O, None if LSE is None else np.asarray(LSE))
    found = seen.verdict(p, known.rows, not_finite)
    for order in ("forwards", "backwards"):
        if found.ok or found.not_finite:
            break
        for part in known.parts:
            seen.add_plain(p, part, Q, K, V, order)
        found = seen.verdict(p, found.rows_checked, not_finite)
    return found


def truth_of(
    problem: Problem, Q: ArrayLike, K: ArrayLike, V: ArrayLike, rows: tuple[HeadRows, ...] | None = None
) -> Truth:
    """What `check` compares with, for these rows (`choose_rows(problem)` by default)."""
    p = problem
    Q, K, V = (np.asarray(array) for array in (Q, K, V))
    chosen = choose_rows(p) if rows is None else rows
    at_once = max(1, _SCORES_AT_ONCE // p.Nk)
    parts = []
    for head in chosen:
        for first in range(0, len(head.rows), at_once):
            part = HeadRows(head.b, head.h, head.rows[first : first + at_once])
            q, k, v = _stored(p, part, Q, K, V)
            summed, _ = _attention(p, part, q, k, np.abs(v), np.float64)
            exact, plain = (_attention(p, part, q, k, v, work) for work in (np.float64, np.float32))
            is_exact = (plain[0] == exact[0]).all(axis=1)
            squares = float((summed[is_exact] ** 2).sum())
            parts.append(_Part(part, exact, plain, float(summed.max(initial=0.0)), squares))
    return Truth(sum(len(head.rows) for head in chosen), tuple(parts))


def error_map(
    problem: Problem, head: HeadRows, Q: ArrayLike, K: ArrayLike, V: ArrayLike, O: ArrayLike, side: int = 32
) -> NDArray[np.float64]:
    """|O - float64| of some rows of one head, reduced to at most side x side cells by the largest of each; where O is
    not a number the error is infinite."""
    q, k, v = _stored(problem, head, np.asarray(Q), np.asarray(K), np.asarray(V))
    truth, _ = _attention(problem, head, q, k, v, np.float64)
    difference = np.abs(np.asarray(O)[head.b, head.h][head.rows].astype(np.float64) - truth)
    difference = np.where(np.isnan(difference), np.inf, difference)
    for axis in (0, 1):
        extent = difference.shape[axis]
        first = np.unique(np.arange(min(side, extent)) * extent // min(side, extent))
        difference = np.maximum.reduceat(difference, first, axis=axis)
    return difference


class _Errors:
    """Errors gathered head by head."""

    def __init__(self) -> None:
        self.largest = self.squares = self.norm = self.lse_size = 0.0
        self.summed = 0.0  # the largest P |V|
        self.exact_squares = 0.0
        self.plain_largest = self.plain_lse = 0.0
        self.plain_squares = {"library": 0.0}  # by order of summation
        self.lse: float | None = None
        self.worst = (0, 0, 0, 0)
        self.broken = 0

    def add(self, part: _Part, O: Array, LSE: Array | None) -> None:
        head, (truth, truth_lse) = part.head, part.exact
        self._compare_plain("library", part.exact, part.plain)
        result = O[head.b, head.h][head.rows].astype(np.float64)
        difference = np.abs(result - truth)
        wrong = ~np.isfinite(difference)
        if wrong.any() and not self.broken:
            row, col = (int(x[0]) for x in np.nonzero(wrong))
            self.worst = (head.b, head.h, int(head.rows[row]), col)
        self.broken += int(wrong.sum())
        difference = np.where(wrong, 0.0, difference)
        if difference.max(initial=0.0) > self.largest:
            self.largest = float(difference.max())
            row, col = (int(x) for x in np.unravel_index(difference.argmax(), difference.shape))
            self.worst = self.worst if self.broken else (head.b, head.h, int(head.rows[row]), col)
        self.squares += float((difference**2).sum())
        self.norm += float((truth**2).sum())
        self.summed = max(self.summed, part.summed)
        self.exact_squares += part.exact_squares
        if LSE is not None:
            self._add_lse(LSE[head.b, head.h][head.rows].astype(np.float64), truth_lse)

    def add_plain(self, p: Problem, part: _Part, Q: Array, K: Array, V: Array, order: str) -> None:
        """The plain computation once more, its scores added up in another order."""
        q, k, v = _stored(p, part.head, Q, K, V)
        self._compare_plain(order, part.exact, _attention(p, part.head, q, k, v, np.float32, order))

    def _compare_plain(self, order: str, truth: tuple[Array, Array], plain: tuple[Array, Array]) -> None:
        off = np.abs(plain[0].astype(np.float64) - truth[0])
        self.plain_largest = max(self.plain_largest, float(off.max(initial=0.0)))
        self.plain_squares[order] = self.plain_squares.get(order, 0.0) + float((off**2).sum())
        with np.errstate(invalid="ignore"):
            lse_off = np.where(np.isneginf(truth[1]), 0.0, np.abs(plain[1].astype(np.float64) - truth[1]))
        self.plain_lse = max(self.plain_lse, float(lse_off.max(initial=0.0)))

    def _add_lse(self, result: Array, truth: Array) -> None:
        empty = np.isneginf(truth)
        with np.errstate(invalid="ignore"):
            difference = np.where(empty, np.where(np.isneginf(result), 0.0, np.inf), np.abs(result - truth))
        difference = np.where(np.isnan(difference), np.inf, difference)
        self.lse = max(self.lse or 0.0, float(difference.max(initial=0.0)))
        self.lse_size = max(self.lse_size, float(np.abs(np.where(empty, 0.0, truth)).max(initial=0.0)))

    def verdict(self, p: Problem, checked: int, not_finite: int) -> Check:
        rounding = 2.0 ** -(DTYPES[p.dtype].mantissa_bits + 1)
        allowed = _FACTOR * self.plain_largest + _ROUNDINGS * rounding * self.summed
        norm = self.norm**0.5
        relative = self.squares**0.5 / norm if norm else float(self.squares > 0)
        plain_relative = max(self.plain_squares.values()) ** 0.5 / norm if norm else 0.0
        relative_allowed = _FACTOR * plain_relative
        one_row = self.summed * p.d**0.5
        relative_allowed += _ROUNDINGS * rounding * max(one_row, self.exact_squares**0.5) / norm if norm else 0.0
        lse_allowed = None
        if self.lse is not None:
            lse_allowed = _FACTOR * self.plain_lse + _ROUNDINGS * 2.0**-24 * max(1.0, self.lse_size)
        rows = p.B * p.H * p.Nq
        over = f"{checked:,} of {rows:,} rows" if checked < rows else f"all {rows:,} rows"
        place = "b={}, h={}, row {}, column {}".format(*self.worst)
        # Each comparison is written so that NaN fails it.
        if not_finite or self.broken:
            many = max(not_finite, self.broken)
            verdict = f"wrong: {many:,} {'number of O is' if many == 1 else 'numbers of O are'} NaN or infinite"
            verdict += f", one of them at {place}" if self.broken else ""
        elif not self.largest <= allowed:
            verdict = f"wrong: O is off by {self.largest:.2g} at {place}; {allowed:.2g} is allowed"
        elif not relative <= relative_allowed:
            verdict = f"wrong: O is off by {relative:.2g} of its norm; {relative_allowed:.2g} is allowed"
        elif self.lse is not None and lse_allowed is not None and not self.lse <= lse_allowed:
            verdict = f"wrong: LSE is off by {self.lse:.2g}; {lse_allowed:.2g} is allowed"
        else:
            verdict = f"right: largest error {self.largest:.2g}, allowed {allowed:.2g}, over {over}"
        return Check(
            verdict.startswith("right"), verdict, rows, checked, self.largest, allowed, relative, relative_allowed,
            self.plain_largest, plain_relative, max(not_finite, self.broken), self.worst, self.lse, lse_allowed,
        )  # fmt: skip


def _stored(p: Problem, head: HeadRows, Q: Array, K: Array, V: Array) -> tuple[Array, Array, Array]:
    """The head's Q rows, K and V as the kernel was given them: rounded to the problem's dtype."""
    hk = head.h // p.group
    return (
        cast(Q[head.b, head.h][head.rows], p.dtype),
        cast(K[head.b, hk], p.dtype),
        cast(V[head.b, hk], p.dtype),
    )


def _attention(
    p: Problem, head: HeadRows, q: Array, k: Array, v: Array, work: type[np.floating[Any]], order: str = "library"
) -> tuple[Array, Array]:
    """O [rows, d] and LSE [rows] of the plain computation, dense; in float32 P and O are rounded to the dtype.

    order: how scores are added up over d, l and O over the keys: as the libraries do, or one after another,
    "forwards" or "backwards".
    """
    low, high = (bound[head.rows] for bound in row_bounds(p, head.b))
    keys = np.arange(p.Nk)
    S = _products(q.astype(work), k.astype(work), order) * work(p.scale)
    S = np.where((keys >= low[:, None]) & (keys < high[:, None]), S, work(-np.inf))
    m = S.max(axis=-1, keepdims=True)
    shift = np.where(np.isfinite(m), m, work(0))
    E = np.exp(S - shift)
    total = E.sum(axis=-1, keepdims=True) if order == "library" else _products(E, np.ones((1, p.Nk), work), order)
    P = np.divide(E, total, out=np.zeros_like(E), where=total > 0)
    with np.errstate(divide="ignore"):
        LSE = (shift + np.log(total))[:, 0]
    if work is np.float64:
        return P @ v.astype(work), LSE
    return cast(_products(cast(P, p.dtype), v.T.astype(work), order), p.dtype), LSE


def _products(a: Array, b: Array, order: str) -> Array:
    """a [m, n], b [k, n] -> a b^T [m, k], its sums of n products added up in the given order."""
    if order == "library":
        return a @ b.T
    sums = np.zeros((len(a), len(b)), a.dtype)
    for c in range(a.shape[1])[:: 1 if order == "forwards" else -1]:
        sums += a[:, c, None] * b[:, c]
    return sums


__all__ = ["BUDGET", "Check", "HeadRows", "Truth", "check", "choose_rows", "error_map", "truth_of"]
