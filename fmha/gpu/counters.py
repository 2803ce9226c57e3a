"""Hardware counters by Nsight Compute (`ncu`): what a kernel really moved, level by level."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from fmha.errors import GpuError
from fmha.kernels import Kernel
from fmha.problem import Problem, Tiling

METRICS = (
    "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_ld_lookup_hit.sum",
    "lts__t_bytes.sum",
    "lts__t_sectors_srcunit_tex.sum",
    "lts__t_sectors_srcunit_tex_lookup_hit.sum",
    "dram__bytes_read.sum",
    "dram__bytes_write.sum",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum",
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum",
    "smsp__inst_executed.sum",
    "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum",
    "gpu__time_duration.sum",
    "sm__warps_active.avg.pct_of_peak_sustained_active",
    "launch__registers_per_thread",
    "launch__occupancy_limit_registers",
    "launch__occupancy_limit_shared_mem",
    "launch__occupancy_limit_warps",
    "launch__occupancy_limit_blocks",
)
# Instructions of cp.async, and how busy tensor cores are; not every Nsight Compute knows these for every GPU. The
# sectors of cp.async past L1 (.cg, the only kind here) are counted among the loads: seen on an H200.
OPTIONAL = (
    "smsp__inst_executed_op_ldgsts.sum",
    "sm__inst_executed_pipe_tensor.sum",
    "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
)
_ROOT = Path(__file__).resolve().parents[2]


def find() -> str | None:
    """The path of `ncu`, or None."""
    beside = [Path(folder) / "bin" for name in ("CUDA_HOME", "CUDA_PATH") if (folder := os.environ.get(name))]
    path = os.pathsep.join([os.environ.get("PATH", ""), *map(str, beside), "/usr/local/cuda/bin"])
    return shutil.which("ncu", path=path)


def missing() -> str | None:
    """Why counters cannot be read, as far as is known without trying; None when Nsight Compute is there."""
    if find() is None:
        return (
            "Nsight Compute (ncu) was not found, so hardware counters cannot be read: "
            "install it, or put it on the PATH."
        )
    return None


@lru_cache(maxsize=4)
def offered(ncu: str) -> frozenset[str]:
    """The names of all counters that this Nsight Compute offers for this GPU; it refuses a run that asks for others."""
    try:
        done = subprocess.run([ncu, "--query-metrics"], capture_output=True, text=True, errors="replace", timeout=60)
    except (OSError, subprocess.SubprocessError):
        return frozenset()
    return frozenset(line.split()[0] for line in done.stdout.splitlines() if line.strip())


def known(ncu: str) -> tuple[str, ...]:
    """Those of `OPTIONAL` that are offered here."""
    return tuple(name for name in OPTIONAL if name.split(".")[0] in offered(ncu))


@dataclass(frozen=True)
class Counted:
    """What to count: one run of a kernel."""

    kernel: Kernel
    problem: Problem
    tiling: Tiling

    @property
    def functions(self) -> list[str]:
        """What the run launches, in order."""
        return [launch.function for launch in self.kernel.plan(self.problem, self.tiling).launches]

    def asked(self, device: int) -> dict[str, Any]:
        """The run as `fmha.gpu.once` takes it."""
        return {
            "kernel": self.kernel.number,
            "problem": dataclasses.asdict(self.problem),
            "tiling": [self.tiling.Br, self.tiling.Bc],
            "device": device,
        }


def count(runs: Sequence[Counted], *, device: int = 0, timeout_s: float = 600.0) -> list[dict[str, dict[str, float]]]:
    """For each run every metric of every function: {function: {metric: value}}, in bytes, counts, ns, percent.

    One process under ncu does all the runs, on random inputs; each function starts with cold caches.

    Raises:
        GpuError: no ncu, no permission, or runs that failed; the sentence says which.
    """
    ncu = find()
    if ncu is None:
        raise GpuError(str(missing()))
    names = sorted({name for run in runs for name in run.functions})
    command = [
        ncu, "--clock-control", "none", "--metrics", ",".join((*METRICS, *known(ncu))), "--csv", "--page", "raw",
        "--print-units", "base", "--kernel-name", f"regex:^({'|'.join(names)})$",
        sys.executable, "-m", "fmha.gpu.once", json.dumps([run.asked(device) for run in runs]),
    ]  # fmt: skip
    search = os.pathsep.join([str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=timeout_s,
            env={**os.environ, "PYTHONPATH": search},
        )  # fmt: skip
    except OSError as error:
        raise GpuError(f"{ncu} cannot be started ({error.strerror or error}): install Nsight Compute anew.") from None
    except subprocess.TimeoutExpired:
        raise GpuError(
            f"Nsight Compute took longer than {timeout_s:.0f} s and was stopped: use a smaller N or fewer heads."
        ) from None
    if "ERR_NVGPUCTRPERM" in done.stdout + done.stderr:
        raise GpuError(
            "this system lets only administrators read GPU counters (ERR_NVGPUCTRPERM): run as root, or set the driver "
            "option NVreg_RestrictProfilingToAdminUsers=0."
        )
    launches = parse(done.stdout, (*METRICS, *OPTIONAL))
    expected = [name for run in runs for name in run.functions]
    if [name for name, _ in launches] != expected:
        lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        raise GpuError(
            f"Nsight Compute counted {len(launches)} of {len(expected)} launches: "
            f"{lines[-1] if lines else 'it printed nothing'}"[:300]
        )
    found, rest = [], iter(launches)
    for run in runs:
        found.append(dict(next(rest) for _ in run.functions))
    return found


def parse(text: str, wanted: Sequence[str] = METRICS) -> list[tuple[str, dict[str, float]]]:
    """The table of `ncu --csv --page raw`, one (function, metrics) a launch. Its second line holds the units."""
    lines = text.splitlines()
    start = next((i for i, line in enumerate(lines) if line.startswith('"ID"')), None)
    if start is None:
        return []
    launches = []
    for row in list(csv.DictReader(io.StringIO("\n".join(lines[start:]))))[1:]:
        metrics = {name: value for name in wanted if (value := _number(row.get(name) or "")) is not None}
        launches.append(((row.get("Kernel Name") or "").split("(")[0], metrics))
    return launches


def _number(text: str) -> float | None:
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return None
