"""Which elements of an array one request touches: a row, a column, a diagonal, one for all."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from fmha.figures import theme
from fmha.figures.sketch import Sketch

MOST_ROWS = 64  # of a long matrix; the rows around those that are touched


def touched(elements: Sequence[tuple[int, int]], rows: int, columns: int, role: str = "K") -> go.Figure:
    """A matrix of rows x columns, the touched elements (row, column) in the colour of `role`.

    Of a matrix with more than `MOST_ROWS` rows, a window around what is touched.
    """
    first, last = 0, rows
    if rows > MOST_ROWS:
        low, high = min((r for r, _ in elements), default=0), max((r for r, _ in elements), default=0)
        first = max(0, min((low + high - MOST_ROWS) // 2, rows - MOST_ROWS, low))
        last = min(rows, max(first + MOST_ROWS, high + 1))
    grid = [[0] * columns for _ in range(last - first)]
    for row, column in elements:
        grid[row - first][column] = 1
    fig = Sketch("", 300)
    scale = [[0.0, theme.color("skip", 0.12)], [1.0, theme.color(role)]]
    fig.add_heatmap(
        z=grid, x0=0, dx=1, y0=first, dy=1, zmin=0, zmax=1, colorscale=scale, showscale=False,
        hovertemplate="row %{y}, column %{x}<extra></extra>",
    )  # fmt: skip
    fig.xaxis(title="column", range=[-0.5, columns - 0.5], showgrid=False, zeroline=False)
    fig.yaxis(title="row", autorange=False, range=[last - 0.5, first - 0.5], showgrid=False, zeroline=False)
    fig.update(margin={"t": 12})
    return fig.figure()


__all__ = ["MOST_ROWS", "touched"]
