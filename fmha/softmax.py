"""Three ways to compute one row's softmax, with every memory access counted; and two misprinted recurrences.

The loops touch the row one element at a time through `CountedRow`, so the accesses are counted, not
asserted: 3 per element for the naive and the online softmax, 4 for the safe one (Milakov and Gimelshein,
"Online normalizer calculation for softmax", 2018).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]
HALF, SINGLE = np.float16, np.float32


class CountedRow:
    """A row in slow memory: every element read or written adds one to `accesses`."""

    def __init__(self, values: ArrayLike) -> None:
        self.values = np.array(values, np.float64)
        self.accesses = 0

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, index: int) -> float:
        self.accesses += 1
        return float(self.values[index])

    def __setitem__(self, index: int, value: float) -> None:
        self.accesses += 1
        self.values[index] = value


@dataclass(frozen=True)
class SoftmaxRun:
    """What one algorithm did with a row: its weights, passes over the row, accesses per element."""

    name: str
    what: str
    weights: Array
    passes: int
    per_element: float


def naive(row: ArrayLike) -> SoftmaxRun:
    """Two passes, no max subtracted: sum the exponentials, then divide. Overflows for large scores."""
    x, y = CountedRow(row), CountedRow(np.zeros(len(np.atleast_1d(np.asarray(row)))))
    total = 0.0
    for k in range(len(x)):
        total += _exp(x[k])
    for k in range(len(x)):
        y[k] = _divide(_exp(x[k]), total)
    return _run("naive", "sum; then divide", x, y, 2)


def safe(row: ArrayLike) -> SoftmaxRun:
    """Three passes: the max, the sum shifted by the max, then divide."""
    x, y = CountedRow(row), CountedRow(np.zeros(len(np.atleast_1d(np.asarray(row)))))
    m = -math.inf
    for k in range(len(x)):
        m = max(m, x[k])
    total = 0.0
    for k in range(len(x)):
        total += _exp(x[k] - m)
    for k in range(len(x)):
        y[k] = _divide(_exp(x[k] - m), total)
    return _run("safe", "max; then sum; then divide", x, y, 3)


def online(row: ArrayLike) -> SoftmaxRun:
    """Two passes: max and sum together, the sum rescaled by exp(m_old - m_new) when the max rises; then
    divide."""
    x, y = CountedRow(row), CountedRow(np.zeros(len(np.atleast_1d(np.asarray(row)))))
    m, total = -math.inf, 0.0
    for k in range(len(x)):
        score = x[k]
        m_new = max(m, score)
        total = total * _exp(m - m_new) + _exp(score - m_new)
        m = m_new
    for k in range(len(x)):
        y[k] = _divide(_exp(x[k] - m), total)
    return _run("online", "max and sum together; then divide", x, y, 2)


ALGORITHMS = (naive, safe, online)


def softmax_in(row: ArrayLike, dtype: type[np.floating], *, subtract_max: bool) -> Array:
    """Softmax with every intermediate kept in `dtype`; overflow gives inf and then NaN, as on a GPU."""
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        x = np.asarray(row).astype(dtype)
        if subtract_max:
            x = (x - x.max()).astype(dtype)
        e = np.exp(x).astype(dtype)
        total = dtype(0)
        for value in e:
            total = dtype(total + value)
        return (e / total).astype(np.float64)


@dataclass(frozen=True)
class DotProduct:
    """One way to compute a scaled score from fp16 inputs: what the accumulator reached and what came out."""

    way: str
    largest: float
    score: float
    weights: Array


def dot_products(value: float, d: int, keys: int) -> list[DotProduct]:
    """Scores of Q = K = `value` in fp16 for `keys` equal keys, three ways. The largest finite fp16 is 65504.

    1. fp16 accumulator, scaled afterwards; 2. Q scaled first, fp16 accumulator; 3. fp32 accumulator.
    """
    half = np.float16
    with np.errstate(over="ignore", invalid="ignore"):
        q = k = half(value)
        scale = half(1 / math.sqrt(d))
        raw = _accumulate(q, k, d, half)
        scaled_first = _accumulate(half(q * scale), k, d, half)
        wide = _accumulate(np.float32(q), np.float32(k), d, np.float32)
        scores = (
            ("fp16 sum, scaled afterwards", raw, half(raw * scale), half),
            ("Q scaled first, fp16 sum", scaled_first, scaled_first, half),
            (
                "fp32 sum, scaled afterwards",
                wide,
                np.float32(wide * np.float32(1 / math.sqrt(d))),
                np.float32,
            ),
        )
        return [
            DotProduct(way, float(top), float(score), softmax_in(np.full(keys, score), dtype, subtract_max=True))
            for way, top, score, dtype in scores
        ]


@dataclass(frozen=True)
class Recurrence:
    """A rescaling rule and the output it ends with."""

    name: str
    formula: str
    output: float


def recurrences(scores: ArrayLike, values: ArrayLike) -> list[Recurrence]:
    """One row, one key a tile, head dimension 1: the right rule, and two that are printed with a slip.

    FlashAttention-2 (first arXiv version) prints an inverse on the rescaling factor; its recap of
    FlashAttention leaves the factor exp(m_old - m_new) out.
    """
    s, v = np.asarray(scores, np.float64), np.asarray(values, np.float64)
    m, l = float(s[0]), 1.0
    right = inverse = recap = float(v[0])
    for score, value in zip(s[1:], v[1:], strict=True):
        m_new = max(m, float(score))
        alpha, weight = math.exp(m - m_new), math.exp(float(score) - m_new)
        l_new = alpha * l + weight
        right = alpha * right + weight * float(value)
        inverse = inverse / alpha + weight * float(value)
        recap = recap * l_new / l + weight * float(value) / l_new
        m, l = m_new, l_new
    return [
        Recurrence("right", r"O \leftarrow e^{m-m^\prime} O + e^{S-m^\prime} V", right / l),
        Recurrence("inverse", r"O \leftarrow (e^{m-m^\prime})^{-1} O + e^{S-m^\prime} V", inverse / l),
        Recurrence("recap", r"O \leftarrow \frac{l^\prime}{l} O + \frac{1}{l^\prime} e^{S-m^\prime} V", recap),
    ]


def _run(name: str, what: str, x: CountedRow, y: CountedRow, passes: int) -> SoftmaxRun:
    return SoftmaxRun(name, what, y.values, passes, (x.accesses + y.accesses) / max(len(x), 1))


def _exp(x: float) -> float:
    if math.isnan(x):
        return 0.0  # -inf - -inf: a row that has seen no key yet
    try:
        return math.exp(x)
    except OverflowError:
        return math.inf


def _divide(a: float, b: float) -> float:
    if b == 0.0 or (math.isinf(a) and math.isinf(b)):
        return math.nan
    return a / b


def _accumulate(q: np.floating, k: np.floating, d: int, dtype: type[np.floating]) -> np.floating:
    total = dtype(0)
    for _ in range(d):
        total = dtype(total + dtype(q * k))
    return total
