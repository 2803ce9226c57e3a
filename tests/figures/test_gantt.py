"""SMs x time and the small charts beside it: their marks are the events that they were given, and nothing else."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import plotly.graph_objects as go
import pytest

from fmha import Problem, Tiling
from fmha.events import PHASES, emit
from fmha.figures import gantt, sm_time, theme
from fmha.gantt_map import FIRST_PHASE, View, gantt_map, whole
from fmha.hardware import GPUS
from fmha.spans import Blocks, at_work, blocks_of, idle_areas, starving_from, waves_of
from fmha.timeline import clock

H200 = GPUS["H200"]


def run(order: str = "q-outer", sms: int = 6, **more: Any) -> tuple[np.ndarray, Blocks]:
    problem = Problem(H=2, N=more.pop("N", 128), d=16, causal=more.pop("causal", None))
    events = clock(emit(problem, Tiling(16, 16), order), H200, "fp32", sms, **more)
    return events, blocks_of(events, sms)


def recorded() -> tuple[np.ndarray, Blocks]:
    """What a GPU's time stamps could give: an odd beginning, pauses, loads that overlap, SMs out of order."""
    events, _ = run("q-outer", causal="bottom-right", stages=2)
    rng = np.random.default_rng(0)
    events = events.copy()
    events["t0"] += 7.5e5
    events["t1"] += 7.5e5 - rng.uniform(0, 0.3, len(events)) * (events["t1"] - (events["t0"] - 7.5e5))
    events["sm"] = (events["sm"] * 5 + 3) % 6
    return events, blocks_of(events, 6)


def check(fig: go.Figure) -> dict[str, Any]:
    """JSON that a browser can read, with named axes and a height."""

    def refuse(word: str) -> None:
        raise AssertionError(f"{word} in a figure's JSON")

    assert fig.layout.height and fig.layout.xaxis.title.text
    return dict(json.loads(fig.to_json(), parse_constant=refuse))


def drawn(events: np.ndarray, blocks: Blocks, frame: View | None = None) -> go.Figure:
    return gantt.gantt(
        gantt_map(events, blocks, whole(blocks)), blocks, idle_areas(blocks), waves_of(blocks), frame
    )  # fmt: skip


def test_every_phase_has_the_colour_of_the_player() -> None:
    colors = {p.code: gantt.role_of(k) for k, p in enumerate(PHASES)}
    assert (colors["load_K"], colors["S"], colors["m"], colors["P"], colors["O"]) == ("K", "S", "m", "alpha", "O")
    assert set(colors.values()) <= set(theme.ROLES)
    words = gantt.role_words([k for k, p in enumerate(PHASES) if p.code in ("load_Q", "S", "P")])
    assert words == {"Q": "load Q", "S": "scores S", "alpha": "exp, sum"}


@pytest.mark.parametrize("order", ["q-outer", "kv-outer", "naive"])
@pytest.mark.parametrize("stages", [1, 2])
def test_the_picture_is_painted_in_the_colours_of_its_phases(order: str, stages: int) -> None:
    events, blocks = run(order, stages=stages)
    fig = drawn(events, blocks)
    check(fig)
    z = np.asarray(fig.data[0].z)
    colors = dict(fig.data[0].colorscale[::2])
    for cell in np.unique(z[z >= FIRST_PHASE]).tolist():
        step = min(colors, key=lambda edge: abs(edge - cell / (len(PHASES) + FIRST_PHASE)))
        assert colors[step] == theme.color(gantt.role_of(cell - FIRST_PHASE))
    names = {trace.name for trace in fig.data[1:]}
    assert names >= {"idle"} | set(gantt.role_words(blocks.phases).values()) - {"l", "max m"}
    assert ("waits" in names) == (stages == 2)


def test_idle_places_are_hatched_where_there_is_no_block() -> None:
    events, blocks = run(sms=6, N=160)  # 20 blocks on 6 SMs: three full waves, and two blocks
    fig = drawn(events, blocks)
    (bar,) = [trace for trace in fig.data if trace.name == "idle"]
    assert bar.marker.pattern.shape and bar.hoverinfo == "skip"
    scale, _ = gantt.time_unit(blocks.span)
    assert list(bar.y) == [3.5] and list(bar.width) == [4]  # SMs 2 to 5
    assert bar.base[0] == pytest.approx(blocks.span * scale * 3 / 4)
    assert bar.base[0] + bar.x[0] == pytest.approx(blocks.span * scale)
    lines = [s for s in fig.layout.shapes if s.type == "line" and s.line.dash]
    assert [s.x0 for s in lines] == pytest.approx([blocks.span * scale * k / 4 for k in (1, 2, 3)])
    assert [a.text for a in fig.layout.annotations] == ["wave 1", "wave 2", "wave 3", "wave 4"]


def test_kernels_are_told_apart_from_waves() -> None:
    events, blocks = run("naive", sms=4)
    fig = drawn(events, blocks)
    assert [a.text for a in fig.layout.annotations] == ["kernel 1", "kernel 2", "kernel 3"]
    solid = [s for s in fig.layout.shapes if s.type == "line" and s.line.dash == "solid"]
    assert len(solid) == 2


def test_the_close_up_is_framed() -> None:
    events, blocks = run()
    view = View(2, 3, blocks.span / 4, blocks.span / 2)
    scale, _ = gantt.time_unit(blocks.span)
    frame = drawn(events, blocks, view).layout.shapes[-1]
    assert (frame.y0, frame.y1) == (1.5, 4.5)
    assert (frame.x0, frame.x1) == pytest.approx((view.begin * scale, view.end * scale))
    assert all(s.type != "rect" for s in drawn(events, blocks, whole(blocks)).layout.shapes)


