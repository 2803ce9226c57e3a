"""The stamped source of a kernel runs, stays right, and its stamps become an event table."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from fmha import Problem, Tiling
from fmha.check import check
from fmha.events import emit
from fmha.kernels import KERNELS
from fmha.stamps import BUFFER, HEAD, as_facts, read_stamps, room_for, stamped, stamped_events
from fmha.trace.build import build
from fmha.trace.run import run
from tests.trace.support import inputs

RAGGED = [
    (Problem(N=64, d=16, H=2), Tiling(16, 8)),
    (Problem(N=50, d=8, causal="br"), Tiling(16, 8)),
    (Problem(Nq=30, Nk=8, d=8, causal="br"), Tiling(16, 8)),
]
CASES = [("02", p, t) for p, t in [*RAGGED, (Problem(N=1, d=1), Tiling(16, 8))]]
# Several rows to a warp, and several to a thread: their softmax's phases come again at each visit.
CASES += [(number, *RAGGED[1]) for number in ("03", "04", "05")]
CASES += [("04", Problem(N=70, d=8), Tiling(32, 4)), ("06", Problem(N=70, d=8, H=2, causal="br"), Tiling(32, 16))]


@pytest.mark.parametrize(("number", "p", "t"), CASES)
def test_a_stamped_run_on_the_cpu(number: str, p: Problem, t: Tiling, cache: Path) -> None:
    kernel = KERNELS[number]
    plan = kernel.plan(p, t)
    (launch,) = plan.launches
    room = room_for(p, t, launch.block)
    launch = dataclasses.replace(launch, arguments=(*launch.arguments, BUFFER, room))
    program = build(
        kernel.path, [launch.function], plan.defines,
        text=stamped(kernel.source(), launch.function, kernel.file), cache=cache,
    )  # fmt: skip
    Q, K, V = inputs(p)
    sizes = {"O": 4 * p.B * p.H * p.Nq * p.d, BUFFER: 8 * launch.grid * (HEAD + room)}
    done = run(program, [launch], {"Q": Q, "K": K, "V": V}, sizes, flags=0)
    assert check(p, Q, K, V, done.outputs["O"].reshape(p.B, p.H, p.Nq, p.d)).ok
    stamps = read_stamps(done.outputs[BUFFER].view(np.uint64), launch.grid, as_facts(p, t))
    table = stamped_events(stamps, kernel.source())
    assert np.array_equal(table["phase"], emit(p, t)["phase"])
    assert (table["t1"] >= table["t0"]).all() and table["t0"].min() >= 0 and table["t1"].max() > 0
    for worker in range(launch.grid):
        mine = table[table["worker"] == worker]
        assert (mine["t0"][1:] >= mine["t1"][:-1] - 1e-6).all()
        assert mine["t1"][-1] == pytest.approx(stamps.end_us[worker], abs=1e-6)
