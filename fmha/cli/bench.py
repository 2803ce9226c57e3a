"""`python -m fmha bench`: run kernels on this machine's GPU, check, time, count, record."""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fmha import FmhaError, Problem, Tiling
from fmha.cli import ladder, peak
from fmha.cli.files import file_to_write
from fmha.cli.measuring import counted, joined, need_gpu, say, table, title_of, wait
from fmha.cli.options import SHAPE, Parser, add_problem, add_tiles, kernel_tiling, one_of_each, problem_from, whole
from fmha.errors import GpuError
from fmha.hardware import DEFAULT_GPU, GPUS
from fmha.inputs import INPUTS, load
from fmha.kernels import KERNELS, kernel
from fmha.measurement import Recording
from fmha.problem import Causal, check_whole
from fmha.stamp_files import save
from fmha.units import format_bytes

_WHAT = "Run kernels on this machine's GPU: check them against float64, time them beside their peers, record it all."
_EPILOG = """What happens: the kernel is compiled (or taken from the cache), run on poisoned outputs and compared
with attention in float64; then it, naive attention and torch's implementations are timed in turns,
with the L2 cache flushed before each execution. The result is written as a recording, which the
page "Kernel lab" opens.

examples:
  python -m fmha bench --N 4096 --H 16 --d 64
  python -m fmha bench --kernel 02 --N 4096 --H 16 --d 64 --Br 16 --Bc 64 --counters
  python -m fmha bench --sweep --counters --out h200.json
  python -m fmha bench --timestamps --N 1024 --H 16 --d 64 --out timeline.npz
  python -m fmha bench --ladder --counters --out ladder.json
  python -m fmha bench --peak --out ladder.json
"""
SWEEP_LENGTHS = (512, 1024, 2048, 4096, 8192, 16384)
SWEEP_DIMS = (64, 128)
SWEEP_TILES = ((32, 32), (16, 64), (64, 16), (16, 16))
_ALL_TILES_UP_TO = 4096  # longer sequences are recorded with the first tiles only
_SWEEP_HEADS = 16
_SWEEP_NARROWS = ("N", "d", "causal")  # options of the problem that a sweep heeds
_KERNEL = "02"
_REPEATS, _FEWEST = 30, 20  # a median of fewer says little
_ANY_GPU = GPUS[DEFAULT_GPU]  # limits that are refused before a GPU is looked for: those of the largest


def add_to(commands: Any) -> None:
    """Add the command's parser."""
    parser: Parser = commands.add_parser(
        "bench", help="run, check, time and record on this machine's GPU", description=_WHAT, epilog=_EPILOG
    )
    parser.add_argument("--kernel", help=f"{', '.join(KERNELS)} or a name (default {_KERNEL})")
    add_problem(parser, dtype_default="the first that the kernel has", several=True)
    add_tiles(parser, "32, or the kernel's fastest where 32 x 32 cannot be")
    group = parser.add_argument_group("the run")
    group.add_argument("--input", default="random", help=f"{', '.join(INPUTS)} (default random)")
    group.add_argument("--seed", type=whole, default=0, help="of random and crafted inputs (default 0)")
    group.add_argument("--no-peers", action="store_true", help="leave torch's implementations out")
    group.add_argument("--repeats", type=whole, help=f"timed executions, 20 at least (default {_REPEATS})")
    group.add_argument("--counters", action="store_true", help="read hardware counters too (needs Nsight Compute)")
    group.add_argument(
        "--timestamps",
        action="store_true",
        help="record when each thread block did what, on which SM, instead of times and peers; --out names the file",
    )
    group.add_argument("--device", type=whole, default=0, help="which GPU (default 0)")
    group.add_argument("--timeout", type=whole, default=600, help="seconds that one problem may take (default 600)")
    group.add_argument(
        "--sweep",
        action="store_true",
        help="the problems of the recordings that come with the app: N = 512 to 16384, d = 64 and 128, several tiles, "
        "causal and not; --N, --d and --causal narrow it",
    )
    ladder.add_options(parser)
    peak.add_options(parser)
    group = parser.add_argument_group("the recording")
    group.add_argument("--out", metavar="FILE", help="where to write it (default: a name made of GPU and date)")
    group.add_argument("--json", action="store_true", help="print it, and write a file only with --out")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Run every problem that was asked for, and write one recording."""
    from fmha.gpu.service import GpuService

    check_whole("timeout", options.timeout, 1, 86_400, FmhaError)
    if options.repeats is not None:
        check_whole("repeats", options.repeats, _FEWEST, 10_000, FmhaError)
    check_whole("seed", options.seed, 0, 2**32 - 1, FmhaError)
    if options.out is not None:
        file_to_write(options.out, "timeline.npz" if options.timestamps else "recording.json")
    if options.peak:
        peak.run(options)
        return
    if options.ladder:
        write(ladder.record(options), options)
        return
    for name in ("tune", "longest"):
        if getattr(options, name) is not None:
            raise FmhaError(f"--{name} is for --ladder: add that, or leave out --{name}.")
    one_of_each(options, "--ladder")
    if options.sweep:
        _check_sweep(options)
    if options.timestamps and (options.sweep or options.json or options.counters):
        raise FmhaError("--timestamps records one run into a file: leave out --sweep, --json and --counters.")
    payloads = list(sweep(options) if options.sweep else [single(options)])
    if INPUTS.get(options.input) is None or INPUTS[options.input].N is not None:
        load(options.input, payloads[0]["problem"])  # a recorded one has one d and a greatest N
    need_gpu(options.device)
    if options.timestamps:
        _record_stamps(options, payloads[0])
        return
    recordings: list[Recording] = []
    with GpuService(options.device) as service:
        for index, payload in enumerate(payloads):
            title = f"[{index + 1}/{len(payloads)}] {title_of(payload)}"
            try:
                recordings.append(wait(service, "bench", payload, options.timeout, title)["recording"])
            except FmhaError as error:
                if len(payloads) == 1:
                    raise
                say(f"{title}\n  left out: {error}")
                continue
            except KeyboardInterrupt:
                say("interrupted: what was measured so far is recorded")
                break
            say("\n".join([title, *table(recordings[-1])]))
    if not recordings:
        raise GpuError("nothing was measured, so there is nothing to record.")
    recording = joined(recordings)
    if options.counters:
        try:
            recording = counted(recording, options.device, options.timeout)
        except GpuError as error:
            say(f"recorded without hardware counters: {error}")
        except KeyboardInterrupt:
            say("interrupted: recorded without hardware counters")
    write(recording, options)


def write(recording: Recording, options: argparse.Namespace) -> None:
    """Print a recording, or write it into a file, and end in an error where a result was wrong."""
    text = recording.to_json()
    if options.json:
        print(text, end="")
    if options.out or not options.json:
        path = Path(options.out or _filename(recording))
        try:
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            print(text, end="")  # minutes of work are not lost
            raise FmhaError(f"{path} cannot be written ({error.strerror}), so the recording was printed.") from None
        say(f"recording written to {path} ({format_bytes(len(text))})")
    refuse_wrong(recording)


def _record_stamps(options: argparse.Namespace, payload: Mapping[str, Any]) -> None:
    """Record a time-stamped run and say where it went."""
    from fmha.gpu.service import GpuService

    with GpuService(options.device) as service:
        stamps = wait(service, "stamps", payload, options.timeout, title_of(payload))["stamps"]
    path = Path(options.out or f"fmha-timeline-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}.npz")
    try:
        save(stamps, path)
    except OSError as error:
        raise FmhaError(f"{path} cannot be written ({error.strerror}): choose another --out.") from None
    facts = stamps.facts
    say(
        f"{len(stamps.at_us):,} stamps of {len(stamps.sm):,} thread blocks written to {path} "
        f"({format_bytes(path.stat().st_size)}); median {facts['stamped_us']:.4g} us with stamps, "
        f"{facts['plain_us']:.4g} us without"
    )


def refuse_wrong(recording: Recording) -> None:
    """End in an error where a kernel's result was wrong: it was given no time, and scripts must notice."""
    wrong = [
        f"kernel {entry.name} with {title_of({'problem': run.problem})} is {entry.check.verdict}"
        for run in recording.runs
        for entry in run.entries
        if entry.is_kernel and entry.check is not None and not entry.check.ok
    ]
    if wrong:
        more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
        raise FmhaError(f"{wrong[0]}{more}; no time is recorded for a wrong result.")


