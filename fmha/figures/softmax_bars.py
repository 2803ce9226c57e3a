"""From scores to weights: two bar charts side by side, one colour, numbers on the bars."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from fmha.figures import theme


def scores_to_weights(
    names: Sequence[str], scores: Sequence[float], weights: Sequence[float], height: int = 330
) -> go.Figure:
    """Scores (left, any sign) and the weights that softmax makes of them (right, between 0 and 1)."""
    titles = ("scores s", "weights softmax(s)")
    fig = make_subplots(rows=1, cols=2, horizontal_spacing=0.16, subplot_titles=titles)
    for column, values, decimals, opacity in ((1, scores, 2, 0.55), (2, weights, 3, 1.0)):
        fig.add_bar(
            x=list(names),
            y=list(values),
            text=[f"{v:.{decimals}f}" for v in values],
            textposition="outside",
            marker={
                "color": theme.color("S", opacity),
                "line": {"color": theme.color("S"), "width": 2},
                "pattern": {"shape": "/" if column == 1 else ""},
            },
            cliponaxis=False,
            showlegend=False,
            hovertemplate="%{x}: %{y:.4f}<extra></extra>",
            row=1,
            col=column,
        )
    top, low = max(max(scores), 0.0), min(min(scores), 0.0)
    span = (top - low) or 1.0
    fig.update_layout(template=theme.template(), height=height, margin={"t": 48})
    fig.update_yaxes(title_text="score", range=[low - 0.18 * span, top + 0.18 * span], row=1, col=1)
    fig.update_yaxes(title_text="weight", range=[0, 1.14], row=1, col=2)
    fig.update_annotations(font_size=theme.TITLE_SIZE)
    return fig
