"""The event table: columns, program order, times, SMs."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fmha import Problem, Tiling
from fmha.errors import LimitError, ProblemError
from fmha.events import CODE, EVENT, HBM, MAX_EVENTS, MEMORIES, PHASES, SMEM, TENSORS, emit, most_events
from fmha.hardware import DEFAULT_GPU, GPUS
from fmha.schedule import ORDERS
from fmha.timeline import clock, event_cost_us
from tests.core.yardstick import problems, tilings

orders = st.sampled_from(ORDERS)
H200 = GPUS["H200"]


def test_phases_are_consistent() -> None:
    assert len({phase.code for phase in PHASES}) == len(PHASES) == len(CODE) <= 255
    for index, phase in enumerate(PHASES):
        assert CODE[phase.code] == index and phase.tensor in TENSORS
        assert phase.src < len(MEMORIES) and phase.dst < len(MEMORIES)
        assert phase.is_load + phase.is_store + phase.is_matmul <= 1
        assert (phase.src == HBM) == phase.is_load and (phase.dst == HBM) == phase.is_store


def test_worked_example_phase_by_phase() -> None:
    """Two workers of two visits each: the words that a page shows, in order."""
    events = emit(Problem(N=4, d=4), Tiling(2, 2), write_lse=True)
    visit = ["load_K", "load_V", "S", "m", "P", "O"]
    one = ["load_Q", *visit, *visit, "normalize", "store_O", "store_LSE"]
    assert [PHASES[phase].code for phase in events["phase"]] == one * 2
    assert events["worker"].tolist() == [0] * 16 + [1] * 16
    assert events["j"][:16].tolist() == [0] * 7 + [1] * 9 and events["i"].tolist() == [0] * 16 + [1] * 16
    assert events["nbytes"][:3].tolist() == [2 * 4 * 4] * 3 and events["nbytes"][15] == 8
    assert events["flops"][3] == 2 * 2 * 2 * 4


@settings(max_examples=100)
@given(problems(), tilings(), orders, st.booleans())
def test_columns(p: Problem, t: Tiling, order: str, write_lse: bool) -> None:
    events = emit(p, t, order, write_lse=write_lse)
    assert events.dtype == EVENT and len(events)
    phase = events["phase"]
    for name, count in (("b", p.B), ("h", p.H), ("i", t.Tr(p)), ("j", t.Tc(p))):
        assert (events[name] >= (-1 if name == "j" else 0)).all() and (events[name] < count).all()
    loads, stores, matmuls = (
        np.isin(phase, [k for k, what in enumerate(PHASES) if getattr(what, flag)])
        for flag in ("is_load", "is_store", "is_matmul")
    )
    assert (events["nbytes"][loads | stores] > 0).all() and (events["nbytes"][~(loads | stores)] == 0).all()
    assert (events["flops"][matmuls] > 0).all() and (events["flops"][~matmuls] == 0).all()
    for column, wanted in (("src", "src"), ("dst", "dst")):
        assert events[column].tolist() == [getattr(PHASES[k], wanted) for k in phase]
    assert [TENSORS[k] for k in events["tensor"]] == [PHASES[k].tensor for k in phase]
    assert set(events["src"]) | set(events["dst"]) <= {SMEM, HBM}
    # worker after worker, kernel after kernel
    block = events["kernel"].astype(np.int64) * (1 << 32) + events["worker"]
    assert (np.diff(block) >= 0).all()
    expected = (events["b"] * p.H + events["h"]) * (1 if order == "kv-outer" else t.Tr(p))
    assert (events["worker"] == expected + (0 if order == "kv-outer" else events["i"])).all()
    assert (events["t0"] == 0).all() and (events["sm"] == -1).all()
    stored = events[np.isin(phase, [CODE["store_O"]])]
    rows = {(int(e["b"]), int(e["h"]), int(e["i"])) for e in stored}
    if order != "kv-outer":  # a worker that sees no key still writes its zeros
        assert len(rows) == len(stored) == p.B * p.H * t.Tr(p)


@settings(max_examples=80)
@given(problems(), tilings(), orders, st.integers(1, 5), st.sampled_from(sorted(GPUS)))
def test_times_and_sms(p: Problem, t: Tiling, order: str, sms: int, key: str) -> None:
    gpu = GPUS[key]
    untimed = emit(p, t, order)
    events = clock(untimed, gpu, p.dtype, sms)
    for name in EVENT.names or ():
        if name not in ("t0", "t1", "sm"):
            assert (events[name] == untimed[name]).all()
    assert np.isfinite(events["t1"]).all() and (events["t1"] >= events["t0"]).all() and (events["t0"] >= 0).all()
    assert ((events["sm"] >= 0) & (events["sm"] < sms)).all()
    np.testing.assert_allclose(events["t1"] - events["t0"], event_cost_us(untimed, gpu, p.dtype), atol=1e-9)
    same = (np.diff(events["worker"]) == 0) & (np.diff(events["kernel"]) == 0)
    assert (events["t0"][1:][same] == events["t1"][:-1][same]).all()  # exactly: no gap, no overlap
    blocks = _blocks(events)
    for earlier, later in pairwise(blocks):
        if later[0] > earlier[0]:
            barrier = max(end for kernel, _, _, _, end in blocks if kernel < later[0])
            assert later[3] >= barrier - 1e-9
    for sm in range(sms):
        own = sorted((start, end) for _, _, used, start, end in blocks if used == sm)
        assert all(b[0] >= a[1] - 1e-9 for a, b in pairwise(own))
    _check_greedy(blocks, sms)


def _blocks(events: np.ndarray) -> list[tuple[int, int, int, float, float]]:
    """(kernel, worker, sm, start, end) of every block, in block order."""
    found: dict[tuple[int, int], list[float]] = {}
    for event in events:
        entry = found.setdefault((int(event["kernel"]), int(event["worker"])), [event["sm"], event["t0"], 0.0])
        assert entry[0] == event["sm"]
        entry[2] = event["t1"]
    return [(kernel, worker, int(sm), start, end) for (kernel, worker), (sm, start, end) in found.items()]


def _check_greedy(blocks: list[tuple[int, int, int, float, float]], sms: int) -> None:
    """Each block starts on the SM that is free first, as soon as it is free."""
    for kernel in {block[0] for block in blocks}:
        begin = max((end for k, _, _, _, end in blocks if k < kernel), default=0.0)
        free = [begin] * sms
        for _, _, sm, start, end in (block for block in blocks if block[0] == kernel):
            assert start == pytest.approx(min(free), abs=1e-9) and free[sm] == pytest.approx(min(free), abs=1e-9)
            free[sm] = end


def test_cost_is_what_the_text_says() -> None:
    """One SM's share: bytes over bandwidth / SMs plus FLOPs over peak / SMs."""
    p, t = Problem(N=64, d=32, dtype="fp16"), Tiling(16, 16)
    events = emit(p, t)
    load, product = (int(np.flatnonzero(events["phase"] == CODE[code])[0]) for code in ("load_K", "S"))
    cost = event_cost_us(events, H200, "fp16")
    assert cost[load] == pytest.approx(16 * 32 * 2 / (4800e9 / 132) * 1e6)
    assert cost[product] == pytest.approx(2 * 16 * 16 * 32 / (989e12 / 132) * 1e6)
    assert event_cost_us(events, H200, "fp32")[product] == pytest.approx(2 * 16 * 16 * 32 / (67e12 / 132) * 1e6)


