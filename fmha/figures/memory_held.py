"""What lies in device memory at once, tensor by tensor, for each loop order."""

from __future__ import annotations

from collections.abc import Mapping

import plotly.graph_objects as go

from fmha.figures import theme
from fmha.figures.axes import ORDER_NAMES
from fmha.figures.sketch import Sketch
from fmha.units import format_bytes

_ROLE = {"P": "S", "LSE": "l"}


def memory_held(held: Mapping[str, Mapping[str, int]], height: int = 320) -> go.Figure:
    """Stacked bars, one an order: order -> tensor -> bytes. P is hatched, as it shares its colour with S."""
    fig = Sketch("Held in device memory", height)
    totals = {order: sum(parts.values()) for order, parts in held.items()}
    longest = max(totals.values())
    shown: set[str] = set()
    for order, parts in held.items():
        for tensor, size in parts.items():
            role = _ROLE.get(tensor, tensor)
            pattern = theme.hatch("/" if tensor in ("P", "LSE") else "")
            fig.add_bar(
                y=[ORDER_NAMES[order]],
                x=[size],
                orientation="h",
                name=tensor,
                legendgroup=tensor,
                showlegend=tensor not in shown,
                marker={"color": theme.color(role), "pattern": pattern, "line": {"width": 0}},
                hovertemplate=f"{tensor}: {format_bytes(size)}<extra>{ORDER_NAMES[order]}</extra>",
            )
            shown.add(tensor)
        total = totals[order]
        fig.add_annotation(
            x=total, y=ORDER_NAMES[order], text=f" {format_bytes(total)}", showarrow=False, xanchor="left"
        )
    fig.update(barmode="stack", bargap=0.35, margin={"t": 72})
    fig.yaxis(autorange="reversed")
    fig.xaxis(title="bytes", range=[0, 1.25 * longest], showticklabels=False)
    return fig.figure()
