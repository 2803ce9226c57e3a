"""The stamped source of a kernel runs, stays right, and its stamps become an event table."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import numpy as np
import pytest

from fmha import Problem, Tiling
from fmha.as_run import in_a_row
from fmha.check import check
from fmha.events import CODE, emit
from fmha.kernels import KERNELS
from fmha.phases import phases
from fmha.stamp_events import stamped_events, told_once
from fmha.stamps import BUFFER, HEAD, as_facts, read_stamps, room_for, stamped
from fmha.storage import dense, lay, taken
from fmha.trace.build import build
from fmha.trace.run import run
from fmha.visit_costs import LONGEST_FIRST
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
# Copies under way while S and O are computed, tensor cores, the last Q tiles first; workers that visit no tile.
SHORT = Problem(Nq=140, Nk=70, d=16, H=2, causal="br")
CASES += [("07", SHORT, Tiling(32, 16)), ("07", Problem(N=70, d=8), Tiling(32, 32))]
CASES += [(number, SHORT.replace(dtype="bf16"), Tiling(64, 32)) for number in ("08", "09", "10", "11", "12")]
CASES += [("13", SHORT, Tiling(64, 16)), ("13", Problem(N=70, d=8), Tiling(128, 32))]


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
    given = {name: lay(array, p.dtype, strided=False).flat for name, array in zip("QKV", (Q, K, V), strict=True)}
    shape = (p.B, p.H, p.Nq, p.d)
    sizes = {"O": p.itemsize * math.prod(shape), BUFFER: 8 * launch.grid * (HEAD + room)}
    done = run(program, [launch], given, sizes, flags=0)
    assert check(p, Q, K, V, taken(done.outputs["O"], shape, dense(shape), p.dtype)).ok
    words = done.outputs[BUFFER].view(np.uint64)
    stamps = read_stamps(words, launch.grid, as_facts(p, t), last_first=number in LONGEST_FIRST)
    table, expected = stamped_events(stamps, kernel.source()), emit(p, t)
    assert np.array_equal(table["phase"], expected["phase"])
    assert (table["t1"] >= table["t0"]).all() and table["t0"].min() >= 0 and table["t1"].max() > 0
    is_load = np.isin(table["phase"], [CODE["load_Q"], CODE["load_K"], CODE["load_V"]])
    is_ahead = number in ("07", "13")  # they ask for tiles while they compute
    for worker in range(launch.grid):
        mine, loads = table[table["worker"] == worker], is_load[table["worker"] == worker]
        for rows in (mine[loads], mine[~loads]) if is_ahead else (mine,):
            assert (rows["t0"][1:] >= rows["t1"][:-1] - 1e-6).all() or (is_ahead and rows["phase"][0] == CODE["load_Q"])
        assert mine["t1"].max() == pytest.approx(stamps.end_us[worker], abs=1e-6)
        assert mine["t0"][0] == mine["t0"].min() >= stamps.begin_us[worker]
        if is_ahead:  # a tile is there before it is used, and the next K is asked for before this one's O is done
            at = {name: mine[mine["phase"] == CODE[name]] for name in ("load_K", "load_V", "S", "O")}
            assert (at["load_K"]["t1"] <= at["S"]["t0"] + 1e-6).all()
            assert (at["load_V"]["t1"] <= at["O"]["t0"] + 1e-6).all()
            assert (at["load_K"]["t0"][1:] <= at["O"]["t0"][:-1]).all() and (at["load_V"]["t0"] <= at["S"]["t0"]).all()
    named = dataclasses.replace(stamps, facts=as_facts(p, t, phases=[one.maths for one in phases(kernel.source())]))
    short = told_once(named)
    assert len(short.phase) <= len(stamps.phase) and len(short.first) == len(stamps.first)
    again = stamped_events(short)
    assert np.allclose(again["t0"], table["t0"]) and np.allclose(again["t1"], table["t1"])
    shown = in_a_row(table)
    same = np.diff(shown["worker"]) == 0
    assert (shown["t0"][1:] >= shown["t1"][:-1] - 1e-6)[same].all() and (shown["t1"] >= shown["t0"]).all()
    assert np.array_equal(shown["t1"][~is_load], table["t1"][~is_load])  # what was computed stays where it was
