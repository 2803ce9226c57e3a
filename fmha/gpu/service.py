"""The GPU as a service: one worker process, one request at a time, and nothing that a request does harms the app.

A CUDA context belongs to a thread, a bad launch poisons its process, and a kernel may hang: so all CUDA work happens
in a worker process that can be thrown away. One daemon thread per service starts it, feeds it and replaces it.
"""

from __future__ import annotations

import atexit
import itertools
import queue
import threading
import time
import weakref
from collections import deque
from collections.abc import Mapping
from typing import Any

from fmha.errors import GpuError
from fmha.gpu.protocol import Failure
from fmha.gpu.remote import WorkerProcess
from fmha.gpu.ticket import Ticket

TICK_S = 0.5  # how often the queue is looked through for abandoned requests
POLITE_S = 0.6  # how long a worker may take to leave by itself when the app ends
QUEUE_LIMIT = 100


class _Lost(Exception):
    """The current request ends without a result, and so does the worker."""

    def __init__(self, error: GpuError, cancelled: bool = False) -> None:
        super().__init__(str(error))
        self.error, self.cancelled = error, cancelled


class GpuService:
    """Runs the operations of `ops` (a module, see fmha.gpu.worker) on GPU `device`. Thread-safe.

    Nothing is started before the first request. `start_timeout_s` bounds the start of a worker (imports, context),
    `environment` is added to the worker's, and a queued request that nobody has asked about for `abandon_s` seconds
    is dropped.
    """

    def __init__(
        self,
        device: int = 0,
        *,
        ops: str = "fmha.gpu.jobs",
        start_timeout_s: float = 90.0,
        environment: Mapping[str, str] | None = None,
        abandon_s: float = 60.0,
    ) -> None:
        self.device = device
        self._ops = ops
        self._start_timeout_s = start_timeout_s
        self._environment = dict(environment or {})
        self._abandon_s = abandon_s
        self._lock = threading.Condition(threading.RLock())
        self._queue: deque[Ticket] = deque()
        self._current: Ticket | None = None
        self._worker: WorkerProcess | None = None
        self._feeder: threading.Thread | None = None
        self._closing = False
        self._restarts = 0
        self._numbers = itertools.count(1)
        _SERVICES.add(self)

    @property
    def restarts(self) -> int:
        """Workers that had to be replaced so far."""
        return self._restarts

    def submit(self, op: str, payload: Mapping[str, Any], *, timeout_s: float) -> Ticket:
        """Queue a request: operation `op` on `payload` (picklable), to be stopped after it has run `timeout_s`
        seconds. GpuError when the service has been closed or the queue is full."""
        if not timeout_s > 0:
            raise GpuError(f"a time limit of {timeout_s:g} s was asked for; it must be more than 0.")
        with self._lock:
            if self._closing:
                raise GpuError("the GPU service has been closed; restart the app.")
            if len(self._queue) >= QUEUE_LIMIT:
                raise GpuError(f"{QUEUE_LIMIT} requests wait for the GPU already; try again later.")
            ticket = Ticket(self, op, payload, timeout_s, next(self._numbers))
            self._queue.append(ticket)
            if self._feeder is None:
                name = f"gpu-{self.device}"
                self._feeder = threading.Thread(target=self._feed, name=name, daemon=True)
                self._feeder.start()
            self._lock.notify_all()
        return ticket

    def close(self) -> None:
        """Cancel all requests and end the worker, within two seconds. May be called more than once."""
        with self._lock:
            self._closing = True
            while self._queue:
                self._end_cancelled(self._queue.popleft())
            if self._current is not None:
                self._cancel(self._current)
            self._lock.notify_all()
            feeder = self._feeder
        if feeder is not None and feeder is not threading.current_thread():
            feeder.join(1.8)
            worker = self._worker
            if feeder.is_alive() and worker is not None:
                worker.kill()

    def __enter__(self) -> GpuService:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # For tickets.

    def _position(self, ticket: Ticket) -> int:
        with self._lock:
            if ticket not in self._queue:
                return 0
            busy = self._current is not None and not self._current._finished.is_set()
            return self._queue.index(ticket) + busy

    def _worker_log(self, ticket: Ticket) -> str:
        with self._lock:
            return self._worker.log if self._worker is not None and ticket is self._current else ""

    def _cancel(self, ticket: Ticket) -> None:
        with self._lock:
            if ticket in self._queue:
                self._queue.remove(ticket)
                self._end_cancelled(ticket)
            elif ticket is self._current:
                ticket._cancelled = True
                if self._worker is not None:
                    self._worker.inbox.put(("cancel",))

    @staticmethod
    def _end_cancelled(ticket: Ticket, why: str = "was cancelled") -> None:
        ticket._end("cancelled", error=GpuError(f"{ticket.op} {why}."))

    # The feeder thread.

    def _feed(self) -> None:
        try:
            while (ticket := self._next()) is not None:
                try:
                    self._serve(ticket)
                except BaseException as error:  # a mistake in this file: the queue must go on
                    self._drop_worker()
                    self._finish(ticket, "failed", error=GpuError(f"{ticket.op} failed: {error!r}"))
        finally:
            if self._worker is not None:
                self._worker.finish(polite_s=POLITE_S, patience_s=POLITE_S)
                self._worker = None

    def _next(self) -> Ticket | None:
        """The next request, which becomes the current one; None when the service closes."""
        with self._lock:
            self._current = None
            while not self._closing:
                self._drop_abandoned()
                if self._queue:
                    self._current = ticket = self._queue.popleft()
                    ticket._state = "starting"
                    return ticket
                self._lock.wait()
            return None

    def _serve(self, ticket: Ticket) -> None:
        """Run one request to its end, whatever that is."""
        try:
            value, failure, fatal = self._run(ticket)
        except _Lost as lost:
            worker = self._worker
            log = worker.log if worker is not None else ""
            if worker is not None:
                worker.kill()
            # The person first: it may take the driver seconds to end a process.
            self._finish(ticket, "cancelled" if lost.cancelled else "failed", error=lost.error, log=log)
            self._drop_worker()
            return
        log = self._worker.log if self._worker is not None else ""
        if failure is None:
            self._finish(ticket, "done", value=value, log=log)
        else:
            self._finish(ticket, "failed", error=failure.exception(ticket.op), log=_with_trace(log, failure))
        if fatal:
            self._drop_worker()

    def _run(self, ticket: Ticket) -> tuple[Any, Failure | None, bool]:
        """The value, or the failure and whether the worker is of no use after it. _Lost if there was no answer."""
        for attempt in (1, 2):
            worker = self._ready_worker(ticket)
            with self._lock:
                ticket._run()
            deadline = time.monotonic() + ticket.timeout_s
            worker.send((ticket._number, ticket.op, ticket._payload))
            begun = False
            while True:
                kind, *rest = self._hear(worker, ticket, deadline)
                if kind == "late":
                    raise _Lost(
                        GpuError(
                            f"{ticket.op} took longer than {ticket.timeout_s:g} s and was stopped; "
                            "try a smaller problem or a longer limit."
                        )
                    )
                if kind == "unsendable":
                    return None, Failure("", f"its input cannot be sent to the GPU process: {rest[0]}", ""), False
                if kind in ("ended", "garbage"):
                    if kind == "ended" and not begun and attempt == 1:
                        break  # it died before it saw the request: that is not the request's fault
                    raise _Lost(self._obituary(worker, kind, f"while running {ticket.op}"))
                if not rest or rest[0] != ticket._number:
                    continue
                begun = True
                if kind == "progress":
                    ticket._progress = (rest[1], rest[2])
                elif kind == "done":
                    return rest[1], None, False
                elif kind == "failed":
                    return None, rest[1], rest[2]
            self._drop_worker()
        raise _Lost(GpuError(f"the GPU process ended twice before {ticket.op} began; run it again."))

    def _ready_worker(self, ticket: Ticket) -> WorkerProcess:
        """The worker, started if there is none. _Lost when it does not come up."""
        if self._worker is not None and not self._worker.alive:
            self._drop_worker()
        if self._worker is None:
            ticket._state = "starting"
            try:
                worker = WorkerProcess(self.device, self._ops, self._environment)
            except OSError as error:
                raise _Lost(GpuError(f"the GPU process could not be started: {error}.")) from error
            with self._lock:
                self._worker = worker
        worker = self._worker
        deadline = time.monotonic() + self._start_timeout_s
        while not worker.ready:
            kind, *rest = self._hear(worker, ticket, deadline)
            if kind == "ready":
                worker.ready = True
            elif kind == "start failed":
                failure: Failure = rest[0]
                raise _Lost(_start_error(failure))
            elif kind == "late":
                limit = f"{self._start_timeout_s:g} s"
                raise _Lost(GpuError(f"the GPU process did not start within {limit} and was stopped; run it again."))
            elif kind in ("ended", "garbage"):
                raise _Lost(self._obituary(worker, kind, "while it started"))
        return worker

    def _hear(self, worker: WorkerProcess, ticket: Ticket, deadline: float) -> tuple[Any, ...]:
        """The worker's next message, or ("late",) after the deadline. _Lost when the ticket has been cancelled."""
        while True:
            if ticket._cancelled:
                raise _Lost(GpuError(f"{ticket.op} was cancelled."), cancelled=True)
            with self._lock:
                self._drop_abandoned()
                unwanted = bool(self._queue) and ticket._abandoned(self._abandon_s)
            if unwanted:  # a closed tab must not keep others waiting
                idle = f"nobody asked about it for {self._abandon_s:g} s, and others wait"
                raise _Lost(GpuError(f"{ticket.op} was dropped: {idle}."), cancelled=True)
            left = deadline - time.monotonic()
            if left <= 0:
                return ("late",)
            try:
                message = worker.inbox.get(timeout=min(left, TICK_S))
            except queue.Empty:
                continue
            if message[0] != "cancel":
                return message

    def _obituary(self, worker: WorkerProcess, kind: str, when: str) -> GpuError:
        how = worker.obituary() if kind == "ended" else "sent what nobody can read"
        return GpuError(f"the GPU process {how} {when}; it was replaced; run it again.")

    def _finish(self, ticket: Ticket, state: Any, **outcome: Any) -> None:
        with self._lock:
            ticket._end(state, **outcome)

    def _drop_worker(self) -> None:
        """Clean up after a worker; the next request starts another."""
        with self._lock:
            worker, self._worker = self._worker, None
            self._restarts += worker is not None
        if worker is not None:
            worker.finish()

    def _drop_abandoned(self) -> None:
        for ticket in [t for t in self._queue if t._abandoned(self._abandon_s)]:
            self._queue.remove(ticket)
            self._end_cancelled(ticket, f"was dropped: nobody asked about it for {self._abandon_s:g} s")


def _start_error(failure: Failure) -> GpuError:
    error = failure.exception("the start of the GPU process")
    return error if isinstance(error, GpuError) else GpuError(str(error))


def _with_trace(log: str, failure: Failure) -> str:
    return log if failure.error else f"{log}\n{failure.traceback}".strip()


_SERVICES: weakref.WeakSet[GpuService] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for service in list(_SERVICES):
        service.close()
