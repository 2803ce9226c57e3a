"""One access of a warp drawn on the 32 banks: which lanes get which bank's word in which wavefront."""

from __future__ import annotations

import plotly.graph_objects as go

from fmha.banks import BANKS, BankPicture
from fmha.figures import theme
from fmha.figures.sketch import Sketch

_LIGHT, _CHOSEN = 0.25, 0.6  # of the colour: what stands on it must stay readable on both grounds


def _lanes(lanes: list[int]) -> str:
    """Lanes for a cell: "4" for one, "32x" for many."""
    return str(lanes[0]) if len(lanes) == 1 else f"{len(lanes)}x"


def _shade(chosen: bool) -> float:
    return 1.0 if chosen else 0.0


def bank_picture(drawn: BankPicture, turn: int = 0, *, role: str = "K", height: int | None = None) -> go.Figure:
    """Banks from left to right, wavefronts from top to bottom; a cell is a word that a bank delivers, with its lanes.

    Args:
        turn: the wavefront that is framed. role: whose colour the words have.
    """
    turns = max(drawn.wavefronts, 1)
    fig = Sketch("", height or 150 + 17 * turns)
    cells = {(k, bank): lanes for k in range(drawn.wavefronts) for bank, lanes in drawn.lanes_in(k).items()}
    scale = [[0.0, theme.color(role, _LIGHT)], [1.0, theme.color(role, _CHOSEN)]]
    fig.add_heatmap(
        z=[[_shade(k == turn) if (k, bank) in cells else None for bank in range(BANKS)] for k in range(turns)],
        x=list(range(BANKS)), y=list(range(turns)), zmin=0, zmax=1, colorscale=scale, showscale=False,
        xgap=1, ygap=1, hoverinfo="skip",
    )  # fmt: skip
    fig.add_scatter(
        x=[bank for _, bank in cells],
        y=[k for k, _ in cells],
        mode="text",
        text=[_lanes(lanes) if turns <= BANKS else "" for lanes in cells.values()],
        textfont={"size": 14 if all(len(lanes) == 1 for lanes in cells.values()) else 11},
        customdata=[", ".join(map(str, lanes)) for lanes in cells.values()],
        hovertemplate="bank %{x}, wavefront %{y}<br>lanes %{customdata}<extra></extra>",
        showlegend=False,
    )
    if drawn.wavefronts:
        fig.add_frame(-0.5, turn - 0.5, BANKS - 0.5, turn + 0.5, theme.color("warn" if turns > drawn.least else "ok"))
    fig.xaxis(
        title="bank", tickvals=list(range(0, BANKS, 4)), range=[-0.6, BANKS - 0.4], showgrid=False, zeroline=False
    )
    step = 1 if turns <= 8 else 4
    fig.yaxis(
        title="wavefront", autorange=False, range=[turns - 0.4, -0.6], tickvals=list(range(0, turns, step)),
        showgrid=False, zeroline=False,
    )  # fmt: skip
    fig.update(margin={"t": 12})
    return fig.figure()
