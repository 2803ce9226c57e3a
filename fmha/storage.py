"""How tensors lie in a kernel's memory: 16-bit numbers as their bits, and strides.

Everywhere else a tensor is a float32 array that holds the rounded values; here it becomes what a kernel is given, and
what a kernel wrote becomes such an array again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import ArrayLike, NDArray

from fmha.problem import DTYPES, cast

ALIGNMENT = 16  # bytes: kernels load as many at once, so rows begin at multiples of it
_STORED: dict[str, type[np.generic]] = {"fp32": np.float32, "fp16": np.float16, "bf16": np.uint16}
_MOST_PIECES = 2**31 - 1  # from row to row: kernels count the pieces of `ALIGNMENT` bytes in an int
_UNWRITTEN = 0xFF  # every byte of a gap: a NaN in each dtype
Strides = tuple[int, int, int]  # elements from one batch entry, head, token to the next


def encode(values: ArrayLike, dtype: str) -> NDArray[Any]:
    """Values rounded to `dtype`, as they are stored: float32, float16, or the upper 16 bits of a float32 (bf16)."""
    if dtype == "fp16":
        with np.errstate(over="ignore"):
            return np.asarray(values).astype(np.float16)
    rounded = cast(values, dtype)
    return (rounded.view(np.uint32) >> np.uint32(16)).astype(np.uint16) if dtype == "bf16" else rounded


def decode(stored: NDArray[Any], dtype: str) -> NDArray[np.float32]:
    """Stored numbers, or the bytes of them, as float32, which holds them all. The last axis may be of bytes."""
    numbers = stored.view(_STORED[dtype])
    if dtype == "bf16":
        return (numbers.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return numbers.astype(np.float32)


_EXPONENT = {"fp16": np.uint16(0x7C00), "bf16": np.uint16(0x7F80)}


def finite(stored: NDArray[Any], dtype: str) -> int:
    """How many of the stored numbers, or the bytes of them, are finite."""
    if dtype == "fp32":
        return int(np.isfinite(stored.view(np.float32)).sum())
    bits = stored.view(np.uint16)
    return bits.size - int(np.count_nonzero((bits & _EXPONENT[dtype]) == _EXPONENT[dtype]))


@dataclass(frozen=True)
class Laid:
    """A tensor [B, H, N, d] in memory. flat: all bytes from its first element to its last, gaps included (NaN).

    strides: elements to the next batch entry, head, token; d is contiguous.
    """

    flat: NDArray[Any]
    shape: tuple[int, int, int, int]
    strides: Strides

    @property
    def is_dense(self) -> bool:
        """Whether it lies as [B, H, N, d], row after row."""
        return self.strides == dense(self.shape)


def dense(shape: tuple[int, ...]) -> Strides:
    """The strides of a row-major tensor [B, H, N, d]."""
    _, H, N, d = shape
    return H * N * d, N * d, d


def lay(array: NDArray[Any], dtype: str, *, strided: bool) -> Laid:
    """A float array [B, H, N, d] as a kernel is given it.

    strided: keep its axes where they lie, if d is contiguous, nothing overlaps, and rows begin at multiples of
    `ALIGNMENT` bytes; otherwise, and for kernels that take no strides, it becomes dense.
    """
    shape = (array.shape[0], array.shape[1], array.shape[2], array.shape[3])
    strides = _strides(array, ALIGNMENT // DTYPES[dtype].itemsize) if strided else dense(shape)
    if strides == dense(shape):
        return Laid(np.ascontiguousarray(encode(array, dtype)), shape, strides)
    flat = np.full(span(shape, strides) * DTYPES[dtype].itemsize, _UNWRITTEN, np.uint8).view(_STORED[dtype])
    _view(flat, shape, strides)[...] = encode(array, dtype)
    return Laid(flat, shape, strides)


def strides_table(laid: Mapping[str, Laid]) -> NDArray[np.int64]:
    """The strides of Q, K, V, O as kernels read them: [4, 3]. O lies as Q does."""
    return np.array([laid[name].strides for name in "QKVQ"], np.int64)


def span(shape: tuple[int, ...], strides: Strides) -> int:
    """Elements from the first to the last, both included."""
    return 1 + sum((n - 1) * stride for n, stride in zip(shape, (*strides, 1), strict=True))


def taken(raw: NDArray[Any], shape: tuple[int, ...], strides: Strides, dtype: str) -> NDArray[np.float32]:
    """The tensor [B, H, N, d] in the bytes that a kernel left, as a contiguous float32 array."""
    count = span(shape, strides)
    flat = raw.view(np.uint8)[: count * DTYPES[dtype].itemsize].view(_STORED[dtype])
    return decode(np.ascontiguousarray(_view(flat, shape, strides)), dtype)


def _view(flat: NDArray[Any], shape: tuple[int, ...], strides: Strides) -> NDArray[Any]:
    return as_strided(flat, shape, tuple(s * flat.itemsize for s in (*strides, 1)))


def _strides(array: NDArray[Any], multiple: int) -> Strides:
    """The array's strides in elements where a kernel can use them, else those of a dense copy."""
    usual = dense(array.shape)
    steps = [s / array.itemsize for s in array.strides]
    if array.shape[3] > 1 and steps[3] != 1:
        return usual
    held = array.shape[3]  # elements that the axes looked at so far span
    found = list(usual)
    for axis in sorted((a for a in range(3) if array.shape[a] > 1), key=lambda a: steps[a]):
        step = int(steps[axis])
        if step != steps[axis] or step < held or step % multiple or (axis == 2 and step // multiple > _MOST_PIECES):
            return usual
        held += (array.shape[axis] - 1) * step
        found[axis] = step
    return found[0], found[1], found[2]


__all__ = [
    "ALIGNMENT",
    "Laid",
    "Strides",
    "decode",
    "dense",
    "encode",
    "finite",
    "lay",
    "span",
    "strides_table",
    "taken",
]
