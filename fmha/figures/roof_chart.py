"""The roofline as a chart: a slope for each memory level, a ceiling for each arithmetic peak, kernels under them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import Any, NamedTuple

import plotly.graph_objects as go

from fmha.figures import theme
from fmha.figures.memory_levels import format_speed
from fmha.figures.sketch import Sketch
from fmha.roofline import LEVELS, Roof

LEVEL_DASHES = {"SMEM": "dash", "L2": "dashdot", "HBM": "solid"}
LEVEL_SYMBOLS = {"SMEM": "square", "L2": "diamond", "HBM": "circle"}
_LABEL_GAP = 0.062  # of the height, between two labels
_LEFT, _RIGHT = 0.8, 1.3  # decades beside the outermost points, for names
_MANY, _COLUMN, _WIDE = 4, 0.35, 2.9  # with more measured kernels their names stand in a column, so many decades beside
_TALL, _COLUMN_GAP = 720, 0.041
_PLOT, _LETTER = 290, 6.9  # pixels of the plot and of a letter where a column is narrow: a phone's
_SIGNS = {"SMEM": "■", "L2": "◆", "HBM": "●"}


class Mark(NamedTuple):
    """One kernel in the chart: a point at each level, all at one height, joined by a line.

    intensity: FLOPs a byte by level; the key "" is for an implementation whose bytes were not counted. tflops: its
    height. measured: filled points; otherwise hollow ones.
    """

    label: str
    intensity: dict[str, float]
    tflops: float
    measured: bool


def roof_chart(
    roofs: Sequence[Roof], marks: Sequence[Mark], used: Sequence[str], *, title: str = "", height: int = 600,
    path: Sequence[tuple[int, int]] = (), chosen: int | None = None,
) -> go.Figure:  # fmt: skip
    """TFLOP/s against FLOPs a byte, both logarithmic.

    Args:
        roofs: bandwidths and peaks, from `fmha.roofline.roofs`.
        used: dtypes of the kernels that are drawn: their peaks are drawn strongly, the others thin.
        path: pairs of marks, by index, that an arrow leads from and to; for marks of one level. chosen: the index of
            the mark that gets a ring.
    """
    many = not path and sum(mark.measured and "" not in mark.intensity for mark in marks) > _MANY
    height = max(height, _TALL) if many else height
    fig = Sketch(title, height)
    across = [x for mark in marks for x in mark.intensity.values() if x > 0] or [1.0]
    peaks = [roof for roof in roofs if not roof.is_memory]
    slopes = [roof for roof in roofs if roof.is_memory]
    top = max([*(roof.rate for roof in peaks), *(mark.tflops for mark in marks)], default=1.0)
    ridges = [top * 1e3 / roof.rate for roof in slopes]
    low, high = math.log10(min(across)) - _LEFT, math.log10(max(*across, *ridges)) + (_WIDE if many else _RIGHT)
    bottom = math.log10(min([mark.tflops for mark in marks], default=top / 100)) - 0.55
    ceiling = math.log10(top) + 0.45
    first, last = min(map(math.log10, across)), max(map(math.log10, [*across, *ridges]))
    left, right = _narrow_range(marks, first, last, many, bool(path))
    for roof in slopes:
        _slope(fig, roof, low, bottom, top)
    for roof in _merged(peaks):
        _ceiling(fig, roof, slopes, high, max(high, right), any(name in used for name in roof.level.split(", ")))
        fig.narrowly("annotations", x=0, xref="paper", xanchor="left", xshift=2)  # names stand at the right edge
    for mark in marks:
        _joined(fig, mark)
    _path(fig, marks, path)
    _levels(fig, marks)
    if chosen is not None:
        _ring(fig, marks[chosen])
    if many:
        _column(fig, [mark for mark in marks if mark.measured], ceiling - bottom)
        _labels(fig, [mark for mark in marks if not mark.measured], ceiling - bottom, height - 150)
    elif path:
        _beside(fig, marks, ceiling - bottom, height - 150)
    else:
        _labels(fig, marks, ceiling - bottom, height - 150)
    fig.narrow["xaxis"] = _decades(first - 0.5, last + 0.5) | {"range": [left, right]}
    fig.xaxis(**_decades(low, high), title="intensity: FLOPs for each byte moved at the level")
    fig.yaxis(**_decades(bottom, ceiling), title="TFLOP/s")
    fig.update(margin={"t": 120 if title else 84, "r": 12})
    return fig.figure()


def _merged(peaks: Sequence[Roof]) -> list[Roof]:
    """Peaks of equal height as one: "fp16, bf16"."""
    heights: dict[float, list[str]] = {}
    for roof in peaks:
        heights.setdefault(roof.rate, []).append(roof.level)
    return [Roof(", ".join(names), rate) for rate, names in heights.items()]


def _slope(fig: Sketch, roof: Roof, low: float, bottom: float, top: float) -> None:
    """A bandwidth: from where it enters the picture to the highest peak."""
    start = max(10**low, 10**bottom * 1e3 / roof.rate)
    end = top * 1e3 / roof.rate
    fig.add_scatter(
        x=[start, end],
        y=[roof.tflops(start), roof.tflops(end)],
        name=f"{_SIGNS[roof.level]} {roof.level} {format_speed(roof.rate)}",
        mode="lines",
        line={"color": theme.color(roof.level), "width": 4, "dash": LEVEL_DASHES[roof.level]},
        hovertemplate=f"{roof.level}: %{{x:,.3r}} FLOPs a byte allow %{{y:,.3r}} TFLOP/s<extra></extra>",
    )
    fig.add_label(
        math.log10(end), math.log10(top), _SIGNS[roof.level], yanchor="bottom",
        font={"color": theme.color(roof.level), "size": 20},
    )  # fmt: skip


def _ceiling(fig: Sketch, roof: Roof, slopes: Sequence[Roof], high: float, end: float, strong: bool) -> None:
    """An arithmetic peak, from the steepest slope to `end`; its name stands at the right edge, `high`."""
    start = min((roof.rate * 1e3 / slope.rate for slope in slopes), default=1.0)
    fig.add_shape(
        type="line", x0=start, x1=10**end, y0=roof.rate, y1=roof.rate,
        line={
            "color": theme.color("REG", 1.0 if strong else 0.5), "width": 4 if strong else 1.5,
            "dash": "solid" if strong else "dot",
        },
    )  # fmt: skip
    text = f"{roof.level}: {roof.rate:,.4g} TFLOP/s"
    fig.add_label(
        high, math.log10(roof.rate), f"<b>{text}</b>" if strong else text, xanchor="right", yanchor="bottom",
        font={"color": theme.color("REG")}, xshift=-2,
    )  # fmt: skip
    short = text.removesuffix(" TFLOP/s")
    fig.narrowly("annotations", text=f"<b>{short}</b>" if strong else short)


def _narrow_range(marks: Sequence[Mark], first: float, last: float, many: bool, is_path: bool) -> tuple[float, float]:
    """The x axis where the plot is narrow: room in pixels for the names on both sides, the points and ridges, from
    first to last, in between."""
    on_the_right = [m for m in marks if is_path or (many and m.measured)]
    left, right = (
        max((len(_short(m, is_path)) for m in side), default=0)
        for side in ([m for m in marks if m not in on_the_right], on_the_right)
    )
    beside = [count * _LETTER + 30 for count in (left, right)]
    decade = max(20.0, (_PLOT - sum(beside)) / max(1.0, last - first))
    return first - beside[0] / decade, last + beside[1] / decade


def _short(mark: Mark, is_path: bool) -> str:
    """The name where there is little room: without tiles; on a path the number alone."""
    return mark.label.split(" " if is_path else ",")[0]


def _joined(fig: Sketch, mark: Mark) -> None:
    """The line that joins the points of one kernel."""
    xs = sorted(mark.intensity.values())
    if len(xs) > 1:
        fig.add_shape(
            type="line", x0=xs[0], x1=xs[-1], y0=mark.tflops, y1=mark.tflops,
            line={"color": theme.NEUTRAL, "width": 2, "dash": "solid" if mark.measured else "dot"},
        )  # fmt: skip


def _levels(fig: Sketch, marks: Sequence[Mark]) -> None:
    """The points, level by level: colour and shape say the level; filled is measured, hollow predicted."""
    for level in (*LEVELS, ""):
        here = [mark for mark in marks if level in mark.intensity]
        if not here:
            continue
        color = theme.color(level) if level else theme.color("naive")
        symbol = LEVEL_SYMBOLS.get(level, "triangle-left")
        fig.add_scatter(
            x=[mark.intensity[level] for mark in here],
            y=[mark.tflops for mark in here],
            name=f"at {level}" if level else "a library, bytes not counted",
            mode="markers",
            showlegend=bool(not level),
            marker={
                "symbol": [symbol if mark.measured else f"{symbol}-open" for mark in here],
                "size": 15 if level else 13,
                "color": color,
                "line": {"width": 3, "color": color},
            },
            customdata=[[escape(mark.label, quote=False), level or "compulsory bytes"] for mark in here],
            hovertemplate="%{customdata[0]}, %{customdata[1]}: %{x:,.3r} FLOPs a byte, %{y:,.3r} TFLOP/s"
            "<extra></extra>",
        )


def _path(fig: Sketch, marks: Sequence[Mark], path: Sequence[tuple[int, int]]) -> None:
    """Arrows from mark to mark."""
    for start, end in path:
        (x0, y0), (x1, y1) = ((next(iter(m.intensity.values())), m.tflops) for m in (marks[start], marks[end]))
        fig.add_annotation(
            x=math.log10(x1), y=math.log10(y1), ax=math.log10(x0), ay=math.log10(y0), axref="x", ayref="y", text="",
            showarrow=True, arrowhead=2, arrowsize=1.2, arrowwidth=2, arrowcolor=theme.NEUTRAL, standoff=9,
            startstandoff=9,
        )  # fmt: skip


def _ring(fig: Sketch, mark: Mark) -> None:
    """A ring around a mark's points."""
    xs = list(mark.intensity.values())
    fig.add_scatter(
        x=xs, y=[mark.tflops] * len(xs), mode="markers", showlegend=False, hoverinfo="skip",
        marker={"symbol": "circle-open", "size": 28, "color": theme.color("O"), "line": {"width": 3}},
    )  # fmt: skip


