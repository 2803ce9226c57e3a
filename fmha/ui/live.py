"""Live runs: what this machine can do, the GPU's worker, and what one visitor asked of it and got.

Nothing here imports PyCUDA or torch: they are imported in the worker process, which is started by the first request.
"""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from fmha.errors import FmhaError
from fmha.gpu.diagnosis import Diagnosis, diagnose
from fmha.gpu.service import GpuService
from fmha.gpu.ticket import FINAL, Ticket
from fmha.hardware import Gpu
from fmha.measurement import Device, Found, Recording
from fmha.problem import Problem, Tiling

OPS = "fmha.gpu.jobs"
FRESH_S = 60.0  # how long a diagnosis, and what a worker says of its GPU, holds
DESCRIBE_LIMIT_S = 60.0
RUN_LIMIT_S = 300.0
COUNTERS_LIMIT_S = 620.0
ABANDON_S = 180.0  # browsers let a tab in the background look only once a minute
KEPT = 8  # results of one visitor
REPEATS = 30


class Lookout:
    """A function's value, made in the background and made anew when it is old: asking never waits for long."""

    def __init__(self, look: Callable[[], Any], fresh_s: float = FRESH_S) -> None:
        self._look, self._fresh_s = look, fresh_s
        self._lock = threading.Lock()
        self._value: Any = None
        self._made = -1e9
        self._thread: threading.Thread | None = None

    def value(self, wait_s: float = 0.0) -> Any:
        """The newest value; None while there is none, after waiting for it `wait_s` seconds at most."""
        with self._lock:
            old = time.monotonic() - self._made > self._fresh_s
            if old and self._thread is None:
                self._thread = threading.Thread(target=self._run, name="lookout", daemon=True)
                self._thread.start()
            thread, value = self._thread, self._value
        if value is None and thread is not None and wait_s > 0:
            thread.join(wait_s)
            value = self._value
        return value

    def _run(self) -> None:
        try:
            value = self._look()
        finally:
            with self._lock:
                self._thread = None
        with self._lock:
            self._value, self._made = value, time.monotonic()


_machine = Lookout(lambda: diagnose())


def machine(wait_s: float = 0.0) -> Diagnosis | None:
    """What stands between this machine and a live run; None while that is being found out."""
    found: Diagnosis | None = _machine.value(wait_s)
    return found


@dataclass
class Bench:
    """One GPU: its service, and what its worker says of it."""

    service: GpuService
    description: Ticket | None = None
    newer: Ticket | None = None  # takes the place of a description that is old: free memory comes and goes
    asked_at: float = 0.0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def describe(self) -> Ticket:
        """The request for the GPU's description, one for all visitors; made anew after `forget`, and when it is old:
        the old one holds until the new one is there."""
        with self.lock:
            if self.newer is not None and (state := self.newer.state) in FINAL:
                self.description = self.description if state == "cancelled" else self.newer
                self.newer = None
            if self.description is None:
                self.description = self._ask()
            elif self.newer is None and self.description.state == "done" and self._old:
                with suppress(FmhaError):  # a full queue: later, then
                    self.newer = self._ask()
            return self.description

    @property
    def _old(self) -> bool:
        return time.monotonic() - self.asked_at > FRESH_S

    def _ask(self) -> Ticket:
        self.asked_at = time.monotonic()
        return self.service.submit("describe", {}, timeout_s=DESCRIBE_LIMIT_S)

    def forget(self) -> None:
        """Drop the description, so that the next look asks for a new one."""
        with self.lock:
            self.description = self.newer = None


_benches: dict[tuple[int, str], Bench] = {}  # one worker a GPU: a bench lives as long as the app
_benches_lock = threading.Lock()


def bench(device: int, ops: str) -> Bench:
    """The one bench of a GPU, shared by all visitors."""
    with _benches_lock:
        if (device, ops) not in _benches:
            _benches[device, ops] = Bench(GpuService(device, ops=ops, abandon_s=ABANDON_S))
        return _benches[device, ops]


def close_benches() -> None:
    """End all workers."""
    with _benches_lock:
        for at in _benches.values():
            at.service.close()
        _benches.clear()


@dataclass(frozen=True)
class Asked:
    """All settings of a run. `show` is the head (b, h) whose O is wanted; `layer` and `head` choose recorded inputs."""

    kernel: str
    problem: Problem
    tiling: Tiling
    input: str = "random"
    seed: int = 0
    layer: int = 3
    head: int = 0
    show: tuple[int, int] = (0, 0)
    device: int = 0

    def payload(self) -> dict[str, Any]:
        """The same for the worker."""
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name != "device"}
        return {**values, "peers": True, "repeats": REPEATS}


