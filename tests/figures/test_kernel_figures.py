"""Figures of the kernel lab: their numbers are the entry's, they are fit for a browser, and hostile files stay text."""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Any

import numpy as np
import plotly.graph_objects as go
import pytest

from fmha.errors import InputError
from fmha.figures.byte_levels import DRAM_READ, byte_levels, levels, requested_measured
from fmha.figures.error_cells import cells_note, error_cells
from fmha.figures.kernel_times import kernel_times, timed
from fmha.figures.output_maps import MAX_ROWS, output_map, outputs
from fmha.figures.smem_map import smem_map, used_bytes
from fmha.hardware import GPUS
from fmha.inputs import load
from fmha.kernels import KERNELS
from fmha.measurement import Entry, ErrorMap, Recording
from fmha.problem import Problem, Tiling
from fmha.reference import output_rows, reference
from fmha.speeds import least_time_us
from fmha.traffic import compulsory_bytes
from tests.app.recordings import SMALL, TILES, counters_for, recording, timing


def check(fig: go.Figure) -> dict[str, Any]:
    """The figure as JSON that a browser can read: no NaN, no infinity."""

    def refuse(word: str) -> None:
        raise AssertionError(f"{word} in a figure's JSON")

    data: dict[str, Any] = json.loads(fig.to_json(), parse_constant=refuse)
    assert fig.layout.height
    return data


@pytest.fixture(scope="module")
def made() -> Recording:
    return recording()


def test_times_are_the_entries(made: Recording) -> None:
    run = made.runs[0]
    bars = timed(run)
    fig = kernel_times(run, bars, run.entries[0], made.device.gpu)
    check(fig)
    shown = {y: (x, up, down) for t in fig.data if t.type == "bar" for y, x, up, down in zip(
        t.y, t.x, t.error_x.array, t.error_x.arrayminus, strict=True)}  # fmt: skip
    assert len(shown) == 5, "an absent peer has no bar"
    for bar in bars:
        time = bar.entry.time
        assert time is not None
        x, up, down = shown[f"{bar.title} · {bar.dtype}"]
        assert x == time.median_us
        assert (x + up, x - down) == pytest.approx((time.p90_us, time.p10_us))
    assert [bar.dtype for bar in bars] == ["fp32"] * 4 + ["bf16"], "the fair comparison comes first"
    least = next(t for t in fig.data if t.type == "scatter")
    assert list(least.x) == [least_time_us(run.problem, bar.dtype, made.device.gpu, bar.entry.name) for bar in bars]


def test_a_wrong_result_has_no_bar() -> None:
    run = recording(off=1.0).runs[0]
    faster = dataclasses.replace(run.entries[0], time=timing(1.0))  # a file may say so
    run = dataclasses.replace(run, entries=(faster, *run.entries[1:]))
    assert faster not in [bar.entry for bar in timed(run)]


def test_names_from_a_file_are_short_text_and_drawn_once(made: Recording) -> None:
    run = made.runs[0]
    evil = Entry("x", "<a href='//example.org'>" + "x" * 500, "fp32", time=timing(5.0))
    run = dataclasses.replace(run, entries=(*run.entries, evil, evil))
    bars = timed(run)
    titles = [bar.title for bar in bars if bar.entry is evil]
    assert len(titles) == 1 and "<" not in titles[0] and len(titles[0]) < 60
    check(kernel_times(run, bars, run.entries[0], made.device.gpu))


def test_levels_are_prediction_and_counters(made: Recording) -> None:
    entry = made.runs[0].entries[0]
    rows = {level.name: level.nbytes for level in levels(entry, SMALL)}
    plan = KERNELS["02"].plan(SMALL, TILES)
    assert rows["requested, predicted"] == plan.requested.requested_bytes == rows["requested, measured"]
    assert rows["compulsory"] == compulsory_bytes(SMALL)
    assert rows["DRAM read"] == 30_000 and rows["shared memory, at most"] == 128 * 4_000_000
    fig = byte_levels(levels(entry, SMALL))
    check(fig)
    assert {t.y[0]: t.x[0] for t in fig.data} == rows


def test_levels_that_were_not_read_say_so(made: Recording) -> None:
    entry = dataclasses.replace(made.runs[0].entries[0], counters={"f": {DRAM_READ: 0.0}})
    assert requested_measured(entry) is None
    fig = byte_levels(levels(entry, SMALL))
    check(fig)
    texts = {a.y: a.text.strip() for a in fig.layout.annotations}
    assert texts["L2"] == "not read" and texts["DRAM read"] == "0 B", "zero is a number"


