"""Timeline: the player's events and times, in words and pictures; every number on it is what the clock says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

from fmha import Problem, Tiling
from fmha.dispatch import BLOCK_ORDERS
from fmha.events import emit
from fmha.forecast import forecast
from fmha.hardware import GPUS
from fmha.kernels import KERNELS
from fmha.measurement import shipped
from fmha.player import scene
from fmha.player.waves import turns
from fmha.timeline import busy_share, clock
from fmha.ui import timeline_run
from fmha.ui.sentences import percent
from fmha.ui.timeline_closeup import picked
from fmha.ui.timeline_run import Asked, clocked, held, takes
from fmha.units import format_time_us

PAGE = Path(__file__).resolve().parent.parent.parent / "pages" / "lab" / "timeline.py"
H200 = GPUS["H200"]
RECORDED, TILES = Problem(N=1024, H=16, d=64), Tiling(32, 32)


def opened(**url: str) -> AppTest:
    at = AppTest.from_file(PAGE, default_timeout=60)
    for name, text in url.items():
        at.query_params[name] = text
    at.run()
    assert not at.exception, [e.value for e in at.exception]
    return at


def said(at: AppTest) -> str:
    return "\n".join(m.value for m in [*at.subheader, *at.markdown, *at.caption, *at.info])


@pytest.mark.parametrize("order", ["q-outer", "kv-outer", "naive"])
@pytest.mark.parametrize(("gpu", "sms"), [("H200", 4), ("A100-40", 16)])
def test_it_shows_the_events_and_times_of_the_player(order: str, gpu: str, sms: int) -> None:
    """One event table: the player's run and the timeline agree in every row, to the bit."""
    problem, tiling = Problem(N=96, d=16, H=3, causal="bottom-right"), Tiling(16, 8)
    shown = "q-outer" if order == "naive" else order
    played = scene.prepare(problem, tiling, shown, "random", sms=sms, gpu=GPUS[gpu])
    theirs = played.naive_events if order == "naive" else played.run.events
    table = clocked(Asked(problem, tiling, order, GPUS[gpu], sms))
    for name in theirs.dtype.names or ():
        np.testing.assert_array_equal(table.events[name], theirs[name])
    wave = turns(theirs, sms)
    assert [w[:3] for w in table.waves] == list(wave.begins)
    assert table.shares.idle == pytest.approx(1 - wave.busy, abs=1e-9)


def test_what_the_player_offers_is_offered_here() -> None:
    """A link of the player opens here with the same settings, and the page says what the player's clock says."""
    url = {"N": "192", "d": "24", "Br": "24", "Bc": "12", "H": "3", "sms": "8", "order": "kv-outer", "dtype": "bf16"}
    at = opened(**url, causal="br", gpu="L4")
    assert not at.warning and not at.error
    problem = Problem(N=192, d=24, H=3, dtype="bf16", causal="bottom-right")
    run = scene.prepare(problem, Tiling(24, 12), "kv-outer", "random", sms=8, gpu=GPUS["L4"]).run
    assert f"3 blocks on 8 SMs take {format_time_us(float(run.events['t1'].max()))}" in at.subheader[0].value


def test_a_fresh_page_stands_beside_its_recording() -> None:
    at = opened()
    assert not at.warning and not at.error
    run = next(run for r in shipped() for run in r.runs if run.problem == RECORDED)
    entry = run.entry("02", TILES)
    assert entry is not None and entry.time is not None
    model = forecast(KERNELS["02"], RECORDED, TILES, H200)
    end = float(clock(emit(RECORDED, TILES), H200, "fp32")["t1"].max())
    text = said(at)
    for time in (end, model.time_us, entry.time.median_us):
        assert format_time_us(time) in text
    assert "NVIDIA H200" in text and run.made[:10] in text.replace("\\", "")
    assert f"off by {100 * (model.time_us / entry.time.median_us - 1):+.1f} %" in text
    assert "512 blocks on 132 SMs make 4 waves, the last with 116 blocks" in text
    assert held(RECORDED, TILES, H200, 1).found == model.functions[0].held  # the occupancy of Under the hood of HBM


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ({"N": "128"}, ""),
        ({"blocks": "tile-major"}, ""),
        ({"gpu": "A100-80"}, ""),
        ({"sms": "16"}, "of all heads on all SMs"),
        ({"order": "kv-outer"}, "No kernel of this app"),
        ({"dtype": "fp16"}, "computes in fp32"),
        ({"Br": "128", "Bc": "128"}, "16,384 threads"),
    ],
)
def test_nothing_measured_is_shown_where_nothing_matches(url: dict[str, str], why: str) -> None:
    text = said(opened(**url)).replace("\\", "")
    assert "Measured on" not in text and why in text