def _beside(fig: Sketch, marks: Sequence[Mark], decades: float, pixels: int) -> None:
    """Names along a path, each to the right of its point and a little lower, where the path does not go."""
    ordered = sorted(marks, key=lambda m: m.tflops)
    heights = spread([math.log10(m.tflops) for m in ordered], _LABEL_GAP * decades)
    for mark, at in zip(ordered, heights, strict=True):
        lower = (math.log10(mark.tflops) - at) / decades * pixels
        fig.add_annotation(
            x=math.log10(max(mark.intensity.values())), y=math.log10(mark.tflops), ax=36, ay=lower + 14,
            text=f"<b>{escape(mark.label, quote=False)}</b>", xanchor="left", showarrow=True, arrowhead=0, arrowwidth=1,
            arrowcolor=theme.NEUTRAL, standoff=9,
        )  # fmt: skip
        fig.narrowly("annotations", text=f"<b>{escape(_short(mark, True), quote=False)}</b>", ax=24)


def _labels(fig: Sketch, marks: Sequence[Mark], decades: float, pixels: int) -> None:
    """Names, none over another: left of predicted kernels and of libraries, below the row of measured kernels.

    decades, pixels: the height of the plot in both.
    """
    gap = _LABEL_GAP * decades
    below = [m for m in marks if m.measured and "" not in m.intensity]
    for side in ([m for m in marks if not m.measured], [m for m in marks if "" in m.intensity], below):
        ordered = sorted(side, key=lambda m: m.tflops)
        heights = spread([math.log10(m.tflops) for m in ordered], gap)
        for mark, at in zip(ordered, heights, strict=True):
            xs, moved = mark.intensity.values(), (math.log10(mark.tflops) - at) / decades * pixels
            fig.add_annotation(
                x=math.log10(max(xs) if side is below else min(xs)),
                y=math.log10(mark.tflops),
                text=f"<b>{escape(mark.label, quote=False)}</b>",
                ax=0 if side is below else -30,
                ay=moved + (22 if side is below else 0),
                xanchor="right",
                showarrow=True,
                arrowhead=0,
                arrowwidth=1.5 if side is not below else 0.1,
                arrowcolor=theme.NEUTRAL if side is not below else "rgba(0,0,0,0)",
                standoff=9,
            )
            fig.narrowly("annotations", text=f"<b>{escape(_short(mark, False), quote=False)}</b>")


