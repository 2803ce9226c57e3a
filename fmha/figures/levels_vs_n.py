"""Bytes at each memory level against the sequence length: predicted lines, counted points."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import plotly.graph_objects as go

from fmha.figures import theme
from fmha.figures.axes import byte_axis, token_axis
from fmha.figures.sketch import Sketch
from fmha.units import format_bytes

# What a level is called, whose colour it has, how it is drawn.
LEVELS: dict[str, tuple[str, str, str]] = {
    "SMEM": ("shared memory", "SMEM", "dashdot"),
    "requested": ("requested (two-level model)", "REG", "solid"),
    "L2": ("L2", "L2", "dash"),
    "DRAM": ("DRAM", "HBM", "longdash"),
    "compulsory": ("compulsory", "skip", "dot"),
}
_SYMBOLS = {"SMEM": "triangle-up", "requested": "circle", "L2": "square", "DRAM": "diamond", "compulsory": "cross"}


def levels_vs_n(
    lengths: Sequence[int],
    predicted: Mapping[str, Sequence[float]],
    counted: Mapping[str, Sequence[tuple[int, float]]] | None = None,
    chosen: int | None = None,
    height: int = 520,
) -> go.Figure:
    """Bytes of one forward pass by level, logarithmic both ways.

    Args:
        predicted: level ("SMEM", "requested", "L2", "DRAM", "compulsory") -> bytes at each length, or at
            the first ones.
        counted: level -> (N, bytes) as the hardware counted them; drawn as points in the level's colour.
        chosen: the N of the controls, marked by a line.
    """
    fig = Sketch("", height)
    everything: list[float] = []
    for level, values in predicted.items():
        name, role, dash = LEVELS[level]
        everything += [v for v in values if v > 0]
        fig.add_scatter(
            x=list(lengths)[: len(values)], y=[v if v > 0 else None for v in values], name=name, mode="lines",
            line={"color": theme.color(role), "width": 4, "dash": dash},
            customdata=[format_bytes(v) for v in values],
            hovertemplate="N = %{x:,}: %{customdata}<extra>" + name + ", predicted</extra>",
        )  # fmt: skip
    for level, points in (counted or {}).items():
        name, role, _ = LEVELS[level]
        shown = [(n, v) for n, v in points if v > 0]
        everything += [v for _, v in shown]
        fig.add_scatter(
            x=[n for n, _ in shown], y=[v for _, v in shown], name=f"{name}, counted", mode="markers",
            marker={"color": theme.color(role), "symbol": _SYMBOLS[level], "size": 12, "line": {"width": 1.5}},
            customdata=[format_bytes(v) for _, v in shown],
            hovertemplate="N = %{x:,}: %{customdata}<extra>" + name + ", counted</extra>",
        )  # fmt: skip
    if chosen is not None:
        fig.add_vline(x=chosen, line={"color": theme.color("Q"), "width": 2, "dash": "dot"})
    fig.xaxis(**token_axis(lengths))
    fig.yaxis(**byte_axis(min(everything, default=1.0), max(everything, default=2.0), "bytes"))
    fig.update(margin={"t": 96})
    return fig.figure()
