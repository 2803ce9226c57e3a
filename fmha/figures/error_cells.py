"""Where a result is off: the error map of a check, drawn cell by cell."""

from __future__ import annotations

import math
from typing import Any

import plotly.graph_objects as go

from fmha.errors import InputError
from fmha.figures import theme
from fmha.figures.sketch import Sketch
from fmha.measurement import ErrorMap


def cells_note(error: ErrorMap, d: int) -> str:
    """What one cell is, in words."""
    high, wide = len(error.values), len(error.values[0])
    tall = error.rows[1] - error.rows[0]
    if (tall, d) == (high, wide):
        return "each cell is one number of O"
    rows, columns = max(1, round(tall / high)), max(1, round(d / wide))
    size = f"{rows} {'row' if rows == 1 else 'rows'} x {columns} {'column' if columns == 1 else 'columns'}"
    return f"each cell is the largest error of about {size}"


def error_cells(error: ErrorMap, d: int, right: bool = True, height: int = 420) -> go.Figure:
    """|O - float64| of one head: rows from the top, columns across. The colour scale ends at the largest error.

    Args:
        d: head dimension, elements. right: whether the check found the result right; a wrong one gets a warning colour.

    Raises:
        InputError: a map (from a file) that is no rectangle.
    """
    values = error.values
    if not values or not values[0] or len({len(row) for row in values}) != 1:
        raise InputError("the error map of this recording is not a rectangle of numbers, so it is not drawn.")
    high, wide = len(values), len(values[0])
    first, last = error.rows
    tall, broad = max(last - first, 1) / high, d / wide
    rows = [first + (i + 0.5) * tall - 0.5 for i in range(high)]
    cols = [(k + 0.5) * broad - 0.5 for k in range(wide)]
    finite = [v for row in values for v in row if math.isfinite(v)]
    top = max(finite, default=0.0) or 1e-12
    fig = Sketch("", height)
    fig.add_heatmap(
        z=[[v if math.isfinite(v) else None for v in row] for row in values],
        x=cols,
        y=rows,
        zmin=0,
        zmax=top,
        colorscale=theme.fade("O" if right else "warn"),
        colorbar={"title": {"text": "error"}, "thickness": 14, "exponentformat": "e", "tickformat": ".1e"},
        customdata=[[f"{v:.2e}" for v in row] for row in values],
        hovertemplate="around row %{y:.0f}, column %{x:.0f}<br>off by at most %{customdata}<extra></extra>",
    )
    broken = [(cols[k], rows[i]) for i, row in enumerate(values) for k, v in enumerate(row) if not math.isfinite(v)]
    if broken:
        fig.add_scatter(
            x=[x for x, _ in broken],
            y=[y for _, y in broken],
            mode="markers",
            name="not a number",
            showlegend=True,
            marker={"symbol": "x", "size": 9, "color": theme.color("m")},
            hovertemplate="NaN or infinite<extra></extra>",
        )
    plain: dict[str, Any] = {"showgrid": False, "zeroline": False}
    fig.xaxis(title="column of O", range=[-0.5, d - 0.5], **plain)
    fig.yaxis(title="query row", range=[last - 0.5, first - 0.5], **plain)
    fig.update(margin={"t": 36 if broken else 12})
    return fig.figure()
