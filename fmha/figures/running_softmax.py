"""One row of scores arriving tile by tile, and the three numbers that are kept: m, l, alpha."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go
from numpy.typing import ArrayLike, NDArray
from plotly.subplots import make_subplots

from fmha.figures import theme

Array = NDArray[np.float64]
NAMES_LIMIT = 24  # keys that get their name on the axis


def row_in_tiles(
    scores: ArrayLike, Bc: int, tile: int, m: Array, *, names: Sequence[str] | None = None, height: int = 330
) -> go.Figure:
    """Bars for the scores [Nk] of one row: seen, arriving now and still unknown; and the running max as steps.

    Args:
        tile: index of the tile that arrives now. m: [Tc], the running max after each tile.
        names: the keys' words, where there are any.
    """
    fig = theme.figure("", height)
    values = np.asarray(scores, np.float64)
    index = np.arange(len(values))
    part = np.where(index // Bc < tile, 0, np.where(index // Bc == tile, 1, 2))
    looks = (("seen, forgotten", 0.45, ""), ("arriving now", 1.0, ""), ("not seen yet", 0.12, "/"))
    finite = np.where(np.isfinite(values), values, np.nan)
    for which, (name, opacity, pattern) in enumerate(looks):
        here = part == which
        fig.add_bar(
            x=index[here],
            y=finite[here],
            name=name,
            marker={"color": theme.color("S", opacity), "pattern": {"shape": pattern}, "line": {"width": 0}},
            hovertemplate="key %{x}: score %{y:.3f}<extra></extra>",
        )
    seen = np.arange(tile + 1)
    edges = np.stack([seen * Bc - 0.5, np.minimum((seen + 1) * Bc, len(values)) - 0.5], axis=1).ravel()
    running = np.where(np.isfinite(m[: tile + 1]), m[: tile + 1], np.nan)
    fig.add_scatter(
        x=edges,
        y=np.repeat(running, 2),
        name="running max m",
        mode="lines",
        line={"color": theme.color("m"), "width": 4},
        hovertemplate="m = %{y:.3f}<extra></extra>",
    )
    for edge in range(Bc, len(values), Bc):
        fig.add_vline(x=edge - 0.5, line={"color": theme.GRID, "width": 1.5})
    fig.update_layout(barmode="overlay", bargap=0.15, margin={"t": 40})
    if len(values) <= NAMES_LIMIT:
        fig.update_xaxes(tickvals=index, ticktext=[str(k) for k in index] if names is None else list(names))
        fig.update_xaxes(tickangle=0 if names is None else -50)
    low, high = np.nanmin(np.append(finite, 0.0)), np.nanmax(np.append(finite, 0.0))
    pad = 0.1 * (high - low or 1.0)
    fig.update_xaxes(title_text="key j", showgrid=False, zeroline=False, range=[-0.7, len(values) - 0.3])
    fig.update_yaxes(title_text="scaled score", range=[low - pad, high + pad])
    return fig


def running_state(m: Array, l: Array, alpha: Array, seen: Sequence[int], tile: int, height: int = 520) -> go.Figure:
    """m, l and alpha after each tile, up to the tile that arrives now; later tiles are left empty.

    Args: m, l, alpha: [Tc], the row's state after each tile. seen: [Tc], keys seen by then, the upper bound
    of l. tile: index of the tile that arrives now.
    """
    fig = make_subplots(rows=3, cols=1, shared_xaxes=True, vertical_spacing=0.07)
    steps = np.arange(1, len(m) + 1)
    upto = slice(0, tile + 1)
    bound = {"color": theme.NEUTRAL, "width": 1.5, "dash": "dot"}
    for y, name in ((np.asarray(seen, np.float64), "most: keys seen"), (np.ones(len(m)), "least: 1")):
        fig.add_scatter(x=steps, y=y, mode="lines", line=bound, name=name, hoverinfo="skip", row=2, col=1)
    for row, (role, values, title) in enumerate(
        (("m", m, "max m"), ("l", l, "sum l"), ("alpha", alpha, "alpha")), start=1
    ):
        shown = np.where(np.isfinite(values[upto]), values[upto], np.nan)
        fig.add_scatter(
            x=steps[upto],
            y=shown,
            mode="lines+markers",
            name=title,
            showlegend=False,
            line={"color": theme.color(role), "width": 3, "dash": theme.DASHES[role]},
            marker={"symbol": theme.SYMBOLS[role], "size": np.where(steps[upto] == tile + 1, 17, 9)},
            hovertemplate=f"after tile %{{x}}: {role} = %{{y:.4f}}<extra></extra>",
            row=row,
            col=1,
        )
        fig.update_yaxes(title_text=title, row=row, col=1)
    top = float(np.nanmax(np.append(l[np.isfinite(l)], 1.0)))
    fig.update_yaxes(range=[0, 1.25 * top], row=2, col=1)
    fig.update_yaxes(range=[-0.08, 1.15], row=3, col=1)
    finite = m[np.isfinite(m)]
    if len(finite):
        pad = 0.15 * (float(np.ptp(finite)) or 1.0)
        fig.update_yaxes(range=[float(finite.min()) - pad, float(finite.max()) + pad], row=1, col=1)
    fig.update_xaxes(range=[0.5, len(m) + 0.5])
    every = max(1, -(-len(m) // 16))
    fig.update_xaxes(title_text="K/V tiles seen", tickvals=list(range(1, len(m) + 1, every)), row=3, col=1)
    fig.update_layout(template=theme.template(), height=height, margin={"t": 56})
    return fig
