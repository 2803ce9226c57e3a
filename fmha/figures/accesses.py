"""Memory accesses per element of three softmax algorithms."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from fmha.figures import theme
from fmha.figures.sketch import Sketch
from fmha.softmax import SoftmaxRun


def accesses(runs: Sequence[SoftmaxRun], height: int = 260) -> go.Figure:
    """One bar an algorithm: accesses per element, as counted in its loop."""
    fig = Sketch("", height)
    roles = {"naive": "naive", "safe": "kv-outer", "online": "q-outer"}
    for run in runs:
        role = roles[run.name]
        fig.add_bar(
            y=[run.name],
            x=[run.per_element],
            orientation="h",
            text=[f" {run.per_element:g} in {run.passes} passes"],
            textposition="outside",
            cliponaxis=False,
            marker={"color": theme.color(role), "pattern": theme.hatch(theme.PATTERNS[role])},
            showlegend=False,
            hovertemplate=f"{run.name}: {run.what}<extra></extra>",
        )
    fig.update(bargap=0.3, margin={"t": 8})
    fig.yaxis(autorange="reversed")
    fig.xaxis(title="accesses per element", range=[0, 5.6], tickvals=[0, 1, 2, 3, 4])
    return fig.figure()
