"""Every kernel of the registry, run on the CPU over random problems: right, without faults, and counted exactly."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fmha import Problem, Tiling
from fmha.check import check
from fmha.hardware import Gpu
from fmha.kernels import KERNELS, SECTOR, STRIDES, Kernel
from fmha.trace import Trace, trace
from fmha.units import ceil_div
from tests.trace.support import H200, inputs, problems, tilings_of, traced

SMALLEST = Problem(N=1, d=1)
EMPTY = Problem(B=2, H=2, Hk=1, Nq=9, Nk=7, d=8, lens_k=(0, 5), left_pad=(0, 4), causal="tl")
BLIND = Problem(Nq=40, Nk=8, d=5, causal="br")  # the first rows see no key at all
STRIDED = "const long long* strides"  # the parameter of a kernel that takes them
# Only 40 numbers of a row of scores fit: a longer one is read again.
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
    moved = {name: pair for name, pair in run.global_bytes.items() if name not in ("key_range", STRIDES)}
    assert moved == {name: pair for name, pair in run.plan.requested.by_tensor.items() if pair != (0, 0)}
    assert run.requested_bytes == run.plan.requested.requested_bytes
    for count in run.counts:
        assert count.ideal_sectors <= count.sectors and count.ideal_wavefronts <= count.wavefronts
        if run.plan.whole_sectors and count.space == "global":
            assert SECTOR * count.sectors == count.nbytes, count
    return run


FIXED = (
    (SMALLEST, (1, 1), True),
    (EMPTY, (4, 4), True),
    (BLIND, (5, 7), True),
    (Problem(N=64, d=64), (32, 32), False),
    (Problem(Nq=3, Nk=65, d=256, H=2, Hk=1), (3, 64), True),
    (Problem(Nq=9, Nk=40, d=168), (4, 4), False),
)
tiled = pytest.mark.parametrize("kernel", [k for k in KERNELS.values() if k.tiled], ids=lambda k: k.name)


@tiled
def test_tiled_kernels(kernel: Kernel, cache: Path) -> None:
    sides = tilings_of(kernel)

    @settings(max_examples=60 if kernel.d_step == 1 else 40)
    @given(problems(kernel=kernel), st.sampled_from(sides), st.booleans())
    def over_random_problems(p: Problem, sides: tuple[int, int], write_lse: bool) -> None:
        examine(kernel, p, Tiling(*sides), cache, write_lse)

    for p, wish, write_lse in FIXED:
        p = kernel.fitting(p.replace(d=ceil_div(p.d, kernel.d_step) * kernel.d_step))
        t = wish if kernel.complaint(p, Tiling(*wish), H200) is None else sides[0]
        examine(kernel, p, Tiling(*t), cache, write_lse)
    over_random_problems()


@pytest.mark.parametrize("kernel", [k for k in KERNELS.values() if STRIDED in k.source()], ids=lambda k: k.name)
def test_kernels_that_take_strides(kernel: Kernel, cache: Path) -> None:
    """Q as [B, N, H, d], K and V as parts of one packed tensor: the same O, from the same bytes, and gaps stay as they
    were; dense tensors are given no strides."""
    p = kernel.fitting(Problem(B=2, H=4, Hk=2, Nq=40, Nk=33, d=24, causal="br", lens_k=(33, 20)))
    t, (Q, K, V) = Tiling(*tilings_of(kernel)[0]), inputs(p)
    plain = trace(kernel, p, t, Q, K, V, write_lse=True, flops=False, cache=cache)
    assert plain.plan.strided and STRIDES not in plain.global_bytes
    packed = np.concatenate([K, V], 1).transpose(0, 2, 1, 3).copy().transpose(0, 2, 1, 3)  # in memory [B, N, 2 Hk, d]
    apart = Q.transpose(0, 2, 1, 3).copy().transpose(0, 2, 1, 3)
    run = trace(kernel, p, t, apart, packed[:, :2], packed[:, 2:], write_lse=True, flops=False, cache=cache)
    assert [f.text for f in run.findings] == []
    assert np.array_equal(run.O, plain.O) and run.LSE is not None and np.array_equal(run.LSE, plain.LSE)
    assert run.requested_bytes == plain.requested_bytes == run.plan.requested.requested_bytes
    assert run.global_bytes[STRIDES][0] > 0


@pytest.mark.parametrize("kernel", [k for k in KERNELS.values() if "copies_done<" in k.source()], ids=lambda k: k.name)
def test_a_copy_that_nobody_waited_for_has_brought_nothing(kernel: Kernel, cache: Path) -> None:
    """cp.async: each wait that stands in a loop is needed, as is a wait before a barrier and not behind it."""
    p = kernel.fitting(Problem(N=130, d=24))
    t, arrays = Tiling(*tilings_of(kernel)[0]), inputs(p)
    source = kernel.source()
    whole = trace(kernel, p, t, *arrays, flops=False, cache=cache)
    assert whole.findings == () and check(p, *arrays, whole.O).ok
    broken = source.replace("copies_done<0>();", ";")
    late = re.sub(r"copies_done<0>\(\);(\s*)(__syncthreads\(\);)", r"\2\1copies_done<0>();", source)
    assert broken != source and late != source
    for text in (broken, late):
        run = trace(kernel, p, t, *arrays, text=text, flops=False, cache=cache)
        assert not check(p, *arrays, run.O).ok


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
