"""Runs a program made by `fmha.trace.build` in a process of its own, with a time limit, and reads what it wrote."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmha.errors import LimitError, TraceError
from fmha.kernels import Launch
from fmha.trace.build import DYNAMIC_ROOM, Program
from fmha.units import ceil_div, format_bytes

MAGIC = 0x464D4841
TRACE, CHECK, REVERSED, GRAIN_BIT = 1, 2, 4, 4
MAX_PROCESSES = 64
ALIGNMENT = 256  # of buffers, as the GPU's allocator has it: sectors depend on it
GAP = 1 << 18  # bytes between buffers that belong to none
MAX_ARENA = 1 << 31
NOWHERE = 2**32 - 1
FLOP_KINDS = ("add", "mul", "div", "special", "max")

# As in runtime.c.
_COUNTS = ("requests", "lanes", "nbytes", "sectors", "ideal_sectors", "wavefronts", "ideal_wavefronts")
ROW = np.dtype(
    [(n, "u4") for n in ("launch", "block", "interval", "site", "region", "widest")]
    + [(n, "u8") for n in (*_COUNTS, "first", "last")]
)
INTERVAL = np.dtype([(n, "u4") for n in ("launch", "block", "interval", "line")])
FINDING = np.dtype(
    [(n, "u4") for n in ("kind", "launch", "block", "thread", "other_block", "other_thread")]
    + [(n, "u4") for n in ("site", "other_site", "region", "count")]
    + [("at", "i8")]
)
FLOPS = np.dtype([(n, "u4") for n in ("launch", "block", "interval", "line")] + [("count", "u8", len(FLOP_KINDS))])
REQUEST = np.dtype([(n, "u4") for n in ("interval", "site", "region", "lanes")] + [("at", "u4", 32)])
_KINDS = {"rows": ROW, "intervals": INTERVAL, "findings": FINDING, "flops": FLOPS, "requests": REQUEST}
_HEAD = 23  # 64-bit words before the places of the processes
_CULPRIT = 22  # the word that says which process ended badly
_NOBODY = 2**64 - 1  # of threads: the process runs none
MAX_LAUNCHES, MAX_ARGUMENTS, MAX_THREADS, MAX_REGIONS = 7, 64, 1024, 64


@dataclass(frozen=True)
class Detail:
    """Which requests to write down lane by lane: one warp of one block, from one barrier interval to another."""

    block: int
    warp: int = 0
    first: int = 0
    last: int = 0
    launch: int = 0


@dataclass(frozen=True)
class Region:
    """Bytes with a name: a device buffer (space "global"), or a part of shared memory ("shared", launch by launch)."""

    name: str
    space: str
    first: int
    nbytes: int


@dataclass(frozen=True)
class Raw:
    """What a run wrote down. rows: one for each (launch, block, interval, site, region), in program order of a block.

    regions: of each launch, what the rows' `region` counts. saved [intervals, bytes]: the asked-for spans of shared
    memory at the end of each of `intervals`. outputs: the buffers after the run, as float32.
    """

    rows: NDArray[Any]
    intervals: NDArray[Any]
    findings: NDArray[Any]
    flops: NDArray[Any]
    requests: NDArray[Any]
    saved: NDArray[np.uint8]
    regions: tuple[tuple[Region, ...], ...]
    outputs: dict[str, NDArray[np.float32]]
    seconds: float


def run(
    program: Program,
    launches: Sequence[Launch],
    inputs: Mapping[str, NDArray[Any]],
    outputs: Mapping[str, int],
    *,
    flags: int = TRACE | CHECK,
    detail: Detail | None = None,
    saved: Sequence[tuple[int, int]] = (),
    blocks: Sequence[int] | None = None,
    processes: int | None = None,
    timeout_s: float = 20.0,
) -> Raw:
    """Run launches one after another.

    Args:
        inputs: arrays by the names that `Launch.arguments` use; outputs: sizes in bytes, poisoned before the run. A
            name in neither is passed as null.
        saved: (offset, bytes) of dynamic shared memory to keep at the end of every barrier interval.
        blocks: numbers of the blocks to run (all).

    Raises:
        TraceError: it crashed, did not end within `timeout_s`, or could not be started. LimitError: too large.
    """
    begun = time.perf_counter()
    where: dict[str, tuple[int, int]] = {}
    end = GAP
    for name, nbytes in [*((n, a.nbytes) for n, a in inputs.items()), *outputs.items()]:
        where[name] = (end, nbytes)
        end = ceil_div(end + nbytes + GAP, ALIGNMENT) * ALIGNMENT
    if end > MAX_ARENA:
        raise LimitError(
            f"tracing holds at most {format_bytes(MAX_ARENA)} of device memory and this run needs {format_bytes(end)}: "
            "use a smaller N or fewer heads."
        )
    if len(launches) > MAX_LAUNCHES:
        raise LimitError(f"tracing runs at most {MAX_LAUNCHES} launches and this run has {len(launches)}: split it.")
    for launch in launches:
        _check_limits(program, launch, len(where))
    smallest = min((site.nbytes for site in program.sites[1:]), default=4)  # what races are told apart by
    flags |= min(2, smallest.bit_length() - 1) << GRAIN_BIT
    count = min(MAX_PROCESSES, max(1, processes or len(_cores())))
    head, tables = _job(program, launches, where, end, {*inputs}, flags, detail, saved, blocks, count)
    with tempfile.TemporaryDirectory(prefix="fmha-run-") as folder:
        job = Path(folder) / "job"
        with job.open("wb") as file:
            file.write(head)
            file.write(tables)
            file.truncate(len(head) + len(tables) + end)
        base = len(head) + len(tables)
        memory = np.memmap(job, np.uint8, "r+", base, (end,))
        for name, array in inputs.items():
            first, nbytes = where[name]
            memory[first : first + nbytes] = np.frombuffer(np.ascontiguousarray(array).data, np.uint8)
        for name in outputs:
            first, nbytes = where[name]
            memory[first : first + nbytes] = 0xFF  # NaN
        executable = Path(folder) / "program"
        executable.write_bytes(program.binary)
        executable.chmod(0o700)
        _execute(executable, job, program, launches, timeout_s)
        found = {kind: _read(job, kind, dtype, count) for kind, dtype in _KINDS.items()}
        width = sum(nbytes for _, nbytes in saved)
        kept = _read(job, "saved", np.dtype((np.uint8, max(1, width))), count) if width else np.zeros((0, 0), np.uint8)
        results = {
            name: memory[first : first + nbytes].copy().view(np.float32)
            for name, (first, nbytes) in where.items()
            if name in outputs
        }
        del memory
    order = np.lexsort([found["intervals"][name] for name in ("interval", "block", "launch")])
    by_block = {
        k: a[np.lexsort([a[n] for n in ("interval", "block", "launch")])]
        for k, a in found.items()
        if k in ("rows", "flops")
    }
    return Raw(
        by_block["rows"],
        found["intervals"][order],
        found["findings"],
        by_block["flops"],
        found["requests"],
        kept[order] if width else kept,
        tuple(_regions(program, launch, where) for launch in launches),
        results,
        time.perf_counter() - begun,
    )


def _check_limits(program: Program, launch: Launch, buffers: int) -> None:
    """Raise LimitError for what no GPU, or not this tracer, can launch."""
    static = sum(ceil_div(nbytes, 128) * 128 for _, nbytes in program.statics)
    if not 1 <= launch.block <= MAX_THREADS:
        raise LimitError(
            f"{launch.function} asks for {launch.block:,} threads a block, and 1 to {MAX_THREADS:,} are allowed: use "
            "smaller tiles."
        )
    if launch.smem_bytes > DYNAMIC_ROOM or launch.smem_bytes + static > 2 * DYNAMIC_ROOM:
        raise LimitError(
            f"tracing gives a block at most {format_bytes(DYNAMIC_ROOM)} of shared memory and {launch.function} asks "
            f"for {format_bytes(launch.smem_bytes)}{f' and declares {format_bytes(static)}' if static else ''}: use "
            "smaller tiles or a smaller d."
        )
    if len(launch.arguments) > MAX_ARGUMENTS or buffers + len(launch.smem) + len(program.statics) > MAX_REGIONS:
        raise LimitError(
            f"tracing tells {MAX_REGIONS} arrays apart and passes {MAX_ARGUMENTS} arguments, and {launch.function} has "
            "more: join some."
        )


def _cores() -> set[int]:
    if hasattr(os, "sched_getaffinity"):
        return os.sched_getaffinity(0)
    return set(range(os.cpu_count() or 1))


def _regions(program: Program, launch: Launch, where: Mapping[str, tuple[int, int]]) -> tuple[Region, ...]:
    """In the order of the runtime: buffers, the launch's own parts of dynamic shared memory, static variables."""
    found = [Region(name, "global", first, nbytes) for name, (first, nbytes) in where.items()]
    found += [Region(slot.name, "shared", slot.offset, slot.nbytes) for slot in _slots(launch)]
    at = ceil_div(launch.smem_bytes, 16) * 16
    for name, nbytes in program.statics:
        found.append(Region(name, "shared", at, nbytes))
        at += ceil_div(nbytes, 128) * 128
    return tuple(found)


