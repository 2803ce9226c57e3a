"""SMs x time in cells: every cell shows what runs there at that moment, or, taken together, lengths that are true."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fmha import Problem, Tiling
from fmha.events import PHASES, emit
from fmha.gantt_map import FIRST_PHASE, IDLE, MOST_ROWS, WAITS, View, gantt_map, rows_in, whole
from fmha.hardware import GPUS
from fmha.spans import blocks_of
from fmha.timeline import clock
from tests.core.test_spans import BY_HAND, COMPUTE, LOAD

H200 = GPUS["H200"]


def test_three_blocks_on_two_sms() -> None:
    drawn = gantt_map(BY_HAND, blocks_of(BY_HAND, 2), View(0, 2, 0.0, 10.0), columns=200)
    assert drawn.how == "visits" and (drawn.lanes, drawn.tracks, drawn.hidden) == (1, 1, 0)
    L, C = FIRST_PHASE + LOAD, FIRST_PHASE + COMPUTE
    moments = [10, 50, 90, 130, 170]  # the middles of 0.5, 2.5, 4.5, ... microseconds
    assert drawn.cells[0, moments].tolist() == [L, C, L, L, C]
    assert drawn.cells[1, moments].tolist() == [L, WAITS, C, IDLE, IDLE]
    assert drawn.worker[0, moments].tolist() == [0, 0, 2, 2, 2] and drawn.worker[1, 199] == -1
    assert drawn.cells[0, 78:81].tolist() == [C, IDLE, L]  # a gap before block 2, which follows block 0


def test_a_view_of_one_sm_and_some_time() -> None:
    view = View(1, 1, 2.0, 8.0)
    drawn = gantt_map(BY_HAND, blocks_of(BY_HAND, 2), view, columns=60)
    assert drawn.cells[0, ::10].tolist() == [WAITS, *[FIRST_PHASE + COMPUTE] * 3, IDLE, IDLE]
    few = gantt_map(BY_HAND, blocks_of(BY_HAND, 2), view, columns=6)  # too few to see visits: phases side by side
    assert few.how == "blocks" and few.cells[0].tolist() == [*[FIRST_PHASE + COMPUTE] * 3, WAITS, IDLE, IDLE]
    rows, block = rows_in(BY_HAND, blocks_of(BY_HAND, 2), view)
    assert rows.tolist() == [3] and block.tolist() == [1]


@settings(max_examples=25)
@given(st.integers(1, 3), st.integers(8, 40), st.sampled_from(["q-outer", "kv-outer", "naive"]), st.integers(1, 3))
def test_a_close_view_shows_the_event_that_runs(H: int, N: int, order: str, stages: int) -> None:
    events = clock(emit(Problem(H=H, N=N, d=4), Tiling(8, 8), order), H200, "fp32", 3, stages=stages)
    blocks = blocks_of(events, 3)
    view = View(0, 3, blocks.begin, blocks.begin + blocks.span / 8)
    drawn = gantt_map(events, blocks, view, columns=400)
    moments = view.begin + (np.arange(400) + 0.5) * (view.end - view.begin) / 400
    is_load = np.array([p.is_load for p in PHASES])[events["phase"]]
    for sm in range(3):
        for track in range(drawn.tracks):
            mine = (events["sm"] == sm) & (is_load == (track == 0) if drawn.tracks == 2 else True)
            runs = mine & (events["t0"] <= moments[:, None]) & (events["t1"] > moments[:, None])
            cells = drawn.cells[sm * drawn.tracks + track]
            shown = cells >= FIRST_PHASE
            assert (runs.any(axis=1) >= shown).all()  # nothing is shown that does not run
            assert (events["phase"][runs.argmax(axis=1)] == cells - FIRST_PHASE)[shown].all()
            assert (~runs.any(axis=1) | shown).mean() > 0.97  # and nothing is left out but gaps between blocks


@pytest.mark.parametrize("stages", [1, 2])
@pytest.mark.parametrize("causal", [None, "br"])
def test_taken_together_each_phase_has_its_true_length(stages: int, causal: str | None) -> None:
    p = Problem(H=4, N=1024, d=64, causal=causal)  # type: ignore[arg-type]
    events = clock(emit(p, Tiling(32, 32)), H200, "fp32", 40, stages=stages)
    blocks = blocks_of(events, 40)
    drawn = gantt_map(events, blocks, whole(blocks), columns=1000)
    assert drawn.how == "blocks" and drawn.cells.shape == (40 * drawn.tracks, 1000) and drawn.tracks == stages
    width = blocks.span / 1000
    for tensor in "QKVSmPO":
        phases = [p for p in blocks.phases if PHASES[p].tensor == tensor]
        painted = np.isin(drawn.cells, np.array(phases) + FIRST_PHASE).sum() * width
        gap = 1 if tensor == "O" and stages == 1 else 0  # the last column of a block is left out before the next
        true = blocks.by_phase[:, phases].sum() - gap * width * (len(blocks) - 40)
        assert painted == pytest.approx(true, abs=width * len(blocks)), tensor
    held = np.zeros(40)
    np.add.at(held, blocks.sm, blocks.t1 - blocks.t0)
    assert (drawn.worker >= 0)[:: drawn.tracks].sum(axis=1) * width == pytest.approx(held, abs=2 * width)


def test_more_places_than_there_is_room_for() -> None:
    events = clock(emit(Problem(H=16, N=512, d=8), Tiling(16, 16)), H200, "fp32", 132, blocks_per_sm=8)
    blocks = blocks_of(events, 132)
    drawn = gantt_map(events, blocks, whole(blocks))
    assert blocks.lanes == 4 and drawn.lanes == MOST_ROWS // 132 == 2 and drawn.hidden == 2
    assert len(drawn.cells) == 264
