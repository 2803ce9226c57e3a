"""Tile sizes as a map: a cell a (Br, Bc), its value in colour and in words, or in a word why it does not run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go

from fmha.figures import theme
from fmha.figures.sketch import Sketch
from fmha.problem import Tiling


@dataclass(frozen=True)
class MapCell:
    """What is drawn for one pair of tile sizes.

    value: decides the colour; None: nothing is known. text: what the cell says. hover: lines for the pointer. blocked:
    in a word why these tiles do not run ("threads", "SMEM"); "" when they do.
    """

    value: float | None
    text: str
    hover: str
    blocked: str = ""


def tile_map(
    rows: Sequence[int],
    columns: Sequence[int],
    cells: Sequence[Sequence[MapCell]],
    *,
    role: str = "S",
    logarithmic: bool = True,
    more: str = "",
    chosen: Tiling | None = None,
    presets: Mapping[str, Tiling] | None = None,
    height: int = 560,
) -> go.Figure:
    """The map: the fuller the colour, the larger the value; what does not run is grey and says why.

    Args:
        rows, columns: Br and Bc. cells: [Br][Bc]. role: whose colour. logarithmic: colour by the value's logarithm.
        more: what a full colour means, for the axis. chosen: framed. presets: name -> tiles, written where they are on
            the map.
    """
    shown = [[_shade(cell, logarithmic) for cell in row] for row in cells]
    there = [value for row in shown for value in row if value is not None]
    low, high = min(there, default=0.0), max(there, default=1.0)
    x, y = list(range(len(columns))), list(range(len(rows)))
    base: dict[str, Any] = {"x": x, "y": y, "xgap": 2, "ygap": 2, "showscale": False, "hoverinfo": "skip"}
    fig = Sketch("", height)
    grey = theme.color("skip", 0.2)
    scale = [[0.0, theme.color(role, 0.06)], [1.0, theme.color(role, 0.5)]]  # what is written on it stays readable
    fig.add_heatmap(
        z=[[1.0 if cell.blocked else None for cell in row] for row in cells], zmin=0, zmax=1,
        colorscale=[[0.0, grey], [1.0, grey]], **base,
    )  # fmt: skip
    fig.add_heatmap(z=shown, zmin=low, zmax=high if high > low else low + 1, colorscale=scale, **base)
    fig.add_scatter(
        x=[i for _ in rows for i in x], y=[k for k in y for _ in columns], mode="text", showlegend=False,
        text=[cell.blocked or cell.text for row in cells for cell in row], textfont={"size": 14},
        customdata=[cell.hover for row in cells for cell in row], hovertemplate="%{customdata}<extra></extra>",
    )  # fmt: skip
    if chosen is not None and chosen.Br in rows and chosen.Bc in columns:
        i, k = columns.index(chosen.Bc), rows.index(chosen.Br)
        fig.add_frame(i - 0.5, k - 0.5, i + 0.5, k + 0.5, theme.color("Q"))
    for name, tiling in (presets or {}).items():
        if tiling.Br in rows and tiling.Bc in columns:
            fig.add_label(columns.index(tiling.Bc), rows.index(tiling.Br), f"<b>{name}</b>", yshift=-17)
    plain: dict[str, Any] = {"showgrid": False, "zeroline": False}
    keys = f"Bc, keys of a K/V tile{f' (full colour: {more})' if more else ''}"
    fig.xaxis(title=keys, tickvals=x, ticktext=[str(c) for c in columns], range=[-0.55, len(x) - 0.45], **plain)
    fig.yaxis(
        title="Br, queries of a Q tile", tickvals=y, ticktext=[str(r) for r in rows], range=[len(y) - 0.45, -0.55],
        **plain,
    )  # fmt: skip
    fig.update(margin={"t": 12})
    return fig.figure()


def _shade(cell: MapCell, logarithmic: bool) -> float | None:
    """What the colour follows; None where nothing is coloured."""
    if cell.blocked or cell.value is None or (logarithmic and cell.value <= 0):
        return None
    return math.log10(cell.value) if logarithmic else cell.value
