"""Sizes and speeds of a GPU's memories, and of many GPUs beside one another."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from fmha.figures import theme
from fmha.figures.axes import byte_tick
from fmha.hardware import Gpu
from fmha.units import format_bytes

_NAMES = {"HBM": "device memory", "L2": "L2 cache", "SMEM": "shared memory", "REG": "registers"}


def format_speed(gbps: float) -> str:
    """A bandwidth: 4800 GB/s -> "4.8 TB/s"."""
    return f"{gbps / 1000:.1f} TB/s" if gbps >= 1000 else f"{gbps:.0f} GB/s"


def levels(gpu: Gpu, height: int = 340) -> go.Figure:
    """Two logarithmic bar charts: what each memory holds, and how fast it delivers (where a source says so)."""
    fig = make_subplots(rows=1, cols=2, horizontal_spacing=0.05, shared_yaxes=True, subplot_titles=("size", "speed"))
    sizes = {"HBM": gpu.hbm_bytes, "L2": gpu.l2_bytes, "SMEM": gpu.smem_bytes, "REG": gpu.register_bytes}
    speeds = {"HBM": gpu.hbm_gbps, "SMEM": gpu.smem_gbps}
    for role, size in sizes.items():
        _bar(fig, role, size, format_bytes(size), 1)
    for role, speed in speeds.items():
        _bar(fig, role, speed, format_speed(speed), 2)
    fig.update_layout(template=theme.template(), height=height, margin={"t": 48}, bargap=0.35)
    fig.update_annotations(font_size=theme.TITLE_SIZE)
    ticks = [2.0**e for e in (20, 30, 40)]
    fig.update_xaxes(
        type="log", tickvals=ticks, ticktext=[byte_tick(v) for v in ticks], range=[5.7, 14.4], row=1, col=1
    )
    fig.update_xaxes(title_text="bytes, all SMs together", row=1, col=1)
    fig.update_xaxes(type="log", tickvals=[1e2, 1e3, 1e4], ticktext=["0.1", "1", "10"], row=1, col=2)
    fig.update_xaxes(title_text="TB/s", range=[1.7, 6.3], row=1, col=2)
    return fig


def _bar(fig: go.Figure, role: str, value: float, text: str, column: int) -> None:
    fig.add_bar(
        y=[_NAMES[role]],
        x=[value],
        text=[text],
        textposition="outside",
        orientation="h",
        marker={"color": theme.color(role), "pattern": theme.hatch("" if role == "HBM" else "/")},
        showlegend=False,
        cliponaxis=False,
        hovertemplate=f"{_NAMES[role]}: {text}<extra></extra>",
        row=1,
        col=column,
    )


def size_and_speed(gpus: Iterable[Gpu], chosen: str, height: int = 440) -> go.Figure:
    """Every GPU as two points, device memory and shared memory: size across, speed up, both logarithmic."""
    fig = theme.figure("All GPUs: size and speed", height)
    cards = list(gpus)
    for role, symbol in (("HBM", "square"), ("SMEM", "circle")):
        points = [(g, g.hbm_bytes, g.hbm_gbps) if role == "HBM" else (g, g.smem_bytes, g.smem_gbps) for g in cards]
        marker: dict[str, Any] = {
            "symbol": symbol,
            "color": theme.color(role),
            "size": [22 if g.key == chosen else 12 for g in cards],
            "opacity": [1.0 if g.key == chosen else 0.6 for g in cards],
        }
        fig.add_scatter(
            x=[size for _, size, _ in points],
            y=[speed / 1e3 for _, _, speed in points],
            mode="markers+text",
            name=_NAMES[role],
            text=[g.key if g.key == chosen else "" for g in cards],
            textposition="top center",
            marker=marker,
            customdata=[[g.name, format_bytes(size), format_speed(speed)] for g, size, speed in points],
            hovertemplate="%{customdata[0]}<br>%{customdata[1]}, %{customdata[2]}<extra></extra>",
        )
    ticks = [2.0**e for e in (20, 25, 30, 35)]
    fig.update_xaxes(type="log", title_text="size", tickvals=ticks, ticktext=[byte_tick(v) for v in ticks])
    fig.update_xaxes(range=[6.0, 12.0])
    fig.update_yaxes(type="log", title_text="speed, TB/s", tickvals=[0.3, 1, 3, 10, 30], range=[-0.8, 2.0])
    return fig
