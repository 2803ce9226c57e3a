"""Small arithmetic and words for numbers. Standard library only."""

from __future__ import annotations

import math


def ceil_div(a: int, b: int) -> int:
    """Smallest integer >= a / b, for b > 0."""
    return -(-a // b)


def format_bytes(nbytes: float) -> str:
    """Bytes in binary units with three significant digits: ``format_bytes(397312) == "388 KiB"``."""
    value = float(nbytes)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB", "PiB"):
        if abs(value) < 1023.5 or unit == "PiB":
            return f"{value:.0f} {unit}" if unit == "B" else f"{_three_digits(value)} {unit}"
        value /= 1024
    raise AssertionError("unreachable")


def format_count(count: float) -> str:
    """A count in words of thousands: ``format_count(4456448) == "4.46 million"``."""
    for size, word in ((1e15, "quadrillion"), (1e12, "trillion"), (1e9, "billion"), (1e6, "million")):
        if abs(count) >= size * 0.99995:
            return f"{_three_digits(count / size)} {word}"
    return f"{count:,.0f}"


def format_flops(flops: float) -> str:
    """Floating-point operations with an SI prefix: ``format_flops(4.3e9) == "4.30 GFLOP"``."""
    value = float(flops)
    for unit in ("FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP", "PFLOP"):
        if abs(value) < 999.5 or unit == "PFLOP":
            return f"{value:.0f} {unit}" if unit == "FLOP" else f"{_three_digits(value)} {unit}"
        value /= 1000
    raise AssertionError("unreachable")


def format_number(number: float) -> str:
    """Three significant digits, written out: ``format_number(1961.3) == "1,960"``, ``format_number(0.5) == "0.5"``."""
    value = float(f"{number:.3g}")
    if abs(value) >= 99.5:
        return f"{value:,.0f}"
    return f"{value:.3g}" if abs(value) >= 1e-4 or not value else f"{value:.7f}"


def format_time_us(time_us: float) -> str:
    """Microseconds in the unit that reads best: ``format_time_us(1530) == "1.53 ms"``."""
    for size, unit in ((1e6, "s"), (1e3, "ms"), (1.0, "\N{MICRO SIGN}s")):
        if abs(time_us) >= size:
            return f"{_three_digits(time_us / size)} {unit}"
    return f"{_three_digits(time_us * 1e3)} ns"


def format_ratio(ratio: float) -> str:
    """A factor: ``format_ratio(43.2) == "43x"``; two digits below ten. Infinite or undefined: ``"n/a"``."""
    if not math.isfinite(ratio):
        return "n/a"
    return f"{ratio:,.0f}x" if ratio >= 9.95 else f"{ratio:.2g}x" if ratio < 0.995 else f"{ratio:.1f}x"


def _three_digits(value: float) -> str:
    magnitude = abs(value)
    if magnitude >= 99.95:
        return f"{value:.0f}"
    return f"{value:.1f}" if magnitude >= 9.995 else f"{value:.2f}"
