"""From scores to weights: two bar charts side by side, one colour, numbers on the bars."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from fmha.figures import theme


def scores_to_weights(
    names: Sequence[str], scores: Sequence[float], weights: Sequence[float], height: int = 330
) -> go.Figure:
    """Scores (left, any sign) and the weights that softmax makes of them (right, between 0 and 1)."""
    top, low = max(max(scores), 0.0), min(min(scores), 0.0)
    span = (top - low) or 1.0
    panels = ((scores, 2, 0.55, "/", "x", "y"), (weights, 3, 1.0, "", "x2", "y2"))
    data = [
        {
            "type": "bar",
            "x": list(names),
            "y": list(values),
            "text": [f"{v:.{decimals}f}" for v in values],
            "textposition": "outside",
            "marker": {
                "color": theme.color("S", opacity),
                "line": {"color": theme.color("S"), "width": 2},
                "pattern": {"shape": pattern},
            },
            "cliponaxis": False,
            "showlegend": False,
            "hovertemplate": "%{x}: %{y:.4f}<extra></extra>",
            "xaxis": x,
            "yaxis": y,
        }
        for values, decimals, opacity, pattern, x, y in panels
    ]
    heading = {"showarrow": False, "xref": "paper", "yref": "paper", "y": 1.0, "yanchor": "bottom", "yshift": 6}
    size, small = {"size": theme.TITLE_SIZE}, {"size": 14}
    layout = {
        "template": theme.template(),
        "height": height,
        "margin": {"t": 48},
        "xaxis": {"domain": [0.0, 0.42]},
        "xaxis2": {"domain": [0.58, 1.0], "anchor": "y2"},
        "yaxis": {"title": {"text": "score"}, "range": [low - 0.18 * span, top + 0.18 * span]},
        "yaxis2": {"title": {"text": "weight"}, "range": [0, 1.14], "anchor": "x2"},
        "annotations": [
            {"text": "scores s", "x": 0.21, "font": size, **heading},
            {"text": "weights softmax(s)", "x": 0.79, "font": size, **heading},
        ],
        "meta": {"narrow": {"annotations": {"0": {"font": small}, "1": {"text": "softmax(s)", "font": small}}}},
    }
    return go.Figure(data=data, layout=layout)
