"""DRAM bytes of one run against the size of the L2 cache."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from fmha.figures import theme
from fmha.figures.sketch import Sketch
from fmha.hardware import MIB
from fmha.units import format_bytes


def l2_sizes(
    sizes: Sequence[int], dram: Sequence[float], compulsory: float, own: int, chosen: int, height: int = 340
) -> go.Figure:
    """A bar a size; the GPU's own and the chosen one are named, the compulsory bytes are a line.

    Args:
        sizes: L2 in bytes, rising; dram: bytes read and written at each. own: the GPU's; chosen: that of the controls.
    """
    fig = Sketch("", height)
    marks = {own: "<br>(as built)"} | ({chosen: "<br>(chosen)"} if chosen != own else {})
    names = [f"{size / MIB:g} MiB{marks.get(size, '')}" for size in sizes]
    top = max([*dram, compulsory], default=0.0) or 1.0
    fig.add_bar(
        x=list(range(len(sizes))), y=[value / top for value in dram], showlegend=False,
        text=[format_bytes(value).replace(" ", "<br>") for value in dram], textposition="outside", cliponaxis=False,
        marker={"color": [theme.color("HBM", 1.0 if size == chosen else 0.5) for size in sizes], "line": {"width": 0}},
        customdata=[f"{value:,.0f} bytes" for value in dram], hovertemplate="%{customdata}<extra></extra>",
    )  # fmt: skip
    fig.add_scatter(
        x=[-0.5, len(sizes) - 0.5], y=[compulsory / top] * 2, mode="lines", hoverinfo="skip",
        name=f"compulsory: {format_bytes(compulsory)}", line={"color": theme.NEUTRAL, "width": 2, "dash": "dot"},
    )  # fmt: skip
    fig.xaxis(title="size of L2", tickvals=list(range(len(sizes))), ticktext=names, showgrid=False, zeroline=False)
    fig.yaxis(title="bytes of DRAM", range=[0, 1.3], showticklabels=False, showgrid=False)
    fig.update(margin={"t": 40}, bargap=0.25)
    return fig.figure()
