"""What was measured on a GPU, as a record that can be written to a file and read again.

A *recording* is a device and a list of *runs*. A run is one problem with its input, on which kernels and peers (library
implementations) were checked and timed in turns; each of them is an *entry*. Files are JSON; a file from elsewhere is
read strictly, and what is wrong with it is said in one sentence.
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
import typing
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from fmha.check import Check
from fmha.errors import InputError
from fmha.hardware import DriverFacts, Gpu, from_driver
from fmha.kernels import KERNELS, Kernel
from fmha.problem import DTYPES, MAX_TOKENS, Problem, Tiling
from fmha.records import Wrong, build, parsed, plain, wrong

FORMAT = 1
MAX_FILE_BYTES = 16 << 20
MAX_ROWS = 1 << 26  # B x Nq of a problem in a file
MAX_ENTRIES = 100  # of a run: each is a bar of a figure
MAX_WARPS = 16  # of a scheduler, on any GPU
MAX_MAP_SIDE = 64  # cells of an error map along a side; a bench makes half as many
SHIPPED = Path(__file__).resolve().parent / "recorded" / "measurements"


@dataclass(frozen=True)
class Device:
    """Where a recording was made. `cuda` is the version that the driver supports."""

    facts: DriverFacts
    driver: str
    cuda: str
    pycuda: str | None = None
    torch: str | None = None

    @property
    def gpu(self) -> Gpu:
        """Its limits and peaks."""
        return from_driver(self.facts)


@dataclass(frozen=True)
class State:
    """A GPU at one moment (NVML): clocks in MHz, temperature in degrees Celsius, power in watts; None: not read."""

    sm_mhz: int | None = None
    memory_mhz: int | None = None
    temperature_c: int | None = None
    power_w: float | None = None


@dataclass(frozen=True)
class Timing:
    """Times of one execution in microseconds, from CUDA events, with the L2 cache flushed before each."""

    median_us: float
    p10_us: float
    p90_us: float
    fastest_us: float
    repeats: int
    warmups: int


@dataclass(frozen=True)
class FunctionUse:
    """What one compiled `__global__` function takes: registers of a thread, bytes that spill to local memory, static
    shared memory, blocks an SM holds at the launch's block size and shared memory (as the driver says; None: unknown),
    and of the launch that was timed, its threads and dynamic shared memory (None: not recorded).
    """

    function: str
    registers: int
    local_bytes: int
    static_smem_bytes: int
    blocks_per_sm: int | None = None
    threads: int | None = None
    smem_bytes: int | None = None


@dataclass(frozen=True)
class Build:
    """How a kernel was compiled. seconds: of the compiler; 0 when the binary came from the cache."""

    compiler: str
    arch: str
    options: tuple[str, ...]
    seconds: float
    cached: bool
    functions: tuple[FunctionUse, ...] = ()


@dataclass(frozen=True)
class ErrorMap:
    """|O - float64| of one head, reduced to cells: each holds the largest error of its rows and columns.

    values: [cells of rows][cells of columns]; rows: first and one-past-last query row that were looked at.
    """

    b: int
    h: int
    rows: tuple[int, int]
    values: tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class Entry:
    """One kernel or one peer in a run.

    name: a kernel's number ("02") or a peer's name ("sdpa-flash"). requested: bytes by tensor as (read, written), as
    predicted. counters: what Nsight Compute read, by function and metric. absent: why there is no result, in one
    sentence; then check and time are missing.
    """

    name: str
    title: str
    dtype: str
    tiling: tuple[int, int] | None = None
    source_hash: str | None = None
    build: Build | None = None
    check: Check | None = None
    error_map: ErrorMap | None = None
    time: Timing | None = None
    requested: dict[str, tuple[int, int]] = field(default_factory=dict)
    counters: dict[str, dict[str, float]] = field(default_factory=dict)
    absent: str | None = None

    @property
    def is_kernel(self) -> bool:
        """A kernel of ours; otherwise a peer."""
        return self.source_hash is not None

    @property
    def requested_bytes(self) -> int:
        """Bytes loaded and stored beyond registers and shared memory, as predicted."""
        return sum(read + write for read, write in self.requested.values())

    @property
    def stale(self) -> bool:
        """Whether the kernel's source has changed since."""
        return self.is_kernel and (self.name not in KERNELS or KERNELS[self.name].source_hash() != self.source_hash)

    def counter(self, metric: str) -> float | None:
        """A metric summed over the launched functions; None where it was not read."""
        values = [metrics[metric] for metrics in self.counters.values() if metric in metrics]
        return sum(values) if values else None


