"""Requested bytes over the tile sizes, with the tiles that do not fit into shared memory crossed out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go
from numpy.typing import ArrayLike

from fmha.figures import theme
from fmha.figures.sketch import Sketch
from fmha.units import format_bytes


def traffic_tiles(
    rows: Sequence[int],
    cols: Sequence[int],
    nbytes: ArrayLike,
    fits: ArrayLike,
    chosen: tuple[int, int],
    role: str,
    height: int = 470,
) -> go.Figure:
    """A cell a tiling: Br upwards, Bc across, darker where more bytes move.

    Args:
        rows, cols: the Br and the Bc of the grid. nbytes, fits: [rows, cols].
        chosen: (Br, Bc) of the controls, framed when it is on the grid. role: the loop order, for the colour.
    """
    fig = Sketch("Requested bytes by tile size", height)
    sizes, allowed = np.asarray(nbytes, np.float64), np.asarray(fits, np.bool_)
    logs = np.log2(np.maximum(sizes, 1))
    fig.add_heatmap(
        z=logs,
        x=list(range(len(cols))),
        y=list(range(len(rows))),
        colorscale=[[0.0, theme.color(role, 0.06)], [1.0, theme.color(role, 0.75)]],
        showscale=False,
        xgap=2,
        ygap=2,
        customdata=[
            [[r, c, format_bytes(v)] for c, v in zip(cols, line, strict=True)]
            for r, line in zip(rows, sizes, strict=True)
        ],
        hovertemplate="Br = %{customdata[0]}, Bc = %{customdata[1]}: %{customdata[2]}<extra></extra>",
    )
    xs, ys = np.meshgrid(np.arange(len(cols)), np.arange(len(rows)))
    texts = [
        format_bytes(v).replace(" ", "<br>") + ("" if ok else "<br>✕")
        for v, ok in zip(sizes.ravel(), allowed.ravel(), strict=True)
    ]
    fig.add_scatter(
        x=xs.ravel(), y=ys.ravel(), text=texts, mode="text", textfont={"size": 14}, hoverinfo="skip", showlegend=False
    )
    if chosen[0] in rows and chosen[1] in cols:
        y, x = list(rows).index(chosen[0]), list(cols).index(chosen[1])
        fig.add_frame(x - 0.5, y - 0.5, x + 0.5, y + 0.5, theme.color("Q"))
    plain: dict[str, Any] = {"showgrid": False, "zeroline": False}
    fig.xaxis(title="Bc, keys in a K/V tile", tickvals=list(range(len(cols))), ticktext=[str(c) for c in cols], **plain)
    fig.yaxis(title="Br, rows in a Q tile", tickvals=list(range(len(rows))), ticktext=[str(r) for r in rows], **plain)
    fig.update(margin={"t": 48})
    return fig.figure()
