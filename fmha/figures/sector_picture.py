"""One request of a warp for device memory: the 32-byte sectors that it moves, four to a line of 128 bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import plotly.graph_objects as go

from fmha.figures import theme
from fmha.figures.sketch import Sketch

SECTOR, LINE = 32, 128
_LEAST, _MOST = 0.08, 0.6  # of the colour: from an empty sector to a full one
_AROUND = 1  # lines without a lane that are drawn above and below


@dataclass(frozen=True)
class Sector:
    """A sector that is moved. lanes: who wants a part of it, rising; used: how many of its 32 bytes are wanted."""

    number: int
    lanes: tuple[int, ...]
    used: int


def sectors(at: Sequence[int | None], nbytes: int) -> list[Sector]:
    """The sectors of one request, rising. at: byte addresses, one a lane; None: the lane sits out."""
    lanes: dict[int, list[int]] = {}
    wanted: dict[int, set[int]] = {}
    for lane, address in enumerate(at):
        if address is None:
            continue
        for byte in range(address, address + nbytes):
            number = byte // SECTOR
            wanted.setdefault(number, set()).add(byte)
            if lane not in lanes.setdefault(number, []):
                lanes[number].append(lane)
    return [Sector(number, tuple(lanes[number]), len(wanted[number])) for number in sorted(lanes)]


def sector_picture(moved: Sequence[Sector], role: str = "K") -> go.Figure:
    """Lines of 128 bytes from top to bottom, their four sectors from left to right; a cell says who is in it.

    Args:
        moved: from `sectors`, addresses counted from a multiple of 128 bytes. role: whose colour the sectors have.
    """
    per_line = LINE // SECTOR
    wanted = sorted({sector.number // per_line for sector in moved})
    rows = list(range(wanted[0] - _AROUND, wanted[-1] + 1 + _AROUND)) if wanted and len(wanted) <= 4 else wanted
    rows = [row for row in rows if row >= 0]
    place = {row: index for index, row in enumerate(rows)}
    fig = Sketch("", 110 + 34 * max(len(rows), 1))
    grid: list[list[float | None]] = [[0.0] * per_line for _ in rows]
    for sector in moved:
        grid[place[sector.number // per_line]][sector.number % per_line] = sector.used / SECTOR
    scale = [[0.0, theme.color("skip", _LEAST)], [0.01, theme.color(role, 0.2)], [1.0, theme.color(role, _MOST)]]
    fig.add_heatmap(
        z=grid, x=list(range(per_line)), y=list(range(len(rows))), zmin=0, zmax=1, colorscale=scale, showscale=False,
        xgap=3, ygap=3, hoverinfo="skip",
    )  # fmt: skip
    fig.add_scatter(
        x=[sector.number % per_line for sector in moved],
        y=[place[sector.number // per_line] for sector in moved],
        mode="text",
        text=[_who(sector.lanes) for sector in moved],
        customdata=[[sector.number, sector.used] for sector in moved],
        hovertemplate="sector %{customdata[0]:,}: %{customdata[1]} of 32 bytes wanted<br>%{text}<extra></extra>",
        showlegend=False,
    )
    ticks = list(range(per_line))
    fig.xaxis(
        title="sector of 32 bytes", tickvals=ticks, range=[-0.55, per_line - 0.45], showgrid=False, zeroline=False
    )
    fig.yaxis(
        title="line of 128 bytes", autorange=False, range=[len(rows) - 0.4, -0.6], tickvals=list(range(len(rows))),
        ticktext=[f"{row:,}" for row in rows], showgrid=False, zeroline=False,
    )  # fmt: skip
    fig.update(margin={"t": 12})
    return fig.figure()


def _who(lanes: Sequence[int]) -> str:
    """Lanes in a few letters: "lane 3", "lanes 0-7", "lanes 0, 4, 8 ..."."""
    if len(lanes) == 1:
        return f"lane {lanes[0]}"
    if list(lanes) == list(range(lanes[0], lanes[-1] + 1)):
        return f"lanes {lanes[0]}-{lanes[-1]}"
    return f"lanes {', '.join(map(str, lanes[:3]))}" + (" ..." if len(lanes) > 3 else "")


__all__ = ["Sector", "sector_picture", "sectors"]
