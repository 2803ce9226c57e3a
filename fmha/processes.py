"""Processes that must not outlive their purpose: a compiler that hangs, a worker with a compiler below it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path


def descendants(pid: int) -> list[int]:
    """All processes below `pid`, parents first. Linux only: elsewhere an empty list."""
    found: list[int] = []
    with suppress(OSError):  # it may end while we look
        for task in Path(f"/proc/{pid}/task").iterdir():
            with suppress(OSError):
                for child in (task / "children").read_text().split():
                    found += [int(child), *descendants(int(child))]
    return found


def kill_tree(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and all below it, at once. One that has ended, or been reaped, is left alone."""
    if process.poll() is not None:
        return
    if sys.platform == "win32":
        subprocess.run(["taskkill", "/F", "/T", "/PID", str(process.pid)], capture_output=True, check=False)
        return
    kill_all(descendants(process.pid))
    with suppress(OSError):
        process.kill()


def kill_all(pids: list[int]) -> None:
    """Kill each of these processes, those that are gone excepted."""
    if sys.platform != "win32":
        for pid in pids:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)


def run_bounded(
    command: list[str], *, timeout_s: float, env: dict[str, str] | None = None, cwd: str | None = None
) -> tuple[int | None, str]:
    """Run a command: its exit code (None when it was stopped at `timeout_s` with all below it) and its stdout and
    stderr, in the order written. OSError when it cannot be started."""
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=env, cwd=cwd
    )
    try:
        output, _ = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        kill_tree(process)
        try:
            output, _ = process.communicate(timeout=2)
        except subprocess.TimeoutExpired as rest:  # the system cannot end it now, or another holds its pipe
            output = rest.output or b""
            if process.stdout:
                process.stdout.close()
        return None, output.decode(errors="replace")
    except BaseException:
        kill_tree(process)
        raise
    return process.returncode, output.decode(errors="replace")
