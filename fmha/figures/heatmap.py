"""The N x N matrix as a picture, reduced tile by tile when it is larger than a page should send."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from fmha.figures import theme
from fmha.figures.sketch import Sketch

LIMIT = 512  # cells a side
WORDS_LIMIT = 32  # token names on the axes up to this many

Array = NDArray[np.float64]


class Reduced(NamedTuple):
    """A matrix of at most LIMIT x LIMIT cells; each cell stands for `rows` x `cols` entries."""

    values: Array
    rows: int
    cols: int
    how: str

    @property
    def is_reduced(self) -> bool:
        """Whether a cell stands for more than one entry."""
        return self.rows * self.cols > 1

    @property
    def note(self) -> str:
        """What a cell is, for the caption; empty when nothing was reduced."""
        if not self.is_reduced:
            return ""
        return f"reduced: each cell is the {self.how} of {self.rows} x {self.cols} entries"


def reduce_map(matrix: Array, limit: int = LIMIT, how: Literal["max", "mean"] = "max") -> Reduced:
    """Reduce [Nq, Nk] to at most limit x limit by the max or mean of equal tiles (the last may be smaller)."""
    rows, cols = (-(-extent // limit) for extent in matrix.shape)
    if rows * cols == 1:
        return Reduced(matrix, 1, 1, how)
    combine = np.maximum.reduceat if how == "max" else np.add.reduceat
    row_edges, col_edges = np.arange(0, matrix.shape[0], rows), np.arange(0, matrix.shape[1], cols)
    small = combine(combine(matrix, row_edges, axis=0), col_edges, axis=1)
    if how == "mean":
        heights = np.diff(np.append(row_edges, matrix.shape[0]))
        widths = np.diff(np.append(col_edges, matrix.shape[1]))
        small = small / (heights[:, None] * widths[None, :])
    return Reduced(small, rows, cols, how)


def attention_map(
    P: Array,
    *,
    tokens: Sequence[str] | None = None,
    row: int | None = None,
    title: str = "",
    height: int = 560,
) -> go.Figure:
    """Weights P [Nq, Nk]: query rows from the top, key columns; the query `row` is framed."""
    small = reduce_map(np.asarray(P, np.float64))
    fig = Sketch(title, height)
    queries = np.arange(small.values.shape[0]) * small.rows
    keys = np.arange(small.values.shape[1]) * small.cols
    named = tokens is not None and not small.is_reduced
    gap = 1 if len(keys) <= WORDS_LIMIT else 0
    heat = {
        "z": small.values,
        "x": keys,
        "y": queries,
        "zmin": 0,
        "zmax": max(float(np.nanmax(small.values, initial=0.0)), 1e-12),
        "colorscale": theme.fade("S"),
        "colorbar": {"title": {"text": "weight"}, "thickness": 14, "tickformat": ".2f"},
        "xgap": gap,
        "ygap": gap,
        "hovertemplate": "query %{y}, key %{x}<br>weight %{z:.4f}<extra></extra>",
    }
    if named and tokens is not None:
        heat["customdata"] = [[f"{q} looks at {k}" for k in tokens] for q in tokens]
        heat["hovertemplate"] = "%{customdata}<br>weight %{z:.4f}<extra></extra>"
    fig.add_heatmap(**heat)
    plain: dict[str, Any] = {"showgrid": False, "zeroline": False}
    fig.xaxis(title=f"key j<br>{small.note}" if small.is_reduced else "key j", **plain)
    fig.yaxis(title="query i", autorange="reversed", **plain)
    if named and tokens is not None and len(tokens) <= WORDS_LIMIT:
        fig.xaxis(tickvals=keys, ticktext=list(tokens), tickangle=-60)
        fig.yaxis(tickvals=queries, ticktext=list(tokens))
    if row is not None:
        top = (row // small.rows) * small.rows
        half_row, half_col = small.rows / 2, small.cols / 2
        fig.add_frame(keys[0] - half_col, top - half_row, keys[-1] + half_col, top + half_row, theme.color("Q"))
    return fig.figure()
