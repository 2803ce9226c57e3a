"""A request to the GPU worker, as the person who waits for it sees it."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from fmha.errors import FmhaError, GpuError

if TYPE_CHECKING:
    from fmha.gpu.service import GpuService

State = Literal["queued", "starting", "running", "done", "failed", "cancelled"]
FINAL = ("done", "failed", "cancelled")


class Ticket:
    """One request: ask for its state from any thread, wait for it, cancel it.

    A ticket in the queue that nobody has asked about for the service's `abandon_s` is dropped: its page was closed. So
    is one that runs, if others wait. Reading any property counts as asking.
    """

    def __init__(self, service: GpuService, op: str, payload: Mapping[str, Any], timeout_s: float, number: int) -> None:
        self.op = op
        self.timeout_s = timeout_s
        self._service = service
        self._payload: Mapping[str, Any] | None = payload
        self._number = number
        self._state: State = "queued"
        self._progress: tuple[str, float | None] = ("", None)
        self._touched = time.monotonic()
        self._waiters = 0
        self._began: float | None = None
        self._ended: float | None = None
        self._value: Any = None
        self._error: FmhaError | None = None
        self._log = ""
        self._cancelled = False
        self._finished = threading.Event()

    def touch(self) -> None:
        """Say that somebody still wants the result."""
        self._touched = time.monotonic()

    @property
    def state(self) -> State:
        """Where the request is."""
        self.touch()
        return self._state

    @property
    def position(self) -> int:
        """Requests that come before this one; 0 while it starts, runs, or has ended."""
        self.touch()
        return self._service._position(self)

    @property
    def progress(self) -> tuple[str, float | None]:
        """What the operation last said about itself: a text, and the done part from 0 to 1 where it is known."""
        self.touch()
        return self._progress

    @property
    def running_s(self) -> float:
        """Seconds that it has run, or ran; 0 before."""
        self.touch()
        if self._began is None:
            return 0.0
        return (self._ended or time.monotonic()) - self._began

    @property
    def error(self) -> str | None:
        """One sentence on why there is no result; None while there may be one."""
        self.touch()
        return None if self._error is None else str(self._error)

    @property
    def log(self) -> str:
        """The last lines that the worker wrote to stderr, and the traceback of an unforeseen error."""
        self.touch()
        return self._log if self._finished.is_set() else self._service._worker_log(self)

    def cancel(self) -> None:
        """Give up the request: take it from the queue, or stop it while it runs. Without effect once it has ended."""
        self._service._cancel(self)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until it has ended, at most `timeout_s` seconds; whether it has."""
        with self._service._lock:
            self._waiters += 1
        try:
            return self._finished.wait(timeout_s)
        finally:
            with self._service._lock:
                self._waiters -= 1
                self.touch()

    def result(self, timeout_s: float | None = None) -> Any:
        """Wait, and return what the operation returned.

        Raises the FmhaError that the operation raised (BuildError, ProblemError, ...), or GpuError: it failed, took
        too long, took its process down, was cancelled, or has not ended within `timeout_s`.
        """
        if not self.wait(timeout_s):
            raise GpuError(f"{self.op} has not ended within {timeout_s:g} s; wait longer or cancel it.")
        if self._error is not None:
            # A new one each time: an exception gathers tracebacks, and many threads may ask.
            error = self._error.__class__(str(self._error))
            error.__dict__.update(self._error.__dict__)
            raise error
        return self._value

    # For the service, which holds its lock.

    def _abandoned(self, after_s: float) -> bool:
        return not self._waiters and time.monotonic() - self._touched > after_s

    def _run(self) -> None:
        self._state = "running"
        self._began = time.monotonic()

    def _end(self, state: State, value: Any = None, error: FmhaError | None = None, log: str = "") -> None:
        if self._state in FINAL:
            return
        self._ended = time.monotonic()
        self._value, self._error, self._log = value, error, log
        self._payload = None  # it may hold arrays
        self._state = state
        self._finished.set()