def _slots(launch: Launch) -> list[Any]:
    """The parts of a launch's dynamic shared memory. `Launch.smem` lists static variables too, and those first."""
    static = launch.static_smem_bytes
    return [
        type(slot)(slot.name, slot.shape, slot.offset - static, slot.nbytes)
        for slot in launch.smem
        if static <= slot.offset < static + launch.smem_bytes
    ]


def _job(
    program: Program,
    launches: Sequence[Launch],
    where: Mapping[str, tuple[int, int]],
    arena: int,
    inputs: set[str],
    flags: int,
    detail: Detail | None,
    saved: Sequence[tuple[int, int]],
    blocks: Sequence[int] | None,
    processes: int,
) -> tuple[bytes, bytes]:
    """The job file's header and tables, as runtime.c reads them: 64-bit words all of them."""
    buffer_words = [(first, nbytes, int(name in inputs)) for name, (first, nbytes) in where.items()]
    launch_words: list[tuple[int, ...]] = []
    argument_words: list[tuple[int, int]] = []
    slot_words: list[tuple[int, int]] = []
    for launch in launches:
        slots = [(slot.offset, slot.nbytes) for slot in _slots(launch)]
        launch_words.append(
            (program.functions.index(launch.function), launch.grid, launch.block, launch.smem_bytes,
             len(argument_words), len(launch.arguments), len(slot_words), len(slots))
        )  # fmt: skip
        slot_words += slots
        for value in launch.arguments:
            if isinstance(value, str):
                argument_words.append((0, where[value][0]) if value in where else (1, 0))
            else:
                raw = np.float32(value) if isinstance(value, float) else np.int32(value)
                argument_words.append((2, int(raw.view(np.uint32))))
    tables = [buffer_words, launch_words, argument_words, slot_words, list(saved), [(b,) for b in blocks or ()]]
    words = [np.array(table, np.uint64).ravel() for table in tables]
    head_bytes = 8 * (_HEAD + 4 * MAX_PROCESSES)
    places = head_bytes + 8 * np.cumsum([0, *(len(w) for w in words)])
    base = ceil_div(int(places[-1]), 4096) * 4096
    never = _NOBODY
    d = detail
    values = [
        MAGIC, len(where), len(launches), base, arena, processes, flags, places[0], places[1], places[2], places[3],
        d.launch if d else never, d.block if d else never, d.first if d else 0, d.last if d else 0, d.warp if d else 0,
        len(saved), places[4], len(blocks or ()), places[5], 0, 0, 0,
    ]  # fmt: skip
    head = np.zeros(_HEAD + 4 * MAX_PROCESSES, np.uint64)
    head[:_HEAD] = np.array([int(v) for v in values], np.uint64)
    head[_HEAD + 2 :: 4] = _NOBODY
    body = np.concatenate(words).tobytes()
    return head.tobytes(), body + bytes(base - head_bytes - len(body))


