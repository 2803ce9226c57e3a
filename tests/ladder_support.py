"""Made-up recordings of the ladder, and a service that gives them, for tests that have no GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from fmha import Problem, Tiling
from fmha.check import Check
from fmha.hardware import DriverFacts
from fmha.kernels import KERNELS, kernel
from fmha.ladder import PEERS
from fmha.measurement import Build, Device, Entry, FunctionUse, MmaPeak, Recording, Run, Timing
from fmha.speeds import useful_flops

FACTS = DriverFacts(
    "NVIDIA H200", "9.0", 132, 1_980_000, 3_201_000, 6144, 60 << 20, 140 << 30, 233_472, 232_448, 2048, 1024, 32, 65_536
)
RIGHT = Check(
    True, "right: largest error 1e-06, allowed 3e-06", 1, 1, 1e-6, 3e-6, 1e-6, 3e-6, 1e-6, 1e-6, 0, (0, 0, 0, 0)
)
# TFLOP/s, made up; 16-bit kernels get more below.
SPEEDS = {"01": 5.0, "02": 0.9, "03": 5.0, "04": 7.0, "05": 9.0, "06": 30.0, "torch-eager": 12.0, "sdpa-math": 11.0,
          "sdpa-efficient": 35.0, "sdpa-flash": 300.0, "sdpa-cudnn": 470.0, "fa3": 480.0}  # fmt: skip
PEAK = MmaPeak({"bf16": (480.0, 580.0), "fp16": (481.0, 581.0), "tf32": (240.0, 290.0)}, "2026-11-30T00:00:00+00:00")
WAVEFRONTS = "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum"
COUNTS = {"02": 4.83e6, "03": 0.766e6, "04": 0.576e6, "05": 0.405e6, "06": 0.105e6}


def speed(name: str) -> float:
    """TFLOP/s of a kernel or peer."""
    return SPEEDS.get(name, 100.0 + 30.0 * int(name) if name.isdigit() else 0.0)


def time_of(problem: Problem, tflops: float) -> Timing:
    """A time that gives this speed."""
    us = useful_flops(problem) / tflops / 1e6
    return Timing(us, 0.99 * us, 1.01 * us, 0.98 * us, 20, 3)


def entry(
    number: str, problem: Problem, tiling: Tiling, tflops: float, counted: bool = False, absent: str | None = None
) -> Entry:
    """A right and timed result, or one without a time."""
    chosen = kernel(number)
    plan = chosen.plan(problem, tiling)
    uses = tuple(FunctionUse(x.function, 128, 0, x.static_smem_bytes, 2, x.block, x.smem_bytes) for x in plan.launches)
    counters = {plan.launches[0].function: {WAVEFRONTS: COUNTS[number]}} if counted and number in COUNTS else {}
    return Entry(
        chosen.number, chosen.title, problem.dtype, (tiling.Br, tiling.Bc) if chosen.tiled else None,
        chosen.source_hash(), Build("nvcc 13.0", "sm_90", (), 0.0, True, uses), RIGHT,
        time=None if absent else time_of(problem, tflops), requested=dict(plan.requested.by_tensor), counters=counters,
        absent=absent,
    )  # fmt: skip


def run_of(
    problem: Problem, rungs: Iterable[tuple[str, Tiling]], refused: Mapping[str, str], *, counted: bool = False,
    speeds: Callable[[str], float] = speed,
) -> Run:  # fmt: skip
    """One problem with kernels and peers."""
    made = []
    for number, tiling in rungs:
        made.append(entry(number, problem, tiling, speeds(number), counted, refused.get(number)))
    for name in PEERS:
        absent = refused.get(name) or (
            "not offered" if name in ("sdpa-flash", "fa3") and problem.dtype == "fp32" else None
        )
        time = None if absent else time_of(problem, speeds(name))
        made.append(Entry(name, name.upper(), problem.dtype, check=RIGHT, time=time, absent=absent))
    return Run(problem, "random", 0, "2026-11-30T00:00:00+00:00", tuple(made))


def recording(*runs: Run) -> Recording:
    """A recording on what calls itself an H200."""
    return Recording(Device(FACTS, "580.1", "13.0", "2025.1", "2.11"), runs[0].made, runs, "fmha test")


def ladder_recording(shapes: Iterable[Problem], *, counted: bool = True) -> Recording:
    """All kernels and peers at these shapes."""
    runs = []
    for p in shapes:
        rungs = [(k.number, Tiling(*k.tiles[0])) for k in KERNELS.values() if p.dtype in k.dtypes]
        fine = [(n, t) for n, t in rungs if KERNELS[n].complaint(p, t, Device(FACTS, "", "").gpu) is None]
        runs.append(run_of(p, fine, {}, counted=counted))
    return recording(*runs)


class FakeTicket:
    """An answer that is there at once."""

    progress = ("at once", None)

    def __init__(self, value: Any) -> None:
        self.value = value

    def wait(self, _seconds: float) -> bool:
        """It is there."""
        return True

    def result(self) -> Any:
        """The answer, or what was raised."""
        if isinstance(self.value, BaseException):
            raise self.value
        return self.value


class FakeService:
    """In place of a GPU's worker. asked: every request, as (operation, payload)."""

    def __init__(self, *_: Any) -> None:
        self.asked: list[tuple[str, Any]] = []

    def __enter__(self) -> FakeService:
        return self

    def __exit__(self, *_: object) -> None: ...

    def submit(self, op: str, payload: Any, timeout_s: float) -> FakeTicket:
        """Answers of a GPU on which everything works."""
        assert timeout_s > 0
        self.asked.append((op, payload))
        if op == "describe":
            return FakeTicket({"device": Device(FACTS, "580.1", "13.0")})
        if op == "prepare":
            return FakeTicket({"compiled": len(payload["builds"])})
        if op == "mma_peak":
            return FakeTicket({"peak": PEAK})
        return FakeTicket({"recording": recording(self.answer(payload))})

    def answer(self, payload: Any) -> Run:
        """The run of one problem; of several tiles of one kernel the first is the slowest."""
        run = run_of(payload["problem"], payload["rungs"], payload["refused"])
        if not payload["peers"]:
            entries = [e for e in run.entries if e.is_kernel]
            faster = {id(e): 1 + 0.1 * i for i, e in enumerate(entries)}
            made = tuple(
                e
                if e.time is None
                else type(e)(**{**vars(e), "time": time_of(run.problem, speed(e.name) * faster[id(e)])})
                for e in entries
            )
            return Run(run.problem, run.input, run.seed, run.made, made)
        return run