@pytest.mark.parametrize("stages", [1, 2])
@pytest.mark.parametrize("held", [1, 2])
def test_in_a_close_up_every_event_in_view_is_a_bar(stages: int, held: int) -> None:
    events, blocks = run(stages=stages, blocks_per_sm=held, causal="bottom-right")
    view = View(1, 2, blocks.span * 0.1, blocks.span * 0.6)
    fig = gantt.bars(events, blocks, view, idle_areas(blocks), waves_of(blocks))
    assert fig is not None
    check(fig)
    scale, _ = gantt.time_unit(view.end - view.begin)
    seen = (events["sm"] >= 1) & (events["sm"] <= 2) & (events["t1"] > view.begin) & (events["t0"] < view.end)
    for trace in fig.data:
        if trace.name in ("idle", "a block"):
            continue
        role = next(r for r, word in gantt.role_words(blocks.phases).items() if word == trace.name)
        mine = events[seen & (np.array([gantt.role_of(p) for p in events["phase"]]) == role)]
        assert len(trace.x) == len(mine)
        begins, ends = np.array(trace.base), np.array(trace.base) + np.array(trace.x)
        np.testing.assert_allclose(begins, np.maximum(mine["t0"], view.begin) * scale)
        np.testing.assert_allclose(ends, np.minimum(mine["t1"], view.end) * scale)
        assert (np.abs(np.array(trace.y) - mine["sm"]) < 0.5).all()
        assert "worker" in trace.customdata[0] and trace.marker.color == theme.color(role)


def test_too_many_bars_are_left_to_the_painted_picture() -> None:
    events, blocks = run("kv-outer", sms=2, N=512)
    assert len(events) > gantt.MOST_BARS
    assert gantt.bars(events, blocks, whole(blocks), idle_areas(blocks), waves_of(blocks)) is None
    check(drawn(events, blocks))


def test_a_recorded_table_is_drawn_by_the_same_functions() -> None:
    """The event table and the number of SMs are all that the pictures ask for."""
    events, blocks = recorded()
    fig = drawn(events, blocks)
    check(fig)
    assert fig.layout.xaxis.range[0] == 0  # time counts from the first event
    assert "waits" in {trace.name for trace in fig.data}
    near = gantt.bars(events, blocks, View(0, 6, blocks.begin, blocks.end), idle_areas(blocks), waves_of(blocks))
    assert near is not None
    check(near)
    moments, working = at_work(blocks)
    for small in (
        sm_time.working(moments, working, blocks, starving_from(blocks)), sm_time.phase_shares(blocks),
        sm_time.wave_bars([size for *_, size in waves_of(blocks)], blocks.places),
    ):  # fmt: skip
        check(small)


def test_a_time_axis_has_a_unit_that_can_be_read() -> None:
    assert [gantt.time_unit(span)[1] for span in (5e5, 150.0, 3.0, 0.001)] == ["ms", "\N{MICRO SIGN}s", "ns", "ns"]


def test_sms_at_work_and_waves() -> None:
    _, blocks = run(sms=6, N=160)
    moments, working = at_work(blocks)
    fig = sm_time.working(moments, working, blocks, starving_from(blocks))
    check(fig)
    assert max(fig.data[0].y) == 6 and fig.data[0].y[-1] == 0 and set(fig.data[1].y) == {6}
    assert fig.layout.shapes[0].x0 == pytest.approx(blocks.span * gantt.time_unit(blocks.span)[0] * 3 / 4)
    waves = sm_time.wave_bars([6, 6, 6, 2], 6)
    check(waves)
    assert list(waves.data[0].y) == [6, 6, 6, 2] and list(waves.data[1].y) == [0, 0, 0, 4]
    many = sm_time.wave_bars([6] * 30 + [1], 6)
    assert len(many.data[0].y) == 12 and many.layout.xaxis.ticktext[-1] == "31"
    assert "19" in many.layout.xaxis.title.text


def test_shares_are_those_of_the_phases() -> None:
    events, blocks = run(sms=6, N=160)
    fig = sm_time.phase_shares(blocks)
    check(fig)
    total = sum(float(trace.x[0]) for trace in fig.data)
    assert total == pytest.approx(100 * 20 / 24)  # 20 of 24 places have a block, and a block never waits
    cost = (events["t1"] - events["t0"])[[PHASES[p].code == "load_K" for p in events["phase"]]].sum()
    (load,) = [trace for trace in fig.data if trace.name == "load K"]
    assert load.x[0] == pytest.approx(100 * cost / (blocks.span * 6))


def test_settings_side_by_side() -> None:
    fig = sm_time.total_bars({"1 stage": 127.0, "2 stages": 71.3}, "2 stages", "q-outer")
    check(fig)
    assert list(fig.data[0].x) == [127.0, 71.3] and list(fig.data[0].text) == ["127 µs", "71.3 µs"]
    assert fig.data[0].marker.color[1] == theme.color("q-outer")
    held = sm_time.resource_bars({"threads": 2, "registers": 1}, "registers")
    check(held)
    assert list(held.data[0].text) == ["2", "1 (decides)"]
    rows = [sm_time.Compared("this timeline", 100.0), sm_time.Compared("measured", 5000.0, True)]
    beside = sm_time.compared(rows, "q-outer")
    check(beside)
    assert list(beside.data[0].marker.symbol) == ["circle-open", "diamond"]
    assert beside.layout.xaxis.range[0] < 2 and beside.layout.xaxis.range[1] > np.log10(5000)
