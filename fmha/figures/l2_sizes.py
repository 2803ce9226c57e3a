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
    """A bar a size; the GPU's own is named, the chosen one framed, the compulsory bytes are a line.

    Args:
        sizes: L2 in bytes, rising; dram: bytes read and written at each. own: the GPU's; chosen: that of the controls.
    """
    fig = Sketch("", height)
    names = [f"{size / MIB:g} MiB" + ("<br>(as built)" if size == own else "") for size in sizes]
    top = max([*dram, compulsory], default=1.0)
    fig.add_bar(
        x=list(range(len(sizes))), y=[value / top for value in dram], showlegend=False,
        text=[format_bytes(value).replace(" ", "<br>") for value in dram], textposition="outside", cliponaxis=False,
        marker={"color": [theme.color("HBM", 1.0 if size == chosen else 0.5) for size in sizes], "line": {"width": 0}},
        customdata=[f"{value:,.0f} bytes" for value in dram], hovertemplate="%{customdata}<extra></extra>",
    )  # fmt: skip
    if chosen in sizes:
        at = list(sizes).index(chosen)
        fig.add_frame(at - 0.46, 0, at + 0.46, max(dram[at] / top, 0.01), theme.color("Q"))
    fig.add_hline(compulsory / top, {"color": theme.NEUTRAL, "width": 2, "dash": "dot"})
    fig.add_annotation(
        x=1, xref="x domain", y=compulsory / top, xanchor="right", yanchor="bottom", showarrow=False,
        text=f"compulsory {format_bytes(compulsory)}",
    )  # fmt: skip
    fig.xaxis(title="size of L2", tickvals=list(range(len(sizes))), ticktext=names, showgrid=False)
    fig.yaxis(title="bytes of DRAM", range=[0, 1.28], showticklabels=False)
    fig.update(margin={"t": 12}, bargap=0.25)
    return fig.figure()