def _column(fig: Sketch, marks: Sequence[Mark], decades: float) -> None:
    """Names of measured kernels and libraries in a column to the right of all of them, each with a line to its row."""
    ordered = sorted(marks, key=lambda m: m.tflops)
    place = math.log10(max(x for mark in marks for x in mark.intensity.values())) + _COLUMN
    for mark, at in zip(ordered, spread([math.log10(m.tflops) for m in ordered], _COLUMN_GAP * decades), strict=True):
        fig.add_annotation(
            x=math.log10(max(mark.intensity.values())), y=math.log10(mark.tflops),
            ax=place, ay=at, axref="x", ayref="y",
            text=f"<b>{escape(mark.label, quote=False)}</b>", xanchor="left", showarrow=True, arrowhead=0, arrowwidth=1,
            arrowcolor=theme.NEUTRAL, standoff=9,
        )  # fmt: skip
        fig.narrowly("annotations", text=f"<b>{escape(_short(mark, False), quote=False)}</b>")


def spread(heights: Sequence[float], gap: float) -> list[float]:
    """Ascending heights moved as little as it takes to be `gap` apart: groups that touch share their middle."""
    groups: list[list[float]] = []  # [sum of heights, count]
    for height in heights:
        groups.append([height, 1])
        while len(groups) > 1:
            below, above = groups[-2], groups[-1]
            end = below[0] / below[1] + gap * (below[1] - 1) / 2
            begin = above[0] / above[1] - gap * (above[1] - 1) / 2
            if begin - end >= gap:
                break
            groups[-2:] = [[below[0] + above[0], below[1] + above[1]]]
    return [total / count + gap * (k - (count - 1) / 2) for total, count in groups for k in range(int(count))]


def _decades(low: float, high: float) -> dict[str, Any]:
    """A logarithmic axis with a tick at each power of ten, in plain numbers."""
    exponents = range(math.ceil(low), math.floor(high) + 1)
    return {
        "type": "log",
        "range": [low, high],
        "tickvals": [10.0**e for e in exponents],
        "ticktext": [f"{10**e:,}" if e >= 0 else f"{10.0**e:.{-e}f}" for e in exponents],
    }


__all__ = ["LEVEL_DASHES", "LEVEL_SYMBOLS", "Mark", "roof_chart", "spread"]