@dataclass(frozen=True)
class Run:
    """One problem on one device. input: name and seed of Q, K, V; before, after: the GPU around the timing."""

    problem: Problem
    input: str
    seed: int
    made: str
    entries: tuple[Entry, ...]
    before: State = State()
    after: State = State()

    def entry(self, name: str, tiling: Tiling | None = None, dtype: str | None = None) -> Entry | None:
        """The entry of a kernel (with these tiles, if given) or of a peer, in this dtype, if given."""
        wanted = None if tiling is None else (tiling.Br, tiling.Bc)
        same = (e for e in self.entries if e.name == name and (wanted is None or e.tiling in (None, wanted)))
        return next((e for e in same if dtype in (None, e.dtype)), None)


MMA_DTYPES = ("bf16", "fp16", "tf32")  # of mma.sync, as this app uses it


@dataclass(frozen=True)
class MmaPeak:
    """What `mma.sync` alone reaches, from registers: TFLOP/s by dtype with one, two, ... warps a scheduler. state: the
    GPU right after."""

    tflops: dict[str, tuple[float, ...]]
    made: str
    state: State = State()

    def best(self, dtype: str) -> float | None:
        """The most in a dtype; None where it was not measured."""
        return max(self.tflops.get(dtype, ()), default=None)


@dataclass(frozen=True)
class Recording:
    """Runs on one device. made: the time of the first, in UTC, ISO 8601. mma_sync_peak: a ceiling of this device for
    kernels that use this instruction; None: not measured."""

    device: Device
    made: str
    runs: tuple[Run, ...]
    program: str = ""
    format: int = FORMAT
    mma_sync_peak: MmaPeak | None = None

    def to_json(self) -> str:
        """The recording as text, one run a line."""
        head = {**plain(dataclasses.replace(self, runs=())), "runs": []}
        lines = ",\n".join(json.dumps(plain(run), allow_nan=False, separators=(",", ":")) for run in self.runs)
        text = json.dumps(head, allow_nan=False, separators=(",", ":"))
        return text.replace('"runs":[]', f'"runs":[\n{lines}\n]') + "\n"


# --- nearest recorded -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Found:
    """A recorded entry and how it differs from what was asked: {"N": (asked, recorded)}; empty when it is the same."""

    recording: Recording
    run: Run
    entry: Entry
    differs: dict[str, tuple[Any, Any]]


def nearest(recordings: typing.Iterable[Recording], kernel: Kernel, problem: Problem, tiling: Tiling) -> Found | None:
    """The recorded entry of `kernel` that is closest to what was asked; None when the kernel was never recorded.

    Closest: the fewest doublings between the two problems in lengths, heads, d and tiles; another mask counts as four
    doublings, and so does another dtype where the kernel has the one that was asked for.
    """
    best: tuple[float, Found] | None = None
    for recording in recordings:
        for run in recording.runs:
            for entry in run.entries:
                if entry.name != kernel.number or entry.absent or entry.time is None:
                    continue
                distance, differs = _distance(kernel, problem, tiling, run, entry)
                if best is None or distance < best[0]:
                    best = distance, Found(recording, run, entry, differs)
    return best[1] if best else None


def _distance(
    kernel: Kernel, problem: Problem, tiling: Tiling, run: Run, entry: Entry
) -> tuple[float, dict[str, tuple[Any, Any]]]:
    asked: dict[str, Any] = {name: getattr(problem, name) for name in ("B", "H", "Hk", "Nq", "Nk", "d", "causal")}
    there: dict[str, Any] = {name: getattr(run.problem, name) for name in asked}
    if kernel.tiled and entry.tiling:
        asked |= {"Br": tiling.Br, "Bc": tiling.Bc}
        there |= {"Br": entry.tiling[0], "Bc": entry.tiling[1]}
    if problem.dtype in kernel.dtypes:
        asked["dtype"], there["dtype"] = problem.dtype, entry.dtype
    differs = {name: (asked[name], there[name]) for name in asked if asked[name] != there[name]}
    weight = {"B": 0.25, "H": 0.25, "Hk": 0.25, "Br": 0.5, "Bc": 0.5}
    far = sum(
        4.0 if name in ("causal", "dtype") else weight.get(name, 1.0) * abs(math.log2(a / b))
        for name, (a, b) in differs.items()
    )
    return far + 0.1 * entry.stale, differs


