"""The tile map: a cell for each Br x Bc, coloured by one number, or the word for what forbids these tiles."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go

from fmha.figures import theme
from fmha.figures.sketch import Sketch
from fmha.tile_designs import Preset
from fmha.tilemap import Cell, Metric, TileMap
from fmha.units import format_bytes, format_time_us

NAMES: dict[Metric, str] = {
    "requested": "requested bytes",
    "l2": "bytes asked of L2",
    "time": "time",
    "occupancy": "occupancy",
    "recorded": "recorded TFLOP/s",
}
_ROLES: dict[Metric, str] = {"requested": "REG", "l2": "L2", "time": "HBM", "occupancy": "SMEM", "recorded": "ok"}
# What stands in a cell that cannot be.
SHORT = {"threads": "threads", "shared memory": "SMEM", "registers": "regs", "divisibility": "÷", "GPU": "GPU"}
BEST, PRESET = "★", "◆"


def shown(cell: Cell, metric: Metric) -> str:
    """The number of a cell with its unit; "" where there is none."""
    value = cell.value(metric)
    if value is None:
        return ""
    if metric in ("requested", "l2"):
        return format_bytes(value)
    if metric == "time":
        return format_time_us(value)
    return f"{100 * value:.0f} %" if metric == "occupancy" else f"{value:.3g}"


def tile_cells(
    drawn: TileMap, metric: Metric, chosen: tuple[int, int], presets: Sequence[Preset] = (), height: int = 560
) -> go.Figure:
    """Br upwards, Bc across; darker is more, the chosen cell is framed, the best one has a star.

    Args:
        chosen: (Br, Bc), framed when it is on the map. presets: tiles that get a mark.
    """
    rows, columns, role = drawn.rows, drawn.columns, _ROLES[metric]
    fig = Sketch("", height)
    flat = [cell for row in drawn.cells for cell in row]
    x, y = (axis.ravel().tolist() for axis in np.meshgrid(np.arange(len(columns)), np.arange(len(rows))))
    numbers = [[_scaled(cell, metric) for cell in row] for row in drawn.cells]
    grid = {"x": list(range(len(columns))), "y": list(range(len(rows))), "xgap": 2, "ygap": 2, "showscale": False}
    clear = theme.color("skip", 0.14)
    fig.add_heatmap(
        z=[[None if cell.runs else 1 for cell in row] for row in drawn.cells], zmin=0, zmax=1,
        colorscale=[[0, clear], [1, clear]], hoverinfo="skip", **grid,
    )  # fmt: skip
    known = [n for row in numbers for n in row if n is not None]
    low, high = min(known, default=0.0), max(known, default=1.0)
    fig.add_heatmap(
        z=numbers, zmin=low, zmax=high if high > low else low + 1, hoverinfo="skip",
        colorscale=[[0.0, theme.color(role, 0.08)], [1.0, theme.color(role, 0.7)]], **grid,
    )  # fmt: skip
    best = drawn.best(metric)
    marked = {(preset.Br, preset.Bc) for preset in presets}
    texts = []
    for cell in flat:
        place = (cell.tiling.Br, cell.tiling.Bc)
        signs = (BEST if cell is best else "") + (PRESET if place in marked else "")
        text = shown(cell, metric).replace(" ", "<br>") if cell.runs else SHORT[cell.need.why_not]
        texts.append("<br>".join(part for part in (signs, text) if part))
    fig.add_scatter(
        x=x, y=y, text=texts, mode="text", textfont={"size": 14}, showlegend=False,
        customdata=[_hover(cell) for cell in flat], hovertemplate="%{customdata}<extra></extra>",
    )  # fmt: skip
    if chosen[0] in rows and chosen[1] in columns:
        i, j = rows.index(chosen[0]), columns.index(chosen[1])
        fig.add_frame(j - 0.5, i - 0.5, j + 0.5, i + 0.5, theme.color("Q"))
    plain = {"showgrid": False, "zeroline": False}
    fig.xaxis(title="Bc, keys in a K/V tile", tickvals=grid["x"], ticktext=[str(c) for c in columns], **plain)
    fig.yaxis(title="Br, rows in a Q tile", tickvals=grid["y"], ticktext=[str(r) for r in rows], **plain)
    fig.update(margin={"t": 12}, hovermode="closest")
    return fig.figure()


def _scaled(cell: Cell, metric: Metric) -> float | None:
    """Where a cell is on the colour scale: bytes and times by their logarithm."""
    value = cell.value(metric)
    if value is None:
        return None
    return math.log2(max(value, 1e-9)) if metric in ("requested", "l2", "time") else value


def _hover(cell: Cell) -> str:
    head = f"Br = {cell.tiling.Br}, Bc = {cell.tiling.Bc}"
    if not cell.runs:
        return f"{head}: cannot be<br>{cell.need.why_not}: {cell.need.sentence}"
    lines = [f"{NAMES[metric]}: {shown(cell, metric)}" for metric in NAMES if shown(cell, metric)]
    return "<br>".join([head, *lines])
