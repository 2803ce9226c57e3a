"""A time-stamped run beside what was predicted: where the time of its workers goes, and how long they last."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from fmha.events import CODE
from fmha.figures import theme
from fmha.figures.gantt import role_of, role_words, time_unit
from fmha.figures.sketch import Sketch

_LEGEND = {"itemclick": False, "itemdoubleclick": False}
_NAMED = 9.0  # percent: a shorter piece has no name in it


def shares_beside(shares: Mapping[str, Mapping[str, float]]) -> go.Figure:
    """A bar for each timeline, cut into phases, each from 0 to 100 % of the time that workers have.

    shares: of each timeline, by the phase's code.
    """
    fig = Sketch("", 90 + 62 * len(shares))
    codes = list(dict.fromkeys(code for one in shares.values() for code in one))
    roles = dict.fromkeys(role_of(CODE[code]) for code in codes)
    words = role_words([CODE[code] for code in codes])
    for role in roles:
        mine = [code for code in codes if role_of(CODE[code]) == role]
        x = [100 * sum(one.get(code, 0.0) for code in mine) for one in shares.values()]
        fig.add_bar(
            orientation="h", y=list(shares), x=x, name=words[role], textposition="inside", textangle=0,
            text=[f"{words[role]} {value:.0f} %" if value >= _NAMED else "" for value in x],
            insidetextanchor="middle", insidetextfont={"size": 13},
            marker={"color": theme.color(role), "line": {"width": 0}},
            hovertemplate=f"{words[role]}: %{{x:.1f}} % (%{{y}})<extra></extra>",
        )  # fmt: skip
    fig.xaxis(title="% of the workers' time", range=[0, 100], zeroline=False)
    fig.yaxis(autorange="reversed", showgrid=False)
    fig.update(barmode="stack", bargap=0.3, showlegend=True, legend={**_LEGEND, "traceorder": "normal"})
    return fig.figure()


def worker_times(lasts: Sequence[tuple[str, NDArray[np.float64]]]) -> go.Figure:
    """How long workers last, one timeline a line: the share of workers that are done after so many microseconds.

    lasts: (name, microseconds of each worker); the first is the measured one and is strong.
    """
    fig = Sketch("", 260)
    scale, unit = time_unit(max(float(times.max()) for _, times in lasts))
    for n, (name, times) in enumerate(lasts):
        ordered = np.sort(times) * scale
        done = 100 * np.arange(1, len(ordered) + 1) / len(ordered)
        fig.add_scatter(
            x=np.concatenate([[ordered[0]], ordered]), y=np.concatenate([[0.0], done]), mode="lines", name=name,
            line={
                "shape": "hv", "width": 3 if n == 0 else 2, "dash": "solid" if n == 0 else "6px,4px",
                "color": theme.color("q-outer") if n == 0 else theme.NEUTRAL,
            },
            hovertemplate=f"{name}: %{{y:.0f}} % of workers last %{{x:,.4~g}} {unit} or less<extra></extra>",
        )  # fmt: skip
    every = np.concatenate([times for _, times in lasts]) * scale
    low, high = float(every.min()), float(every.max())
    if low < 0.5 * high:
        span = [0.0, 1.04 * high]
    else:  # of workers that last nearly as long as one another, the difference is what is to be seen
        room = max(high - low, 0.01 * high)
        span = [low - 0.25 * room, high + 0.25 * room]
    fig.xaxis(title=f"time of a worker, {unit}", range=span, zeroline=False, tickformat=",")
    fig.yaxis(title="% of workers", range=[0, 103], zeroline=False)
    fig.update(showlegend=True, legend=_LEGEND)
    return fig.figure()
