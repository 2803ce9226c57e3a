"""Axes and small parts that several figures share: bytes and tokens on logarithmic axes, end labels,
cells."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from fmha.units import format_bytes

ORDER_NAMES = {"naive": "naive", "q-outer": "flash, q-outer", "kv-outer": "flash, kv-outer"}


def format_tokens(n: int) -> str:
    """A sequence length for an axis: 512, 2K, 128K, 1M (K = 1024, M = 1024 K)."""
    for size, unit in ((1024**2, "M"), (1024, "K")):
        if n >= size and n % size == 0:
            return f"{n // size}{unit}"
    return f"{n:,}"


def byte_tick(nbytes: float) -> str:
    """A round number of bytes for an axis: 32 MiB, 1 TiB."""
    number, unit = format_bytes(nbytes).split(" ")
    return f"{number.rstrip('0').rstrip('.') if '.' in number else number} {unit}"


def token_axis(lengths: Sequence[int], title: str = "sequence length N, tokens") -> dict[str, Any]:
    """A logarithmic x axis with at most eight ticks, on lengths that are really in the data."""
    every = max(1, math.ceil(len(lengths) / 8))
    ticks = list(lengths)[::every]
    low, high = math.log10(min(lengths)), math.log10(max(lengths))
    pad = 0.03 * (high - low) or 0.1
    return {
        "type": "log",
        "title": title,
        "tickvals": ticks,
        "ticktext": [format_tokens(n) for n in ticks],
        "range": [low - pad, high + pad],
    }


def byte_axis(low: float, high: float, title: str) -> dict[str, Any]:
    """A logarithmic y axis in binary units, ticks at powers of 2, 4, 16, 32 or 1024 as there is room."""
    first, last = math.floor(math.log2(max(low, 1.0))), math.ceil(math.log2(max(high, 2.0)))
    step = next((s for s in (1, 2, 5, 10, 20) if (last - first) / s <= 6), 20)
    exponents = range(math.ceil(first / step) * step, last + 1, step)
    return {
        "type": "log",
        "title": title,
        "tickvals": [2.0**e for e in exponents],
        "ticktext": [byte_tick(2.0**e) for e in exponents],
        "range": [first * math.log10(2), (last + 0.3) * math.log10(2)],
    }
