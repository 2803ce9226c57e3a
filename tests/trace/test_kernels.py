"""Every kernel of the registry, run on the CPU over random problems: right, without faults, and counted exactly."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fmha import Problem, Tiling
from fmha.check import check
from fmha.hardware import DEFAULT_GPU, GPUS, Gpu
from fmha.kernels import KERNELS, SECTOR, Kernel
from fmha.trace import Trace
from tests.trace.support import TILINGS, inputs, problems, traced

SMALLEST = Problem(N=1, d=1)
EMPTY = Problem(B=2, H=2, Hk=1, Nq=9, Nk=7, d=8, lens_k=(0, 5), left_pad=(0, 4), causal="tl")
BLIND = Problem(Nq=40, Nk=8, d=5, causal="br")  # the first rows see no key at all
# Only 40 numbers of a row of scores fit: a longer one is read again.
H200 = GPUS[DEFAULT_GPU]
CRAMPED = replace(H200, sm=replace(H200.limits, smem_per_block_optin=4 * 40 + 64))


def examine(kernel: Kernel, p: Problem, t: Tiling, cache: Path, write_lse: bool, gpu: Gpu = H200) -> Trace:
    """Run it with the threads in either order, and hold every promise against it."""
    run, back = (
        traced(kernel, p, t, cache, write_lse=write_lse, gpu=gpu, flops=False, is_reversed=way) for way in (False, True)
    )
    assert [f.text for f in (*run.findings, *back.findings)] == []
    verdict = check(p, *inputs(p), run.O, run.LSE)
    assert verdict.ok, verdict.verdict
    assert np.array_equal(run.O.view(np.uint32), back.O.view(np.uint32))
    assert back.counts == run.counts
    if write_lse:
        assert run.LSE is not None and back.LSE is not None and np.array_equal(run.LSE, back.LSE)
    else:
        assert run.LSE is None
    moved = {name: pair for name, pair in run.global_bytes.items() if name != "key_range"}
    assert moved == {name: pair for name, pair in run.plan.requested.by_tensor.items() if pair != (0, 0)}
    assert run.requested_bytes == run.plan.requested.requested_bytes
    for count in run.counts:
        assert count.ideal_sectors <= count.sectors and count.ideal_wavefronts <= count.wavefronts
        if run.plan.whole_sectors and count.space == "global":
            assert SECTOR * count.sectors == count.nbytes, count
    return run


@pytest.mark.parametrize("kernel", [k for k in KERNELS.values() if k.tiled], ids=lambda k: k.name)
def test_tiled_kernels(kernel: Kernel, cache: Path) -> None:
    @settings(max_examples=60)
    @given(problems(), st.sampled_from(TILINGS), st.booleans())
    @example(SMALLEST, (1, 1), True)
    @example(EMPTY, (4, 4), True)
    @example(BLIND, (5, 7), True)
    @example(Problem(N=64, d=64), (32, 32), False)
    @example(Problem(Nq=3, Nk=65, d=256, H=2, Hk=1), (3, 64), True)
    def over_random_problems(p: Problem, sides: tuple[int, int], write_lse: bool) -> None:
        examine(kernel, p, Tiling(*sides), cache, write_lse)

    over_random_problems()


@pytest.mark.parametrize("kernel", [k for k in KERNELS.values() if not k.tiled], ids=lambda k: k.name)
def test_kernels_with_tiles_of_their_own(kernel: Kernel, cache: Path) -> None:
    @settings(max_examples=25)
    @given(problems(), st.booleans(), st.sampled_from([H200, CRAMPED]))
    @example(SMALLEST, True, H200)
    @example(EMPTY, True, H200)
    @example(BLIND, True, CRAMPED)
    @example(Problem(Nq=5, Nk=70, d=72), False, CRAMPED)
    def over_random_problems(p: Problem, write_lse: bool, gpu: Gpu) -> None:
        examine(kernel, p, Tiling(16, 16), cache, write_lse, gpu)

    over_random_problems()
