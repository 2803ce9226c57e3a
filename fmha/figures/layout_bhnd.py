"""[B, H, N, d] in memory: every head is an N x d matrix, and all of them lie one after another in one line."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go

from fmha.figures import theme
from fmha.figures.sketch import Sketch

Index = tuple[int, int, int, int]


def offset(shape: Index, index: Index) -> int:
    """Elements before [b, h, n, k] in a row-major [B, H, N, d] array."""
    _, H, N, d = shape
    b, h, n, k = index
    return ((b * H + h) * N + n) * d + k


def offset_bnhd(shape: Index, index: Index) -> int:
    """Elements before the same element when the array is stored as [B, N, H, d] instead."""
    _, H, N, d = shape
    b, h, n, k = index
    return ((b * N + n) * H + h) * d + k


def memory_layout(shape: Index, index: Index, height: int = 430) -> go.Figure:
    """All B x H matrices with the offset in every cell; the chosen head and element are framed.

    Args:
        shape: (B, H, N, d), small enough to write an offset into each cell (about 200 elements).
        index: (b, h, n, k), each counted from 0.
    """
    B, H, N, d = shape
    b, h, n, k = index
    fig = Sketch("", height)
    # One grid with a gap between heads and room for a name above each: cell [row, column] of head (b, h) lies at
    # y = b (N + 1) + row + 1, x = h (d + 1) + column. One heat map is far cheaper than a shape a cell.
    strength = np.full((B * (N + 1), H * (d + 1) - 1), np.nan)
    texts: list[tuple[float, float, str]] = []
    for bb, hh in ((bb, hh) for bb in range(B) for hh in range(H)):
        x0, y0 = hh * (d + 1), bb * (N + 1) + 1
        chosen = (bb, hh) == (b, h)
        strength[y0 : y0 + N, x0 : x0 + d] = 0.2 if chosen else 0.06
        cells = [(row, col) for row in range(N) for col in range(d)]
        texts += [(x0 + col, y0 + row, str(offset(shape, (bb, hh, row, col)))) for row, col in cells]
        name = f"b={bb}, h={hh}"
        texts.append((x0 + (d - 1) / 2, y0 - 0.85, f"<b>{name}</b>" if chosen else name))
    x0, y0 = h * (d + 1), b * (N + 1) + 1
    strength[y0 + n, x0 : x0 + d] = 0.4
    strength[y0 + n, x0 + k] = 0.6
    fig.add_heatmap(
        z=strength,
        zmin=0,
        zmax=1,
        colorscale=[[0, theme.color("Q", 0.0)], [1, theme.color("Q")]],
        showscale=False,
        xgap=3,
        ygap=3,
        hoverinfo="skip",
    )
    fig.add_scatter(
        x=[x for x, _, _ in texts],
        y=[y for _, y, _ in texts],
        text=[text for _, _, text in texts],
        mode="text",
        textfont={"size": 14},
        hoverinfo="skip",
        showlegend=False,
    )
    fig.add_frame(x0 - 0.54, y0 - 0.54, x0 + d - 0.46, y0 + N - 0.46, theme.color("Q"))
    fig.add_frame(x0 + k - 0.48, y0 + n - 0.46, x0 + k + 0.48, y0 + n + 0.46, theme.color("O"))
    fig.update(margin={"l": 0, "r": 0, "t": 4, "b": 0})
    fig.xaxis(visible=False, range=[-0.7, H * (d + 1) - 1.3], fixedrange=True)
    fig.yaxis(visible=False, range=[B * (N + 1) - 0.3, -0.4], fixedrange=True)
    return fig.figure()
