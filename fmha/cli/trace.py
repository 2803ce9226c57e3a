"""`python -m fmha trace`: run a kernel on this machine's CPU and say what each line of it does to memory."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from fmha import FmhaError, Problem, Tiling
from fmha.check import Check, check
from fmha.cli.options import Parser, add_problem, add_tiles, describe, kernel_tiling, problem_from, whole
from fmha.errors import BuildError, InputError
from fmha.hardware import DEFAULT_GPU, GPUS
from fmha.inputs import INPUTS, load
from fmha.kernels import KERNELS, Kernel, kernel
from fmha.line_counts import LineCounts, shipped
from fmha.problem import check_whole
from fmha.units import format_bytes, format_count

_WHAT = "Run a kernel on this machine's CPU, access by access: bytes, sectors, bank conflicts, FLOPs, faults; by line."
_EPILOG = """What happens: the .cu file is compiled as it is by this machine's C++ compiler, and every load and
store of every CUDA thread is looked at. Counts are of the kernel as written in the source: a GPU's
compiler may join accesses. What an inlined function does counts on the kernel's line that calls
it. Faults are races between threads, accesses out of bounds, reads of what nothing wrote, and
barriers that not all threads reach; a kernel with a fault, or with a wrong result, ends in exit code 2.

examples:
  python -m fmha trace --N 256 --d 64
  python -m fmha trace --kernel 01 --N 100 --d 40 --H 2 --causal
  python -m fmha trace --N 128 --d 32 --Br 16 --Bc 16 --source my_fmha101.cu
  python -m fmha trace --N 256 --d 64 --json
  python -m fmha trace --kernel 02 --N 256 --d 64 --against-gpu
