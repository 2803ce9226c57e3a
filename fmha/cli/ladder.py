"""`python -m fmha bench --ladder`: every kernel beside its peers, in one recording; `--tune` finds the tiles first."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from fmha import FmhaError, Problem, Tiling, best_tiles
from fmha.cli import peak
from fmha.cli.files import file_to_write
from fmha.cli.measuring import counted, joined, need_gpu, say, table, title_of, wait
from fmha.cli.options import SHAPE, Parser, real
from fmha.errors import GpuError
from fmha.hardware import Gpu
from fmha.kernels import KERNELS, Kernel
from fmha.ladder import (
    COUNTED_AT,
    DIMS,
    HIDDEN,
    LENGTHS,
    MASKS,
    PEERS,
    TOKENS,
    TUTORIAL_TILES,
    TUTORIALS,
    problem,
)
from fmha.measurement import Recording
from fmha.problem import DTYPES, Causal
from fmha.speeds import tflops, useful_flops

DTYPES_AT = {"fp32": LENGTHS, "bf16": LENGTHS, "fp16": (COUNTED_AT,)}  # fp16 is as fast as bf16: one length shows it
LONGEST_S = 1.0
# Of one candidate on one problem. What takes LONGEST_S, or a little longer than foreseen, has all repeats.
BUDGET_S, REPEATS = 25 * LONGEST_S, 20
TUNE_BUDGET_S = 0.25  # of one pair of tiles: their order is wanted, and slow ones are many
_HEEDED = ("N", "d", "dtype", "causal")
_PREPARE_LIMIT_S = 1200.0


def add_options(parser: Parser) -> None:
    """The options of the ladder."""
    group = parser.add_argument_group(
        "the ladder",
        f"all kernels and peers on {TOKENS:,} tokens in all, B = {TOKENS:,} / N, H = {HIDDEN:,} / d; --N, --d, --dtype "
        "take several values, --causal both (default); what is left out is said",
    )
    group.add_argument("--ladder", action="store_true", help="record the table that the page The ladder shows")
    group.add_argument(
        "--tune", nargs="?", const=str(best_tiles.FILE), metavar="FILE",
        help="with --ladder: find the fastest tiles of every kernel first, and keep them in FILE (default: those that "
        "the app uses)",
    )  # fmt: skip
    group.add_argument(
        "--longest", type=real, metavar="S",
        help=f"with --ladder: leave out what would take longer for one execution (default {LONGEST_S:g} s). Each is "
        f"timed {REPEATS} times, but for what needs more than {BUDGET_S:g} s for that: the recording says how often",
    )  # fmt: skip


@dataclass
class _Speeds:
    """What was measured so far, to foresee how long a longer problem would take: TFLOP/s by (name, d, mask)."""

    known: dict[tuple[str, str, int, Causal | None], float] = field(default_factory=dict)

    def add(self, recording: Recording) -> None:
        for run in recording.runs:
            for entry in run.entries:
                if entry.time is not None:
                    key = (entry.name, entry.dtype, run.problem.d, run.problem.causal)
                    self.known[key] = tflops(run.problem, entry.time.median_us)

    def too_long(self, asked: Problem, longest_s: float) -> dict[str, str]:
        """Names that are left out, with the reason."""
        refused = {}
        for name in (*KERNELS, *PEERS):
            speed = self.known.get((name, asked.dtype, asked.d, asked.causal))
            seconds = useful_flops(asked) / speed / 1e12 if speed else 0.0
            if seconds > longest_s:
                refused[name] = (
                    f"not run: one execution would take about {seconds:.1f} s, and this table allows {longest_s:g} s"
                )
        return refused


def record(options: argparse.Namespace) -> Recording:
    """Measure the ladder.

    Raises:
        FmhaError: options that it would not heed. GpuError: no GPU, or nothing that could be measured.
    """
    _check(options)
    shapes, longest_s = list(asked_shapes(options)), _longest_s(options)
    need_gpu(options.device)
    from fmha.gpu.service import GpuService

    with GpuService(options.device) as service:
        device = wait(service, "describe", {}, options.timeout, "GPU")["device"]
        gpu: Gpu = device.gpu
        if options.tune:
            _tune(service, options, shapes, gpu, device.facts.name)
        begun = time.monotonic()
        builds = [(k.number, p, t) for p in shapes for k, t in rungs(p, gpu)]
        wait(service, "prepare", {"builds": builds}, _PREPARE_LIMIT_S, "kernels")
        recordings, speeds = [], _Speeds()
        for index, shape in enumerate(shapes):
            payload = request(options, shape, gpu, speeds.too_long(shape, longest_s))
            title = f"[{index + 1}/{len(shapes)}] {title_of(payload)} {shape.dtype}"
            try:
                recordings.append(wait(service, "ladder", payload, options.timeout, title)["recording"])
            except FmhaError as error:
                say(f"{title}\n  left out: {error}")
                continue
            except KeyboardInterrupt:
                say("interrupted: what was measured so far is recorded")
                break
            speeds.add(recordings[-1])
            say("\n".join([title, *table(recordings[-1])]))
            _keep(joined(recordings), options)
        if not recordings:
            raise GpuError("nothing was measured, so there is nothing to record.")
        whole = _with_peak(joined(recordings), service)
    say(f"{len(recordings)} problems in {time.monotonic() - begun:.0f} s")
    return _counted(whole, options) if options.counters else whole


def _with_peak(recording: Recording, service: Any) -> Recording:
    """The recording with the ceiling of mma.sync, where this GPU has one."""
    try:
        return replace(recording, mma_sync_peak=peak.measured(service))
    except FmhaError as error:
        say(f"recorded without the peak of mma.sync: {error}")
    except KeyboardInterrupt:
        say("interrupted: recorded without the peak of mma.sync")
    return recording


def _keep(recording: Recording, options: argparse.Namespace) -> None:
    """Write what there is so far where --out says: minutes of work survive whatever happens to the rest."""
    if options.out:
        with suppress(OSError):  # the end will say so
            Path(options.out).write_text(recording.to_json(), encoding="utf-8")


def _check(options: argparse.Namespace) -> None:
    """Refuse what a ladder would not heed."""
    fixed = [n for n in (*SHAPE, "scale", "lens_k", "left_pad", "kernel", "Br", "Bc") if n not in _HEEDED]
    given = [f"--{name.replace('_', '-')}" for name in fixed if getattr(options, name) is not None]
    given += [f"--{name}" for name in ("sweep", "timestamps") if getattr(options, name)]
    given += ["--repeats"] if options.repeats is not None else []
    given += ["--input"] if options.input != "random" else []
    if given:
        raise FmhaError(f"--ladder chooses {', '.join(given)} itself: leave that out, or leave out --ladder.")
    if not _longest_s(options) > 0:  # nor NaN
        raise FmhaError(f"longest={options.longest:g} leaves nothing to run: give some seconds, such as 1.")
    if options.tune is not None:
        file_to_write(options.tune, "tiles.json", "--tune")


def _longest_s(options: argparse.Namespace) -> float:
    return LONGEST_S if options.longest is None else float(options.longest)


def asked_shapes(options: argparse.Namespace) -> Iterator[Problem]:
    """The problems, those of one dtype and size after another, short ones first."""
    masks = MASKS
    if options.causal not in (None, "both"):
        masks = (None,) if options.causal == "none" else ("bottom-right",)
    for dtype in options.dtype or DTYPES:
        for d in options.d or DIMS:
            for causal in masks:
                # What was asked for by name is measured at every length.
                lengths = options.N or (LENGTHS if options.dtype else DTYPES_AT[Problem(N=1, dtype=dtype).dtype])
                for N in sorted(lengths):
                    yield problem(N, d, causal, dtype)


def rungs(shape: Problem, gpu: Gpu) -> Iterator[tuple[Kernel, Tiling]]:
    """Kernels that compute in this dtype, with the best tiles for it; those that nothing fits have some all the same,
    and the recording says why they cannot run."""
    for chosen in KERNELS.values():
        if shape.dtype in chosen.dtypes:
            fine = best_tiles.candidates(chosen, shape, gpu)
            keeps = chosen.number in TUTORIALS and chosen.can(shape, Tiling(*TUTORIAL_TILES), gpu)
            yield chosen, Tiling(*TUTORIAL_TILES) if keeps else fine[0] if fine else Tiling(*chosen.tiles[0])


def request(options: argparse.Namespace, shape: Problem, gpu: Gpu, refused: Mapping[str, str]) -> dict[str, Any]:
    """What the worker is asked for one problem."""
    return {
        "problem": shape,
        "rungs": [(k.number, t) for k, t in rungs(shape, gpu)],
        "peers": not options.no_peers,
        "refused": dict(refused),
        "repeats": REPEATS,
        "budget_s": BUDGET_S,
        "seed": options.seed,
    }


def _tune(service: Any, options: argparse.Namespace, shapes: list[Problem], gpu: Gpu, device: str) -> None:
    """Time every kernel with all its tiles at one length, and keep the order of each."""
    cases = dict.fromkeys(p.replace(causal=None) for p in (problem(COUNTED_AT, s.d, None, s.dtype) for s in shapes))
    tried = {
        p: [
            (k.number, t)
            for k in KERNELS.values()
            if p.dtype in k.dtypes and k.tiled
            for t in best_tiles.candidates(k, p, gpu)
        ]
        for p in cases
    }
    builds = [(number, p, t) for p, pairs in tried.items() for number, t in pairs]
    wait(service, "prepare", {"builds": builds}, _PREPARE_LIMIT_S, "tiles")
    found: dict[tuple[str, str, int], Sequence[best_tiles.Sides]] = {
        (number, dtype, d): tiles
        for number, dtypes in best_tiles.table().items()
        for dtype, dims in dtypes.items()
        for d, tiles in dims.items()
    }
    for index, (p, pairs) in enumerate(tried.items()):
        payload = {**request(options, p, gpu, {}), "rungs": pairs, "peers": False, "budget_s": TUNE_BUDGET_S}
        title = f"tiles [{index + 1}/{len(tried)}] {title_of(payload)} {p.dtype}"
        recording = wait(service, "ladder", payload, options.timeout, title)["recording"]
        say("\n".join([title, *table(recording)]))
        found |= ranked(recording)
    path = Path(options.tune)
    try:
        path.write_text(best_tiles.written(found, device, recording.made), encoding="utf-8")
    except OSError as error:
        raise FmhaError(f"{path} cannot be written ({error.strerror}): choose another file for --tune.") from None
    best_tiles.table.cache_clear()
    say(f"tiles written to {path}")


def ranked(recording: Recording) -> dict[tuple[str, str, int], list[best_tiles.Sides]]:
    """The tiles of each kernel of the last run, the fastest first; those without a time are left out."""
    run = recording.runs[-1]
    timed = sorted((e.time.median_us, e.name, e.dtype, e.tiling) for e in run.entries if e.time and e.tiling)
    found: dict[tuple[str, str, int], list[best_tiles.Sides]] = {}
    for _, name, dtype, tiling in timed:
        found.setdefault((name, dtype, run.problem.d), []).append(tiling)
    return found


def _counted(recording: Recording, options: argparse.Namespace) -> Recording:
    """The recording with hardware counters in the kernels of the runs at one length, without a mask; of the 16-bit
    dtypes in one, as the other one moves the same bytes."""
    dtypes = {run.problem.dtype for run in recording.runs}
    sixteen = "bf16" if "bf16" in dtypes else "fp16"
    picked = [
        run.problem.Nq == COUNTED_AT and run.problem.causal is None and run.problem.dtype in ("fp32", sixteen)
        for run in recording.runs
    ]
    if not any(picked):
        picked = [True] * len(recording.runs)
    runs = list(recording.runs)
    try:
        for index in np.flatnonzero(picked):  # one after another, so that none is lost with a later one
            one = counted(replace(recording, runs=(runs[index],)), options.device, options.timeout)
            runs[index] = one.runs[0]
            _keep(replace(recording, runs=tuple(runs)), options)
    except GpuError as error:
        say(f"recorded without further hardware counters: {error}")
    except KeyboardInterrupt:
        say("interrupted: recorded without further hardware counters")
    return replace(recording, runs=tuple(runs))
