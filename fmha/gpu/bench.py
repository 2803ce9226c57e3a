"""Checks and times kernels beside their peers, in one run on the same Q, K, V, and records what came out."""

from __future__ import annotations

import dataclasses
import gc
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

import fmha
from fmha.check import Check, HeadRows, Truth, check, choose_rows, error_map
from fmha.errors import FmhaError
from fmha.gpu.device import GpuDevice, torch_on_gpu
from fmha.gpu.launch import Buffers, Loaded
from fmha.gpu.peers import Peer, peers, quiet
from fmha.gpu.timing import time_in_turns
from fmha.inputs import load
from fmha.kernels import KERNELS, Kernel, Plan, kernel
from fmha.measurement import Build, Entry, ErrorMap, Recording, Run
from fmha.problem import Problem, Tiling
from fmha.speeds import implausible

Report = Callable[[str, float | None], None]
_BUDGET = 1 << 24  # scores of a kernel that are compared in float64: about a second
_PEER_BUDGET = 1 << 22  # scores of a peer that are compared: they are not what is under test
_MAP_ROWS = 512
NAIVE = "01"
Arrays = tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float32]]  # Q, K, V


@dataclass(frozen=True)
class Request:
    """What to run.

    candidates: kernels with their tiles; the first is the one that was asked for. show: the head (b, h) whose O and
    error map are wanted. peers: whether torch's implementations take part.
    """

    problem: Problem
    candidates: tuple[tuple[Kernel, Tiling], ...]
    input: str = "random"
    seed: int = 0
    layer: int = 3
    head: int = 0
    peers: bool = True
    repeats: int = 30
    show: tuple[int, int] = (0, 0)

    @classmethod
    def of(cls, payload: Mapping[str, Any]) -> Request:
        """From a job's payload; without `candidates`, `kernel` with `tiling`, and naive attention as its rival."""
        given = {f.name: payload[f.name] for f in dataclasses.fields(cls) if f.name in payload}
        if "candidates" in given:
            given["candidates"] = tuple((kernel(name), tiling) for name, tiling in given["candidates"])
        else:
            chosen, tiling = kernel(payload["kernel"]), payload["tiling"]
            rivals = [] if chosen.number == NAIVE else [(KERNELS[NAIVE], tiling)]
            given["candidates"] = ((chosen, tiling), *rivals)
        return cls(**given)


@dataclass
class Candidate:
    """One row of the result in the making."""

    entry: Entry
    run: Callable[[], Any] | None = None


def bench(device: GpuDevice, request: Request, report: Report) -> tuple[Recording, NDArray[np.float32] | None]:
    """Run, check and time. Returns a recording with one run, and O [Nq, d] of the shown head by the first candidate.

    Raises:
        FmhaError: the first candidate cannot run this problem on this GPU; others are recorded as absent then.
    """
    report("making the input", None)
    inputs = load(request.input, request.problem, seed=request.seed, layer=request.layer, head=request.head)
    arrays: Arrays = (inputs.Q.astype(np.float32), inputs.K.astype(np.float32), inputs.V.astype(np.float32))
    del inputs
    shown: NDArray[np.float32] | None = None
    with ExitStack() as held:
        rows: list[Candidate] = []
        for index, (chosen, tiling) in enumerate(request.candidates):
            try:
                row, O = _kernel(device, request, chosen, tiling, arrays, held, report, mapped=index == 0)
            except FmhaError as error:
                if index == 0:
                    raise
                row, O = Candidate(entry_of(chosen, tiling, chosen.fitting(request.problem), absent=str(error))), None
            if index == 0:
                shown = O
            rows.append(row)
        torch = torch_on_gpu() if request.peers else None
        if torch is not None:
            report("asking the peers", None)
            for peer in peers(torch, request.problem, *arrays, device.free_bytes()):
                rows.append(peer_of(torch, request.problem, peer, arrays))
        before = device.state()
        time_all(device, request.problem, rows, torch, report, request.repeats)
        after = device.state()
    gc.collect()
    made = datetime.now(UTC).isoformat(timespec="seconds")
    entries = tuple(row.entry for row in rows)
    run = Run(request.problem, request.input, request.seed, made, entries, before, after)
    return Recording(device.described(), made, (run,), f"fmha {fmha.__version__}"), shown


