"""Counts by source line on a GPU: runs kernels under Nsight Compute and reads its source page.

python -m fmha.gpu.lines --out FOLDER [--kernel 02] [--quick]

What the profiler said is kept in the folder as it came, so that it can be read again without the GPU:
python -m fmha.gpu.lines --out FOLDER --read-again
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fmha.errors import FmhaError, GpuError, InputError
from fmha.gpu import counters
from fmha.gpu.counters import Counted
from fmha.kernels import KERNELS, Kernel, included, kernel
from fmha.line_counts import LineCount, LineCounts, by_line, read_page
from fmha.problem import Problem, Tiling

_ROOT = Path(__file__).resolve().parents[2]
# Instruction by instruction; the section holds them, and names them for versions that have moved them elsewhere.
SOURCE_METRICS = (
    "inst_executed",
    "thread_inst_executed_true",
    "memory_l2_theoretical_sectors_global",
    "memory_l1_wavefronts_shared",
    "memory_l1_wavefronts_shared_ideal",
)
# Of a whole launch, by other counters of the hardware: what the lines are held against.
TOTALS = (
    "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum",
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum",
    "smsp__sass_data_bytes_mem_shared_op_ld.sum",
    "smsp__sass_data_bytes_mem_shared_op_st.sum",
    "smsp__inst_executed_op_shared_ld.sum",
    "smsp__inst_executed_op_shared_st.sum",
)
SETTINGS = (
    (Problem(N=256, d=64), Tiling(32, 32)),
    (Problem(N=200, d=40, H=2, causal="bottom-right"), Tiling(32, 16)),
)
TIMEOUT_S = 120.0


def name_of(run: Counted) -> str:
    """A file name for a run: 02-n256-d64-h1-32x32."""
    p, t = run.problem, run.tiling
    causal = "-causal" if p.causal else ""
    return f"{run.kernel.number}-n{p.Nq}-d{p.d}-h{p.H}-{t.Br}x{t.Bc}{causal}"


def count_lines(run: Counted, folder: Path, *, device: int = 0, timeout_s: float = TIMEOUT_S) -> None:
    """Profile one run on random inputs and write what Nsight Compute says of it into `folder`: NAME.ncu-rep,
    NAME.source.csv, NAME.raw.csv, NAME.sass.csv, and NAME.log.

    Raises:
        GpuError: no ncu, no permission, or no report; the sentence says which.
    """
    ncu = counters.find()
    if ncu is None:
        raise GpuError(str(counters.missing()))
    name, names = name_of(run), "|".join(sorted(set(run.functions)))
    report = folder / f"{name}.ncu-rep"
    base = [
        ncu, "--clock-control", "none", "--section", "SourceCounters", "--import-source", "yes", "--force-overwrite",
        "--export", str(report), "--kernel-name", f"regex:^({names})$",
    ]  # fmt: skip
    program = [sys.executable, "-m", "fmha.gpu.once", json.dumps([run.asked(device)])]
    said = []
    # Not every version of the profiler knows every counter; the first of these sets that it takes is used.
    for wanted in ((*SOURCE_METRICS, *TOTALS), TOTALS, counters.METRICS):
        log = _run([*base, "--metrics", ",".join(wanted), *program], timeout_s, folder)
        said.append(log)
        if report.is_file() or "ERR_NVGPUCTRPERM" in log:
            break
    (folder / f"{name}.log").write_text("\n".join(said), encoding="utf-8")
    if "ERR_NVGPUCTRPERM" in said[-1]:
        raise GpuError(
            "this system lets only administrators read GPU counters (ERR_NVGPUCTRPERM): run as root, or set the driver "
            "option NVreg_RestrictProfilingToAdminUsers=0."
        )
    if not report.is_file():
        last = next((line for line in reversed(said[-1].splitlines()) if line.strip()), "it printed nothing")
        raise GpuError(f"Nsight Compute wrote no report of {name}: {last}"[:300])
    pages = {
        "source": ["--page", "source", "--print-source", "cuda,sass"],
        "sass": ["--page", "source", "--print-source", "sass"],
        "raw": ["--page", "raw", "--print-units", "base"],
    }
    for page, options in pages.items():
        text = _run([ncu, "--import", str(report), "--csv", *options], timeout_s, folder)
        (folder / f"{name}.{page}.csv").write_text(text, encoding="utf-8")


def _run(command: Sequence[str], timeout_s: float, folder: Path) -> str:
    """What a program printed, errors after the rest. Kernels are built anew in `folder`: line numbers name files by
    their paths, and a binary of the cache may have been built from another copy."""
    search = os.pathsep.join([str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    env = {**os.environ, "PYTHONPATH": search, "FMHA_CACHE": str(folder / "built"), "LC_ALL": "C", "LANG": "C"}
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=timeout_s, env=env)
    except OSError as error:
        raise GpuError(f"{command[0]} cannot be started ({error.strerror or error}): install it anew.") from None
    except subprocess.TimeoutExpired:
        raise GpuError(f"{Path(command[0]).name} took longer than {timeout_s:.0f} s: use a smaller N.") from None
    return done.stdout + done.stderr


def read_counts(run: Counted, folder: Path, facts: Mapping[str, Any]) -> LineCounts:
    """The counts of a run from the files that `count_lines` wrote.

    Raises:
        InputError: files are missing or are not what was asked for.
    """
    name = name_of(run)
    try:
        page = (folder / f"{name}.source.csv").read_text(encoding="utf-8")
        raw = (folder / f"{name}.raw.csv").read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"{folder / name} cannot be read ({error.strerror}): profile it first.") from None
    launches = read_page(page, run.functions)
    if [function for function, _ in launches] != run.functions:
        raise InputError(
            f"the source page of {name} lists {', '.join(f for f, _ in launches) or 'no kernel'}, "
            f"and {', '.join(run.functions)} was run."
        )
    lines: list[LineCount] = []
    for function, listed in launches:
        lines += by_line(function, listed)
    return LineCounts(dict(facts), read_totals(raw), tuple(lines))


def read_totals(raw: str) -> dict[str, dict[str, float]]:
    """{function: {metric: value}} of the raw page."""
    return dict(counters.parse(raw, (*TOTALS, *counters.METRICS)))


def facts_of(run: Counted, device: Any, profiler: str, compiler: str) -> dict[str, Any]:
    """What is to be known of a run. device: a GpuDevice."""
    described = device.described()
    return {
        "device": described.facts.name, "driver": described.driver, "cuda": described.cuda, "profiler": profiler,
        "compiler": compiler, "made": datetime.now(UTC).isoformat(timespec="seconds"), "kernel": run.kernel.number,
        "source": run.kernel.source_hash(), "problem": dataclasses.asdict(run.problem),
        "tiling": dataclasses.asdict(run.tiling),
    }  # fmt: skip


def main(given: Sequence[str] | None = None) -> int:
    """Profile and read: 0 when every run was counted, else 1."""
    parser = argparse.ArgumentParser(prog="python -m fmha.gpu.lines", description="Counts by source line on a GPU.")
    parser.add_argument("--out", required=True, type=Path, help="a folder for all that comes out")
    parser.add_argument("--kernel", action="append", help="number or name (default: all that are plain CUDA in fp32)")
    parser.add_argument("--quick", action="store_true", help="the first problem only")
    parser.add_argument("--device", type=int, default=0, help="which GPU (default 0)")
    parser.add_argument("--read-again", action="store_true", help="read a folder that is there; needs no GPU")
    options = parser.parse_args(given)
    try:
        chosen = [kernel(k) for k in options.kernel] if options.kernel else list(plain_kernels())
        settings = SETTINGS[:1] if options.quick else SETTINGS
        runs = [Counted(k, p, t) for k in chosen for p, t in settings if not _refused(k, p, t)]
        options.out.mkdir(parents=True, exist_ok=True)
        failed = _read_all(runs, options.out) if options.read_again else _count_all(runs, options.out, options.device)
    except (FmhaError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 1 if failed else 0


def plain_kernels() -> tuple[Kernel, ...]:
    """Kernels in fp32 without instructions of their own choice: asynchronous copies and loads for tensor cores are
    counted otherwise on the profiler's page."""
    return tuple(
        one
        for one in KERNELS.values()
        if "fp32" in one.dtypes and not any("asm" in path.read_text(encoding="utf-8") for path in included(one.path))
    )


