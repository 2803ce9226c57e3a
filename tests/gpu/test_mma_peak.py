"""The ceiling of mma.sync: its source run on the CPU, compiled for GPUs, and its timing on a make-believe device."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fmha.errors import GpuError, LimitError, TraceError
from fmha.gpu import mma_peak
from fmha.gpu.build import build as build_cubin
from fmha.gpu.toolchain import find_nvcc
from fmha.kernels import SOURCES, Launch
from fmha.trace.build import build
from fmha.trace.compilers import compiler
from fmha.trace.run import CHECK, TRACE, run
from tests.gpu.make_believe import MakeBelieve
from tests.tools import need


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """The source beside the header that it includes."""
    for path in (mma_peak.SOURCE, SOURCES / "mma.cuh"):
        shutil.copy(path, tmp_path)
    yield tmp_path


@pytest.mark.parametrize("dtype", ["bf16", "fp16", "tf32"])
def test_its_sums_are_what_the_host_expects(dtype: str, folder: Path) -> None:
    try:
        need("cxx", compiler().command[0])
    except TraceError:
        need("cxx", None)
    program = build(folder / "mma_peak.cu", [mma_peak.FUNCTION], mma_peak.DEFINES[dtype], cache=folder / "cache")
    A, B = mma_peak.operands(dtype)
    blocks, rounds = 2, 3
    size = blocks * mma_peak.WARPS * mma_peak.SUMS * 16 * 8
    launch = Launch(mma_peak.FUNCTION, blocks, 32 * mma_peak.WARPS, 0, ("A", "B", "C", rounds), ())
    raw = run(program, (launch,), {"A": A, "B": B}, {"C": 4 * size}, flags=TRACE | CHECK)
    sums = raw.outputs["C"].reshape(blocks * mma_peak.WARPS, mma_peak.SUMS, 16, 8)
    wanted = mma_peak.expected(A, B, rounds)
    assert np.array_equal(sums, np.broadcast_to(wanted, sums.shape))
    assert len({matrix.tobytes() for matrix in wanted}) == mma_peak.SUMS  # no two are alike


@pytest.mark.parametrize("dtype", ["bf16", "fp16", "tf32"])
def test_the_largest_sum_is_exact(dtype: str) -> None:
    wanted = mma_peak.expected(*mma_peak.operands(dtype), mma_peak.ROUNDS)
    assert 0 < np.abs(wanted).max() < 2**24 and np.array_equal(wanted, wanted.round())


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_every_product_of_a_round_is_in_the_binary(arch: str, tmp_path: Path) -> None:
    found = find_nvcc()
    need("nvcc", found.path if found and not found.problem else None)
    assert found is not None
    for defines in mma_peak.DEFINES.values():
        made = build_cubin(
            mma_peak.SOURCE, defines=defines, arch=arch, options=(f"-I{SOURCES}",), cache=tmp_path, compilers=[found]
        )
        words = np.frombuffer(made.cubin[: len(made.cubin) // 16 * 16], "<u8")
        assert (words & 0xFFF == 0x23C).sum() >= mma_peak.SUMS  # HMMA
        assert "0 bytes spill stores" in made.log


class Driver(MakeBelieve):
    """A device on which the peak's launches take as long as its warps need, and write what is expected."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, wrong: str = "") -> None:
        super().__init__({})
        self.wrong = wrong

        def fake_build(_source: Path, *, defines: dict[str, int], **_: Any) -> Any:
            (dtype,) = [name for name, own in mma_peak.DEFINES.items() if own == defines]
            return SimpleNamespace(cubin=dtype)

        monkeypatch.setattr(mma_peak, "build", fake_build)

    def module_from_buffer(self, dtype: str) -> Any:
        """A module with one function."""

        def call(grid: tuple[int, int], _block: Any, A: Any, B: Any, C: Any, rounds: int) -> None:
            rate = {"bf16": 5e8, "fp16": 5e8, "tf32": 2.5e8}[dtype]
            speed = rate * min(1.0, 0.8 + 0.1 * grid[0] / 132)
            self.clock_ms += mma_peak.flops(dtype, grid[0], rounds) / speed / 1e3
            held = [self.held[int(m)].array.view(np.float32) for m in (A, B)]
            k = mma_peak.depth(dtype)
            wanted = mma_peak.expected(held[0].reshape(2, 16, k), held[1].reshape(2, k, 8), rounds)
            out = C.array.view(np.float32).reshape(-1, *wanted.shape)
            out[: grid[0] * mma_peak.WARPS] = wanted + (dtype == self.wrong)

        return SimpleNamespace(get_function=lambda _: SimpleNamespace(prepare=lambda _: None, prepared_call=call))


def test_rates_are_flops_over_the_median(monkeypatch: pytest.MonkeyPatch) -> None:
    device = Driver(monkeypatch)
    found = mma_peak.measure(device, lambda *_: None)  # type: ignore[arg-type]
    assert found.tflops == {
        name: tuple(pytest.approx(top * share, abs=0.01) for share in (0.9, 1.0, 1.0, 1.0))
        for name, top in (("bf16", 500.0), ("fp16", 500.0), ("tf32", 250.0))
    }
    assert device.held == {}  # all memory was given back


def test_a_wrong_sum_and_an_old_gpu_are_sentences(monkeypatch: pytest.MonkeyPatch) -> None:
    device = Driver(monkeypatch, wrong="fp16")
    with pytest.raises(GpuError, match=r"sums of mma\.sync in fp16 are wrong, so nothing is recorded"):
        mma_peak.measure(device, lambda *_: None)  # type: ignore[arg-type]
    assert device.held == {}
    device.facts = dataclasses.replace(device.facts, compute="7.5")
    with pytest.raises(LimitError, match=r"needs compute capability 8\.0, and Make-believe has 7\.5"):
        mma_peak.measure(device, lambda *_: None)  # type: ignore[arg-type]