"""
_KERNEL = "02"


def add_to(commands: Any) -> None:
    """Add the command's parser."""
    parser: Parser = commands.add_parser(
        "trace", help="run a kernel on the CPU, access by access", description=_WHAT, epilog=_EPILOG
    )
    parser.add_argument("--kernel", default=_KERNEL, help=f"{', '.join(KERNELS)} or a name (default {_KERNEL})")
    parser.add_argument(
        "--source", metavar="FILE.cu",
        help="a version of your own of the kernel's file, used instead; headers are looked for beside it, then in "
        "cuda_src/; what is between #ifndef FMHA_ON_CPU and #endif is left out",
    )  # fmt: skip
    add_problem(parser, dtype_default="the first that the kernel has")
    add_tiles(parser, "32, or the kernel's fastest where 32 x 32 cannot be")
    group = parser.add_argument_group("the run")
    group.add_argument("--input", default="random", help=f"{', '.join(INPUTS)} (default random)")
    group.add_argument("--seed", type=whole, default=0, help="of random and crafted inputs (default 0)")
    group.add_argument("--lse", action="store_true", help="let the kernel store LSE too")
    group.add_argument("--reversed", action="store_true", help="let the last thread run first")
    group.add_argument("--timeout", type=whole, default=60, help="seconds that it may take (default 60)")
    group.add_argument(
        "--against-gpu",
        nargs="?",
        const="",
        metavar="FILE.json",
        help="compare with what a GPU counted, line by line: as recorded with the app, or in a file that "
        "`python -m fmha.gpu.lines` wrote",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Trace, print, and refuse a kernel that is wrong. A source of one's own goes by its own name."""
    check_whole("timeout", options.timeout, 1, 86_400, FmhaError)
    chosen = kernel(options.kernel)
    shown = Path(options.source or chosen.file).name
    try:
        _run(options, chosen, shown)
    except FmhaError as error:
        raise FmhaError(str(error).replace(chosen.file, shown)) from None


def _run(options: argparse.Namespace, chosen: Kernel, shown: str) -> None:
    from fmha.trace import trace

    problem = problem_from(options, N=256, dtype=chosen.dtypes[0])
    tiling = kernel_tiling(options, chosen, problem, GPUS[DEFAULT_GPU])
    text = _source(options.source)
    counted = None if options.against_gpu is None else _counted(options, chosen, problem, tiling)
    made = load(options.input, problem, seed=options.seed)
    arrays = (made.Q, made.K, made.V)
    try:
        done = trace(
            chosen, problem, tiling, *arrays, write_lse=options.lse, text=text,
            folder=Path(options.source).parent if options.source else None, is_reversed=options.reversed,
            timeout_s=options.timeout,
        )  # fmt: skip
    except BuildError as error:
        if error.output:
            print(error.output.rstrip().replace(chosen.file, shown), file=sys.stderr)
        raise
    verdict = check(problem, *arrays, done.O, done.LSE)
    if options.json:
        json.dump(_answer(done, verdict), sys.stdout)
        print()
    else:
        print("\n".join(_report(done, verdict, problem, tiling)).replace(chosen.file, shown))
    if counted is not None:
        print("\n".join(["", *_against(done, counted)]))
    if done.findings:
        raise FmhaError(f"{chosen.file} has {len(done.findings)} fault(s): {done.findings[0].text}")
    if not verdict.ok:
        raise FmhaError(f"{chosen.file} is {verdict.verdict}.")


def _source(filename: str | None) -> str | None:
    if filename is None:
        return None
    try:
        return Path(filename).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not in UTF-8"
        raise InputError(f"{filename[:80]} cannot be read as text ({why}): choose another file.") from None


def _counted(options: argparse.Namespace, chosen: Kernel, problem: Problem, tiling: Tiling) -> LineCounts:
    """What to compare with; whatever stands in the way is refused before anything runs."""
    if options.source or options.json:
        raise FmhaError("--against-gpu compares the kernel as it is, in lines: leave out --source and --json.")
    there = shipped(chosen.number)
    if options.against_gpu:
        there = (LineCounts.from_json(_source(options.against_gpu) or "", options.against_gpu[:80]),)
    same = [one for one in there if one.facts["kernel"] == chosen.number]
    fits = [one for one in same if one.problem == problem and (not chosen.tiled or one.tiling == tiling)]
    if not fits:
        known = "; ".join(one.title for one in there) or "none of this kernel"
        raise FmhaError(
            f"no counts by line of kernel {chosen.number} with these settings: there are {known}. Others are made with "
            "`python -m fmha.gpu.lines` on a machine with a GPU."
        )
    if fits[0].facts["source"] != chosen.source_hash():
        raise FmhaError(
            f"{chosen.file} has changed since it was counted: count it anew with `python -m fmha.gpu.lines`."
        )
    return fits[0]


def _against(done: Any, counted: LineCounts) -> list[str]:
    """Both sides, statement by statement."""
    from fmha.trace.against import compare

    facts, compared = counted.facts, compare(done, counted)
    lines = [
        f"beside    {facts['device']}, driver {facts['driver']}, {facts['profiler']}, {facts['made'][:10]}",
        "",
        " line  memory  access      traced         GPU  unit        as compiled",
    ]
    for row in compared:
        is_device, ours, theirs = row.space == "global", row.traced, row.measured
        a, b = (ours.sectors, theirs.sectors) if is_device else (ours.wavefronts, theirs.wavefronts)
        off = "" if a == b else f"{100 * (b / (a or 1) - 1):+.1f} % "
        how = f"{row.how}, " if row.how else ""
        lines.append(
            f"{row.line:>5}  {'device' if is_device else 'shared'}  {'store' if row.is_write else 'load':<6} {a:>11,} "
            f"{b:>11,}  {'sectors   ' if is_device else 'wavefronts'}  {off}{how}{row.why_not or 'as written'}"
        )
    device = [row for row in compared if row.space == "global"]
    equal = sum(row.traced.sectors == row.measured.sectors for row in device)
    written = [row for row in compared if row.space == "shared" and row.is_as_written]
    same = sum(row.is_equal for row in written)
    lines += [
        "",
        f"device    {equal} of {len(device)} rows have equal sectors",
        f"shared    {same} of {len(written)} rows that were compiled as written have equal wavefronts",
    ]
    return lines


def _answer(done: Any, verdict: Check) -> dict[str, Any]:
    return {
        "kernel": done.kernel.number,
        "problem": dataclasses.asdict(done.problem),
        "tiling": dataclasses.asdict(done.tiling),
        "check": dataclasses.asdict(verdict),
        "requested_bytes": done.requested_bytes,
        "sector_bytes": done.sector_bytes,
        "predicted_bytes": done.plan.requested.requested_bytes,
        "counts": [dataclasses.asdict(count) for count in done.counts],
        "flops": [dataclasses.asdict(line) for line in done.flops],
        "findings": [dataclasses.asdict(finding) for finding in done.findings],
        "seconds": done.seconds,
    }


def _report(done: Any, verdict: Check, problem: Problem, tiling: Tiling) -> list[str]:
    shared = [count for count in done.counts if count.space == "shared"]
    wavefronts = sum(count.wavefronts for count in shared)
    conflicts = wavefronts - sum(count.ideal_wavefronts for count in shared)
    predicted = done.plan.requested.requested_bytes
    same = "as predicted" if predicted == done.requested_bytes else f"predicted {format_bytes(predicted)}"
    ran = f"{done.seconds * 1e3:.0f} ms on the CPU"
    blocks, share = _blocks(done), f"{100 * conflicts / max(1, wavefronts):.0f} %"
    lines = [
        f"kernel    {done.kernel.number} {done.kernel.name} ({done.kernel.file}), {ran}",
        *describe(problem, tiling),
        f"result    {verdict.verdict}",
        f"device    {format_bytes(done.requested_bytes)} requested, {same}; sectors: {format_bytes(done.sector_bytes)}",
        f"shared    {format_count(wavefronts)} wavefronts, {share} of them for conflicts",
        f"threads   {len(done.raw.intervals) - blocks:,} barriers in {blocks:,} blocks",
        "",
        " line     device   sectors     shared  wavefronts  ways     FLOPs  source",
    ]
    source = done.text.splitlines()
    flops: dict[int, int] = {}
    for line in done.flops:
        flops[line.line] = flops.get(line.line, 0) + line.add + line.mul + line.div + line.special + line.max
    mine = [count for count in done.counts if count.file == done.kernel.file]
    for number in sorted({count.line for count in mine} | set(flops)):
        here = [count for count in mine if count.line == number]
        device = [count for count in here if count.space == "global"]
        inside = [count for count in here if count.space == "shared"]
        cells = [
            format_bytes(sum(c.nbytes for c in device)) if device else "",
            format_count(sum(c.sectors for c in device)) if device else "",
            format_bytes(sum(c.nbytes for c in inside)) if inside else "",
            format_count(sum(c.wavefronts for c in inside)) if inside else "",
            str(max(c.widest for c in inside)) if inside else "",
            format_count(flops[number]) if number in flops else "",
        ]
        widths = (10, 9, 10, 11, 5, 9)
        text = source[number - 1].strip()[:60] if 0 < number <= len(source) else ""
        lines.append(f"{number:>5} " + " ".join(f"{c:>{w}}" for c, w in zip(cells, widths, strict=True)) + f"  {text}")
    if done.findings:
        lines += ["", *(f"FAULT     {finding.text} ({finding.count:,} times)" for finding in done.findings)]
    else:
        lines += ["", "faults    none: no race, nothing out of bounds, all that is read was written, no barrier missed"]
    return lines


def _blocks(done: Any) -> int:
    intervals = done.raw.intervals
    return len(np.unique(intervals[["launch", "block"]]))