def _check_sweep(options: argparse.Namespace) -> None:
    """Refuse what a sweep would not heed."""
    fixed = [
        n for n in (*SHAPE, "dtype", "scale", "lens_k", "left_pad", "kernel", "Br", "Bc") if n not in _SWEEP_NARROWS
    ]
    given = [f"--{name.replace('_', '-')}" for name in fixed if getattr(options, name) is not None]
    if given:
        raise FmhaError(f"--sweep chooses {', '.join(given)} itself: leave that out, or leave out --sweep.")


def single(options: argparse.Namespace) -> dict[str, Any]:
    """The request of one problem; what no GPU can run is refused here."""
    chosen = kernel(_KERNEL if options.kernel is None else options.kernel)
    problem = problem_from(options, N=4096, dtype=chosen.dtypes[0])
    tiling = kernel_tiling(options, chosen, problem, _ANY_GPU)
    chosen.plan(problem, tiling, _ANY_GPU)
    others = [(k.number, tiling) for k in KERNELS.values() if k.number == "01" != chosen.number]
    return _payload(options, problem, [(chosen.number, tiling), *others])


def sweep(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """The requests of the sweep, one a problem; N, d and the mask can be narrowed by their options."""
    masks: tuple[Causal | None, ...] = (None, "bottom-right")
    if options.causal is not None:
        masks = (None,) if options.causal == "none" else ("bottom-right",)
    for d in SWEEP_DIMS if options.d is None else (options.d,):
        for causal in masks:
            for N in SWEEP_LENGTHS if options.N is None else (options.N,):
                problem = Problem(B=1, H=_SWEEP_HEADS, N=N, d=d, causal=causal)
                tiles = [Tiling(*t) for t in (SWEEP_TILES if N <= _ALL_TILES_UP_TO else SWEEP_TILES[:1])]
                yield _payload(options, problem, [*(("02", tiling) for tiling in tiles), ("01", tiles[0])])


def _payload(options: argparse.Namespace, problem: Problem, candidates: list[tuple[str, Tiling]]) -> dict[str, Any]:
    return {
        "problem": problem,
        "candidates": candidates,
        "input": options.input,
        "seed": options.seed,
        "peers": not options.no_peers,
        "repeats": _REPEATS if options.repeats is None else options.repeats,
    }


def _filename(recording: Recording) -> str:
    name = re.sub(r"[^a-z0-9]+", "-", recording.device.facts.name.lower()).strip("-")
    return f"fmha-{name}-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}.json"
