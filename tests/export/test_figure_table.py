"""A figure's numbers as CSV: what is in it, and that the browser's menu writes the same text."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator

import numpy as np
import plotly.graph_objects as go
import pytest

from fmha import export
from fmha.banks import picture
from fmha.events import PHASES
from fmha.figures import gantt
from fmha.figures.bank_picture import bank_picture
from fmha.figures.heatmap import attention_map
from fmha.figures.memory_levels import levels, size_and_speed
from fmha.figures.running_rows import running_rows
from fmha.figures.sector_picture import sector_picture, sectors
from fmha.figures.softmax_bars import scores_to_weights
from fmha.figures.touched import touched
from fmha.gantt_map import gantt_map, whole
from fmha.hardware import GPUS
from fmha.spans import blocks_of, idle_areas, waves_of
from tests.export.support import made, node

JS = 'import { figureCsv } from "./fmha/chart/frontend/csv.mjs";\n'


def rows_of(fig: go.Figure) -> list[list[str]]:
    return list(csv.reader(io.StringIO(export.figure_csv(fig))))


def awkward() -> go.Figure:
    """Everything at once: numbers of all sizes, holes, quotes, tags, arrays of several types, two levels of names."""
    fig = go.Figure()
    sizes = [
        0.1,
        1e-5,
        1.5e-7,
        1e16,
        123456789012345680,
        -3.0,
        1 / 3,
        5e-324,
        1.7976931348623157e308,
        float("nan"),
        -0.0,
    ]
    fig.add_scatter(x=sizes, y=list(range(11)), name='say "hi", <b>you</b>')
    fig.add_bar(x=np.arange(3, dtype=np.int16), y=np.array([1, 2.5, 4], np.float32), error_y={"array": [0.1, 0.2, 0.3]})
    fig.add_bar(
        x=[["a", "a", "b"], ["p", "q", "p"]], y=[1, None, 3], text=["one<br>two", "", "x &amp; y"], base=[1, 2, 3]
    )
    fig.add_heatmap(z=np.arange(6, dtype=np.float64).reshape(2, 3) / 7, x=["u", "v", "w"], text=[["a", "b", "c"]] * 2)
    fig.add_scatter(y=[True, 2, "three"], name="no x")
    fig.add_scatter(x=[None], y=[None], name="for the legend only")
    return fig


def figures() -> Iterator[tuple[str, go.Figure]]:
    yield "awkward", awkward()
    yield "empty", go.Figure()
    gpu, run = GPUS["H200"], made()
    yield "levels", levels(gpu)
    yield "speed", size_and_speed(GPUS.values(), "H200")
    yield "map", attention_map(np.eye(5) / 3)
    yield "rows", running_rows(run.m[0, 0, :8], 0, [1], 3, {})
    blocks = blocks_of(run.events, 4)
    view = whole(blocks)
    yield "timeline", gantt.gantt(gantt_map(run.events, blocks, view), blocks, idle_areas(blocks), waves_of(blocks))
    near = gantt.bars(run.events, blocks, view, idle_areas(blocks), waves_of(blocks))
    assert near is not None
    yield "close-up", near
    yield "banks", bank_picture(picture([132 * lane for lane in range(32)]))
    yield "sectors", sector_picture(sectors([4 * lane for lane in range(32)], 4))
    yield "touched", touched([(row, 3) for row in range(32)], 32, 64)
    yield "bars", scores_to_weights(["a", "b", "c"], [2.0, 1.0, 0.5], [0.5, 0.3, 0.2])


def test_a_line_of_points_under_the_titles_of_its_axes() -> None:
    fig = go.Figure(go.Scatter(x=[1, 2], y=[0.5, 1e-7], name="a<sub>1</sub>"))
    fig.update_layout(xaxis_title="tokens, <i>N</i>", yaxis_title="bytes")
    assert export.figure_csv(fig) == 'series,"tokens, N",bytes\na 1,1,0.5\na 1,2,1e-07\n'


def test_a_heat_map_cell_by_cell() -> None:
    z = np.array([[1.0, np.nan], [0.25, 3.0]])
    assert rows_of(go.Figure(go.Heatmap(z=z, x=["k0", "k1"]))) == [
        ["series", "x", "y", "z"], ["", "k0", "0", "1"], ["", "k0", "1", "0.25"], ["", "k1", "1", "3"],
    ]  # fmt: skip


def test_every_number_comes_back_as_it_was() -> None:
    values = np.random.default_rng(0).standard_normal(200) * 10.0 ** np.arange(-100, 100)
    table = rows_of(go.Figure(go.Scatter(x=values, y=values[::-1])))
    np.testing.assert_array_equal(
        np.array([[float(a), float(b)] for _, a, b in table[1:]]), np.stack([values, values[::-1]], 1)
    )


def test_the_browser_writes_the_same_text() -> None:
    made = [(name, fig.to_json(), export.figure_csv(fig)) for name, fig in figures()]
    said = node(
        JS + "console.log(JSON.stringify(input.map((f) => figureCsv(JSON.parse(f)))));", [f for _, f, _ in made]
    )
    for (name, _, wanted), got in zip(made, json.loads(said), strict=True):
        assert got == wanted, name


def test_a_timeline_names_its_phases() -> None:
    head, *rows = rows_of(dict(figures())["timeline"])
    words = {row[head.index("z")] for row in rows if row[head.index("z")]}
    run = made()
    assert words <= {"idle", "waits", *(phase.maths for phase in PHASES)} and len(words) > 5
    times = [float(row[1]) for row in rows if row[head.index("z")]]
    assert head[1:3] == ["time, ns", "SM"] and max(times) == pytest.approx(1e3 * run.events["t1"].max(), rel=0.01)


@pytest.mark.parametrize("name", ["speed", "rows", "map", "timeline", "close-up", "banks"])
def test_tables_of_the_apps_figures_are_rectangular(name: str) -> None:
    table = rows_of(dict(figures())[name])
    assert len(table) > 5 and {len(row) for row in table} == {len(table[0])}
    float(table[1][1]), float(table[1][2])