def _refused(chosen: Kernel, problem: Problem, tiling: Tiling) -> bool:
    from fmha.hardware import DEFAULT_GPU, GPUS

    return chosen.complaint(problem, tiling, GPUS[DEFAULT_GPU]) is not None


def _count_all(runs: Sequence[Counted], folder: Path, index: int) -> int:
    """Profile every run, one after another, and keep the binaries; how many failed."""
    from fmha.gpu.build import build
    from fmha.gpu.device import GpuDevice

    ncu = counters.find()
    if ncu is None:
        raise GpuError(str(counters.missing()))
    words = _run([ncu, "--version"], 60.0, folder).split("Version")
    profiler = f"Nsight Compute {words[1].split()[0]}" if len(words) > 1 else "Nsight Compute"
    device = GpuDevice(index)
    facts = {}
    for run in runs:
        plan = run.kernel.plan(run.problem, run.tiling, device.gpu)
        binary = build(
            run.kernel.path, defines=plan.defines, arch=device.arch, driver=device.cuda, cache=folder / "built"
        )
        (folder / f"{name_of(run)}.cubin").write_bytes(binary.cubin)
        facts[name_of(run)] = facts_of(run, device, profiler, binary.compiler.split(" (")[0])
        text = json.dumps(facts[name_of(run)], indent=1)
        (folder / f"{name_of(run)}.facts.json").write_text(text, encoding="utf-8")
    failed = 0
    for run in runs:
        try:
            count_lines(run, folder, device=index)
            _say_one(run, folder, facts[name_of(run)])
        except FmhaError as error:
            failed += 1
            print(f"{name_of(run)}: {error}", file=sys.stderr, flush=True)
    shutil.rmtree(folder / "built", ignore_errors=True)
    return failed


def _read_all(runs: Sequence[Counted], folder: Path) -> int:
    failed = 0
    for run in runs:
        try:
            facts = json.loads((folder / f"{name_of(run)}.facts.json").read_text(encoding="utf-8"))
            _say_one(run, folder, facts)
        except (FmhaError, OSError, ValueError) as error:
            failed += 1
            print(f"{name_of(run)}: {error}", file=sys.stderr, flush=True)
    return failed


def _say_one(run: Counted, folder: Path, facts: Mapping[str, Any]) -> None:
    """Write the counts of a run as JSON, and say in a line what they add up to."""
    counts = read_counts(run, folder, facts)
    (folder / f"{name_of(run)}.json").write_text(counts.to_json(), encoding="utf-8")
    sectors = sum(line.sectors for line in counts.lines)
    wavefronts = sum(line.wavefronts for line in counts.lines)
    print(f"{name_of(run)}: {len(counts.lines)} rows, {sectors:,} sectors, {wavefronts:,} wavefronts", flush=True)


if __name__ == "__main__":
    sys.exit(main())
