"""The stamped source of the tutorial's kernel runs, stays right, and its stamps become an event table."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from fmha import Problem, Tiling
from fmha.check import check
from fmha.events import emit
from fmha.kernels import KERNELS
from fmha.stamps import BUFFER, HEAD, as_facts, read_stamps, stamped, stamped_events
from fmha.trace.build import build
from fmha.trace.run import run
from tests.trace.support import inputs

KERNEL = KERNELS["02"]


@pytest.mark.parametrize(
    "p",
    [
        Problem(N=64, d=16, H=2),
        Problem(N=50, d=8, causal="br"),
        Problem(Nq=30, Nk=8, d=8, causal="br"),
        Problem(N=1, d=1),
    ],
)
def test_a_stamped_run_on_the_cpu(p: Problem, cache: Path) -> None:
    t = Tiling(16, 8)
    plan = KERNEL.plan(p, t)
    room = 8 * t.Tc(p) + 8
    (launch,) = plan.launches
    launch = dataclasses.replace(launch, arguments=(*launch.arguments, BUFFER, room))
    program = build(
        KERNEL.path, [launch.function], plan.defines,
        text=stamped(KERNEL.source(), launch.function, KERNEL.file), cache=cache,
    )  # fmt: skip
    Q, K, V = inputs(p)
    sizes = {"O": 4 * p.B * p.H * p.Nq * p.d, BUFFER: 8 * launch.grid * (HEAD + room)}
    done = run(program, [launch], {"Q": Q, "K": K, "V": V}, sizes, flags=0)
    assert check(p, Q, K, V, done.outputs["O"].reshape(p.B, p.H, p.Nq, p.d)).ok
    stamps = read_stamps(done.outputs[BUFFER].view(np.uint64), launch.grid, as_facts(p, t))
    table = stamped_events(stamps, KERNEL.source())
    assert np.array_equal(table["phase"], emit(p, t)["phase"])
    assert (table["t1"] >= table["t0"]).all() and table["t0"].min() >= 0 and table["t1"].max() > 0
    for worker in range(launch.grid):
        mine = table[table["worker"] == worker]
        assert (mine["t0"][1:] >= mine["t1"][:-1] - 1e-6).all()
