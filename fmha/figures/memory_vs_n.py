"""Bytes held in device memory against the sequence length, under the ceilings of real cards."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import plotly.graph_objects as go

from fmha.figures import theme
from fmha.figures.axes import byte_axis, token_axis
from fmha.figures.sketch import Sketch
from fmha.units import format_bytes

_NAMES = {"naive": "naive: S and P too, O(N²)", "q-outer": "flash: O(N)"}


def memory_vs_n(
    lengths: Sequence[int],
    held: Mapping[str, Sequence[int]],
    cards: Mapping[str, int],
    chosen: str,
    crossing: int | None,
    height: int = 500,
) -> go.Figure:
    """Two curves ("naive", "q-outer") of bytes held, and a line at each card's capacity in bytes.

    Args:
        chosen: the card drawn strongly.
        crossing: the largest N that naive attention fits on it; marked when it is in range.
    """
    fig = Sketch("Bytes held in device memory", height)
    for order, values in held.items():
        fig.add_scatter(
            x=list(lengths),
            y=list(values),
            name=_NAMES[order],
            mode="lines+markers",
            line={"color": theme.color(order), "width": 4, "dash": theme.DASHES[order]},
            marker={"symbol": theme.SYMBOLS[order], "size": 9},
            customdata=[format_bytes(v) for v in values],
            hovertemplate="N = %{x:,}: %{customdata}<extra></extra>",
        )
    fig.shapes += [
        {
            "type": "line",
            "xref": "x domain",
            "x0": 0,
            "x1": 1,
            "y0": capacity,
            "y1": capacity,
            "line": {
                "color": theme.color("HBM", 1.0 if name == chosen else 0.45),
                "width": 3 if name == chosen else 1.5,
                "dash": "solid" if name == chosen else "dot",
            },
        }
        for name, capacity in cards.items()
    ]
    ceiling = cards[chosen]
    fig.add_label(
        0.01,
        math.log10(ceiling),
        f"<b>{chosen}: {format_bytes(ceiling)}</b>",
        xref="x domain",
        xanchor="left",
        yanchor="bottom",
    )
    low, high = min(min(v) for v in held.values()), max(max(v) for v in held.values())
    fig.xaxis(**token_axis(lengths))
    fig.yaxis(**byte_axis(low, max(high, 2 * max(cards.values())), "bytes"))
    if crossing and lengths[0] <= crossing <= lengths[-1]:
        fig.add_annotation(
            x=math.log10(crossing),
            y=math.log10(ceiling),
            text=f"<b>naive is full<br>at N = {crossing:,}</b>",
            ax=-90,
            ay=-64,
            arrowhead=2,
            arrowcolor=theme.color("warn"),
            arrowwidth=2,
            font={"color": theme.color("warn")},
        )
    return fig.figure()
