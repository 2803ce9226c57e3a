"""A recorded run as an event table with the GPU's SMs, beside the model's; what the player can show of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fmha import Problem, Tiling
from fmha.as_run import as_run, calibrated_us, part, predicted, spread_of, stretched, title
from fmha.errors import FmhaError
from fmha.events import CODE, emit
from fmha.forecast import forecast
from fmha.hardware import GPUS
from fmha.kernels import KERNELS
from fmha.phases import phases
from fmha.spans import shares_of
from fmha.stamp_files import open_stamps, shipped
from fmha.stamps import Stamps, as_facts
from fmha.timeline import clock

KERNEL = KERNELS["02"]
FILES = shipped()
MOST_BYTES = 300_000  # of a recording that comes with the app


def made(p: Problem, t: Tiling, sms: list[int], begins: list[float], lasts: float = 10.0, **facts: Any) -> Stamps:
    """A recording in which every phase of a visit takes the same time."""
    table = emit(p, t)
    order = {CODE["load_Q"]: 0, CODE["load_K"]: 1, CODE["S"]: 2, CODE["m"]: 3, CODE["P"]: 4, CODE["O"]: 6}
    order |= {CODE["normalize"]: 7}
    at, phase, counts = [], [], []
    for worker, begin in enumerate(begins):
        mine = [order[int(c)] for c in table["phase"][table["worker"] == worker] if int(c) in order]
        at += [begin + lasts * n / len(mine) for n in range(len(mine))]
        phase += mine
        counts.append(len(mine))
    usual = {"device": "NVIDIA H200", "sms": 132, "kernel": "02", "source": KERNEL.source_hash(), "made": "2026-11-30"}
    names = [one.maths for one in phases(KERNEL.source())]
    whole = as_facts(p, t, **{**usual, "phases": names, **facts})
    start = np.array(begins)
    return Stamps(
        whole, np.array(sms, np.int32), start, start + lasts, np.concatenate([[0], np.cumsum(counts)]), np.array(at),
        np.array(phase, np.uint8),
    )  # fmt: skip


def test_sms_are_those_of_the_gpu_and_time_begins_at_0() -> None:
    p, t = Problem(N=32, d=8, H=2), Tiling(16, 8)
    run = as_run(made(p, t, [7, 3, 7, 131], [5.0, 5.0, 14.96, 30.0]))
    assert run.sms == 132 and run.blocks.sm.tolist() == [7, 3, 7, 131]
    assert run.events["t0"].min() == 0.0 and run.blocks.end == pytest.approx(35.0)
    assert run.blocks.lanes == 1  # it began within a step of the time that SMs share, when the other ended
    assert run.blocks.t0[2] == pytest.approx(10.0) and run.blocks.t1[2] == pytest.approx(20.0)
    assert run.is_of_this_source and run.gpu is not None and run.gpu.key == "H200"
    assert as_run(made(p, t, [7, 3, 7, 131], [5.0, 5.0, 9.0, 30.0])).blocks.lanes == 2
    other = as_run(made(p, t, [0] * 4, [0.0] * 4, source="0" * 12, device="Other", kernel="99"))
    assert not other.is_of_this_source and other.kernel is None and other.gpu is None and calibrated_us(other) is None
    with pytest.raises(FmhaError, match="peaks"):
        predicted(other)


def test_predicted_is_the_model_with_as_many_blocks_on_an_sm() -> None:
    p, t = Problem(N=32, d=8, H=2, causal="bottom-right"), Tiling(16, 8)
    run = as_run(made(p, t, [0, 0, 1, 1], [0.0] * 4))
    model = clock(emit(p, t), GPUS["H200"], "fp32", 132, blocks_per_sm=2)
    assert np.array_equal(predicted(run), model)
    said = forecast(KERNEL, p, t, GPUS["H200"]).time_us
    assert calibrated_us(run) == pytest.approx(said)
    longer = stretched(model, 100.0)
    assert longer["t1"].max() == pytest.approx(100.0) and np.array_equal(longer["phase"], model["phase"])
    assert longer["t0"][-1] / model["t0"][-1] == pytest.approx(100.0 / float(model["t1"].max()))


def test_the_numbers_of_a_timeline() -> None:
    p, t = Problem(N=32, d=8, H=2), Tiling(16, 8)
    run = as_run(made(p, t, [0, 1, 2, 3], [0.0, 0.0, 0.0, 0.0]))
    found = spread_of(run.blocks, shares_of(run.events, run.blocks).idle)
    assert found.span_us == pytest.approx(10.0) and found.worker_us == pytest.approx(10.0)
    assert found.visit_us == pytest.approx(10.0 / 4) and found.spread == pytest.approx(0.0) and found.places == 1
    assert found.idle == pytest.approx(128 / 132) and found.between_us is None
    apart = as_run(made(p, t, [0, 0, 0, 5], [0.0, 10.5, 21.5, 0.0]))
    assert spread_of(apart.blocks, 0.0).between_us == pytest.approx(0.75)
    assert sum(found.shares.values()) == pytest.approx(1.0) and found.shares["S"] == pytest.approx(4 / 22)


def test_the_player_gets_whole_heads_with_an_sm_for_each_worker() -> None:
    p, t = Problem(N=32, d=8, H=3), Tiling(16, 8)
    run = as_run(made(p, t, [9, 8, 7, 6, 9, 5], [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]))
    found = part(run, 4096, 64)
    assert found is not None and (found.heads, found.sms, found.workers) == (2, 4, 4)  # SM 9 is taken at 4
    assert found.events["sm"][found.events["worker"] == 0][0] == 3 and found.events["t0"].min() == 0.0
    assert np.array_equal(found.events["nbytes"], emit(p.replace(H=2, Hk=2), t)["nbytes"])
    assert (small := part(run, 8, 64)) is not None and small.heads == 1
    assert part(run, 7, 64) is None and part(run, 4096, 1) is None
    assert part(as_run(made(p.replace(B=2), t, list(range(12)), [0.0] * 12)), 4096, 64) is None


@pytest.mark.parametrize("name", FILES)
def test_recordings_that_come_with_the_app(name: str) -> None:
    """They are small, fit the events of their problem, follow one another on an SM, and add up to the kernel's time."""
    path = FILES[name]
    assert path.stat().st_size <= MOST_BYTES
    run = as_run(open_stamps(path))
    facts = run.stamps.facts
    assert run.gpu is not None and run.kernel is not None and title(run.stamps).startswith(f"{facts['kernel']} on H200")
    assert np.array_equal(run.events["nbytes"], emit(run.problem, run.tiling)["nbytes"])
    # The stated times are medians of runs with cold caches, with what a launch takes before and after its blocks.
    assert run.blocks.span == pytest.approx(facts["stamped_us"], rel=0.05, abs=80)
    assert run.blocks.lanes <= facts["blocks_per_sm"]  # what the driver says an SM holds
    shown = part(run, 4096, 64)
    assert shown is not None and shown.workers >= 8
    found = spread_of(run.blocks, 0.0)
    if facts["kernel"] == "02":  # bank conflicts
        assert found.shares["S"] == max(found.shares.values()) > 0.8
    if run.blocks.lanes == 1 and found.between_us is not None:  # the next block begins when one has ended, and soon
        assert 0.2 < found.between_us < 2.0


def test_there_are_recordings() -> None:
    runs = [open_stamps(path) for path in FILES.values()]
    assert {run.tiling.Br for run in runs if run.facts["kernel"] < "07"} == {32}  # these the player takes
    assert {run.facts["kernel"] for run in runs} == {"02", "03", "06", "07", "12", "13"}


@pytest.mark.parametrize("name", [name for name in FILES if "-07-" in name or "-13-" in name])
def test_tiles_come_under_computation(name: str) -> None:
    """The next K is on its way while O is computed, and the next V while S is; both are there when they are used."""
    run = as_run(open_stamps(FILES[name]))
    assert run.blocks.tracks == 2 and run.blocks.lanes == 2
    at = {code: run.events[run.events["phase"] == CODE[code]] for code in ("load_K", "load_V", "S", "O")}
    slack = run.blocks.slack
    assert (at["load_K"]["t1"] <= at["S"]["t0"] + slack).all() and (at["load_V"]["t1"] <= at["O"]["t0"] + slack).all()
    same = at["O"]["worker"][1:] == at["O"]["worker"][:-1]
    assert (at["load_K"]["t0"][1:] < at["O"]["t0"][:-1])[same].all()
    assert (at["load_V"]["t0"] < at["S"]["t0"]).all()
