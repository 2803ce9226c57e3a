"""Figures of the four levels: their traces are the numbers that they were given, and a browser can read them."""

from __future__ import annotations

import json
import math
from typing import Any

import plotly.graph_objects as go
import pytest

from fmha.bank_kernels import smem_use
from fmha.banks import BANKS, picture
from fmha.figures.bank_picture import bank_picture
from fmha.figures.levels_vs_n import levels_vs_n
from fmha.figures.tile_map import MapCell, tile_map
from fmha.kernels import KERNELS
from fmha.problem import Problem, Tiling
from fmha.traffic import closed_form, compulsory_bytes


def check(fig: go.Figure) -> dict[str, Any]:
    """The figure as JSON that a browser can read: no NaN, no infinity, lettering of at least 14 px, named axes."""

    def refuse(word: str) -> None:
        raise AssertionError(f"{word} in a figure's JSON")

    data: dict[str, Any] = json.loads(fig.to_json(), parse_constant=refuse)
    assert fig.layout.height and fig.layout.xaxis.title.text and fig.layout.yaxis.title.text
    for trace in fig.data:
        if trace.type == "scatter" and trace.textfont.size is not None:
            assert trace.textfont.size >= 14
    return data


# --- banks ------------------------------------------------------------------------------------------------------------


def cells_of(fig: go.Figure) -> set[tuple[int, int]]:
    """(wavefront, bank) of the cells that are drawn."""
    z = fig.data[0].z
    return {(k, bank) for k in range(len(z)) for bank in range(BANKS) if z[k][bank] is not None}


def test_a_32_way_conflict_is_a_column_and_its_cure_a_row() -> None:
    use = {pad: smem_use(KERNELS["02"], Problem(N=128, d=64), Tiling(32, 32), pad=pad) for pad in (0, 1)}
    kj = {pad: next(s for s in u.sites if s.text == "Kj[s_col * d + k]") for pad, u in use.items()}
    conflict, cured = (bank_picture(picture(kj[pad].example), turn) for pad, turn in ((0, 5), (1, 0)))
    for fig in (conflict, cured):
        check(fig)
    assert {k for k, _ in cells_of(conflict)} == set(range(32)) and len({bank for _, bank in cells_of(conflict)}) == 1
    assert {k for k, _ in cells_of(cured)} == {0} and {bank for _, bank in cells_of(cured)} == set(range(BANKS))
    frame = conflict.layout.shapes[0]
    assert (frame.y0, frame.y1) == (4.5, 5.5) and frame.line.color != cured.layout.shapes[0].line.color
    assert conflict.layout.height > cured.layout.height


def test_the_chosen_wavefront_is_the_fullest() -> None:
    drawn = picture([8 * lane for lane in range(32)])  # every other word: two wavefronts
    fig = bank_picture(drawn, turn=1)
    full = {(k, b) for k, b in cells_of(fig) if fig.data[0].z[k][b] == 1.0}
    assert full == {(1, bank) for bank in drawn.lanes_in(1)} and len(cells_of(fig)) == 32
    assert sorted(int(lanes) for lanes in fig.data[1].customdata) == list(range(32))


def test_a_broadcast_says_how_many_lanes_it_serves() -> None:
    fig = bank_picture(picture([64] * 32))
    check(fig)
    assert list(fig.data[1].text) == ["32x"] and list(fig.data[1].x) == [16]
    check(bank_picture(picture([])))  # a warp with no active lane


# --- tile map ---------------------------------------------------------------------------------------------------------

ROWS, COLUMNS = (16, 32, 64), (16, 32)


def made() -> list[list[MapCell]]:
    problem, found = Problem(N=1024, d=64), []
    for Br in ROWS:
        row = []
        for Bc in COLUMNS:
            nbytes = closed_form(problem, Tiling(Br, Bc), "q-outer").requested_bytes
            row.append(MapCell(nbytes, f"{nbytes}", f"{Br} x {Bc}", "threads" if Br * Bc > 1024 else ""))
        found.append(row)
    return found


def test_the_map_shows_values_reasons_and_the_choice() -> None:
    cells = made()
    fig = tile_map(ROWS, COLUMNS, cells, chosen=Tiling(32, 16), presets={"FA-2": Tiling(64, 32), "far": Tiling(512, 8)})
    check(fig)
    blocked, shaded, words = fig.data
    assert [[v is not None for v in row] for row in blocked.z] == [[False, False], [False, False], [False, True]]
    assert shaded.z[0][0] == pytest.approx(math.log10(cells[0][0].value or 0)) and shaded.z[2][1] is None
    assert list(words.text) == [c.blocked or c.text for row in cells for c in row] and words.text[-1] == "threads"
    frame = fig.layout.shapes[0]
    assert (frame.x0, frame.x1, frame.y0, frame.y1) == (-0.5, 0.5, 0.5, 1.5)
    assert [a.text for a in fig.layout.annotations] == ["<b>FA-2</b>"]
    assert list(fig.layout.yaxis.ticktext) == ["16", "32", "64"]


def test_a_map_of_nothing_is_still_a_map() -> None:
    empty = [[MapCell(None, "", "nothing recorded")] * 2] * 3
    fig = tile_map(ROWS, COLUMNS, empty, logarithmic=False, more="more TFLOP/s")
    check(fig)
    assert all(v is None for row in fig.data[1].z for v in row) and "more TFLOP/s" in fig.layout.xaxis.title.text
    same = tile_map((16,), (16,), [[MapCell(5.0, "5", "")]], logarithmic=False)
    assert same.data[1].z[0][0] == 5.0 and same.data[1].zmax > same.data[1].zmin


# --- bytes against N --------------------------------------------------------------------------------------------------


def test_levels_are_the_numbers_given() -> None:
    lengths, tiling = [512, 1024, 2048], Tiling(32, 32)
    problems = [Problem(N=n, d=64) for n in lengths]
    requested = [closed_form(p, tiling, "q-outer").requested_bytes for p in problems]
    predicted = {"requested": requested, "DRAM": [0.0, 2e6, 3e6], "compulsory": [compulsory_bytes(p) for p in problems]}
    fig = levels_vs_n(lengths, predicted, {"DRAM": [(512, 0.0), (1024, 1.9e6)]}, chosen=1024)
    check(fig)
    by_name = {trace.name: trace for trace in fig.data}
    assert list(by_name["requested (two-level model)"].y) == requested
    assert list(by_name["DRAM"].y) == [None, 2e6, 3e6]  # nothing has no place on a logarithmic axis
    assert list(by_name["DRAM, counted"].x) == [1024] and by_name["DRAM, counted"].mode == "markers"
    assert len({trace.line.dash for trace in fig.data if trace.mode == "lines"}) == 3
    low, high = fig.layout.yaxis.range
    assert low <= math.log10(1.9e6) and high >= math.log10(max(requested))
