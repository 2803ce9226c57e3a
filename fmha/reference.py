"""Attention in float64: the truth that everything else is checked against."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fmha.errors import InputError
from fmha.mask import keep, row_bounds
from fmha.problem import Problem, check_memory

Array = NDArray[np.float64]


class Attention(NamedTuple):
    """O [B, H, Nq, d] and LSE [B, H, Nq] (natural log); a row that sees no key has O = 0, LSE = -inf."""

    O: Array  # the papers' letter
    LSE: Array


def reference(problem: Problem, Q: ArrayLike, K: ArrayLike, V: ArrayLike) -> Attention:
    """Dense attention in float64.

    Args:
        Q: [B, H, Nq, d]; K, V: [B, Hk, Nk, d]; any real dtype.

    Raises:
        InputError: shapes that do not fit the problem, numbers that are not finite or whose scores overflow.
        LimitError: S would not fit in `fmha.problem.MAX_WORKING_BYTES`.
    """
    Q, K, V = check_inputs(problem, Q, K, V)
    with np.errstate(over="ignore", invalid="ignore"):
        P, LSE = _softmax(scores(problem, Q, K))
        O = P @ np.repeat(V, problem.group, axis=1)
    check_overflow(problem, O, LSE, "float64")
    return Attention(O, LSE)


def scores(problem: Problem, Q: ArrayLike, K: ArrayLike) -> Array:
    """S = scale Q K^T with -inf where a row may not look: [B, H, Nq, Nk]."""
    check_dense(problem, 8)
    keys = np.repeat(np.asarray(K, np.float64), problem.group, axis=1)
    S = problem.scale * (np.asarray(Q, np.float64) @ keys.swapaxes(-1, -2))
    return np.where(keep(problem)[:, None], S, -np.inf)


def output_rows(problem: Problem, Q: ArrayLike, K: ArrayLike, V: ArrayLike, b: int, h: int, rows: ArrayLike) -> Array:
    """O [len(rows), d] in float64 for some query rows of one head, where the whole of S would be too large.

    Args:
        Q: [B, H, Nq, d]; K, V: [B, Hk, Nk, d]. rows: numbers of query rows.

    Raises:
        LimitError: their scores would not fit in `fmha.problem.MAX_WORKING_BYTES`.
    """
    chosen = np.asarray(rows, np.int64)
    check_memory(5 * 8 * len(chosen) * problem.Nk, f"{len(chosen)} rows of S with {problem.Nk} keys")
    group = h // problem.group
    q, k, v = np.asarray(Q)[b, h][chosen], np.asarray(K)[b, group], np.asarray(V)[b, group]
    low, high = (bound[chosen] for bound in row_bounds(problem, b))
    keys = np.arange(problem.Nk)
    S = problem.scale * (q.astype(np.float64) @ k.astype(np.float64).T)
    S = np.where((keys >= low[:, None]) & (keys < high[:, None]), S, -np.inf)
    P, _ = _softmax(S)
    O: Array = P @ v.astype(np.float64)
    return O


def weights(problem: Problem, Q: ArrayLike, K: ArrayLike) -> Array:
    """P = softmax S, row by row: [B, H, Nq, Nk]; a row that sees no key is all zero."""
    with np.errstate(over="ignore", invalid="ignore"):
        P, LSE = _softmax(scores(problem, Q, K))
    check_overflow(problem, P, LSE, "float64")
    return P


def _softmax(S: Array) -> tuple[Array, Array]:
    m = S.max(axis=-1, keepdims=True)
    shift = np.where(np.isfinite(m), m, 0.0)
    E = np.exp(S - shift)
    total = E.sum(axis=-1, keepdims=True)
    P = np.divide(E, total, out=np.zeros_like(E), where=total > 0)
    with np.errstate(divide="ignore"):
        return P, (shift + np.log(total))[..., 0]


def check_dense(problem: Problem, itemsize: int) -> None:
    """Refuse whole matrices [B, H, Nq, Nk] that are too large: S, P and what is needed to make them."""
    p = problem
    check_memory(5 * p.B * p.H * p.Nq * p.Nk * itemsize, f"attention with S of {p.B} x {p.H} x {p.Nq} x {p.Nk}")


def check_overflow(problem: Problem, O: Array, LSE: Array, precision: str) -> None:
    """Refuse a result whose numbers ran out of range: a row that sees a key must have a finite LSE and O.

    O: [B, H, Nq, x]; LSE: [B, H, Nq]. Without this, scores of +inf would show as NaN, and scores of -inf as a row
    that sees nothing.

    Raises:
        InputError: one has.
    """
    bounds = [row_bounds(problem, b) for b in range(problem.B)]
    sees = np.stack([high > low for low, high in bounds])[:, None]
    wrong = sees & ~(np.isfinite(LSE) & np.isfinite(O).all(axis=-1))
    if wrong.any():
        b, h, row = (int(index[0]) for index in np.nonzero(wrong))
        raise InputError(
            f"scores or output of row {row} (b={b}, h={h}) exceed what {precision} can hold: "
            "Q, K, V or the scale are too large; divide them by a power of ten."
        )


def check_inputs(problem: Problem, Q: ArrayLike, K: ArrayLike, V: ArrayLike) -> tuple[Array, Array, Array]:
    """Q, K, V as float64 arrays whose shapes fit the problem and whose values are finite, or an InputError."""
    query_shape = (problem.B, problem.H, problem.Nq, problem.d)
    key_shape = (problem.B, problem.Hk, problem.Nk, problem.d)
    arrays = []
    for name, value, shape in (("Q", Q, query_shape), ("K", K, key_shape), ("V", V, key_shape)):
        try:
            array = np.asarray(value)
            if array.dtype.kind not in "fiub":
                raise TypeError
        except (TypeError, ValueError):
            raise InputError(f"{name} is not an array of real numbers: pass one of shape {shape}.") from None
        if array.shape != shape:
            raise InputError(f"{name} has shape {array.shape}, but this problem needs {shape} ([B, H, N, d]).")
        array = array.astype(np.float64, copy=False)
        if not np.isfinite(array).all():
            raise InputError(f"{name} holds NaN or infinity: attention needs finite numbers; clean {name} first.")
        arrays.append(array)
    return arrays[0], arrays[1], arrays[2]
