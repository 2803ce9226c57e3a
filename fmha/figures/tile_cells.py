"""The tile map: a cell for each Br x Bc, coloured by one number, or the word for what forbids these tiles."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from fmha.figures.tile_map import MapCell
from fmha.figures.tile_map import tile_map as figure
from fmha.problem import Tiling
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
SHORT = {"threads": "thr.", "shared memory": "SMEM", "registers": "regs", "divisibility": "÷", "GPU": "GPU"}
BEST = "★"


def shown(cell: Cell, metric: Metric) -> str:
    """The number of a cell with its unit; "" where there is none."""
    value = cell.value(metric)
    if value is None:
        return ""
    if metric in ("requested", "l2"):
        return format_bytes(value)
    if metric == "time":
        return format_time_us(value)
    return f"{100 * value:.0f}\N{NO-BREAK SPACE}%" if metric == "occupancy" else f"{value:.3g}"


def tile_cells(
    drawn: TileMap, metric: Metric, chosen: tuple[int, int], presets: Sequence[Preset] = (), height: int = 560
) -> go.Figure:
    """The map of one number; the chosen cell is framed, the best one has a star, presets have their name.

    Args:
        chosen: (Br, Bc), framed when it is on the map. presets: tiles that somebody chose.
    """
    best = drawn.best(metric)
    names = {(p.Br, p.Bc): initials(p.name) for p in presets}

    def signs(cell: Cell) -> list[str]:
        name = names.get((cell.tiling.Br, cell.tiling.Bc))
        both = ([BEST] if cell is best else []) + ([f"<b>{name}</b>"] if name else [])
        return [" ".join(both)] if both else []

    cells = [
        [
            MapCell(
                cell.value(metric),
                "<br>".join([*signs(cell), *shown(cell, metric).split(" ")]),
                _hover(cell),
                "" if cell.runs else "<br>".join([*signs(cell), SHORT[cell.need.why_not]]),
            )
            for cell in row
        ]
        for row in drawn.cells
    ]
    return figure(
        drawn.rows, drawn.columns, cells, role=_ROLES[metric], logarithmic=metric in ("requested", "l2", "time"),
        chosen=Tiling(*chosen), height=height,
    )  # fmt: skip


def initials(name: str) -> str:
    """For a cell: "FA-2"."""
    return name.replace("FlashAttention-", "FA-")


def _hover(cell: Cell) -> str:
    head = f"Br = {cell.tiling.Br}, Bc = {cell.tiling.Bc}"
    if not cell.runs:
        return f"{head}: cannot be<br>{cell.need.why_not}: {cell.need.sentence}"
    lines = [f"{NAMES[metric]}: {shown(cell, metric)}" for metric in NAMES if shown(cell, metric)]
    return "<br>".join([head, *lines])