def test_sectors_are_whole() -> None:
    entry = recording(problem=Problem(N=33, d=5), counters=False).runs[0].entries[0]
    entry = dataclasses.replace(entry, counters=counters_for(entry, more_sectors=10))
    measured = requested_measured(entry)
    assert measured is not None and measured % 32 == 0 and measured > entry.requested_bytes


@pytest.mark.parametrize("d", [64, 128, 256])
def test_the_smem_map_has_every_slot_at_its_offset(d: int) -> None:
    gpu = GPUS["H200"]
    launch = KERNELS["02"].plan(Problem(N=256, d=d), TILES, gpu).launches[0]
    fig = smem_map([launch], gpu)
    check(fig)
    drawn = [(t.base[0] * 1024, t.x[0] * 1024) for t in fig.data]
    assert drawn == [(slot.offset, slot.nbytes) for slot in launch.smem]
    assert drawn[-1][0] + drawn[-1][1] == used_bytes(launch)
    lines = [shape.x0 for shape in fig.layout.shapes]
    assert lines == ([48] if used_bytes(launch) <= 49_152 else [48, 227])


def test_naive_has_a_map_for_each_function() -> None:
    launches = KERNELS["01"].plan(Problem(N=256, d=64), TILES).launches
    fig = smem_map(launches, GPUS["A100-80"])
    check(fig)
    assert list(dict.fromkeys(t.y[0] for t in fig.data)) == ["naive_scores", "naive_softmax", "naive_output"]
    for launch in launches:
        ends = [t.base[0] + t.x[0] for t in fig.data if t.y[0] == launch.function]
        assert max(ends) * 1024 == used_bytes(launch)


def test_the_error_map_is_the_check_s(made: Recording) -> None:
    error = made.runs[0].entries[0].error_map
    assert error is not None
    fig = error_cells(error, SMALL.d)
    check(fig)
    assert np.array_equal(np.array(fig.data[0].z), np.array(error.values))
    assert "4 rows x 1 column" in cells_note(error, SMALL.d) and "1 columns" not in cells_note(error, SMALL.d)
    assert cells_note(ErrorMap(0, 0, (0, 2), ((0.0,), (1.0,))), 1) == "each cell is one number of O"
    assert "about 1 row x 1 column" in cells_note(ErrorMap(0, 0, (0, 33), ((0.0,) * 32,) * 32), 32), "one holds two"


def test_what_is_not_a_number_is_a_cross() -> None:
    error = ErrorMap(0, 0, (0, 4), ((1e-7, math.inf), (math.nan, 2e-7)))
    fig = error_cells(error, 8, right=False)
    check(fig)
    assert fig.data[0].z[0][1] is None and len(fig.data[1].x) == 2


@pytest.mark.parametrize("values", [(), ((),), ((1.0,), (1.0, 2.0))])
def test_a_broken_map_is_refused(values: Any) -> None:
    with pytest.raises(InputError, match="not drawn"):
        error_cells(ErrorMap(0, 0, (0, 4), values), 8)


@pytest.mark.parametrize("causal", [None, "bottom-right", "top-left"])
def test_some_rows_of_the_truth_are_rows_of_the_whole(causal: Any) -> None:
    p = Problem(B=2, H=4, Hk=2, Nq=37, Nk=20, d=8, causal=causal, lens_k=(20, 7))
    made = load("random", p)
    whole = reference(p, made.Q, made.K, made.V).O
    rows = [0, 5, 36]
    for b, h in np.ndindex(2, 4):
        np.testing.assert_allclose(output_rows(p, made.Q, made.K, made.V, b, h, rows), whole[b, h][rows], atol=1e-14)


def test_outputs_are_evenly_spaced_rows_beside_their_truth() -> None:
    p = Problem(H=2, N=1000, d=16)
    made = load("random", p, seed=7)
    O = reference(p, made.Q, made.K, made.V).O[0, 1]
    shown = outputs(p, O, 0, 1, input="random", seed=7)
    assert len(shown.rows) <= MAX_ROWS and shown.note == "every 4th row"
    assert shown.truth is not None
    assert np.abs(shown.found - shown.truth).max() < 1e-6
    for values in (shown.found, shown.truth):
        fig = output_map(values, shown)
        check(fig)
        np.testing.assert_allclose(np.array(fig.data[0].z), values, atol=1e-5)
        assert fig.data[0].zmax == shown.largest


def test_nan_in_o_is_a_gap() -> None:
    O = np.ones((4, 2))
    O[1, 1] = np.nan
    shown = outputs(Problem(N=4, d=2), O, 0, 0, input="random", seed=0)
    assert json.loads(output_map(shown.found, shown).to_json())


def test_tiles_of_the_chosen_kernel_are_named() -> None:
    run = recording(tiling=Tiling(16, 32)).runs[0]
    assert timed(run)[0].title == "02 fmha101, 16 x 32"
