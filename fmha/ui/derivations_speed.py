"""How the numbers of the claims about speed come about: the recordings behind them. No Streamlit.

`Derivation` is what any claim has behind it; `fmha.ui.derivations` has those that need no recording.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fmha.figures import claim_charts
from fmha.figures.claim_charts import Ratio
from fmha.measurement import Recording
from fmha.paper_ratios import CUDNN, EAGER, FLASH2, FLASH3, Speed, speeds
from fmha.speeds import useful_flops
from fmha.units import format_time_us

if TYPE_CHECKING:
    import plotly.graph_objects as go

_MASKS = {None: "no mask", "bottom-right": "causal", "top-left": "causal"}


@dataclass(frozen=True)
class Derivation:
    """formulas: LaTeX, one a line. text: Markdown. rows: a table. chart, alt: a small figure and what it shows."""

    formulas: tuple[str, ...] = ()
    text: str = ""
    rows: tuple[dict[str, Any], ...] = ()
    chart: go.Figure | None = None
    alt: str = ""


def whole(value: int) -> str:
    """A whole number for LaTeX: its commas are no punctuation there."""
    return f"{value:,}".replace(",", "{,}")


def ratio_points(recordings: tuple[Recording, ...], fast: str, slow: str) -> list[Ratio]:
    """Speed of `fast` over that of `slow` for each recorded 16-bit problem of at least 512 tokens."""
    slower = {(s.problem, s.dtype): s.tflops for s in speeds(recordings, slow)}
    return [
        Ratio(s.problem.Nq, f"d = {s.problem.d}, {_MASKS[s.problem.causal]}", s.tflops / slower[s.problem, s.dtype])
        for s in speeds(recordings, fast)
        if (s.problem, s.dtype) in slower and s.problem.Nq >= 512
    ]


def _ratio(recordings: tuple[Recording, ...], fast: str, slow: str, band: tuple[float, float], what: str) -> Derivation:
    points = ratio_points(recordings, fast, slow)
    if not points:
        return Derivation(text="No pair of recordings has both.")
    inside = sum(band[0] <= p.value <= band[1] for p in points)
    return Derivation(
        text=f"{what}, the same problem on the same device, fp16 and bf16: {len(points)} pairs, {inside} of them "
        "in the paper's range.",
        chart=claim_charts.ratios_band(points, *band, "Ratio of recorded times"),
        alt=f"Ratios from {min(p.value for p in points):.2f} to {max(p.value for p in points):.2f} against N.",
    )


def _standard_ratio(recordings: tuple[Recording, ...]) -> Derivation:
    return _ratio(
        recordings, FLASH2, EAGER, (3.0, 10.0), "Time of three torch operations over that of FlashAttention-2"
    )


def _fa3_ratio(recordings: tuple[Recording, ...]) -> Derivation:
    fast = next((name for name in FLASH3 if ratio_points(recordings, name, FLASH2)), CUDNN)
    what = "cuDNN" if fast == CUDNN else "FlashAttention-3"
    return _ratio(recordings, fast, FLASH2, (1.5, 2.0), f"Time of FlashAttention-2 over {what}'s")


def _share(found: list[Speed]) -> Derivation:
    """The best of some speeds, as arithmetic."""
    if not found:
        return Derivation(text="Nothing was recorded.")
    best = max(found, key=lambda s: s.tflops / s.peak)
    p, flops = best.problem, useful_flops(best.problem)
    time_us = flops / best.tflops / 1e6
    mask = "" if p.causal is None else r"\ \text{(visible pairs)}"
    return Derivation(
        (
            rf"\text{{FLOPs}} = 4 B H N^2 d = {flops / 1e12:.3f} \cdot 10^{{12}}{mask}",
            rf"\frac{{\text{{FLOPs}}}}{{\text{{{format_time_us(time_us)}}}}} = {best.tflops:.0f}\ \text{{TFLOP/s}}",
            rf"{best.tflops:.0f} / {best.peak:g} = {100 * best.tflops / best.peak:.0f}\,\%",
        ),
        f"The best of {len(found)} recorded times: B = {p.B}, H = {p.H}, N = {p.Nq:,}, d = {p.d}, {best.dtype}.",
        tuple(
            {"N": f"{s.problem.Nq:,}", "d": f"{s.problem.d}", "mask": _MASKS[s.problem.causal], "dtype": s.dtype,
             "TFLOP/s": f"{s.tflops:.0f}", "of peak": f"{100 * s.tflops / s.peak:.0f} %"}
            for s in sorted(found, key=lambda s: -s.tflops)[:8]
        ),
    )  # fmt: skip


def _hopper(recordings: tuple[Recording, ...]) -> Derivation:
    return _share(speeds(recordings, FLASH2))


def _fa3_peak(recordings: tuple[Recording, ...]) -> Derivation:
    return _share(speeds(recordings, *FLASH3) or speeds(recordings, CUDNN))


MEASURED: dict[str, Callable[[tuple[Recording, ...]], Derivation]] = {
    "fa2-standard": _standard_ratio,
    "fa2-hopper": _hopper,
    "fa3-speedup": _fa3_ratio,
    "fa3-peak": _fa3_peak,
}
