"""One row of scores arriving tile by tile, and the three numbers that are kept: m, l, alpha."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go
from numpy.typing import ArrayLike, NDArray

from fmha.figures import theme
from fmha.figures.sketch import Sketch

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
    fig = Sketch("", height)
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
    edge_line = {"color": theme.GRID, "width": 1.5}
    fig.shapes += [
        {"type": "line", "x0": x - 0.5, "x1": x - 0.5, "y0": 0, "y1": 1, "yref": "y domain", "line": edge_line}
        for x in range(Bc, len(values), Bc)
    ]
    fig.update(barmode="overlay", bargap=0.15, margin={"t": 40})
    if len(values) <= NAMES_LIMIT:
        fig.xaxis(tickvals=index, ticktext=[str(k) for k in index] if names is None else list(names))
        fig.xaxis(tickangle=0 if names is None else -50)
    low, high = np.nanmin(np.append(finite, 0.0)), np.nanmax(np.append(finite, 0.0))
    pad = 0.1 * (high - low or 1.0)
    fig.xaxis(title="key j", showgrid=False, zeroline=False, range=[-0.7, len(values) - 0.3])
    fig.yaxis(title="scaled score", range=[low - pad, high + pad])
    return fig.figure()


def running_state(m: Array, l: Array, alpha: Array, seen: Sequence[int], tile: int, height: int = 520) -> go.Figure:
    """m, l and alpha after each tile, up to the tile that arrives now; later tiles are left empty.

    Args:
        m, l, alpha: [Tc], the row's state after each tile.
        seen: [Tc], keys seen by then, the upper bound of l.
        tile: index of the tile that arrives now.
    """
    steps = np.arange(1, len(m) + 1)
    upto = slice(0, tile + 1)
    bound = {"color": theme.NEUTRAL, "width": 1.5, "dash": "dot"}
    data: list[dict[str, Any]] = [
        {"x": steps, "y": y, "mode": "lines", "line": bound, "name": name, "hoverinfo": "skip", "yaxis": "y2"}
        for y, name in ((np.asarray(seen, np.float64), "most: keys seen"), (np.ones(len(m)), "least: 1"))
    ]
    panels = (("m", m, "max m", "y"), ("l", l, "sum l", "y2"), ("alpha", alpha, "alpha", "y3"))
    for role, values, title, axis in panels:
        data.append(
            {
                "x": steps[upto],
                "y": np.where(np.isfinite(values[upto]), values[upto], np.nan),
                "mode": "lines+markers",
                "name": title,
                "showlegend": False,
                "line": {"color": theme.color(role), "width": 3, "dash": theme.DASHES[role]},
                "marker": {"symbol": theme.SYMBOLS[role], "size": np.where(steps[upto] == tile + 1, 17, 9)},
                "hovertemplate": f"after tile %{{x}}: {role} = %{{y:.4f}}<extra></extra>",
                "yaxis": axis,
            }
        )
    finite = m[np.isfinite(m)]
    pad = 0.15 * (float(np.ptp(finite)) or 1.0) if len(finite) else 1.0
    low, high = (float(finite.min()), float(finite.max())) if len(finite) else (0.0, 0.0)
    top = float(np.max(l, initial=1.0))
    every = max(1, -(-len(m) // 16))
    # Three panels over one x axis, laid out by hand: make_subplots and its updates take ten times as long.
    layout = {
        "template": theme.template(),
        "height": height,
        "margin": {"t": 56},
        "xaxis": {
            "title": {"text": "K/V tiles seen"},
            "range": [0.5, len(m) + 0.5],
            "tickvals": list(range(1, len(m) + 1, every)),
            "anchor": "y3",
        },
        "yaxis": {"title": {"text": "max m"}, "domain": [0.72, 1.0], "range": [low - pad, high + pad]},
        "yaxis2": {"title": {"text": "sum l"}, "domain": [0.36, 0.64], "range": [0, 1.25 * top]},
        "yaxis3": {"title": {"text": "alpha"}, "domain": [0.0, 0.28], "range": [-0.08, 1.15]},
    }
    return go.Figure(data=data, layout=layout)
