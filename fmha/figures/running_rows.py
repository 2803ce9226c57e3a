"""Running maxima of the rows of one Q tile across the K/V tiles, with the tile that the player has reached."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from fmha.figures import theme
from fmha.figures.sketch import Sketch

Array = NDArray[np.float64]
HIGHLIGHT = ("solid", "dash", "dot", "dashdot")


def running_rows(
    m: Array,
    first_row: int,
    chosen: list[int],
    tile: int,
    elsewhere: Mapping[int, Array] | None = None,
    height: int = 340,
) -> go.Figure:
    """m after every K/V tile, a line a row.

    Args:
        m: [rows, Tc], the running max of the Q tile's rows; -inf where a row has seen no key.
        first_row: number of the tile's first row in the whole sequence.
        chosen: rows (numbers in the whole sequence) drawn strong; the others are faint.
        elsewhere: m [Tc] of chosen rows that lie in other Q tiles, by their number.
        tile: K/V tiles up to this one have been visited; -1: none yet.
    """
    rows, Tc = m.shape
    fig = Sketch("", height)
    steps = np.arange(Tc)
    shown = np.where(np.isfinite(m), m, np.nan)
    numbers = [first_row + r for r in range(rows)]
    # All faint rows are one line with gaps between them: a trace a row would take Plotly far longer to draw.
    faint = [r for r, number in enumerate(numbers) if number not in chosen]
    gap = np.full((len(faint), 1), np.nan)
    hover = "row %{customdata}, after K/V tile %{x}: m = %{y:.3f}<extra></extra>"
    fig.add_scatter(
        x=np.tile(np.append(steps, Tc), len(faint)), y=np.hstack([shown[faint], gap]).ravel(), mode="lines",
        customdata=np.repeat([numbers[r] for r in faint], Tc + 1), name="other rows", showlegend=bool(faint),
        line={"color": theme.color("m", 0.25), "width": 1.5, "shape": "hv"}, hovertemplate=hover,
    )  # fmt: skip
    lines = {n: shown[n - first_row] for n in chosen if n in numbers}
    for n, row in (elsewhere or {}).items():
        lines[n] = np.where(np.isfinite(row), row, np.nan)
    for rank, (number, values) in enumerate(lines.items()):
        line = {"color": theme.color("m"), "width": 4, "shape": "hv", "dash": HIGHLIGHT[rank % len(HIGHLIGHT)]}
        fig.add_scatter(
            x=steps, y=values, mode="lines+markers", name=f"row {number}", line=line,
            marker={"size": 8, "symbol": ("triangle-up", "circle", "diamond", "square")[rank % 4]}, showlegend=True,
            hovertemplate=f"row {number}, after K/V tile %{{x}}: m = %{{y:.3f}}<extra></extra>",
        )  # fmt: skip
    if tile >= 0:
        fig.add_vline(x=tile, line={"color": theme.color("SMEM"), "width": 3})
        fig.add_shape(
            type="rect", x0=tile, x1=Tc - 0.5, y0=0, y1=1, yref="y domain", fillcolor=theme.NEUTRAL, opacity=0.12,
            line={"width": 0}, layer="below",
        )  # fmt: skip
    every = max(1, -(-Tc // 16))
    drawn = np.vstack([m, *(elsewhere or {}).values()])
    finite = drawn[np.isfinite(drawn)]
    low, high = (float(finite.min()), float(finite.max())) if len(finite) else (0.0, 1.0)
    pad = 0.08 * (high - low or 1.0)
    # Fixed margins and range: nothing to measure, so that a change is drawn in half the time and nothing jumps.
    fig.xaxis(title="K/V tile j", range=[-0.5, Tc - 0.5], tickvals=list(range(0, Tc, every)), automargin=False)
    fig.yaxis(title="running max m", range=[low - pad, high + pad], automargin=False)
    fig.update(margin={"t": 40, "l": 64, "b": 54, "r": 8})
    return fig.figure()
