"""The ladder: all kernels beside their peers on problems of one size, from a recording.

Recordings of the ladder are kept apart from those of `measurement.shipped()`, which sweep one kernel over lengths and
tiles, with counters at each, and which the forecast is fitted to and held against.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from fmha.kernels import KERNELS, Kernel
from fmha.measurement import Entry, Recording, Run, read
from fmha.problem import Causal, Problem
from fmha.speeds import tflops

SHIPPED = Path(__file__).resolve().parent / "recorded" / "ladder"
TOKENS, HIDDEN = 16_384, 2_048  # of every problem: B N and H d, so that all take the same memory
LENGTHS = (1024, 4096, 8192, 16384)
DIMS = (64, 128)
MASKS: tuple[Causal | None, ...] = (None, "bottom-right")
PEERS = ("torch-eager", "sdpa-math", "sdpa-efficient", "sdpa-flash", "sdpa-cudnn", "fa3")
COUNTED_AT = 4096  # tokens: the length at which counters are read, without a mask, and at which tiles are tried
TUTORIAL = "02"  # the kernel that the others are compared with
# Rungs that keep the tutorial's tiles, so that a step up is one idea and not other tiles as well.
TUTORIALS, TUTORIAL_TILES = ("02", "03", "04", "05"), (32, 32)


@lru_cache(maxsize=1)
def shipped() -> tuple[Recording, ...]:
    """The recordings of the ladder that come with the app, by file name."""
    return tuple(read(path.read_bytes(), path.name) for path in sorted(SHIPPED.glob("*.json")))


def problem(N: int, d: int, causal: Causal | None = None, dtype: str = "fp32") -> Problem:
    """The problem of one shape: as many sequences and heads as make `TOKENS` and `HIDDEN`."""
    return Problem(B=max(1, TOKENS // max(1, N)), H=max(1, HIDDEN // max(1, d)), N=N, d=d, causal=causal, dtype=dtype)


@dataclass(frozen=True)
class Measured:
    """An entry with the run and the recording that it belongs to."""

    recording: Recording
    run: Run
    entry: Entry

    @property
    def tflops(self) -> float | None:
        """Useful TFLOP/s; None without a time."""
        return tflops(self.run.problem, self.entry.time.median_us) if self.entry.time else None


@dataclass(frozen=True)
class Rung:
    """A kernel at one shape. dtype: the one it computes in there; measured: None where it was never recorded."""

    kernel: Kernel
    dtype: str
    measured: Measured | None

    @property
    def tflops(self) -> float | None:
        """Useful TFLOP/s; None where it has no time."""
        return self.measured.tflops if self.measured else None


def run_of(recordings: Iterable[Recording], asked: Problem) -> tuple[Recording, Run] | None:
    """The run of exactly this problem that holds most kernels; None where there is none."""
    runs = [(r, run) for r in recordings for run in r.runs if run.problem == asked]
    return max(
        runs, key=lambda pair: (len({e.name for e in pair[1].entries if e.is_kernel}), pair[1].made), default=None
    )


def rungs(recordings: Iterable[Recording], N: int, d: int, causal: Causal | None, dtype: str) -> list[Rung]:
    """All kernels, each in `dtype`, or in fp32 where it computes in nothing else; those in fp32 come first."""
    recordings, made = tuple(recordings), []
    for kernel in sorted(KERNELS.values(), key=lambda k: ("fp32" not in k.dtypes, k.number)):
        if dtype not in kernel.dtypes and "fp32" not in kernel.dtypes:
            continue
        own = dtype if dtype in kernel.dtypes else "fp32"
        found = run_of(recordings, problem(N, d, causal, own))
        entry = found[1].entry(kernel.number, dtype=own) if found else None
        made.append(Rung(kernel, own, Measured(*found, entry) if found and entry else None))
    return made


def recorded_at(recordings: Iterable[Recording], dtype: str) -> list[tuple[int, int, Causal | None]]:
    """The shapes (N, d, mask) of the ladder at which a kernel has a time in `dtype`, in order."""
    recordings = tuple(recordings)
    return [
        (N, d, causal)
        for N in LENGTHS
        for d in DIMS
        for causal in MASKS
        if any(r.dtype == dtype and r.tflops is not None for r in rungs(recordings, N, d, causal, dtype))
    ]


def counted(recordings: Iterable[Recording], d: int, dtype: str) -> list[Rung]:
    """All kernels at the length and without the mask at which counters are read. A 16-bit kernel that was counted in
    the other 16-bit dtype stands there with that: it moves the same bytes by the same instructions."""
    recordings, made = tuple(recordings), []
    for rung in rungs(recordings, COUNTED_AT, d, None, dtype):
        if rung.measured is not None and rung.measured.entry.counters:
            made.append(rung)
            continue
        others = (
            other
            for name in rung.kernel.dtypes
            if name != rung.dtype
            for other in rungs(recordings, COUNTED_AT, d, None, name)
            if other.kernel is rung.kernel and other.measured is not None and other.measured.entry.counters
        )
        made.append(next(others, rung))
    return made


def peers(recordings: Iterable[Recording], N: int, d: int, causal: Causal | None, dtype: str) -> list[Measured]:
    """The peers of that shape in that dtype, those without a time too."""
    found = run_of(recordings, problem(N, d, causal, dtype))
    if found is None:
        return []
    entries = {e.name: e for e in found[1].entries if not e.is_kernel and e.dtype == dtype}
    return [Measured(*found, entries[name]) for name in PEERS if name in entries]


def samples(measured: Iterable[Measured]) -> str:
    """How often these were timed: "20 runs", or "3 to 20 runs, of slow ones fewer"; "" where none has a time."""
    counts = {m.entry.time.repeats for m in measured if m.entry.time is not None}
    if not counts:
        return ""
    few, many = min(counts), max(counts)
    return f"{many} runs" if few == many else f"{few} to {many} runs, of slow ones fewer"


@dataclass(frozen=True)
class Best:
    """The fastest kernel of one dtype at one shape, beside the fastest of its peers and each of them by name."""

    rung: Rung
    tflops: float
    by_peer: dict[str, float]

    def ratio(self, peer: str) -> float | None:
        """How many times as fast as a peer; None where that has no time."""
        return self.tflops / self.by_peer[peer] if peer in self.by_peer else None


def best(recordings: Iterable[Recording], N: int, d: int, causal: Causal | None, dtype: str) -> Best | None:
    """The fastest right kernel in `dtype`; None where none was recorded."""
    recordings = tuple(recordings)
    fine = [
        (speed, rung)
        for rung in rungs(recordings, N, d, causal, dtype)
        if rung.dtype == dtype and (speed := rung.tflops) is not None
    ]
    if not fine:
        return None
    speed, rung = max(fine, key=lambda pair: pair[0])
    known = {m.entry.name: t for m in peers(recordings, N, d, causal, dtype) if (t := m.tflops) is not None}
    return Best(rung, speed, known)


__all__ = [
    "COUNTED_AT",
    "DIMS",
    "HIDDEN",
    "LENGTHS",
    "MASKS",
    "PEERS",
    "SHIPPED",
    "TOKENS",
    "TUTORIAL",
    "Best",
    "Measured",
    "Rung",
    "best",
    "counted",
    "peers",
    "problem",
    "recorded_at",
    "run_of",
    "rungs",
    "samples",
    "shipped",
]
