"""A traced kernel's event table and its state are those of the simulator, event by event."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fmha import Problem, Tiling, simulate
from fmha.errors import TraceError
from fmha.events import CODE, emit
from fmha.hardware import DEFAULT_GPU, GPUS
from fmha.kernels import KERNELS
from fmha.trace import trace
from fmha.trace.events import events
from fmha.trace.follow import agreement
from fmha.trace.replay import KEPT, as_run, traced_run
from tests.trace.support import TILINGS, inputs, problems, traced

FMHA101 = KERNELS["02"]
TILES = [t for t in TILINGS if t[0] * t[1] <= 256]
slow = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@slow
@given(p=problems(most=3000), t=st.sampled_from(TILES), write_lse=st.booleans())
def test_what_moved_when_and_by_whom_is_what_the_simulator_says(
    p: Problem, t: tuple[int, int], write_lse: bool, cache: Path
) -> None:
    tiling = Tiling(*t)
    table = events(traced(FMHA101, p, tiling, cache, write_lse=write_lse))
    wanted = emit(p, tiling, write_lse=write_lse)
    assert len(table) == len(wanted)
    for column in ("t0", "t1", "worker", "sm", "kernel", "phase", "b", "h", "i", "j", "tensor", "src", "dst", "nbytes"):
        assert np.array_equal(table[column], wanted[column]), column
    seen_in_full = p.causal is None and p.left_pad is None and p.lens_k is None
    if seen_in_full:
        assert np.array_equal(table["flops"], wanted["flops"])
    assert (table["flops"] <= wanted["flops"]).all()  # of scores that a mask hides, none is computed
    assert (table["vector_flops"][table["phase"] == CODE["P"]] > 0).all()


@pytest.mark.parametrize("number", ["03", "05", "06", "07", "08", "10", "12", "13"])
def test_the_rungs_do_what_the_simulator_says_in_their_own_order(number: str, cache: Path) -> None:
    """Tiles that are asked for under computation, by helpers, and blocks that take the last Q tile first included."""
    kernel = KERNELS[number]
    tiling = Tiling(*(kernel.tiles[-1] if kernel.tiles else (32, 16)))
    for p in (Problem(N=130, d=16, H=2, causal="br"), Problem(Nq=40, Nk=100, d=16, lens_k=(77,))):
        p = p.replace(dtype=kernel.dtypes[0])
        table, wanted = events(traced(kernel, p, tiling, cache)), emit(p, tiling)
        columns = ["h", "i", "j", "phase", "tensor", "src", "dst", "nbytes"]
        assert np.array_equal(np.sort(table[columns], order=columns), np.sort(wanted[columns], order=columns))


@slow
@given(p=problems(most=2000), t=st.sampled_from(TILES))
def test_shared_memory_holds_what_the_simulator_computes(p: Problem, t: tuple[int, int], cache: Path) -> None:
    Q, K, V = inputs(p)
    done = trace(FMHA101, p, Tiling(*t), Q, K, V, keep=KEPT, cache=cache)
    run = as_run(done, Q, K, V, gpu=GPUS[DEFAULT_GPU], sms=8, record_columns=4)
    model = simulate(p, Tiling(*t), Q, K, V, precision="dtype", sms=8, record_columns=4)
    assert run.tiles is not None and model.tiles is not None
    pairs = [(getattr(run, n), getattr(model, n)) for n in ("O", "LSE", "m", "l", "alpha")]
    pairs += [(getattr(run.tiles, n), getattr(model.tiles, n)) for n in ("S", "P", "O")]
    for mine, theirs in pairs:
        assert mine.shape == theirs.shape
        assert np.array_equal(np.isnan(mine), np.isnan(theirs)) and np.array_equal(np.isinf(mine), np.isinf(theirs))
        finite = np.isfinite(mine)
        np.testing.assert_allclose(mine[finite], theirs[finite], rtol=2e-4, atol=2e-5)
    assert f"in {len(run.events):,}: worker" in agreement(run, model)


def test_a_disagreement_is_told(cache: Path) -> None:
    p, t = Problem(N=32, d=8), Tiling(8, 8)
    run, _ = traced_run(FMHA101, p, t, *inputs(p), sms=4)
    model = simulate(p, t, *inputs(p), precision="dtype")
    assert "which is rounding" in agreement(run, model)
    assert "m, l and O are equal" in agreement(model, model)
    run.O[0, 0, 0, 0] += 0.5
    assert "by 0.5 at most, which is more than rounding" in agreement(run, model)
    run.events["nbytes"][3] += 1
    assert f"in {len(run.events) - 1:,}: worker" in agreement(run, model)
    shorter = simulate(p.replace(Nk=24), t, inputs(p)[0], *(a[:, :, :24] for a in inputs(p)[1:]), precision="dtype")
    assert "do not agree" in agreement(shorter.__class__(**{**shorter.__dict__, "problem": p}), model)


def test_kernels_without_tiles_or_phases_are_refused_in_a_sentence(cache: Path) -> None:
    p = Problem(N=16, d=8)
    with pytest.raises(TraceError, match=r"01 \(naive\) has no event table by tile"):
        events(traced(KERNELS["01"], p, Tiling(8, 8), cache))
    with pytest.raises(TraceError, match="does not keep Sij"):
        traced_run(KERNELS["01"], p, Tiling(8, 8), *inputs(p))
    bare = "\n".join(line for line in FMHA101.source().splitlines() if not line.strip().startswith("//"))
    with pytest.raises(TraceError, match="names no phases"):
        events(traced(FMHA101, p, Tiling(8, 8), cache, text=bare))