@dataclass(frozen=True)
class Outcome:
    """What a run gave. O: [Nq, d] of the shown head."""

    asked: Asked
    recording: Recording
    O: Any = None

    def found(self) -> Found:
        """The entry that was asked for, as if it had been looked up."""
        run = self.recording.runs[0]
        return Found(self.recording, run, run.entries[0], {})

    def with_counters(self, counters: Mapping[str, Mapping[str, float]]) -> Outcome:
        """The same with counters in the entry that was asked for."""
        run = self.recording.runs[0]
        entry = dataclasses.replace(run.entries[0], counters={f: dict(m) for f, m in counters.items()})
        run = dataclasses.replace(run, entries=(entry, *run.entries[1:]))
        return dataclasses.replace(self, recording=dataclasses.replace(self.recording, runs=(run,)))


@dataclass(frozen=True)
class Trouble:
    """A request that gave no result: its settings, one sentence, and what was said besides."""

    asked: Asked
    text: str
    command: str = ""
    output: str = ""
    log: str = ""
    cancelled: bool = False


@dataclass
class Desk:
    """One visitor's requests: at most one at a time, and the last few results."""

    ticket: Ticket | None = None
    asked: Asked | None = None
    outcomes: dict[Asked, Outcome] = field(default_factory=dict)
    trouble: Trouble | None = None
    opened: tuple[str, Recording] | None = None  # a recording from the visitor's disk, with its file name
    refused: str | None = None  # why the last file was not opened

    def run(self, asked: Asked, ops: str) -> None:
        """Ask for a run, unless one is under way."""
        self._ask("bench", asked, ops, RUN_LIMIT_S)

    def count(self, asked: Asked, ops: str) -> None:
        """Ask for the hardware counters of a result."""
        self._ask("counters", asked, ops, COUNTERS_LIMIT_S)

    def _ask(self, op: str, asked: Asked, ops: str, limit_s: float) -> None:
        self.collect()
        if self.ticket is not None:
            return
        self.trouble = None
        try:
            self.ticket = bench(asked.device, ops).service.submit(op, asked.payload(), timeout_s=limit_s)
        except FmhaError as error:
            self.trouble = Trouble(asked, str(error))
        self.asked = asked

    def cancel(self) -> None:
        """Give the request up."""
        if self.ticket is not None:
            self.ticket.cancel()

    def collect(self) -> bool:
        """Take over what a finished request brought; whether there was one."""
        ticket, asked = self.ticket, self.asked
        if ticket is None or asked is None or ticket.state not in FINAL:
            return False
        self.ticket = None
        try:
            value = ticket.result(0)
        except FmhaError as error:
            self.trouble = Trouble(
                asked, str(error), getattr(error, "command", ""), getattr(error, "output", ""), ticket.log,
                ticket.state == "cancelled",
            )  # fmt: skip
            return True
        if ticket.op == "counters":
            if asked in self.outcomes:
                self.outcomes[asked] = self.outcomes[asked].with_counters(value["counters"])
            return True
        self.outcomes.pop(asked, None)
        self.outcomes[asked] = Outcome(asked, value["recording"], value.get("O"))
        while len(self.outcomes) > KEPT:
            self.outcomes.pop(next(iter(self.outcomes)))
        return True

    def outcome(self, asked: Asked) -> Outcome | None:
        """The result for these settings, else the last one; None where there is none."""
        last = next(reversed(self.outcomes.values()), None)
        return self.outcomes.get(asked, last)


def desk_in(session: Any) -> Desk:
    """The desk kept in a session's state (any mutable mapping with string keys)."""
    key = "fmha.live"
    if key not in session:
        session[key] = Desk()
    desk: Desk = session[key]
    return desk


@dataclass(frozen=True)
class Described:
    """The GPU at hand as its worker describes it. counters: why they cannot be read; None when they can."""

    device: Device
    free_bytes: int
    counters: str | None

    @property
    def gpu(self) -> Gpu:
        """Its limits and peaks."""
        return self.device.gpu


def described(device: int, ops: str) -> Described | str | None:
    """The GPU's description; None until its worker has come up; a sentence where it could not."""
    at = bench(device, ops)
    ticket = at.describe()
    state = ticket.state
    if state == "cancelled":  # nobody waited for it
        at.forget()
    if state not in ("done", "failed"):
        return None
    try:
        value = ticket.result(0)
    except FmhaError as error:
        return str(error)
    return Described(value["device"], value["free_bytes"], value["counters"])


def ask_again(device: int, ops: str) -> None:
    """Forget a description, so that the next look asks for a new one."""
    bench(device, ops).forget()
