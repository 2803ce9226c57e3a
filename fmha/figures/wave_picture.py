"""SMs over time: which head each place for a block works on, and where SMs idle."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go

from fmha.figures import theme
from fmha.figures.sketch import Sketch
from fmha.wave_map import WaveMap

_SHADES = (0.25, 0.45, 0.7, 0.95)  # even head, its even and odd tiles; odd head, the same


def wave_picture(drawn: WaveMap, height: int = 460) -> go.Figure:
    """A line a place for a block, time from left to right; neighbouring heads and Q tiles differ in shade.

    What is left clear is idle. The dashed line is where the first SM has nothing left to do.
    """
    rows, bins = drawn.head.shape
    fig = Sketch("", height)
    shade = np.where(drawn.head >= 0, 2 * (drawn.head % 2) + drawn.tile % 2 + 1, 0).astype(np.uint8)
    clear = "rgba(0,0,0,0)"
    steps = [clear, *(theme.color("Q", opacity) for opacity in _SHADES)]
    scale = [[edge, color] for i, color in enumerate(steps) for edge in (i / len(steps), (i + 1) / len(steps))]
    fig.add_heatmap(
        z=shade, x0=drawn.end / bins / 2, dx=drawn.end / bins, y0=0, dy=1, zmin=-0.5, zmax=len(steps) - 0.5,
        colorscale=scale, showscale=False, hoverinfo="skip",
    )  # fmt: skip
    if 0 < drawn.starving < drawn.end:
        fig.add_vline(drawn.starving, {"color": theme.color("warn"), "width": 2, "dash": "dash"})
        left = drawn.starving < 0.6 * drawn.end
        fig.add_annotation(
            x=drawn.starving, y=1, yref="y domain", yanchor="bottom", xanchor="left" if left else "right",
            showarrow=False, text="from here on SMs idle",
        )  # fmt: skip
    every = max(1, -(-rows // 8))
    ticks = list(range(0, rows, every))
    fig.xaxis(title="time, in visits of a whole K/V tile", range=[0, drawn.end or 1], showgrid=False, zeroline=False)
    fig.yaxis(
        title="SM", tickvals=ticks, ticktext=[str(drawn.sm[row]) for row in ticks], range=[rows - 0.5, -0.5],
        showgrid=False, zeroline=False,
    )  # fmt: skip
    fig.update(margin={"t": 34})
    return fig.figure()
