"""What the hardware counts equals what the plan of a kernel says; compute-sanitizer finds nothing."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import subprocess
import sys

import pytest

from fmha import Problem, Tiling
from fmha.gpu import counters
from fmha.gpu.counters import Counted
from fmha.hardware import GPUS
from fmha.kernels import KERNELS, SECTOR, Kernel
from fmha.units import ceil_div
from tests.tools import need

H200 = GPUS["H200"]

LOADS = "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"
STORES = "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum"
SETTINGS = [
    (Problem(N=128, d=64), Tiling(32, 32)),
    (Problem(N=100, d=64, H=2), Tiling(32, 32)),
    (Problem(N=1000, d=64, H=3), Tiling(16, 64)),
    (Problem(N=1023, d=128), Tiling(64, 16)),
    (Problem(N=4096, d=64, H=2), Tiling(32, 32)),
    (Problem(Nq=77, Nk=333, d=32, H=4, Hk=2, B=2), Tiling(8, 32)),
    (Problem(N=500, d=96, causal="br"), Tiling(16, 16)),
    (Problem(Nq=300, Nk=200, d=40, causal="tl"), Tiling(32, 16)),
    (Problem(N=2048, d=128, H=2, causal="br"), Tiling(32, 32)),
    (Problem(N=65, d=256, H=2), Tiling(16, 16)),
    (Problem(N=33, d=8, B=3), Tiling(4, 4)),
]


def fitted(chosen: Kernel, problem: Problem, tiling: Tiling) -> tuple[Problem, Tiling]:
    """The problem with a d that the kernel takes, in its first dtype, and tiles of its own where these are none."""
    d = ceil_div(problem.d, chosen.d_step) * chosen.d_step
    p = chosen.fitting(problem.replace(d=d))
    sides = [t for t in ((tiling.Br, tiling.Bc), *chosen.tiles) if chosen.complaint(p, Tiling(*t), H200) is None]
    return p, Tiling(*sides[0])


@pytest.fixture(scope="module")
def counted(gpu: object) -> list[tuple[Counted, dict[str, dict[str, float]]]]:
    need("ncu", counters.find())
    runs = [Counted(k, *fitted(k, problem, tiling)) for k in KERNELS.values() for problem, tiling in SETTINGS]
    return list(zip(runs, counters.count(runs), strict=True))


def test_requested_bytes_equal_the_counters(counted: list[tuple[Counted, dict[str, dict[str, float]]]]) -> None:
    different = []
    for run, metrics in counted:
        measured = SECTOR * sum(int(m[LOADS]) + int(m[STORES]) for m in metrics.values())
        plan = run.kernel.plan(run.problem, run.tiling)
        predicted = plan.requested.requested_bytes
        print(f"{run.kernel.name} {run.problem} {run.tiling}: predicted {predicted}, measured {measured}")
        if not plan.whole_sectors:
            continue
        if measured != predicted:
            different.append((run.kernel.name, run.problem, run.tiling, predicted, measured))
    assert not different, different


def test_occupancy_limits_equal_the_profiler(counted: list[tuple[Counted, dict[str, dict[str, float]]]]) -> None:
    from fmha.gpu.device import GpuDevice
    from fmha.occupancy import occupancy

    gpu_here = GpuDevice(0).gpu
    # The profiler's limit by shared memory follows the split of L1 and shared memory that the driver chose, not the
    # largest one; `test_the_driver_agrees_on_occupancy` covers it.
    names = {"registers": "registers", "threads": "warps", "blocks": "blocks"}
    for run, metrics in counted:
        for launch in run.kernel.plan(run.problem, run.tiling, gpu_here).launches:
            read = metrics[launch.function]
            ours = occupancy(
                gpu_here,
                threads=launch.block,
                smem_bytes=launch.smem_bytes + launch.static_smem_bytes,
                registers=int(read["launch__registers_per_thread"]),
            )
            theirs = {name: int(read[f"launch__occupancy_limit_{key}"]) for name, key in names.items()}
            assert {name: ours.by_resource[name] for name in theirs} == theirs, (run.kernel.name, launch.function)


@pytest.mark.parametrize("tool", ["memcheck", "racecheck", "initcheck", "synccheck"])
def test_sanitizer_is_clean(gpu: object, tool: str) -> None:
    path = need("compute-sanitizer", shutil.which("compute-sanitizer"))
    runs = []
    for chosen in KERNELS.values():
        for problem, tiling in [
            (Problem(N=100, d=64, H=2), Tiling(32, 32)),
            (Problem(Nq=65, Nk=33, d=5, H=2, Hk=1, causal="br"), Tiling(16, 64)),
            (Problem(B=2, N=70, d=33, lens_k=(0, 50), left_pad=(0, 3)), Tiling(64, 16)),
            (Problem(Nq=1, Nk=1, d=1), Tiling(1, 1)),
            (Problem(N=40, d=80, causal="tl"), Tiling(5, 7)),
        ]:
            p, t = fitted(chosen, problem, tiling)
            runs.append(
                {
                    "kernel": chosen.number,
                    "problem": dataclasses.asdict(p),
                    "tiling": [t.Br, t.Bc],
                    "check": True,
                    "lse": True,
                }
            )
    search = os.pathsep.join([".", *sys.path])
    done = subprocess.run(
        [path, "--tool", tool, "--error-exitcode", "9", sys.executable, "-m", "fmha.gpu.once", json.dumps(runs)],
        capture_output=True, text=True, timeout=500, env={**os.environ, "PYTHONPATH": search},
    )  # fmt: skip
    print(done.stdout[-2000:], done.stderr[-2000:])
    assert done.returncode == 0
    assert "ERROR SUMMARY: 0 errors" in done.stdout or "0 hazards" in done.stdout
