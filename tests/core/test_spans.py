"""Blocks, waves, idle SMs and shares, from a timed event table alone. By hand where it can be."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fmha import Problem, Tiling
from fmha.dispatch import BLOCK_ORDERS
from fmha.errors import InputError
from fmha.events import CODE, EVENT, PHASES, emit
from fmha.hardware import GPUS
from fmha.player.waves import turns
from fmha.spans import Area, at_work, blocks_of, first_load_us, idle_areas, shares_of, starving_from, waves_of
from fmha.timeline import busy_share, clock

H200 = GPUS["H200"]
LOAD, COMPUTE = CODE["load_K"], CODE["S"]


def table(rows: list[tuple[int, int, int, float, float]]) -> np.ndarray:
    """Events from (worker, SM, phase, t0, t1)."""
    events = np.zeros(len(rows), EVENT)
    for k, (worker, sm, phase, t0, t1) in enumerate(rows):
        events[k]["worker"], events[k]["sm"], events[k]["phase"] = worker, sm, phase
        events[k]["t0"], events[k]["t1"], events[k]["i"] = t0, t1, worker
    return events


# Two SMs and three blocks; block 1 waits from 2 to 3, and SM 1 has nothing to do from 6 on.
BY_HAND = table(
    [
        (0, 0, LOAD, 0, 2), (0, 0, COMPUTE, 2, 4),
        (1, 1, LOAD, 0, 2), (1, 1, COMPUTE, 3, 6),
        (2, 0, LOAD, 4, 7), (2, 0, COMPUTE, 7, 10),
    ]
)  # fmt: skip


def test_three_blocks_on_two_sms() -> None:
    blocks = blocks_of(BY_HAND, 2)
    assert (blocks.t0.tolist(), blocks.t1.tolist(), blocks.sm.tolist()) == ([0, 0, 4], [4, 6, 10], [0, 1, 0])
    assert (blocks.lanes, blocks.tracks, blocks.places, blocks.span) == (1, 1, 2, 10)
    assert blocks.by_phase[:, LOAD].tolist() == [2, 2, 3] and blocks.by_phase[:, COMPUTE].tolist() == [2, 3, 3]
    assert blocks.phases == (LOAD, COMPUTE)
    assert waves_of(blocks) == ((0.0, 0, 0, 2), (4.0, 0, 1, 1))
    assert idle_areas(blocks) == (Area(6.0, 10.0, 1, 1),)
    assert starving_from(blocks) == 6
    moments, working = at_work(blocks)
    assert moments.tolist() == [0, 6, 10] and working.tolist() == [2, 1, 0]
    shares = shares_of(BY_HAND, blocks)
    assert shares.loads == pytest.approx(7 / 20) and shares.computes == pytest.approx(8 / 20)
    assert (shares.both, shares.waits, shares.idle) == pytest.approx((0, 1 / 20, 4 / 20))
    assert first_load_us(BY_HAND, blocks) == 0


def test_blocks_side_by_side_get_places_and_loads_that_run_ahead_a_line_of_their_own() -> None:
    events = table(
        [
            (0, 0, LOAD, 0, 4), (0, 0, COMPUTE, 2, 6),  # computes while it loads
            (1, 0, LOAD, 1, 3), (1, 0, COMPUTE, 3, 5),
            (2, 0, LOAD, 5, 8),  # where block 1 was
        ]
    )  # fmt: skip
    blocks = blocks_of(events, 1)
    assert blocks.lane.tolist() == [0, 1, 1] and (blocks.lanes, blocks.tracks) == (2, 2)
    shares = shares_of(events, blocks)
    # Loads cover 0 to 4 and 5 to 8, computing 2 to 6: both at once from 2 to 4 and from 5 to 6.
    assert (shares.loads, shares.computes, shares.both) == pytest.approx((4 / 8, 1 / 8, 3 / 8))
    assert shares.loading == pytest.approx(7 / 8) and shares.computing == pytest.approx(4 / 8)
    assert idle_areas(blocks) == (Area(0.0, 1.0, 1, 1), Area(6.0, 8.0, 0, 0))
    assert at_work(blocks)[1].tolist() == [1, 0]


def test_neighbours_that_idle_together_are_one_area() -> None:
    events = table([(0, 0, LOAD, 0, 10), (1, 1, LOAD, 0, 4), (2, 2, LOAD, 0, 4), (3, 3, LOAD, 0, 5)])
    assert idle_areas(blocks_of(events, 6)) == (
        Area(0.0, 10.0, 4, 5), Area(4.0, 10.0, 1, 2), Area(5.0, 10.0, 3, 3),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("events", "words"),
    [
        (np.zeros(0, EVENT), "no event"),
        (emit(Problem(N=8, d=4), Tiling(4, 4)), "no SM yet"),
        (table([(0, 7, LOAD, 0, 1)]), "SM 7"),
        (table([(0, 0, LOAD, 2, 1)]), "before it begins"),
        (table([(0, 0, LOAD, 0, np.nan)]), "no time"),
    ],
)
def test_a_table_without_times_is_refused_in_a_sentence(events: np.ndarray, words: str) -> None:
    with pytest.raises(InputError, match=words):
        blocks_of(events, 4)


problems = st.builds(
    lambda H, N, causal: Problem(H=H, N=N, d=4, causal=causal),
    st.integers(1, 4), st.integers(1, 40), st.sampled_from([None, "bottom-right"]),
)  # fmt: skip
tilings = st.builds(Tiling, st.integers(1, 12), st.integers(1, 12))


@settings(max_examples=60)
@given(
    problems, tilings, st.sampled_from(["q-outer", "kv-outer", "naive"]), st.integers(1, 5), st.integers(1, 3),
    st.integers(1, 3), st.sampled_from(BLOCK_ORDERS),
)  # fmt: skip
def test_of_any_clocked_table(p: Problem, t: Tiling, order: str, sms: int, stages: int, held: int, way: str) -> None:
    events = clock(emit(p, t, order), H200, "fp32", sms, stages=stages, blocks_per_sm=held, block_order=way)
    blocks = blocks_of(events, sms)
    assert len(blocks) == len({(int(e["kernel"]), int(e["worker"])) for e in events})
    assert blocks.lanes <= held and (stages > 1 or blocks.tracks == 1)
    np.testing.assert_allclose(blocks.by_phase.sum(), (events["t1"] - events["t0"]).sum())
    parts = shares_of(events, blocks)
    total = parts.loads + parts.computes + parts.both + parts.waits + parts.idle
    assert total == pytest.approx(1) and min(vars(parts).values()) >= 0
    assert parts.idle == pytest.approx(1 - busy_share(events, sms), abs=1e-6)
    empty = sum((a.end - a.begin) * (a.last - a.first + 1) for a in idle_areas(blocks))
    filled = float((blocks.t1 - blocks.t0).sum())
    assert empty + filled == pytest.approx(blocks.span * blocks.places, rel=1e-6)
    order_in_place = np.lexsort((blocks.t0, blocks.lane, blocks.sm))
    place = (blocks.sm * blocks.lanes + blocks.lane)[order_in_place]
    ends, begins = blocks.t1[order_in_place][:-1], blocks.t0[order_in_place][1:]
    assert (begins >= ends - 2 * blocks.slack)[place[1:] == place[:-1]].all()  # one block a place at a time
    if held == 1:
        assert [wave[:3] for wave in waves_of(blocks)] == list(turns(events, sms).begins)  # as the player has them


def test_a_run_that_began_late_and_was_recorded_by_a_clock_of_its_own() -> None:
    """Only differences of times count: time stamps of a GPU begin anywhere."""
    late = BY_HAND.copy()
    late["t0"] += 5e6
    late["t1"] += 5e6
    blocks, same = blocks_of(late, 2), blocks_of(BY_HAND, 2)
    assert blocks.span == same.span and len(idle_areas(blocks)) == 1
    assert shares_of(late, blocks).idle == pytest.approx(shares_of(BY_HAND, same).idle)


def test_one_sm_works_without_a_pause() -> None:
    p, t = Problem(H=2, N=64, d=8), Tiling(16, 8)
    unit = replace(H200, sms=1)
    events = clock(emit(p, t), unit, "fp32")
    blocks = blocks_of(events, 1)
    assert idle_areas(blocks) == () and len(waves_of(blocks)) == 8
    assert {PHASES[k].code for k in blocks.phases} >= {"load_Q", "S", "store_O"}
