"""TFLOP/s of every kernel, from the first to the last, with the libraries of the same runs as lines across."""

from __future__ import annotations

import math
from collections.abc import Sequence

import plotly.graph_objects as go

from fmha.figures import theme
from fmha.figures.roof_chart import spread
from fmha.figures.sketch import Sketch
from fmha.hardware import Gpu
from fmha.ladder import Measured, Rung
from fmha.speeds import peak_tflops
from fmha.units import format_number

HEIGHT = 430
NAMES = {
    "torch-eager": "torch, three operations",
    "sdpa-math": "SDPA math",
    "sdpa-efficient": "SDPA efficient",
    "sdpa-flash": "FlashAttention-2",
    "sdpa-cudnn": "cuDNN",
    "fa3": "FlashAttention-3",
}
_DASHES = {
    "torch-eager": "dot", "sdpa-math": "dot", "sdpa-efficient": "dashdot", "sdpa-flash": "dash",
    "sdpa-cudnn": "longdash", "fa3": "solid",
}  # fmt: skip
SHORT = {
    "torch-eager": "eager", "sdpa-math": "math", "sdpa-efficient": "efficient", "sdpa-flash": "FA2",
    "sdpa-cudnn": "cuDNN", "fa3": "FA3",
}  # fmt: skip
_SLOW = ("torch-eager", "sdpa-math")  # of no interest beside the others, where those are there
_GAP = 0.056  # of the height, between two names


def ladder_bars(
    rungs: Sequence[Rung], peers: Sequence[Measured], gpu: Gpu, chosen: str, *, is_log: bool = True
) -> go.Figure:
    """One bar a kernel; hatched ones compute in 16 bits. A line spans the kernels of its dtype.

    Args:
        peers: of both dtypes that the rungs have. chosen: the number of the kernel whose bar is strong.
    """
    fig = Sketch("", HEIGHT)
    speeds = [rung.tflops for rung in rungs]
    lines = [(m, speed) for m in worth(peers) if (speed := m.tflops) is not None]
    dtypes = list(dict.fromkeys(rung.dtype for rung in rungs))
    known = [s for s in (*speeds, *(s for _, s in lines)) if s]
    peaks = {dtype: peak_tflops(gpu, dtype) for dtype in dtypes}
    top = max([*known, *(peaks.values() if is_log else ())], default=1.0)
    low = min(known, default=1.0)
    y0, y1 = (math.log10(low) - 0.35, math.log10(top) + 0.14) if is_log else (0.0, 1.12 * top)
    _bars(fig, rungs, chosen)
    for dtype in dtypes:
        where = [index for index, rung in enumerate(rungs) if rung.dtype == dtype]
        ends = where[0] - 0.5, where[-1] + 0.5
        is_last = ends[1] > len(rungs) - 1
        mine = sorted(((m, s) for m, s in lines if m.entry.dtype == dtype), key=lambda pair: pair[1])
        shown = [*mine, *([(None, peaks[dtype])] if peaks[dtype] and (is_log or peaks[dtype] <= y1) else [])]
        heights = [math.log10(s) if is_log else s for _, s in shown]
        _values(fig, [(index, rungs[index].tflops) for index in where], heights, (y0, y1), is_log)
        for (peer, speed), height, at in zip(shown, heights, spread(heights, _GAP * (y1 - y0)), strict=True):
            name = f"{dtype} peak" if peer is None else NAMES.get(peer.entry.name, peer.entry.name)
            short = "peak" if peer is None else SHORT.get(peer.entry.name, peer.entry.name)
            _line(fig, name, speed, ends, "dot" if peer is None else _DASHES.get(peer.entry.name, "dot"), peer is None)
            fig.add_label(
                ends[1] if is_last else ends[0], at if is_last else height, f"{short} {format_number(speed)}",
                xanchor="left", yanchor="middle" if is_last else "bottom", xshift=6,
            )  # fmt: skip
    fig.xaxis(
        range=[-0.6, len(rungs) - 0.4], tickvals=list(range(len(rungs))),
        ticktext=[f"{rung.kernel.number} {rung.kernel.name}" for rung in rungs], showgrid=False,
        zeroline=False, autotickangles=[0, 90], tickfont={"size": 12},
    )  # fmt: skip
    ticks = [10.0**e for e in range(math.floor(y0), math.ceil(y1) + 1)] if is_log else []
    scale = {"type": "log", "tickvals": ticks, "ticktext": [f"{t:g}" for t in ticks]} if is_log else {}
    fig.yaxis(title=f"TFLOP/s{', logarithmic' if is_log else ''}", range=[y0, y1], **scale)
    fig.update(bargap=0.35, margin={"t": 16, "r": 96}, showlegend=False)
    return fig.figure()


def worth(peers: Sequence[Measured]) -> list[Measured]:
    """Peers to draw: the slow ones only where there are no others of their dtype."""
    fast = {m.entry.dtype for m in peers if m.entry.name not in _SLOW and m.tflops is not None}
    return [m for m in peers if m.entry.name not in _SLOW or m.entry.dtype not in fast]


def _bars(fig: Sketch, rungs: Sequence[Rung], chosen: str) -> None:
    strong = [rung.kernel.number == chosen for rung in rungs]
    fig.add_bar(
        x=list(range(len(rungs))),
        y=[rung.tflops for rung in rungs],
        marker={
            "color": [theme.color(r.kernel.order, 1.0 if yes else 0.6) for r, yes in zip(rungs, strong, strict=True)],
            "pattern": {**theme.hatch("/"), "shape": ["" if rung.dtype == "fp32" else "/" for rung in rungs]},
            "line": {"width": [3 if yes else 0 for yes in strong], "color": theme.NEUTRAL},
        },
        customdata=[[f"{rung.kernel.number} {rung.kernel.name}", rung.kernel.title, rung.dtype] for rung in rungs],
        hovertemplate="%{customdata[0]} (%{customdata[1]}), %{customdata[2]}: %{y:,.3r} TFLOP/s<extra></extra>",
    )  # fmt: skip


def _values(
    fig: Sketch,
    bars: Sequence[tuple[int, float | None]],
    lines: Sequence[float],
    ends: tuple[float, float],
    is_log: bool,
) -> None:
    """The number of each bar above it, and above the lines that would run through it. lines: heights on the axis."""
    low, high = ends
    for index, speed in bars:
        if speed is None:
            fig.add_label(index, low + 0.02 * (high - low), "not measured", yanchor="bottom", textangle=-90)
            continue
        at = math.log10(speed) if is_log else speed
        for line in sorted(lines):
            if at - 0.005 * (high - low) <= line <= at + _GAP * (high - low):
                at = line
        text = f"{speed:.0f}" if speed >= 100 else f"{speed:.2g}"
        fig.add_label(index, at, f"<b>{text}</b>", yanchor="bottom", font={"size": 13})
        fig.narrowly("annotations", text=text, font={"size": 9})  # thirteen bars on a phone: 16 pixels each


def _line(fig: Sketch, name: str, speed: float, ends: tuple[float, float], dash: str, is_peak: bool) -> None:
    fig.add_scatter(
        x=list(ends), y=[speed, speed], name=name, mode="lines",
        line={"color": theme.color("REG" if is_peak else "L2"), "width": 1.5 if is_peak else 2.5, "dash": dash},
        hovertemplate=f"{name}: {speed:.4g} TFLOP/s<extra></extra>",
    )  # fmt: skip


__all__ = ["HEIGHT", "NAMES", "SHORT", "ladder_bars", "worth"]
