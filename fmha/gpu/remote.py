"""The app's end of one worker process: its pipes, its log, its end."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from io import RawIOBase
from pathlib import Path
from typing import Any, cast

from fmha.gpu.protocol import ProtocolError, encode, read_frame, write_frame
from fmha.processes import kill_tree

ROOT = Path(__file__).resolve().parents[2]
LOG_LINES = 200
LOG_LINE_CHARS = 2000
PIPE_BYTES = 1 << 20


class WorkerProcess:
    """A running `fmha.gpu.worker`. Its messages, and finally ("ended",) or ("garbage", text), arrive in `inbox`.

    Not thread-safe but for `inbox`, `log` and `kill`: it belongs to the thread that made it, which must live as long
    as the worker (the system ends the worker with it). OSError when the process cannot be started.
    """

    def __init__(self, device: int, ops: str, environment: Mapping[str, str]) -> None:
        self.inbox: queue.SimpleQueue[tuple[Any, ...]] = queue.SimpleQueue()
        self.ready = False
        self._log: deque[str] = deque(maxlen=LOG_LINES)
        # A session (a process group on Windows) of its own: Ctrl-C in the app's terminal does not reach it.
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-P", "-m", "fmha.gpu.worker"),
                *("--device", str(device), "--ops", ops, "--parent", str(os.getpid())),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            env=worker_environment(environment),
            start_new_session=True,
            creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),
        )
        self._widen_pipes()
        self._threads = [threading.Thread(target=f, daemon=True) for f in (self._read_answers, self._read_log)]
        for thread in self._threads:
            thread.start()
        self._sender: threading.Thread | None = None

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether the process has not ended."""
        return self._process.poll() is None

    @property
    def log(self) -> str:
        """The last lines of the worker's stderr."""
        return "\n".join(self._log.copy())

    def send(self, message: tuple[Any, ...]) -> None:
        """Send one message, in the background: a worker that does not read must not stop the app. What cannot be
        pickled comes back as ("unsendable", text) in the inbox."""

        def write() -> None:
            try:
                parts = encode(message)
            except Exception as error:
                return self.inbox.put(("unsendable", f"{type(error).__name__}: {error}"))
            with suppress(OSError, ValueError):  # it has died; the inbox tells
                write_frame(cast(RawIOBase, self._process.stdin), parts)

        if self._sender is not None:
            self._sender.join()  # the worker has answered the request before this one, so this has been sent
        self._sender = threading.Thread(target=write, daemon=True)
        self._sender.start()

    def kill(self) -> None:
        """End it at once, with all processes below it. Returns before it has ended."""
        kill_tree(self._process)

    def finish(self, polite_s: float = 0.0, patience_s: float = 10.0) -> None:
        """End it and clean up: give it `polite_s` seconds to leave by itself, then as long to obey SIGTERM, then kill
        it; wait at most `patience_s` for the killed process (the driver may be busy with a kernel)."""
        if polite_s and not (self._sender and self._sender.is_alive()):
            self._close(self._process.stdin)
            if not self._gone(polite_s):
                self._process.terminate()
                self._gone(polite_s)
        self.kill()
        self._gone(patience_s)
        for thread in [*self._threads, self._sender]:
            if thread is not None:
                thread.join(0.5)  # longer only if a process below the worker holds a pipe open
        # A thread that still reads keeps its pipe: the number of a closed file may at once belong to another.
        users = (self._sender, *self._threads)
        pipes = (self._process.stdin, self._process.stdout, self._process.stderr)
        for thread, pipe in zip(users, pipes, strict=True):
            if thread is None or not thread.is_alive():
                self._close(pipe)

    def obituary(self) -> str:
        """How it ended, in words; waits for it up to two seconds."""
        self._gone(2)
        self._threads[1].join(0.5)  # its last words
        code = self._process.poll()
        if code is None:
            return "closed its pipe without ending"
        if code >= 0:
            return f"ended with exit code {code}"
        try:
            return f"ended by signal {-code} ({signal.Signals(-code).name})"
        except ValueError:
            return f"ended by signal {-code}"

    def _gone(self, timeout_s: float) -> bool:
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return False
        return True

    @staticmethod
    def _close(pipe: Any) -> None:
        with suppress(OSError):
            pipe.close()

    def _read_answers(self) -> None:
        pipe = cast(RawIOBase, self._process.stdout)
        while True:
            try:
                self.inbox.put(read_frame(pipe))
            except (EOFError, OSError, ValueError):
                return self.inbox.put(("ended",))
            except (ProtocolError, MemoryError) as error:
                return self.inbox.put(("garbage", str(error)))

    def _read_log(self) -> None:
        pipe = cast(RawIOBase, self._process.stderr)
        rest = b""
        with suppress(OSError, ValueError):
            while piece := pipe.read(65536):
                *lines, rest = (rest + piece).split(b"\n")
                self._log.extend(line[:LOG_LINE_CHARS].decode(errors="replace").rstrip("\r") for line in lines)
                rest = rest[:LOG_LINE_CHARS]
        if rest:
            self._log.append(rest.decode(errors="replace"))

    def _widen_pipes(self) -> None:
        """Larger pipes where the system allows: fewer turns for large results."""
        if sys.platform.startswith("linux"):
            import fcntl

            for pipe in (self._process.stdin, self._process.stdout):
                with suppress(OSError):
                    fcntl.fcntl(cast(Any, pipe).fileno(), fcntl.F_SETPIPE_SZ, PIPE_BYTES)


def worker_environment(extra: Mapping[str, str]) -> dict[str, str]:
    """The app's environment, with this checkout importable and output unbuffered."""
    env = {**os.environ, "PYTHONUNBUFFERED": "1", **extra}
    env["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, [env.get("PYTHONPATH")])])
    return env
