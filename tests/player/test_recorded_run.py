"""A time-stamped run as the player takes it: the simulator's numbers and bytes, the GPU's times."""

from __future__ import annotations

import numpy as np
import pytest

from fmha import Problem, Tiling, simulate
from fmha.as_run import AsRun, as_run
from fmha.errors import LimitError
from fmha.inputs import load
from fmha.player.as_run import MOST_TILE_BYTES, play
from fmha.player.packing import unpack
from fmha.player.payload import MAX_VISITS, Scene, build, tile_bytes
from fmha.stamp_files import open_stamps, shipped
from tests.core.test_as_run import made

MOST_BYTES = 1536 << 10  # of what is sent, as for any other run
T = Tiling(16, 8)


def small(**changes: object) -> AsRun:
    p = Problem(N=32, d=8, H=2).replace(**changes)
    workers = p.B * p.H * T.Tr(p)
    return as_run(
        made(p, T, [9 - w for w in range(workers)], [1.5 * w for w in range(workers)], input="random", seed=3)
    )


def test_times_are_the_recordings_and_the_rest_is_the_simulators() -> None:
    run = small()
    now, said = play(run)
    inputs = load("random", run.problem, seed=3)
    model = simulate(run.problem, T, inputs.Q, inputs.K, inputs.V, precision="dtype")
    assert np.array_equal(now.run.O, model.O) and np.array_equal(now.run.m, model.m)
    for column in ("worker", "phase", "h", "i", "j", "nbytes", "flops"):
        assert np.array_equal(now.run.events[column], model.events[column])
    assert np.allclose(now.run.events["t0"], run.events["t0"]) and np.allclose(now.run.events["t1"], run.events["t1"])
    assert now.sms == 4 and now.run.events["sm"][0] == 3 and now.run.events["sm"].min() == 0
    assert "All 4 workers" in said and "4 of the 4 SMs" in said and "not recorded" in said
    meta, arrays = unpack(build(now.run, now.naive_events, now.served(), Scene(now.gpu, now.sms, race=True)))
    end = meta["end"]["flash"] * meta["tick"]
    assert end == pytest.approx(float(run.events["t1"].max()), rel=1e-6)
    assert arrays["f_block_sm"].tolist() == [3, 2, 1, 0]


def test_naive_is_slowed_as_much_as_flash_was() -> None:
    from fmha.player import scene

    now, _ = play(small())
    model = scene.prepare(now.run.problem, T, "q-outer", "random", sms=now.sms, seed=3, gpu=now.gpu)
    ratio = now.naive_events["t1"].max() / model.naive_events["t1"].max()
    assert ratio == pytest.approx(now.run.events["t1"].max() / model.run.events["t1"].max())


def test_what_cannot_be_played_is_told() -> None:
    with pytest.raises(LimitError, match="page Timeline"):
        play(small(B=2))
    with pytest.raises(LimitError, match="K/V head for each head"):
        play(small(Hk=1))


@pytest.mark.parametrize("name", shipped())
def test_every_recording_that_comes_with_the_app_can_be_played(name: str) -> None:
    run = as_run(open_stamps(shipped()[name]))
    if tile_bytes(run.problem, run.tiling) > MOST_TILE_BYTES:
        assert run.tiling.Br == 128
        with pytest.raises(LimitError, match=r"of its Q tiles take \d[\d.]* MiB.*look at it on the page Timeline"):
            play(run)
        return
    now, said = play(run)
    p = now.run.problem
    assert p.H * run.tiling.Tr(p) * run.tiling.Tc(p) <= MAX_VISITS
    blob = build(now.run, now.naive_events, now.served(), Scene(now.gpu, now.sms))
    assert len(blob) <= MOST_BYTES
    assert f"{p.H * run.tiling.Tr(p)}" in said
