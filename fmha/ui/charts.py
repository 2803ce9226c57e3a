"""Plotly figures that change in place.

`st.plotly_chart` builds a changed figure anew: a blank moment, lost zoom, a fifth of a second of work. This component
keeps one node and calls `Plotly.react` on it. It also paints the figure in the page's colours, light or dark.
"""

from __future__ import annotations

import html
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import streamlit as st

from fmha.chart import MENU
from fmha.figures import theme
from fmha.ui import assets

if TYPE_CHECKING:
    import plotly.graph_objects as go

_FOLDER = Path(__file__).resolve().parent.parent / "chart" / "frontend"
_DEFAULT_HEIGHT = 380  # pixels


def show(
    fig: go.Figure, *, key: str, alt: str, height: int | None = None, on_pick: Callable[[], None] | None = None
) -> None:
    """Draw `fig` under the identity `key`, which must be unique on the page and stay the same from run to run.

    alt:    one or two sentences that say what the chart shows, for those who cannot see it; make it say the numbers
            that matter.
    height: in pixels; by default the figure's own.
    on_pick: called before the next run when a point or a cell was clicked; `pick(key)` says which. Give the same choice
            by a control too: a chart cannot be clicked with the keyboard.

    Zoom and hidden traces outlive changes of the data; set `fig.layout.uirevision` to another value to drop them.
    """
    if height is None:
        own: Any = fig.layout.height
        height = int(own) if own else _DEFAULT_HEIGHT
    renderer = assets.component("chart", _FOLDER, html=_html(), js="chart.mjs", css="chart.css", isolate_styles=False)
    events = {} if on_pick is None else {"on_pick_change": on_pick}
    renderer(key=key, data=pack(fig, alt, height, picks=on_pick is not None), height="content", **events)


def pick(key: str) -> tuple[int, int] | None:
    """Column and row of the cell that was clicked in the chart `key`, on axes that count cells; None: not a cell."""
    place: Any = getattr(st.session_state.get(key), "pick", None)
    try:
        return round(place["x"]), round(place["y"])
    except (TypeError, KeyError, ValueError, OverflowError):  # whatever a browser may send
        return None


def pack(fig: go.Figure, alt: str, height: int, picks: bool = False) -> bytes:
    """What the browser gets: JSON as bytes, which Streamlit passes on as they are."""
    head = json.dumps({"alt": alt, "height": height, **({"picks": True} if picks else {})})
    return f'{head[:-1]}, "figure": {fig.to_json(validate=False)}}}'.encode()


def _html() -> str:
    return (
        '<div class="fmha-chart" role="img" aria-label="A chart, about to be drawn" '
        f'data-plotly="{html.escape(assets.plotly_url())}" '
        f'data-swaps="{html.escape(json.dumps(theme.swaps()))}"></div>{MENU}'
    )