def _kernel(
    device: GpuDevice,
    request: Request,
    chosen: Kernel,
    tiling: Tiling,
    arrays: Arrays,
    held: ExitStack,
    report: Report,
    *,
    mapped: bool,
) -> tuple[Candidate, NDArray[np.float32] | None]:
    """Compile, run on poisoned outputs, compare. Its buffers stay in `held` for the timing."""
    # A rival may know other dtypes only; the kernel that was asked for must take what was asked.
    problem = request.problem if mapped else chosen.fitting(request.problem)
    what = f"kernel {chosen.number}"
    plan = chosen.plan(problem, tiling, device.gpu)
    report(f"compiling {what}", None)
    loaded = Loaded(device, chosen, plan)
    report(f"running {what}", None)
    buffers = held.enter_context(Buffers(device, plan, *arrays, write_lse=False))
    addresses = buffers.addresses
    buffers.poison()
    loaded.run(plan, addresses)
    device.synchronize()
    O, _ = buffers.output()
    report(f"checking {what} against float64", None)
    found = check(problem, *arrays, O, rows=choose_rows(problem, _BUDGET, request.seed))
    b, h = request.show
    entry = entry_of(chosen, tiling, problem, plan=plan, build=loaded.build, check=found)
    if mapped:
        entry = dataclasses.replace(entry, error_map=_map(problem, b, h, arrays, O))
    run = (lambda: loaded.run(plan, addresses)) if found.ok else None
    return Candidate(entry, run), O[b, h].copy()


def entry_of(
    chosen: Kernel, tiling: Tiling, problem: Problem, *, plan: Plan | None = None, build: Build | None = None,
    check: Check | None = None, absent: str | None = None,
) -> Entry:  # fmt: skip
    """A kernel's entry, as far as it is known."""
    return Entry(
        chosen.number,
        chosen.title,
        problem.dtype,
        (tiling.Br, tiling.Bc) if chosen.tiled else None,
        chosen.source_hash(),
        build,
        check,
        requested=dict(plan.requested.by_tensor) if plan else {},
        absent=absent,
    )


def _map(problem: Problem, b: int, h: int, arrays: Arrays, O: NDArray[np.float32]) -> ErrorMap:
    """The error map of one head; of a long one, over rows spread evenly."""
    rows = np.unique(np.linspace(0, problem.Nq - 1, min(problem.Nq, _MAP_ROWS)).astype(np.int64))
    cells = error_map(problem, HeadRows(b, h, rows), *arrays, O)
    values = tuple(tuple(float(f"{x:.2g}") for x in line) for line in cells)
    return ErrorMap(b, h, (0, problem.Nq), values)


def peer_of(torch: Any, problem: Problem, peer: Peer, arrays: Arrays, truth: Truth | None = None) -> Candidate:
    """A peer's entry, compared on a sample in its own dtype. truth: of the problem in that dtype, where it is known."""
    found = None
    if peer.run is not None:
        with quiet(torch):
            result = peer.run()
        O = result.to(torch.float32).cpu().numpy()
        del result
        here = problem.replace(dtype=peer.dtype)
        found = check(here, *arrays, O, rows=None if truth else choose_rows(here, _PEER_BUDGET), truth=truth)
    entry = Entry(peer.name, peer.title, peer.dtype, check=found, absent=peer.absent)
    return Candidate(entry, peer.run)


def time_all(
    device: GpuDevice, problem: Problem, rows: list[Candidate], torch: Any, report: Report, repeats: int,
    budget_s: float | None = None,
) -> None:  # fmt: skip
    """Fill in the times, in turns; a time that cannot be is not recorded. budget_s: as `time_in_turns` takes it."""
    timed = [row for row in rows if row.run is not None]

    def told(done: int, of: int) -> None:
        report(f"timing: round {done} of {of}", done / of)

    with ExitStack() as stack:
        if torch is not None:
            stack.enter_context(quiet(torch))
        works = [row.run for row in timed if row.run]
        timings = time_in_turns(device, works, repeats, told, budget_s=budget_s)
    for row, timing in zip(timed, timings, strict=True):
        if timing is None:
            wrong: str | None = "not run: the GPU's memory is too small for it beside the others"
        else:
            wrong = implausible(problem, row.entry.dtype, device.gpu, timing.median_us, row.entry.name)
        row.entry = dataclasses.replace(row.entry, time=None if wrong else timing, absent=wrong)
        row.run = None