@pytest.mark.parametrize("causal", ["none", "br"])
def test_stages_and_block_orders_are_those_of_the_clock(causal: str) -> None:
    text = said(opened(causal=causal, N="512"))
    problem = Problem(N=512, H=16, d=64, causal="bottom-right" if causal == "br" else None)
    untimed = emit(problem, TILES)
    for stages in (1, 2):
        end = float(clock(untimed, H200, "fp32", stages=stages)["t1"].max())
        assert format_time_us(end) in text
        assert takes(Asked(problem, TILES, "q-outer", H200, 132, stages=stages))[0] == pytest.approx(end, rel=1e-9)
    heavy = clock(untimed, H200, "fp32", block_order="heavy-first")
    if causal == "br":
        assert f"heavy-first {format_time_us(float(heavy['t1'].max()))}" in text
        assert f"with {percent(1 - busy_share(heavy, 132))}" in text
    else:
        assert "It changes nothing here" in text


@pytest.mark.parametrize("way", BLOCK_ORDERS)
def test_every_block_order_is_drawn(way: str) -> None:
    at = opened(blocks=way, causal="br", N="256", H="8", sms="8", stages="3")
    end = float(
        clock(
            emit(Problem(N=256, H=8, d=64, causal="bottom-right"), TILES), H200, "fp32", 8, block_order=way, stages=3
        )["t1"].max()
    )
    assert format_time_us(end) in at.subheader[0].value


def test_all_blocks_that_fit() -> None:
    url = {"Br": "16", "Bc": "16", "N": "512", "sms": "16"}
    room = held(Problem(N=512, H=16, d=64), Tiling(16, 16), H200, 1)
    assert room.places > 1
    text = said(opened(**url, held="fit"))
    assert f"512 blocks on {16 * room.places} places" in text and f"{room.places} blocks at once" in text
    assert "512 blocks on 16 SMs make" in said(opened(**url))


def test_a_second_stage_costs_shared_memory_and_can_cost_a_block() -> None:
    problem, tiling = Problem(N=1024, H=16, d=128), Tiling(16, 64)
    one, two = (held(problem, tiling, H200, n) for n in (1, 2))
    assert two.smem - one.smem == 2 * 64 * 128 * 4
    text = said(opened(d="128", Br="16", Bc="64"))
    assert "64.0 KiB of shared memory for K and V" in text
    fewer = f"an SM then holds {two.places} block" if two.places < one.places else "an SM still holds"
    assert fewer in text


def test_too_many_heads_are_left_out_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeline_run, "MOST_EVENTS", 20_000)
    problem = Problem(N=256, H=8, B=16, d=64)
    asked = Asked(problem, TILES, "q-outer", H200, 132)
    assert (asked.shown.B, asked.shown.H) == (6, 8) and asked.but(tiling=Tiling(128, 128)).shown == problem
    assert asked.but(problem=problem.replace(N=1024)).shown.B == 1
    at = opened(N="256", H="8", B="16")
    assert "shows 48 of 128 heads" in said(at) and f"{asked.shown.B * 64} blocks on 132 SMs" in at.subheader[0].value
    assert len(clocked(asked).events) <= 20_000 and "Measured on" not in said(at)


def test_a_problem_that_cannot_be_drawn_is_explained_and_the_page_goes_on() -> None:
    at = opened(N="16384", Br="8", Bc="8", causal="br")
    assert len(at.error) == 1 and "larger tiles" in at.error[0].value
    assert any("Try this" in h.value for h in at.header) and "With N = 1,024" in said(at)
    assert {"N", "Br", "Bc", "causal"} <= set(at.query_params)


def test_the_close_up_is_in_the_link_and_keeps_its_place() -> None:
    at = opened(zoom="16", at="93.75", smspan="4", firstsm="128")
    assert not at.warning and (at.slider(key="at").value, at.slider(key="firstsm").value) == (93.75, 128)
    at.select_slider(key="zoom").set_value("8x").run()
    at.select_slider(key="smspan").set_value("64").run()
    assert not at.exception and not at.warning, "zooming out moves the close-up without a word"
    assert at.query_params["at"] in ("87.5", ["87.5"]) and at.query_params["firstsm"] in ("68", ["68"])
    assert opened(zoom="16", at="99").warning, "but a link that asks for more than there is is told so"


def test_a_click_moves_the_close_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """The picture tells the moment in the unit of its axis, and the SM."""
    at = opened(zoom="16", smspan="8")
    chosen: dict[str, Any] = {}
    monkeypatch.setattr("fmha.ui.controls.assign", lambda **values: chosen.update(values))
    monkeypatch.setattr("fmha.ui.charts.pick", lambda _key: (64, 130))
    table = clocked(Asked(RECORDED, TILES, "q-outer", H200, 132))
    picked(table, 16, 8)
    middle = 100 * 64 / table.blocks.span
    assert chosen["firstsm"] == 124 and abs(chosen["at"] + 50 / 16 - middle) <= 12.5 / 16
    assert not at.exception


def test_tasks_have_numbers_of_the_settings_at_hand() -> None:
    text = said(opened(N="2048", H="8"))
    asked = Asked(Problem(N=2048, H=8, d=64), TILES, "q-outer", H200, 132)
    assert f"{format_time_us(takes(asked)[0])} become {format_time_us(takes(asked.but(stages=2))[0])}" in text
    assert "With N = 1,024" in said(opened(N="1")), "where there is nothing to see, tasks name their settings"


def test_one_block_takes_its_time() -> None:
    at = opened(N="1", H="1")
    assert at.subheader[0].value.startswith("1 block on 132 SMs takes ")
