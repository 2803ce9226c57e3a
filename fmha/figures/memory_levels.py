"""Sizes and speeds of a GPU's memories, and of many GPUs beside one another."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import plotly.graph_objects as go

from fmha.figures import theme
from fmha.figures.axes import byte_tick
from fmha.figures.sketch import Sketch
from fmha.hardware import Gpu
from fmha.units import format_bytes

_NAMES = {"HBM": "device memory", "L2": "L2 cache", "SMEM": "shared memory", "REG": "registers"}


def format_speed(gbps: float) -> str:
    """A bandwidth: 4800 GB/s -> "4.8 TB/s"."""
    return f"{gbps / 1000:.1f} TB/s" if gbps >= 1000 else f"{gbps:.0f} GB/s"


def levels(gpu: Gpu, height: int = 340) -> go.Figure:
    """Two logarithmic bar charts: what each memory holds, and how fast it delivers (where a source says so)."""
    sizes = {"HBM": gpu.hbm_bytes, "L2": gpu.l2_bytes, "SMEM": gpu.smem_bytes, "REG": gpu.register_bytes}
    speeds = {"HBM": gpu.hbm_gbps, "SMEM": gpu.smem_gbps}
    data = [_bar(role, size, format_bytes(size), "x") for role, size in sizes.items()]
    data += [_bar(role, speed, format_speed(speed), "x2") for role, speed in speeds.items()]
    ticks = [2.0**e for e in (20, 30, 40)]
    heading = {"showarrow": False, "xref": "paper", "yref": "paper", "y": 1.0, "yanchor": "bottom", "yshift": 6}
    font = {"size": theme.TITLE_SIZE}
    layout = {
        "template": theme.template(),
        "height": height,
        "margin": {"t": 48},
        "bargap": 0.35,
        "xaxis": {
            "type": "log",
            "domain": [0.0, 0.48],
            "range": [5.7, 14.4],
            "tickvals": ticks,
            "ticktext": [byte_tick(v) for v in ticks],
            "title": {"text": "bytes, all SMs"},
        },
        "xaxis2": {
            "type": "log",
            "domain": [0.53, 1.0],
            "range": [1.7, 6.3],
            "tickvals": [1e2, 1e3, 1e4],
            "ticktext": ["0.1", "1", "10"],
            "title": {"text": "TB/s"},
        },
        "annotations": [
            {"text": "size", "x": 0.24, "font": font, **heading},
            {"text": "speed", "x": 0.765, "font": font, **heading},
        ],
    }
    return go.Figure(data=data, layout=layout)


def _bar(role: str, value: float, text: str, axis: str) -> dict[str, Any]:
    return {
        "type": "bar",
        "y": [_NAMES[role]],
        "x": [value],
        "text": [text],
        "textposition": "outside",
        "orientation": "h",
        "marker": {"color": theme.color(role), "pattern": theme.hatch("" if role == "HBM" else "/")},
        "showlegend": False,
        "cliponaxis": False,
        "hovertemplate": f"{_NAMES[role]}: {text}<extra></extra>",
        "xaxis": axis,
    }


def size_and_speed(gpus: Iterable[Gpu], chosen: str, height: int = 440) -> go.Figure:
    """Every GPU as two points, device memory and shared memory: size across, speed up, both logarithmic."""
    fig = Sketch("All GPUs: size and speed", height)
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
    fig.xaxis(type="log", title="size", tickvals=ticks, ticktext=[byte_tick(v) for v in ticks])
    fig.xaxis(range=[6.0, 12.0])
    fig.yaxis(type="log", title="speed, TB/s", tickvals=[0.3, 1, 3, 10, 30], range=[-0.8, 2.0])
    return fig.figure()
