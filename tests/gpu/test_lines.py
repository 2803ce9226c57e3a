"""Live: the profiler's counts by line against the traced run of the same problem on this machine's CPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from fmha.errors import TraceError
from fmha.gpu import counters, inlined, line_profile, lines
from fmha.gpu.device import GpuDevice
from fmha.kernels import Kernel
from fmha.trace.compilers import compiler
from tests.tools import need
from tests.trace.agreement import agree
from tests.trace.support import traced

FP32 = lines.fp32_kernels()


@pytest.fixture(scope="module")
def device(gpu: object) -> GpuDevice:
    need("ncu", counters.find())
    need("nvdisasm", inlined.find())
    try:
        found = compiler().command[0]
    except TraceError:
        found = None
    need("cxx", found)
    return GpuDevice(0)


@pytest.mark.parametrize("kernel", FP32, ids=[kernel.number for kernel in FP32])
def test_lines_of_a_traced_run_are_those_of_the_gpu(device: GpuDevice, kernel: Kernel, tmp_path: Path) -> None:
    (run,) = lines.runs_of(kernel, quick=True)
    facts = line_profile.keep_binary(run, tmp_path, device)
    line_profile.count_lines(run, tmp_path)
    line_profile.keep_pages(run, tmp_path)
    counted = line_profile.read_counts(run, tmp_path, facts)
    done = traced(kernel, run.problem, run.tiling, tmp_path / "traces", flops=False)
    for row in agree(done, counted):
        print(f"{row.file}:{row.line} {row.space} {'store' if row.is_write else 'load'}: {row.why_not or 'as written'}")
