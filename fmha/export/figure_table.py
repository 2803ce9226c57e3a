"""The numbers of a Plotly figure as CSV. The browser's menu writes the same text (`chart/frontend/csv.mjs`; a test
compares the two): here for Python, there so that a chart can be saved without a server.
"""

from __future__ import annotations

import base64
import csv
import io
import math
import re
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import plotly.graph_objects as go

Cell = str
_EXTRA = ("z", "error_x", "error_y", "base", "text")


def figure_csv(fig: go.Figure) -> str:
    """One row for each point or cell of each trace, with a heading.

    Columns: `series` (the trace's name), x and y under the titles of their axes where all traces share them, and where
    a trace has them `z` (a heat map's value, or its name where the layout's `meta["z"]` lists names), `error_x`,
    `error_y`, `base` (of bars) and `text`.
    """
    figure: dict[str, Any] = fig.to_dict()
    layout = figure.get("layout", {})
    traces = [(trace, _points(trace)) for trace in figure.get("data", [])]
    traces = [(trace, points) for trace, points in traces if points]
    used = [name for name in _EXTRA if any(_cell(point.get(name)) for _, points in traces for point in points)]
    names = (layout.get("meta") or {}).get("z")
    x, y = (_heading(axis, [trace for trace, _ in traces], layout) for axis in "xy")
    if x == y:
        x, y = "x", "y"
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(["series", x, y, *used])
    for trace, points in traces:
        name = _plain(trace.get("name") or "")
        for point in points:
            shown = point | {"z": names[int(point["z"])]} if names and "z" in point else point
            writer.writerow([name, *(_cell(shown.get(column)) for column in ("x", "y", *used))])
    return stream.getvalue()


def _points(trace: dict[str, Any]) -> list[dict[str, Any]]:
    """The trace's points; those without any number are left out."""
    z = _grid(trace.get("z"))
    xs, ys, text = _list(trace.get("x")), _list(trace.get("y")), trace.get("text")
    points = []
    if z is not None:
        words = _grid(text)
        for r, row in enumerate(z):
            for c, value in enumerate(row):
                point = {"x": _at(trace, "x", xs, c), "y": _at(trace, "y", ys, r), "z": value}
                if words is not None:
                    point["text"] = words[r][c]
                points.append(point)
        return [point for point in points if _cell(point["z"])]
    columns = {"x": xs, "y": ys, "base": _list(trace.get("base")), "text": _list(text)}
    for name in ("error_x", "error_y"):
        columns[name] = _list((trace.get(name) or {}).get("array"))
    count = max((len(xs or ()), len(ys or ())), default=0)
    for k in range(count):
        point = {name: column[k] for name, column in columns.items() if column is not None and k < len(column)}
        points.append({"x": k if xs is None else None, "y": k if ys is None else None} | point)
    return [point for point in points if _cell(point["x"]) and _cell(point["y"])]


def _at(trace: dict[str, Any], axis: str, places: list[Any] | None, k: int) -> Any:
    """The place of column or row k of a heat map: listed, evenly spaced, or its number."""
    if places and k < len(places):
        return places[k]
    return (trace.get(f"{axis}0") or 0) + k * (trace.get(f"d{axis}") or 1)


def _list(value: Any) -> list[Any] | None:
    """A column of numbers or words; None where there is none."""
    value = _decoded(value)
    if not isinstance(value, list | tuple):
        return None
    if len(value) == 2 and all(isinstance(part, list | tuple) for part in value):  # two levels of names
        return [f"{_cell(a)} / {_cell(b)}" for a, b in zip(*value, strict=False)]
    return list(value)


def _grid(value: Any) -> list[list[Any]] | None:
    value = _decoded(value)
    if isinstance(value, list | tuple) and value and isinstance(value[0], list | tuple):
        return [list(row) for row in value]
    return None


def _decoded(value: Any) -> Any:
    """Lists, also of arrays and of Plotly's form for them: {"dtype", "bdata" (base64), "shape"}."""
    if isinstance(value, dict) and "bdata" in value:
        flat = np.frombuffer(base64.b64decode(value["bdata"]), np.dtype(value["dtype"]).newbyteorder("<"))
        shape = value.get("shape")
        return flat.reshape([int(n) for n in str(shape).split(",")] if shape else [-1]).tolist()
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, list | tuple):
        return [_decoded(item) if isinstance(item, np.ndarray | dict) else item for item in value]
    return value


def _heading(axis: str, traces: list[dict[str, Any]], layout: dict[str, Any]) -> str:
    """The title that all traces' axes have in common, else the axis' letter."""
    titles = set()
    for trace in traces:
        name = f"{axis}axis{str(trace.get(f'{axis}axis') or axis)[1:]}"
        title = layout.get(name, {}).get("title") or ""
        titles.add(_plain(title.get("text") or "" if isinstance(title, dict) else title))
    return titles.pop() if len(titles) == 1 and titles != {""} else axis


def _plain(text: Any) -> str:
    """Text without tags, on one line."""
    bare = re.sub(r"<[^>]*>", " ", str(text)).replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
    return re.sub(r"[ \t\r\n]+", " ", bare).strip(" ")


def _cell(value: Any) -> Cell:
    """A number in the shortest form that gives it back; nothing for what is no number; text without tags."""
    if value is None:
        return ""
    if isinstance(value, bool | np.bool_):
        return "true" if value else "false"
    if isinstance(value, int | float | np.integer | np.floating):
        number = float(value)
        if not math.isfinite(number):
            return ""
        return str(int(number)) if number.is_integer() and abs(number) < 1e16 else repr(number)
    return _plain(value)


__all__ = ["figure_csv"]
