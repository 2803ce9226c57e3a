"""The timeline's options: stages, block orders, blocks that share an SM, bytes that L2 serves. By hand where it can be.

What holds for the timeline as such (costs add up, one block an SM, no gaps) is in test_events.py.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fmha.dispatch import BLOCK_ORDERS
from fmha.errors import ProblemError
from fmha.events import CODE, EVENT, PHASES, emit
from fmha.hardware import GPUS
from fmha.inputs import load
from fmha.problem import Problem, Tiling
from fmha.simulation import simulate
from fmha.state import replay
from fmha.timeline import busy_share, clock, covered_us, event_cost_us

H200 = GPUS["H200"]
# One SM, one byte and one FLOP a microsecond: costs are counts.
UNIT = replace(H200, sms=1, hbm_gbps=1e-3, fp32_tflops=1e-6, fp16_tflops=1e-6)


def visits(loads: list[float], works: list[float], worker: int = 0) -> np.ndarray:
    """Events of one worker: for each visit a load of so many bytes, then so many FLOPs."""
    events = np.zeros(2 * len(loads), EVENT)
    events["worker"], events["i"], events["j"] = worker, worker, np.repeat(np.arange(len(loads)), 2)
    events["phase"] = [CODE["load_K"], CODE["S"]] * len(loads)
    events["nbytes"][0::2], events["flops"][1::2] = loads, works
    return events


@pytest.mark.parametrize(
    ("stages", "ends"),
    [
        (1, [3, 8, 12]),  # 2+1, 4+1, 3+1: one after the other
        (2, [3, 7, 10]),  # loads end at 2, 6, 9: the memory is never idle
        (3, [3, 7, 10]),
    ],
)
def test_loads_that_take_longer(stages: int, ends: list[int]) -> None:
    events = clock(visits([2, 4, 3], [1, 1, 1]), UNIT, "fp32", stages=stages)
    assert events["t1"][1::2].tolist() == ends


@pytest.mark.parametrize(
    ("stages", "loads_start", "ends"),
    [
        (1, [0, 6, 12, 18], [6, 12, 18, 24]),
        (2, [0, 1, 6, 11], [6, 11, 16, 21]),  # load 2 waits for visit 0 to leave its buffer
        (3, [0, 1, 2, 6], [6, 11, 16, 21]),
    ],
)
def test_computation_that_takes_longer(stages: int, loads_start: list[int], ends: list[int]) -> None:
    events = clock(visits([1, 1, 1, 1], [5, 5, 5, 5]), UNIT, "fp32", stages=stages)
    assert events["t0"][0::2].tolist() == loads_start
    assert events["t1"][1::2].tolist() == ends


problems = st.builds(
    lambda H, N, d, causal: Problem(H=H, N=N, d=d, causal=causal),
    st.integers(1, 3), st.integers(1, 40), st.sampled_from([4, 8]), st.sampled_from([None, "bottom-right"]),
)  # fmt: skip
tilings = st.builds(Tiling, st.integers(1, 12), st.integers(1, 12))
orders = st.sampled_from(["q-outer", "kv-outer", "naive"])


@given(problems, tilings, orders, st.integers(1, 4), st.integers(1, 5))
def test_more_stages_are_never_slower_and_keep_their_promises(
    p: Problem, t: Tiling, order: str, stages: int, sms: int
) -> None:
    untimed = emit(p, t, order)
    one, more = (clock(untimed, H200, "fp32", sms, stages=s) for s in (1, stages))
    assert more["t1"].max() <= one["t1"].max() * (1 + 1e-9)
    cost = event_cost_us(untimed, H200, "fp32")
    np.testing.assert_allclose(more["t1"] - more["t0"], cost, atol=1e-9)
    is_load = np.array([phase.is_load for phase in PHASES])[more["phase"]]
    for worker, kernel in {(int(e["worker"]), int(e["kernel"])) for e in more}:
        mine = (more["worker"] == worker) & (more["kernel"] == kernel)
        for lane in (more[mine & is_load], more[mine & ~is_load]):  # each lane does one thing at a time, in order
            assert (lane["t0"][1:] >= lane["t1"][:-1] - 1e-9).all()
        where = more[mine]
        for i, j in {(int(e["i"]), int(e["j"])) for e in where}:
            visit = where[(where["i"] == i) & (where["j"] == j)]
            loads = is_load[mine][(where["i"] == i) & (where["j"] == j)]
            if loads.any() and (~loads).any() and order == "q-outer":
                assert visit["t0"][~loads].min() >= visit["t1"][loads].max() - 1e-9  # computed when it is there


def test_one_stage_is_what_it_was() -> None:
    """Overlap with one buffer is no overlap: the general recurrence gives the plain timeline."""
    p, t = Problem(H=2, N=64, d=8), Tiling(16, 8)
    plain = clock(emit(p, t), H200, "fp32", 3)
    assert (np.diff(plain["t0"][plain["worker"] == 1]) >= 0).all()
    ends = [clock(emit(p, t), H200, "fp32", 3, stages=s)["t1"].max() for s in (1, 2, 3, 8)]
    assert ends == sorted(ends, reverse=True) and ends[-1] < ends[0]


def starts(events: np.ndarray) -> list[int]:
    """Workers in the order in which they start."""
    workers = np.unique(events["worker"])
    return [int(w) for w in sorted(workers, key=lambda w: events["t0"][events["worker"] == w].min())]


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        ("head-major", [0, 1, 2, 3, 4, 5]),
        ("tile-major", [0, 3, 1, 4, 2, 5]),
        ("heavy-first", [2, 1, 0, 5, 4, 3]),
        ("reversed K/V", [0, 1, 2, 3, 4, 5]),
    ],
)
def test_block_orders_on_one_sm(order: str, expected: list[int]) -> None:
    p, t = Problem(H=2, N=6, d=4, causal="bottom-right"), Tiling(2, 2)
    assert starts(clock(emit(p, t), H200, "fp32", 1, block_order=order)) == expected
    if order != "reversed K/V":  # a kv-outer worker has a whole head, so there is nothing to reorder
        assert starts(clock(emit(p, t, "kv-outer"), H200, "fp32", 1, block_order=order)) == [0, 1]


@given(problems, tilings, st.sampled_from(BLOCK_ORDERS), st.integers(1, 4), st.integers(1, 3))
def test_an_order_changes_when_and_not_what(p: Problem, t: Tiling, order: str, sms: int, resident: int) -> None:
    untimed = emit(p, t)
    timed = clock(untimed, H200, "fp32", sms, block_order=order, blocks_per_sm=resident)
    columns = ["worker", "phase", "i", "j", "nbytes", "flops", "vector_flops"]
    assert sorted(untimed[columns].tolist()) == sorted(timed[columns].tolist())
    assert set(timed["sm"]) <= set(range(sms))
    for sm in range(sms):  # never more blocks at once than there is room for
        here = timed[timed["sm"] == sm]
        spans = [(e["t0"].min(), e["t1"].max()) for e in (here[here["worker"] == w] for w in np.unique(here["worker"]))]
        for begin, end in spans:
            middle = (begin + end) / 2
            assert sum(b < middle < e for b, e in spans) <= resident


def test_heavy_first_ends_earlier_under_a_causal_mask() -> None:
    p, t = Problem(N=64, d=8, causal="bottom-right"), Tiling(8, 8)
    plain, heavy = (clock(emit(p, t), H200, "fp32", 3, block_order=o) for o in ("head-major", "heavy-first"))
    assert heavy["t1"].max() < plain["t1"].max()
    assert busy_share(heavy, 3) > busy_share(plain, 3)


def test_reversed_k_and_v_is_another_program_with_the_same_result() -> None:
    p, t = Problem(H=2, N=24, d=8, causal="bottom-right"), Tiling(8, 4)
    events = clock(emit(p, t), H200, "fp32", 2, block_order="reversed K/V")
    odd = events[(events["worker"] == 1) & (events["phase"] == CODE["load_K"])]
    assert odd["j"].tolist() == [3, 2, 1, 0]
    even = events[(events["worker"] == 2) & (events["phase"] == CODE["load_K"])]
    assert even["j"].tolist() == [0, 1, 2, 3, 4, 5]
    inputs = load("random", p)
    done = replay(events, p, t, inputs.Q, inputs.K, inputs.V, "float64", None)
    plain = simulate(p, t, inputs.Q, inputs.K, inputs.V)
    np.testing.assert_allclose(done.O, plain.O, atol=1e-12)


def test_blocks_that_share_an_sm_share_its_speed() -> None:
    two = np.concatenate([visits([2], [3], worker=0), visits([2], [3], worker=1)])
    alone, shared = (clock(two, UNIT, "fp32", 1, blocks_per_sm=b) for b in (1, 2))
    assert alone["t1"].max() == shared["t1"].max() == 10
    assert shared["t0"].tolist() == [0, 4, 0, 4]
    few = clock(two, UNIT, "fp32", 2, blocks_per_sm=8)  # two SMs for two blocks: nobody shares
    assert few["t1"].max() == 5 and set(few["sm"]) == {0, 1}


def test_what_l2_serves_takes_less_time() -> None:
    events = emit(Problem(N=16, d=8), Tiling(8, 8))
    gpu = replace(H200, l2_bytes_per_clock=8192)
    assert gpu.l2_gbps is not None
    k = events["phase"] == CODE["load_K"]
    from_hbm = event_cost_us(events, gpu, "fp32")
    half = event_cost_us(events, gpu, "fp32", {"K": 0.5})
    assert half[k] == pytest.approx(from_hbm[k] / 2 * (1 + gpu.hbm_gbps / gpu.l2_gbps))
    assert (half[~k] == from_hbm[~k]).all()
    unknown = replace(H200, l2_bytes_per_clock=None)
    assert (event_cost_us(events, unknown, "fp32", {"K": 0.0}) == event_cost_us(events, unknown, "fp32")).all()


def test_busy_share() -> None:
    blocks = np.concatenate([visits([1], [1], worker=w) for w in range(3)])
    assert busy_share(clock(blocks, UNIT, "fp32", 2), 2) == pytest.approx(0.75)  # two waves, the second half full
    assert busy_share(clock(visits([2, 4], [1, 1]), UNIT, "fp32", stages=2), 1) == pytest.approx(1.0)
    assert busy_share(np.zeros(0, EVENT), 4) == 0


@pytest.mark.parametrize(
    "wrong", [{"stages": 0}, {"stages": 99}, {"blocks_per_sm": 0}, {"blocks_per_sm": 2.5}, {"block_order": "no"}]
)
def test_refusals(wrong: dict[str, object]) -> None:
    with pytest.raises(ProblemError):
        clock(emit(Problem(N=4, d=4), Tiling(2, 2)), H200, "fp32", **wrong)  # type: ignore[arg-type]


def test_equal_blocks_go_to_the_sms_in_order_wave_after_wave() -> None:
    """Last bits of their sums must not decide which SM is free first."""
    for N, Br, sms in ((128, 8, 4), (24, 8, 2), (512, 8, 16), (96, 8, 3)):
        p = Problem(N=N, d=8)
        events = clock(emit(p, Tiling(Br, 8)), H200, p.dtype, sms)
        for tile in range(N // Br):
            assert set(events["sm"][events["i"] == tile]) == {tile % sms}


def test_a_table_that_is_given_away_is_filled_in_place() -> None:
    events = emit(Problem(H=2, N=64, d=8), Tiling(16, 8))
    apart = clock(events, H200, "fp32", 3)
    assert (events["sm"] == -1).all() and apart is not events
    given_away = clock(events, H200, "fp32", 3, copy=False)
    assert given_away is events
    np.testing.assert_array_equal(given_away, apart)


def test_time_that_is_covered() -> None:
    sm, t0, t1 = np.array([0, 0, 1, 0]), np.array([0.0, 1.0, 0.0, 6.0]), np.array([3.0, 5.0, 2.0, 7.0])
    assert covered_us(sm, t0, t1) == 5 + 2 + 1
    assert covered_us(sm[:0], t0[:0], t1[:0]) == 0
