"""Where exp overflows: fp16 and fp32, computed in those types."""

from __future__ import annotations

import functools
import math

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from fmha.figures import theme
from fmha.figures.sketch import Sketch

Array = NDArray[np.float64]


@functools.lru_cache(maxsize=4)
def last_finite(dtype: type[np.floating]) -> float:
    """The largest x, to 0.01, whose exp is finite in `dtype`."""
    x = np.arange(0.0, 200.0, 0.01)
    with np.errstate(over="ignore"):
        return float(x[np.isfinite(np.exp(x.astype(dtype)))].max())


def overflow(top_score: float, height: int = 380) -> go.Figure:
    """log10(exp x) against x in fp16 and fp32 up to the last finite value, and where the row's top score lies."""
    fig = Sketch("", height)
    for dtype, name, role, dash in (
        (np.float16, "fp16", "warn", "solid"),
        (np.float32, "fp32", "ok", "dash"),
    ):
        end = last_finite(dtype)
        x = np.linspace(0, end, 60)
        with np.errstate(over="ignore"):
            y = np.exp(x.astype(dtype)).astype(np.float64)
        y = np.where(np.isfinite(y), y, np.nan)
        fig.add_scatter(
            x=x,
            y=y,
            mode="lines",
            name=name,
            line={"color": theme.color(role), "width": 4, "dash": dash},
            hovertemplate=f"{name}: exp(%{{x:.1f}}) = %{{y:.3g}}<extra></extra>",
        )
        fig.add_scatter(
            x=[end],
            y=[float(np.nanmax(y))],
            mode="markers",
            marker={"symbol": "x", "size": 14, "color": theme.color(role)},
            showlegend=False,
            hoverinfo="skip",
        )
        right = end < 50
        fig.add_annotation(
            x=end,
            y=math.log10(float(np.nanmax(y))),
            text=f"{name}: inf beyond {end:.2f}",
            ax=70 if right else -40,
            ay=-150 if right else -26,
            xanchor="left" if right else "right",
            arrowcolor=theme.color(role),
            arrowwidth=2,
        )
    fig.add_vline(x=top_score, line={"color": theme.color("m"), "width": 3, "dash": "dot"})
    fig.add_annotation(
        x=top_score,
        y=0.02,
        yref="paper",
        text=f" top score {top_score:.4g} ",
        showarrow=False,
        xanchor="left" if top_score < 60 else "right",
        yanchor="bottom",
        font={"color": theme.color("m")},
    )
    fig.update(margin={"t": 40})
    fig.xaxis(title="score x", range=[0, max(100.0, 1.05 * top_score)])
    fig.yaxis(title="exp(x)", type="log", range=[-0.5, 46], dtick=10, exponentformat="power")
    return fig.figure()
