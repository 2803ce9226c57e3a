"""Counts by source line on a GPU: runs kernels under Nsight Compute and reads its source page.

python -m fmha.gpu.lines --out FOLDER [--kernel 02] [--quick]

What the profiler said is kept in the folder as it came, so that it can be read again without the GPU:
python -m fmha.gpu.lines --out FOLDER --read-again
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from fmha.errors import FmhaError, GpuError
from fmha.gpu import counters
from fmha.gpu.counters import Counted
from fmha.gpu.line_profile import count_lines, keep_binary, keep_pages, name_of, read_counts, read_facts, run_kept
from fmha.hardware import DEFAULT_GPU, GPUS
from fmha.kernels import KERNELS, Kernel, kernel
from fmha.problem import Problem, Tiling

# A problem, and sides of K/V tiles: one that fits everywhere, and a ragged one with a mask and two heads.
SETTINGS = (
    (Problem(N=256, d=64), 32),
    (Problem(N=200, d=40, H=2, causal="bottom-right"), 16),
)
_ROWS = (32, 64, 128)  # of a Q tile: the first that a kernel takes
_BUILDS = 8  # at a time


def runs_of(chosen: Kernel, *, quick: bool = False) -> list[Counted]:
    """What is counted of a kernel: each of `SETTINGS` with its smallest tile of 32 rows or more."""
    runs = []
    for problem, Bc in SETTINGS[:1] if quick else SETTINGS:
        tilings = (Tiling(Br, Bc) for Br in _ROWS)
        fits = (t for t in tilings if chosen.complaint(problem, t, GPUS[DEFAULT_GPU]) is None)
        runs += [Counted(chosen, problem, tiling) for tiling in list(fits)[:1]]
    return runs


def fp32_kernels() -> tuple[Kernel, ...]:
    """Those whose problems the settings are."""
    return tuple(one for one in KERNELS.values() if "fp32" in one.dtypes)


def main(given: Sequence[str] | None = None) -> int:
    """Profile and read: 0 when every run was counted, else 1."""
    parser = argparse.ArgumentParser(prog="python -m fmha.gpu.lines", description="Counts by source line on a GPU.")
    parser.add_argument("--out", required=True, type=Path, help="a folder for all that comes out")
    parser.add_argument("--kernel", action="append", help="number or name, more than once for several (default: fp32)")
    parser.add_argument("--quick", action="store_true", help="the first problem only")
    parser.add_argument("--device", type=int, default=0, help="which GPU (default 0)")
    parser.add_argument("--read-again", action="store_true", help="read a folder that is there; needs no GPU")
    options = parser.parse_args(given)
    try:
        chosen = [kernel(k) for k in options.kernel] if options.kernel else list(fp32_kernels())
        runs = [run for k in chosen for run in runs_of(k, quick=options.quick)]
        if not runs:
            raise GpuError(
                f"{', '.join(k.number for k in chosen)} runs none of the counted problems, which are in fp32: choose "
                f"from {', '.join(k.number for k in fp32_kernels())}."
            )
        options.out.mkdir(parents=True, exist_ok=True)
        failed = _read_all(runs, options.out) if options.read_again else _count_all(runs, options.out, options.device)
    except FmhaError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        why = error.strerror or error
        print(f"error: {options.out} cannot be written ({why}): choose another folder with --out.", file=sys.stderr)
        return 1
    return 1 if failed else 0


def _count_all(runs: Sequence[Counted], folder: Path, index: int) -> int:
    """Profile every run, one after another, and keep the binaries; how many failed."""
    from fmha.gpu.device import GpuDevice

    ncu = counters.find()
    if ncu is None:
        raise GpuError(str(counters.missing()))
    words = run_kept([ncu, "--version"], 60.0, folder).split("Version")
    profiler = f"Nsight Compute {words[1].split()[0]}" if len(words) > 1 else "Nsight Compute"
    known = "\n".join(sorted(name for name in counters.offered(ncu) if "shared" in name or "ldgsts" in name))
    (folder / "metrics.txt").write_text(known + "\n", encoding="utf-8")
    device = GpuDevice(index)
    with ThreadPoolExecutor(_BUILDS) as pool:
        built = [pool.submit(keep_binary, run, folder, device, profiler) for run in runs]
        done = []
        for run, made in zip(runs, built, strict=True):
            try:
                facts = made.result()
                count_lines(run, folder, device=index)
            except FmhaError as error:
                print(f"{name_of(run)}: {error}", file=sys.stderr, flush=True)
            else:  # the GPU need not wait for what is written of it
                done.append(pool.submit(_keep_and_say, run, folder, facts))
        failed = len(runs) - sum(one.result() for one in done)
    shutil.rmtree(folder / "built", ignore_errors=True)
    return failed


def _keep_and_say(run: Counted, folder: Path, facts: Mapping[str, Any]) -> bool:
    """Write the pages and the counts of a profiled run; whether that went well."""
    try:
        keep_pages(run, folder)
        _say_one(run, folder, facts)
    except FmhaError as error:
        print(f"{name_of(run)}: {error}", file=sys.stderr, flush=True)
        return False
    return True


def _read_all(runs: Sequence[Counted], folder: Path) -> int:
    failed = 0
    for run in runs:
        try:
            _say_one(run, folder, read_facts(run, folder))
        except FmhaError as error:
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
