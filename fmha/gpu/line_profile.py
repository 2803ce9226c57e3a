"""One run of a kernel under Nsight Compute, and its counts by source line: what is asked, what is kept, how it is read.

All is kept as the tools gave it, so that a folder can be read again without a GPU: NAME.ncu-rep, NAME.source.csv,
NAME.sass.csv, NAME.raw.csv and NAME.log of the profiler, NAME.cubin and NAME.inlined.txt of the binary.
"""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fmha.errors import GpuError, InputError
from fmha.gpu import counters, inlined
from fmha.gpu.build import build
from fmha.gpu.counters import Counted
from fmha.line_counts import LineCount, LineCounts
from fmha.line_page import by_line, read_page

if TYPE_CHECKING:
    from fmha.gpu.device import GpuDevice

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
# Asynchronous copies and loads for tensor cores, counted apart: of these, what the profiler has for this GPU.
APART = (
    "smsp__inst_executed_op_ldgsts.sum",
    "smsp__inst_executed_op_ldsm.sum",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ldgsts.sum",
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ldgsts.sum",
    "smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_ldgsts.sum",
    "smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_ldgsts_cache_bypass.sum",
    "smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_ldsm.sum",
    "smsp__sass_l1tex_t_sectors_pipe_lsu_mem_global_op_ldgsts.sum",
    "smsp__sass_l1tex_t_sectors_pipe_lsu_mem_global_op_ldgsts_cache_bypass.sum",
    "smsp__sass_data_bytes_mem_shared_op_ldgsts.sum",
    "smsp__sass_data_bytes_mem_shared_op_ldsm.sum",
)
PAGES = {
    "source": ("--page", "source", "--print-source", "cuda,sass"),
    "sass": ("--page", "source", "--print-source", "sass"),
    "raw": ("--page", "raw", "--print-units", "base"),
}
TIMEOUT_S = 120.0


def name_of(run: Counted) -> str:
    """A file name for a run: 02-n256-d64-h1-32x32."""
    p, t = run.problem, run.tiling
    causal = "-causal" if p.causal else ""
    return f"{run.kernel.number}-n{p.Nq}-d{p.d}-h{p.H}-{t.Br}x{t.Bc}{causal}"


def keep_binary(run: Counted, folder: Path, device: GpuDevice, profiler: str = "") -> dict[str, Any]:
    """Build a run's kernel as `count_lines` will, and write NAME.cubin, NAME.inlined.txt where nvdisasm is there, and
    NAME.facts.json; its content is returned.

    Raises:
        BuildError: it does not compile.
    """
    plan = run.kernel.plan(run.problem, run.tiling, device.gpu)
    path, name = run.kernel.path, name_of(run)
    made = build(path, defines=plan.defines, arch=device.arch, driver=device.cuda, cache=folder / "built")
    cubin = folder / f"{name}.cubin"
    cubin.write_bytes(made.cubin)
    with suppress(GpuError):  # whoever reads the folder later may have it
        (folder / f"{name}.inlined.txt").write_text(inlined.disassemble(cubin), encoding="utf-8")
    described = device.described()
    facts = {
        "device": described.facts.name, "driver": described.driver, "cuda": described.cuda, "profiler": profiler,
        "compiler": made.compiler.split(" (")[0], "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "kernel": run.kernel.number, "source": run.kernel.source_hash(), "problem": dataclasses.asdict(run.problem),
        "tiling": dataclasses.asdict(run.tiling),
    }  # fmt: skip
    (folder / f"{name}.facts.json").write_text(json.dumps(facts, indent=1), encoding="utf-8")
    return facts


def count_lines(run: Counted, folder: Path, *, device: int = 0, timeout_s: float = TIMEOUT_S) -> None:
    """Profile one run on random inputs and write the report of Nsight Compute into `folder`: NAME.ncu-rep, NAME.log.

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
    apart = tuple(one for one in APART if one.split(".")[0] in counters.offered(ncu))
    said = []
    # Not every version of the profiler knows every counter; the first of these sets that it takes is used.
    wishes = ((*SOURCE_METRICS, *TOTALS, *apart), (*SOURCE_METRICS, *TOTALS), TOTALS, counters.METRICS)
    for wanted in dict.fromkeys(wishes):
        said.append(run_kept([*base, "--metrics", ",".join(wanted), *program], timeout_s, folder))
        if report.is_file() or "ERR_NVGPUCTRPERM" in said[-1]:
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


def keep_pages(run: Counted, folder: Path, *, timeout_s: float = TIMEOUT_S) -> None:
    """Write what the report of `count_lines` says as text: NAME.PAGE.csv for each of `PAGES`.

    Raises:
        GpuError: no ncu.
    """
    ncu = counters.find()
    if ncu is None:
        raise GpuError(str(counters.missing()))
    name = name_of(run)

    def keep(page: str) -> None:
        report = str(folder / f"{name}.ncu-rep")
        text = run_kept([ncu, "--import", report, "--csv", *PAGES[page]], timeout_s, folder)
        (folder / f"{name}.{page}.csv").write_text(text, encoding="utf-8")

    with ThreadPoolExecutor(len(PAGES)) as pool:
        list(pool.map(keep, PAGES))


def run_kept(command: Sequence[str], timeout_s: float, folder: Path) -> str:
    """What a program printed, errors after the rest. Kernels are built anew in `folder`: line numbers name files by
    their paths, and a binary of the cache may have been built from another copy.

    Raises:
        GpuError: it cannot be started, or takes too long.
    """
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
    """The counts of a run from the files that `keep_binary` and `keep_pages` wrote.

    Raises:
        InputError: files are missing or are not what was asked for. GpuError: the folder has no listing of the binary,
        and there is no nvdisasm here to make it.
    """
    name = name_of(run)
    page, raw = (_text(folder / f"{name}.{kind}.csv") for kind in ("source", "raw"))
    listing = folder / f"{name}.inlined.txt"
    if not listing.is_file():
        cubin = folder / f"{name}.cubin"
        if not cubin.is_file():
            raise InputError(f"{cubin} is not there: profile it again.")
        listing.write_text(inlined.disassemble(cubin), encoding="utf-8")
    launches = read_page(page, run.functions, inlined.homes(_text(listing)))
    if [function for function, _ in launches] != run.functions:
        raise InputError(
            f"the source page of {name} lists {', '.join(f for f, _ in launches) or 'no kernel'}, "
            f"and {', '.join(run.functions)} was run."
        )
    lines: list[LineCount] = []
    for function, listed in launches:
        lines += by_line(function, listed)
    totals = dict(counters.parse(raw, (*TOTALS, *APART, *counters.METRICS)))
    return LineCounts(dict(facts), totals, tuple(lines))


def read_facts(run: Counted, folder: Path) -> dict[str, Any]:
    """What `keep_binary` wrote of a run.

    Raises:
        InputError: it is not there, or is something else.
    """
    path = folder / f"{name_of(run)}.facts.json"
    try:
        facts = json.loads(_text(path))
    except json.JSONDecodeError:
        facts = None
    if not isinstance(facts, dict) or facts.get("kernel") != run.kernel.number:
        raise InputError(f"{path} does not say what was run: profile it again.")
    return facts


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}): profile it first.") from None
    except UnicodeDecodeError:
        raise InputError(f"{path} is no text: profile it again.") from None


__all__ = [
    "APART", "PAGES", "TOTALS", "count_lines", "keep_binary", "keep_pages", "name_of", "read_counts", "read_facts",
    "run_kept",
]  # fmt: skip
