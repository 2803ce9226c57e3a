"""Tensors have heads; a tile that lies in shared memory twice has places."""

from __future__ import annotations

import math

from fmha.trace.walk import Request
from fmha.ui.trace_words import where


def request(array: str, space: str, shape: tuple[int, ...], offset: int, nbytes: int = 2) -> Request:
    size = 2 * math.prod(shape)
    return Request("k.cu", 1, array, space, False, nbytes, shape, (offset, *[None] * 31), 0, size, 1, 1)


def test_heads_and_places() -> None:
    assert where(request("Kj", "shared", (2, 4, 8), 2 * (32 + 8 * 3))) == "`Kj`, place 2 of 2"
    assert where(request("Kj", "shared", (2, 4, 8), 2 * (32 + 8 * 3), nbytes=16)) == "`Kj`, place 2 of 2"
    assert where(request("Kj", "shared", (2, 4, 8), 2 * 31)) == "`Kj`, place 1 of 2"
    assert where(request("Qi", "shared", (4, 8), 6)) == "`Qi`"
    assert where(request("Q", "global", (1, 2, 4, 8), 2 * 40)) == "`Q`, head 1"
    assert where(request("?", "global", (), 0)) == "no array"
