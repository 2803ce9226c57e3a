"""[B, H, N, d] in memory: every head is an N x d matrix, and all of them lie one after another in one line."""

from __future__ import annotations

import plotly.graph_objects as go

from fmha.figures import theme
from fmha.figures.axes import label, outline

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
    fig = theme.figure("", height)
    xs, ys, texts = [], [], []
    for bb, hh in ((bb, hh) for bb in range(B) for hh in range(H)):
        x0, y0 = hh * (d + 0.8), bb * (N + 1.5)
        chosen = (bb, hh) == (b, h)
        for row, col in ((row, col) for row in range(N) for col in range(d)):
            xs.append(x0 + col)
            ys.append(y0 + row)
            texts.append(str(offset(shape, (bb, hh, row, col))))
            is_row = chosen and row == n
            strength = 0.6 if is_row and col == k else 0.4 if is_row else 0.2 if chosen else 0.08
            fig.add_shape(
                type="rect",
                x0=x0 + col - 0.47,
                x1=x0 + col + 0.47,
                y0=y0 + row - 0.45,
                y1=y0 + row + 0.45,
                fillcolor=theme.color("Q", strength),
                line={"width": 0},
                layer="below",
            )
        name = f"b={bb}, h={hh}"
        label(fig, x0 + (d - 1) / 2, y0 - 0.9, f"<b>{name}</b>" if chosen else name)
        if chosen:
            outline(fig, x0 - 0.56, y0 - 0.54, x0 + d - 0.44, y0 + N - 0.46, theme.color("Q"))
            outline(fig, x0 + k - 0.47, y0 + n - 0.45, x0 + k + 0.47, y0 + n + 0.45, theme.color("O"))
    fig.add_scatter(x=xs, y=ys, text=texts, mode="text", textfont={"size": 14}, hoverinfo="skip", showlegend=False)
    fig.update_layout(margin={"l": 0, "r": 0, "t": 4, "b": 0})
    fig.update_xaxes(visible=False, range=[-0.7, H * (d + 0.8) - 1.1], fixedrange=True)
    fig.update_yaxes(visible=False, range=[B * (N + 1.5) - 1.9, -1.4], fixedrange=True)
    return fig
