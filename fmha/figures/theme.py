"""Every colour of FMHA Lab, defined once, and the Plotly template that all figures share.

A role is a thing that keeps its colour on every page and in the player: a tensor (Q, K, V, S/P, O), a
running statistic (m, l, alpha), a memory level (HBM, L2, SMEM, REG), an algorithm (naive, q-outer,
kv-outer) or a state. The light palette is used inside figures: each of its colours has a contrast of at
least 3:1 on a white page *and* on a dark one (checked by tests/figures/test_theme.py), so a figure needs no
second version. The dark palette is the same hues, brighter; whoever paints on a dark ground and knows it
(the player, the chart component) may use it. Colours are never the only cue: DASHES and SYMBOLS go with
them.

Paper, grid and text colours are left to the chart component, which reads them from the page's theme;
NEUTRAL is the fall-back that is readable on both grounds.
"""

from __future__ import annotations

import functools
import json
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import plotly.graph_objects as go

Mode = Literal["light", "dark"]

ROLES: dict[str, str] = {
    "Q": "queries",
    "K": "keys",
    "V": "values",
    "S": "scores S and weights P",
    "O": "output",
    "m": "running row maximum",
    "l": "running row sum",
    "alpha": "rescale factor",
    "HBM": "device memory",
    "L2": "L2 cache",
    "SMEM": "shared memory of an SM",
    "REG": "registers",
    "naive": "naive attention, three kernels",
    "q-outer": "flash, Q tiles outside",
    "kv-outer": "flash, K/V tiles outside",
    "skip": "skipped or absent",
    "ok": "fits, right",
    "warn": "does not fit, wrong",
}

PALETTE: dict[Mode, dict[str, str]] = {
    "light": {
        "Q": "#2b8eea",
        "K": "#d5770f",
        "V": "#0f7843",
        "S": "#8536e2",
        "O": "#e5299b",
        "m": "#c23254",
        "l": "#1b95cf",
        "alpha": "#6f8c1a",
        "HBM": "#5f6b7c",
        "L2": "#5d94d7",
        "SMEM": "#b0860f",
        "REG": "#a02bd6",
        "naive": "#61676f",
        "q-outer": "#b0830f",
        "kv-outer": "#0f9aa6",
        "skip": "#878d97",
        "ok": "#22915e",
        "warn": "#cf4327",
    },
    "dark": {
        "Q": "#9cc4ff",
        "K": "#e08f2d",
        "V": "#46dd8f",
        "S": "#b377f7",
        "O": "#f04ba0",
        "m": "#f0666e",
        "l": "#35bdf0",
        "alpha": "#b9d94a",
        "HBM": "#8592a6",
        "L2": "#b0d5f7",
        "SMEM": "#ecb85f",
        "REG": "#cf5fe0",
        "naive": "#8b9199",
        "q-outer": "#e6b94f",
        "kv-outer": "#2fe0ea",
        "skip": "#7b8390",
        "ok": "#55cb95",
        "warn": "#ff7a5c",
    },
}

NEUTRAL = "#727a86"
GRID = "rgba(128,136,150,0.25)"
FONT_SIZE = 15
TITLE_SIZE = 18

DASHES: dict[str, str] = {
    "naive": "dash",
    "q-outer": "solid",
    "kv-outer": "dashdot",
    "m": "solid",
    "l": "dash",
    "alpha": "dot",
    "compulsory": "dot",
    "theorem2": "longdash",
}
SYMBOLS: dict[str, str] = {
    "naive": "square",
    "q-outer": "circle",
    "kv-outer": "diamond",
    "m": "triangle-up",
    "l": "circle",
    "alpha": "diamond",
}
PATTERNS: dict[str, str] = {"naive": "/", "q-outer": "", "kv-outer": ".", "S": "/", "skip": "x", "warn": "x"}


def palette(mode: Mode = "light") -> dict[str, str]:
    """A copy of the role -> "#rrggbb" table of one mode."""
    return dict(PALETTE[mode])


def color(role: str, opacity: float = 1.0) -> str:
    """The colour of a role inside a figure, readable on both grounds; with an opacity below 1 as
    rgba(...)."""
    value = PALETTE["light"][role]
    if opacity >= 1.0:
        return value
    red, green, blue = (int(value[k : k + 2], 16) for k in (1, 3, 5))
    return f"rgba({red},{green},{blue},{opacity:g})"


def hatch(shape: str) -> dict[str, object]:
    """A bar pattern drawn over the bar's own colour; an empty shape is a plain bar."""
    return {"shape": shape, "fillmode": "overlay", "fgcolor": "#ffffff", "fgopacity": 0.3, "size": 9}


def fade(role: str) -> list[list[float | str]]:
    """A colour scale from nearly clear to the full colour: it works on a light and on a dark ground."""
    return [[0.0, color(role, 0.04)], [0.5, color(role, 0.45)], [1.0, color(role)]]


def diverging(low: str, high: str) -> list[list[float | str]]:
    """A colour scale from one role's colour through clear to another's, for signed values around 0."""
    return [[0.0, color(low)], [0.5, "rgba(128,128,128,0.04)"], [1.0, color(high)]]


def swaps() -> dict[str, str]:
    """Light colour -> dark colour, for a component that repaints a finished figure on a dark ground."""
    return {PALETTE["light"][role]: PALETTE["dark"][role] for role in ROLES}


def as_json() -> str:
    """Roles and both palettes as JSON, for the player and the chart component."""
    return json.dumps({"roles": ROLES, **PALETTE, "swaps": swaps()}, sort_keys=True)


@functools.lru_cache(maxsize=1)
def template() -> go.layout.Template:
    """The template of every figure: sizes for a lecture hall, clear grounds, role colours in a fixed order.

    `Sketch.figure` sets it on each figure, because importing streamlit replaces Plotly's default template by
    placeholder colours.
    """
    import plotly.graph_objects as go  # here: the player takes its colours from this file, and needs no Plotly

    axis = {
        "gridcolor": GRID,
        "zerolinecolor": GRID,
        "linecolor": GRID,
        "automargin": True,
        "title": {"standoff": 8, "font": {"size": FONT_SIZE}},
        "tickfont": {"size": FONT_SIZE - 1},
    }
    order = ("Q", "K", "V", "S", "O", "l", "m", "alpha", "HBM")
    return go.layout.Template(
        layout={
            "font": {"size": FONT_SIZE, "color": NEUTRAL},
            "title": {"font": {"size": TITLE_SIZE}, "x": 0.0, "xanchor": "left", "xref": "paper"},
            "paper_bgcolor": "rgba(0,0,0,0)",
            "plot_bgcolor": "rgba(0,0,0,0)",
            "colorway": [color(role) for role in order],
            "xaxis": axis,
            "yaxis": axis,
            "legend": {
                "orientation": "h",
                "x": 0.0,
                "y": 1.0,
                "yanchor": "bottom",
                "font": {"size": FONT_SIZE},
            },
            "hoverlabel": {"font": {"size": FONT_SIZE}},
            "margin": {"l": 8, "r": 8, "t": 64, "b": 8},
            "colorscale": {"sequential": fade("S")},
        }
    )