def _read(job: Path, kind: str, dtype: np.dtype[Any], processes: int) -> NDArray[Any]:
    """What all processes wrote of one kind, one after another."""
    parts = []
    for process in range(processes):
        path = job.with_name(f"{job.name}.{kind}.{process}")
        if path.exists():
            parts.append(np.fromfile(path, dtype.base))
    flat = np.concatenate(parts) if parts else np.empty(0, dtype.base)
    return flat.reshape(-1, *dtype.shape) if dtype.shape else flat


def _execute(executable: Path, job: Path, program: Program, launches: Sequence[Launch], timeout_s: float) -> None:
    """Run the program to its end, or raise a sentence that says where it was."""
    for attempt in range(20):
        try:
            process = subprocess.Popen(
                [str(executable), str(job)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
            break
        except OSError as error:
            # While another thread starts a process, the file that was just written can still be open there.
            if error.errno == errno.ETXTBSY and attempt < 19:
                time.sleep(0.01)
                continue
            raise TraceError(
                f"the program that runs kernels on the CPU could not be started in {executable.parent}: "
                f"{error.strerror}; set TMPDIR to a folder that allows programs."
            ) from error
    try:
        said, _ = process.communicate(timeout=timeout_s)
    except BaseException as error:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        if isinstance(error, subprocess.TimeoutExpired):
            raise TraceError(
                f"the kernel did not end within {timeout_s:g} s on the CPU; "
                f"{_place(job, program, launches, is_crash=False)}. "
                "Does a loop end for every thread? A smaller N takes less time."
            ) from None
        raise
    code = process.returncode
    if code == 0:
        return
    with suppress(ProcessLookupError, PermissionError):  # those that it started
        os.killpg(process.pid, signal.SIGKILL)
    if code < 0:
        name = {-signal.SIGSEGV: "it used an address that is not there", -signal.SIGABRT: "it aborted"}.get(code)
        name = name or f"it was ended by {signal.Signals(-code).name}"
        raise TraceError(f"the kernel crashed on the CPU: {name}; {_place(job, program, launches, is_crash=True)}.")
    reason = {7: "the disk is full", 8: "there is not enough memory", 9: "it has too many arrays or threads"}.get(code)
    reason = reason or f"exit code {code} {said.decode(errors='replace')[:200]}".strip()
    raise TraceError(f"the kernel could not be run on the CPU: {reason}; try a smaller N.")


def _place(job: Path, program: Program, launches: Sequence[Launch], *, is_crash: bool) -> str:
    """Where the process that crashed is, or the first that runs: launch, block, thread, line of the last access."""
    with job.open("rb") as file:
        head = np.fromfile(file, np.uint64, _HEAD + 4 * MAX_PROCESSES)
    places = head[_HEAD:].reshape(-1, 4)
    running = np.flatnonzero(places[:, 2] != _NOBODY)
    process = int(head[_CULPRIT]) if is_crash else int(running[0]) if len(running) else 0
    launch, block, thread, number = (int(v) for v in places[process])
    if thread == _NOBODY:
        return "it was between two blocks"
    function = launches[launch].function if launch < len(launches) else "?"
    at = (
        f", last access at {site.inner_file}:{site.inner_line}"
        if 0 < number < len(program.sites) and (site := program.sites[number])
        else ""
    )
    return f"it was in {function}, block {block}, thread {thread}{at}"


__all__ = ["FLOP_KINDS", "Detail", "Raw", "Region", "run"]
