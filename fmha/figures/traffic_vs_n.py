"""Requested bytes against the sequence length, and how many times more one order moves than another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import plotly.graph_objects as go

from fmha.figures import theme
from fmha.figures.axes import ORDER_NAMES, byte_axis, token_axis
from fmha.figures.sketch import Sketch
from fmha.units import format_bytes, format_ratio


def traffic_vs_n(
    lengths: Sequence[int],
    moved: Mapping[str, Sequence[float]],
    compulsory: Sequence[float],
    theorem2: Sequence[float] | None,
    chosen: int,
    height: int = 520,
    level: str = "requested",
) -> go.Figure:
    """Bytes of one forward pass by loop order, logarithmic both ways, with yardsticks.

    Args:
        moved: order -> bytes at each length, or at the first ones. compulsory: Q, K, V read and O written once.
        theorem2: N^2 d^2 / M in bytes, a growth law without a constant; None: left out.
        chosen: the N of the controls, marked by a line.
        level: whose bytes these are; the title, the axis and the legend say it.
    """
    fig = Sketch("Requested bytes" if level == "requested" else f"Bytes at {level}", height)
    for order, values in moved.items():
        fig.add_scatter(
            x=list(lengths)[: len(values)],
            y=list(values),
            name=f"{ORDER_NAMES[order]}: {level}",
            mode="lines+markers",
            line={"color": theme.color(order), "width": 4, "dash": theme.DASHES[order]},
            marker={"symbol": theme.SYMBOLS[order], "size": 9},
            customdata=[format_bytes(v) for v in values],
            hovertemplate="N = %{x:,}: %{customdata}<extra>" + f"{ORDER_NAMES[order]}: {level}</extra>",
        )
    yardsticks: list[tuple[str, str, Sequence[float]]] = [("compulsory", "compulsory", compulsory)]
    if theorem2 is not None:
        yardsticks.append(("theorem2", "N²d²/M", theorem2))
    for key, name, yardstick in yardsticks:
        fig.add_scatter(
            x=list(lengths),
            y=list(yardstick),
            name=name,
            mode="lines",
            line={"color": theme.NEUTRAL, "width": 2.5, "dash": theme.DASHES[key]},
            customdata=[format_bytes(v) for v in yardstick],
            hovertemplate="N = %{x:,}: %{customdata}<extra>" + name + "</extra>",
        )
    everything = [*moved.values(), *(values for _, _, values in yardsticks)]
    fig.add_vline(x=chosen, line={"color": theme.color("Q"), "width": 2, "dash": "dot"})
    fig.xaxis(**token_axis(lengths))
    fig.yaxis(**byte_axis(min(map(min, everything)), max(map(max, everything)), f"bytes, {level}"))
    fig.update(margin={"t": 96})
    return fig.figure()


def ratio_vs_n(
    lengths: Sequence[int], ratios: Mapping[str, Sequence[float]], chosen: int, height: int = 360
) -> go.Figure:
    """Naive bytes divided by flash bytes, for each flash order; 1 is drawn: below it, naive moves less."""
    fig = Sketch("Naive bytes / flash bytes", height)
    for order, values in ratios.items():
        fig.add_scatter(
            x=list(lengths),
            y=list(values),
            name=f"naive / {ORDER_NAMES[order]}",
            mode="lines+markers",
            line={"color": theme.color(order), "width": 4, "dash": theme.DASHES[order]},
            marker={"symbol": theme.SYMBOLS[order], "size": 9},
            customdata=[format_ratio(v) for v in values],
            hovertemplate="N = %{x:,}: %{customdata}<extra></extra>",
        )
    fig.add_hline(y=1.0, line={"color": theme.NEUTRAL, "width": 2, "dash": "dash"})
    fig.add_vline(x=chosen, line={"color": theme.color("Q"), "width": 2, "dash": "dot"})
    fig.xaxis(**token_axis(lengths))
    top = max((max(v) for v in ratios.values()), default=1.0)
    fig.yaxis(title="times", range=[0, 1.15 * max(top, 1.2)])
    fig.update(margin={"t": 72})
    return fig.figure()