def test_default_is_all_sms() -> None:
    p, t = Problem(N=512, d=16), Tiling(2, 64)
    assert len(set(clock(emit(p, t), GPUS[DEFAULT_GPU], "fp32")["sm"])) == GPUS[DEFAULT_GPU].sms
    assert set(clock(emit(p, t), H200, "fp32", 1)["sm"]) == {0}


@pytest.mark.parametrize("sms", [0, -1, 1.5, "4", 10**6, True])
def test_bad_sm_count(sms: object) -> None:
    with pytest.raises(ProblemError, match="sms="):
        clock(emit(Problem(N=4), Tiling(2, 2)), H200, "fp32", sms)  # type: ignore[arg-type]


def test_empty_table_has_no_times() -> None:
    assert len(clock(np.zeros(0, EVENT), H200, "fp32")) == 0


@pytest.mark.parametrize("order", ORDERS)
def test_too_many_events_are_refused_at_once(order: str) -> None:
    with pytest.raises(LimitError, match=r"10\.0 million are allowed.*counting bytes alone"):
        emit(Problem(B=64, H=64, N=1 << 20), Tiling(1, 1), order)
    with pytest.raises(LimitError):
        emit(Problem(N=1 << 24), Tiling(1, 1 << 24), order)  # many Q tiles, one K/V tile


@settings(max_examples=60)
@given(problems(), tilings(), orders, st.booleans())
def test_the_estimate_of_rows_is_an_upper_bound(p: Problem, t: Tiling, order: str, write_lse: bool) -> None:
    heads, Tr, Tc = p.B * p.H, t.Tr(p), t.Tc(p)
    per = {"q-outer": (6, 4, 0), "kv-outer": (11, 3, 2), "naive": (6, 3, 2)}[order]
    assert len(emit(p, t, order, write_lse=write_lse)) <= heads * (per[0] * Tr * Tc + per[1] * Tr + per[2] * Tc)
    assert MAX_EVENTS >= 1_000_000


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("causal", [None, "br", "tl"])
def test_heads_that_do_the_same_are_emitted_once_and_repeated(order: str, causal: Any) -> None:
    """A second batch entry of another length makes every head be worked out by itself: the first entry's rows agree."""
    problem, tiling = Problem(B=2, H=3, N=21, d=4, causal=causal), Tiling(8, 4)
    alike = emit(problem.replace(lens_k=(18, 18)), tiling, order, write_lse=True)
    apart = emit(problem.replace(lens_k=(18, 7)), tiling, order, write_lse=True)
    for name in EVENT.names or ():
        np.testing.assert_array_equal(alike[name][alike["b"] == 0], apart[name][apart["b"] == 0])
    assert len(alike) == 2 * (alike["b"] == 0).sum()
    assert len(alike) <= most_events(problem, tiling, order)
