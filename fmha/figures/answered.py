"""Who answers the loads of each tensor: the SM's L1, a neighbour's request, L2, or DRAM."""

from __future__ import annotations

import plotly.graph_objects as go

from fmha.figures import theme
from fmha.figures.sketch import Sketch
from fmha.levels import Levels, TensorBytes
from fmha.units import format_bytes

# Name, field of TensorBytes, whose colour, hatch.
ANSWERS: tuple[tuple[str, str, str, str], ...] = (
    ("L1 hit", "l1_hits", "SMEM", ""),
    ("merged with a neighbour's", "merged", "REG", "\\"),
    ("L2 hit", "l2_hits", "L2", ""),
    ("DRAM", "dram_read", "HBM", "/"),
)
_NAMED = 0.07


def answered(levels: Levels) -> go.Figure:
    """A bar a tensor that is read, cut by who answers; all bars are as long as 100 % of its loads."""
    read = {name: part for name, part in levels.by_tensor.items() if part.read > 0}
    rows = {**read, "all": levels.all} if len(read) > 1 else read
    fig = Sketch("", 120 + 44 * len(rows))
    for label, field, role, hatch in ANSWERS:
        shares = [_share(part, field) for part in rows.values()]
        fig.add_bar(
            y=list(rows), x=[100 * share for share in shares], orientation="h", name=label,
            text=[f"{100 * share:.0f} %" if share >= _NAMED else "" for share in shares],
            textposition="inside", insidetextanchor="middle", textangle=0, textfont={"size": 14},
            marker={"color": theme.color(role), "pattern": theme.hatch(hatch), "line": {"width": 0}},
            customdata=[format_bytes(getattr(part, field)) for part in rows.values()],
            hovertemplate="%{y}: %{customdata} (%{x:.1f} %)<extra>" + label + "</extra>",
        )  # fmt: skip
    fig.xaxis(title="% of the bytes that blocks load", range=[0, 100.5])
    fig.yaxis(autorange="reversed", showgrid=False)
    fig.update(barmode="stack", bargap=0.3, margin={"t": 60}, legend={"traceorder": "normal"})
    return fig.figure()


def _share(part: TensorBytes, field: str) -> float:
    return float(getattr(part, field)) / part.read if part.read else 0.0
