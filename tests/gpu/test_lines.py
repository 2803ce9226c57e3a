"""Live: the profiler's counts by line against the traced run of the same problem on this machine's CPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from fmha.errors import TraceError
from fmha.gpu import counters, lines
from fmha.gpu.counters import Counted
from fmha.kernels import Kernel
from fmha.trace.compilers import compiler
from tests.tools import need
from tests.trace.agreement import agree
from tests.trace.support import traced

PLAIN = lines.plain_kernels()


@pytest.fixture(scope="module")
def ready(gpu: object) -> None:
    need("ncu", counters.find())
    try:
        found = compiler().command[0]
    except TraceError:
        found = None
    need("cxx", found)


@pytest.mark.parametrize("kernel", PLAIN, ids=[kernel.number for kernel in PLAIN])
def test_lines_of_a_traced_run_are_those_of_the_gpu(ready: None, kernel: Kernel, tmp_path: Path) -> None:
    problem, tiling = lines.SETTINGS[0]
    run = Counted(kernel, problem, tiling)
    lines.count_lines(run, tmp_path)
    counted = lines.read_counts(run, tmp_path, {"kernel": kernel.number})
    for row in agree(traced(kernel, problem, tiling, tmp_path / "traces", flops=False), counted):
        print(f"{row.file}:{row.line} {row.space} {'store' if row.is_write else 'load'}: {row.why_not or 'as written'}")