# --- files ------------------------------------------------------------------------------------------------------------


def read(data: bytes | str, shown: str = "the file") -> Recording:
    """A recording from the contents of a JSON file.

    Raises:
        InputError: too large, not JSON, or not a recording; the sentence names the place.
    """
    if len(data) > MAX_FILE_BYTES:
        raise InputError(f"{shown} is larger than {MAX_FILE_BYTES >> 20} MiB: no recording of FMHA Lab is.")
    try:
        raw = parsed(data)
    except (ValueError, RecursionError):
        raise InputError(f"{shown} is not JSON: open a file that the kernel lab or `fmha bench` wrote.") from None
    if not isinstance(raw, dict) or raw.get("format") != FORMAT:
        raise InputError(f"{shown} is not a recording of FMHA Lab (format {FORMAT}): open one that it wrote.")
    try:
        recording: Recording = build(Recording, raw, "recording")
        _sane(recording)
    except Wrong as departs:
        raise InputError(f"{shown} is not a whole recording: {departs}.") from None
    except InputError:
        raise
    except ValueError as error:  # a Problem that cannot be
        raise InputError(f"{shown} holds a problem that cannot be: {error}") from None
    return recording


@lru_cache(maxsize=1)
def shipped() -> tuple[Recording, ...]:
    """The recordings that come with the app, by file name."""
    files = sorted(SHIPPED.glob("*.json")) if SHIPPED.is_dir() else []
    return tuple(read(path.read_bytes(), path.name) for path in files)


def _sane(recording: Recording) -> None:
    """Numbers that the app divides by or takes logarithms of must be positive, in a file that anyone may have made."""
    facts = recording.device.facts
    if not re.fullmatch(r"\d{1,2}\.\d", facts.compute):
        wrong("recording.device.facts.compute", 'a compute capability such as "9.0"')
    for name, value in dataclasses.asdict(facts).items():
        if not isinstance(value, str) and not value > 0:
            wrong(f"recording.device.facts.{name}", "above 0")
    for name, speeds in recording.mma_sync_peak.tflops.items() if recording.mma_sync_peak else ():
        where = f"recording.mma_sync_peak.tflops.{name[:20]}"
        if name not in MMA_DTYPES:
            wrong(where, f"one of {', '.join(MMA_DTYPES)}")
        if not (1 <= len(speeds) <= MAX_WARPS and all(math.isfinite(x) and x > 0 for x in speeds)):
            wrong(where, f"a list of 1 to {MAX_WARPS} positive numbers")
    for i, run in enumerate(recording.runs):
        if run.problem.B * run.problem.Nq > MAX_ROWS:
            wrong(f"recording.runs[{i}].problem", f"of at most {MAX_ROWS:,} rows")
        if len(run.entries) > MAX_ENTRIES:
            wrong(f"recording.runs[{i}].entries", f"a list of at most {MAX_ENTRIES}")
        for k, entry in enumerate(run.entries):
            where = f"recording.runs[{i}].entries[{k}]"
            numbers = dataclasses.astuple(entry.time) if entry.time else ()
            if not all(math.isfinite(x) and x > 0 for x in numbers[:4]):
                wrong(f"{where}.time", "of positive numbers")
            if entry.dtype not in DTYPES:
                wrong(f"{where}.dtype", f"one of {', '.join(DTYPES)}")
            if entry.tiling and not 1 <= min(entry.tiling) <= max(entry.tiling) <= MAX_TOKENS:
                wrong(f"{where}.tiling", f"of numbers from 1 to {MAX_TOKENS:,}")
            if not all(x >= 0 for pair in entry.requested.values() for x in pair):
                wrong(f"{where}.requested", "of numbers of bytes")
            cells = entry.error_map.values if entry.error_map else ()
            if max([len(cells), *map(len, cells)]) > MAX_MAP_SIDE:
                wrong(f"{where}.error_map.values", f"of at most {MAX_MAP_SIDE} x {MAX_MAP_SIDE} cells")
            if not all(math.isfinite(x) and x >= 0 for metrics in entry.counters.values() for x in metrics.values()):
                wrong(f"{where}.counters", "of numbers that are not negative")
