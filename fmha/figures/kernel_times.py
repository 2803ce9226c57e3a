"""How long kernels and library implementations took for the same problem."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import NamedTuple

import plotly.graph_objects as go

from fmha.figures import theme
from fmha.figures.sketch import Sketch
from fmha.hardware import Gpu
from fmha.kernels import KERNELS
from fmha.measurement import Entry, Run
from fmha.speeds import least_time_us, useful_flops
from fmha.units import format_number, format_time_us

_LONGEST = 28  # characters of a name; names may come from a file
DTYPE_ORDER = ("fp32", "bf16", "fp16")


class Bar(NamedTuple):
    """One bar: what it is called, its times in microseconds, and how fast that is."""

    entry: Entry
    title: str
    dtype: str
    median_us: float
    p10_us: float
    p90_us: float
    tflops: float


def timed(run: Run) -> list[Bar]:
    """What a run measured and found right: dtype by dtype, ours first, then the fastest first."""
    flops = useful_flops(run.problem)
    bars = [
        Bar(
            e,
            _title(e),
            e.dtype,
            e.time.median_us,
            e.time.p10_us,
            e.time.p90_us,
            flops / e.time.median_us / 1e6,
        )
        for e in run.entries
        if e.time is not None and not e.absent and (e.check.ok if e.check else not e.is_kernel)
    ]
    bars = list({(b.title, b.dtype): b for b in reversed(bars)}.values())  # a file may name one thing twice
    rank = {dtype: i for i, dtype in enumerate(DTYPE_ORDER)}
    return sorted(bars, key=lambda b: (rank.get(b.dtype, len(rank)), not b.entry.is_kernel, b.median_us))


def kernel_times(run: Run, bars: Sequence[Bar], chosen: Entry, gpu: Gpu) -> go.Figure:
    """Horizontal bars on a logarithmic axis: medians, whiskers from the 10th to the 90th percentile.

    Args:
        bars: from `timed(run)`. chosen: the entry that the page is about; its bar is strong.
        gpu: for the mark of the least time that its peaks allow.
    """
    fig = Sketch("", 92 + 46 * len(bars))
    names = [f"{bar.title} · {bar.dtype}" for bar in bars]
    for dtype in dict.fromkeys(bar.dtype for bar in bars):
        rows = [(n, b) for n, b in zip(names, bars, strict=True) if b.dtype == dtype]
        fig.add_bar(
            name="fp32 units" if dtype == "fp32" else f"{dtype}, tensor cores",
            y=[n for n, _ in rows],
            x=[b.median_us for _, b in rows],
            orientation="h",
            marker={
                "color": [theme.color(_role(b), 1.0 if b.entry is chosen else 0.62) for _, b in rows],
                "pattern": theme.hatch("" if dtype == "fp32" else "/"),
                "line": {"width": 0},
            },
            error_x={
                "type": "data",
                "symmetric": False,
                "array": [max(0.0, b.p90_us - b.median_us) for _, b in rows],
                "arrayminus": [max(0.0, b.median_us - b.p10_us) for _, b in rows],
                "color": theme.NEUTRAL,
                "thickness": 2,
                "width": 5,
            },
            customdata=[
                [b.title, format_time_us(b.median_us), format_time_us(b.p10_us), format_time_us(b.p90_us)]
                for _, b in rows
            ],
            hovertemplate="%{customdata[0]}: %{customdata[1]} (p10 %{customdata[2]}, p90 %{customdata[3]})"
            "<extra></extra>",
            showlegend=False,
        )
    least = [least_time_us(run.problem, bar.dtype, gpu, bar.entry.name) for bar in bars]
    fig.add_scatter(
        name="least that this GPU's peaks allow",
        x=least,
        y=names,
        mode="markers",
        marker={"symbol": "line-ns", "size": 20, "line": {"width": 3, "color": theme.color("warn")}},
        hovertemplate="at its peaks this GPU needs %{x:.3g} µs<extra></extra>",
    )
    low = math.log10(min([*least, *(b.median_us for b in bars)])) - 0.15
    high = math.log10(max(max(b.p90_us, b.median_us) for b in bars))
    for name, bar in zip(names, bars, strict=True):
        fig.add_annotation(
            x=math.log10(max(bar.p90_us, bar.median_us)),
            y=name,
            text=f"{format_time_us(bar.median_us)}<br>{format_number(bar.tflops)} TFLOP/s",
            align="left",
            showarrow=False,
            xanchor="left",
            xshift=8,
        )
    fig.update(bargap=0.3, margin={"t": 32}, barmode="overlay")
    fig.yaxis(categoryorder="array", categoryarray=names[::-1], showgrid=False)
    ticks = [10.0**e for e in range(math.floor(low), math.ceil(high) + 1)]
    fig.xaxis(
        type="log", title="time, logarithmic", range=[low, high + 0.55 * (high - low) + 0.2],
        tickvals=ticks, ticktext=[format_time_us(t).replace(".00", "").replace(".0", "") for t in ticks],
    )  # fmt: skip
    return fig.figure()


def _role(bar: Bar) -> str:
    if bar.entry.is_kernel:
        return "naive" if bar.entry.name == "01" else "q-outer"
    return "REG" if bar.dtype != "fp32" else "L2"


def _title(entry: Entry) -> str:
    """What the entry is called, fit for a figure: short, and no tag in it is one."""
    text = " ".join(entry.title.split())
    if entry.is_kernel and entry.name in KERNELS:
        tiles = f", {entry.tiling[0]} x {entry.tiling[1]}" if entry.tiling else ""
        text = f"{entry.name} {KERNELS[entry.name].name}{tiles}"
    return escape(text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…", quote=False)


__all__ = ["DTYPE_ORDER", "Bar", "kernel_times", "timed"]
