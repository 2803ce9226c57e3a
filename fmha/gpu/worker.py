"""The worker process of one GPU: `python -m fmha.gpu.worker --device 0 --ops fmha.gpu.jobs --parent PID`.

Requests come as frames on stdin and answers go as frames to stdout. Both pipes are taken away from file descriptors
0 and 1 first, so that a library that prints cannot break the protocol. All CUDA calls happen in the main thread; a
second thread reads the requests, and ends the process as soon as the app's end of the pipe closes, also while a
kernel hangs.

The ops module: `OPS` maps a name to a function `(payload, report)` that returns something picklable, where
`report(text, fraction)` tells the progress (fraction 0 to 1, or None). Optional: `start(device)`, called once before
all else, and `FATAL(error)`, whether an FmhaError leaves the process unusable all the same (sticky CUDA errors).

Messages to the app: ("ready",), ("start failed", Failure), ("running", id), ("progress", id, text, fraction),
("done", id, value), ("failed", id, Failure, fatal).
"""

from __future__ import annotations

import argparse
import faulthandler
import importlib
import io
import os
import queue
import signal
import sys
import threading
import time
from contextlib import suppress
from types import ModuleType
from typing import Any, NoReturn

from fmha.errors import FmhaError, GpuError
from fmha.gpu.protocol import Failure, ProtocolError, encode, read_frame, write_frame
from fmha.processes import descendants, kill_all

PROGRESS_EVERY_S = 0.05


class Outbox:
    """The way to the app. Thread-safe: an op may report from any thread."""

    def __init__(self, pipe: io.FileIO) -> None:
        self._pipe = pipe
        self._lock = threading.Lock()

    def send(self, *message: Any) -> None:
        """Send one message (pickle's errors before anything is sent); where nobody listens, the process ends."""
        parts = encode(message)
        with self._lock:
            try:
                write_frame(self._pipe, parts)
            except OSError:
                leave(0)


class Report:
    """The `report` of one request. Fractions in quick succession are thinned out; a new text always goes."""

    def __init__(self, outbox: Outbox, number: int) -> None:
        self._outbox, self._number = outbox, number
        self._last: tuple[str, float] = ("", -1.0)

    def __call__(self, text: str, fraction: float | None = None) -> None:
        now = time.monotonic()
        if text != self._last[0] or now - self._last[1] >= PROGRESS_EVERY_S:
            self._last = (text, now)
            self._outbox.send("progress", self._number, str(text), None if fraction is None else float(fraction))


def main() -> NoReturn:
    """Serve until the app closes the pipe."""
    parser = argparse.ArgumentParser(prog="python -m fmha.gpu.worker", description="Runs GPU requests for the app.")
    parser.add_argument("--device", type=int, default=0, help="index of the GPU")
    parser.add_argument("--ops", default="fmha.gpu.jobs", help="module that holds the operations")
    parser.add_argument("--parent", type=int, default=0, help="process to end with")
    options = parser.parse_args()

    requests_pipe, answers_pipe = take_pipes()
    end_with_parent(options.parent)
    outbox = Outbox(answers_pipe)
    requests: queue.SimpleQueue[tuple[int, str, Any]] = queue.SimpleQueue()
    threading.Thread(target=listen, args=(requests_pipe, requests), daemon=True).start()
    try:
        ops = importlib.import_module(options.ops)
        if hasattr(ops, "start"):
            ops.start(options.device)
    except BaseException as error:
        outbox.send("start failed", Failure.of(error))
        leave(1)
    outbox.send("ready")
    while True:
        if not handle(ops, outbox, *requests.get()):
            leave(1)


def handle(ops: ModuleType, outbox: Outbox, number: int, op: str, payload: Any) -> bool:
    """Run one request and send its outcome. False where the process has to be replaced."""
    outbox.send("running", number)
    try:
        if op not in ops.OPS:
            raise GpuError(f"the GPU worker knows no operation {op!r}; it knows {', '.join(sorted(ops.OPS))}.")
        value = ops.OPS[op](payload, Report(outbox, number))
        outbox.send("done", number, value)
    except BaseException as error:
        is_fatal = getattr(ops, "FATAL", None)
        fatal = not isinstance(error, FmhaError) or bool(is_fatal is not None and is_fatal(error))
        outbox.send("failed", number, Failure.of(error), fatal)
        return not fatal
    return True


def listen(pipe: io.FileIO, requests: queue.SimpleQueue[tuple[int, str, Any]]) -> None:
    """Hand on what the app asks; end the process, and compilers that it started, when the app is gone."""
    while True:
        try:
            requests.put(read_frame(pipe))
        except (EOFError, OSError, ProtocolError):
            kill_all(descendants(os.getpid()))
            leave(0)


def take_pipes() -> tuple[io.FileIO, io.FileIO]:
    """The original stdin and stdout, for frames alone; from here on stdin is empty and stdout is stderr."""
    requests, answers = os.dup(0), os.dup(1)
    if sys.platform == "win32":
        import msvcrt

        msvcrt.setmode(requests, os.O_BINARY)
        msvcrt.setmode(answers, os.O_BINARY)
    empty = os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, 0)
    os.close(empty)
    os.dup2(2, 1)
    return io.FileIO(requests, "rb"), io.FileIO(answers, "wb")


def end_with_parent(parent: int) -> None:
    """No abort text on Ctrl-C, a Python stack on a crash, and on Linux: end when the app is killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    faulthandler.enable()
    if sys.platform.startswith("linux"):
        import ctypes

        PR_SET_PDEATHSIG = 1
        # Also when an op hangs with the interpreter's lock held, where `listen` cannot run. The kernel watches the
        # thread that started us; the service keeps that thread as long as the worker.
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if parent and os.getppid() != parent:  # it was killed before the line above
            leave(0)


def leave(code: int) -> NoReturn:
    """End without finalisers: those of CUDA libraries may hang or abort, and the driver frees everything anyway."""
    with suppress(OSError, ValueError):  # nobody may be left to read it
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
