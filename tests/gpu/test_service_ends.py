"""How workers end, and what becomes of them when the app does: nothing is left behind. No GPU needed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from fmha.errors import GpuError
from fmha.gpu.service import GpuService
from tests.gpu.service_support import ROOT, ask, ended, linux, until


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


DEATHS = {
    "kill": "the GPU process ended by signal 9 (SIGKILL) while running crash; it was replaced; run it again.",
    "exit": "the GPU process ended with exit code 3 while running crash; it was replaced; run it again.",
    "segfault": "the GPU process ended by signal 11 (SIGSEGV) while running crash; it was replaced; run it again.",
    "garbage": "the GPU process sent what nobody can read while running crash; it was replaced; run it again.",
    "late": "hang took longer than 0.05 s and was stopped; try a smaller problem or a longer limit.",
    "unforeseen": "fail failed: RuntimeError: unforeseen",
}


@linux
def test_sixty_deaths_in_a_row_cost_one_request_each(make: Callable[..., GpuService]) -> None:
    service = make()
    pids, baseline = set(), (0, 0)
    for number in range(60):
        if number == 6:
            baseline = (open_files(), threading.active_count())
        how = list(DEATHS)[number % len(DEATHS)]
        if how == "late":
            ticket = service.submit("hang", {"how": ("busy", "C", "C with the lock")[number % 3]}, timeout_s=0.05)
        else:
            ticket = service.submit("fail" if how == "unforeseen" else "crash", {"how": how}, timeout_s=20)
        with pytest.raises(GpuError) as error:
            ticket.result(20)
        assert str(error.value) == DEATHS[how]
        if how in ("kill", "exit", "segfault"):
            assert "last words" in ticket.log
        pid, _ = ask(service, "who")  # type: ignore[misc]
        assert service.restarts == number + 1
        pids.add(pid)
    assert len(pids) == 60
    assert open_files() <= baseline[0] and threading.active_count() <= baseline[1]
    service.close()
    until(lambda: all(ended(pid) for pid in pids), 2)


@linux
def test_a_worker_that_dies_between_requests_is_not_noticed(make: Callable[..., GpuService]) -> None:
    service = make()
    for wait_s in (0, 0.2):
        pid, _ = ask(service, "who")  # type: ignore[misc]
        os.kill(pid, signal.SIGKILL)
        time.sleep(wait_s)
        assert ask(service, "who") != (pid, 0)
    assert service.restarts == 2


@linux
def test_the_worker_ignores_ctrl_c_itself(make: Callable[..., GpuService]) -> None:
    service = make()
    before = ask(service, "who")
    os.kill(before[0], signal.SIGINT)  # type: ignore[index]
    time.sleep(0.1)
    assert ask(service, "who") == before and service.restarts == 0


# What becomes of the worker when the app ends, in whatever way. Each test runs an app of its own.

APP = """
    import sys, time
    from fmha.gpu.service import GpuService
    service = GpuService(ops="tests.gpu.fake_ops")
    print(service.submit("who", {}, timeout_s=20).result()[0], flush=True)
"""
HANG = """
    ticket = service.submit("hang", {"how": sys.argv[1], "s": "60"}, timeout_s=60)
    while ticket.progress[0] != "hanging": time.sleep(0.01)
    print("hanging", flush=True)
"""
STAY = """
    time.sleep(60)
"""


def start_app(code: str, *args: str) -> tuple[subprocess.Popen[str], int]:
    """A small app in a process group of its own, as a terminal makes it; and the worker's process id."""
    app = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), *args],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, process_group=0,
    )  # fmt: skip
    assert app.stdout is not None
    return app, int(app.stdout.readline())


@linux
@pytest.mark.parametrize("how", ["idle", "busy", "C with the lock"])
def test_an_app_that_is_killed_leaves_no_worker(how: str) -> None:
    app, pid = start_app(APP + ("" if how == "idle" else HANG) + STAY, how)
    with app:
        if how != "idle":
            assert app.stdout is not None and app.stdout.readline() == "hanging\n"
        app.kill()
        until(lambda: ended(pid), 15)


@linux
@pytest.mark.parametrize("how", ["idle", "C", "C with the lock"])
def test_an_app_that_ends_does_so_quietly_and_in_time(how: str) -> None:
    app, pid = start_app(APP + ("" if how == "idle" else HANG), how)
    _, err = app.communicate(timeout=30)  # a hanging worker would keep it for ever
    assert app.returncode == 0 and err == ""
    assert ended(pid)


@linux
def test_ctrl_c_in_the_terminal_leaves_no_abort_text() -> None:
    quiet = "    signal.signal(signal.SIGINT, lambda *_: sys.exit(0))\n"
    app, pid = start_app("    import signal\n" + APP.lstrip("\n") + quiet + HANG + STAY, "C")
    assert app.stdout is not None and app.stdout.readline() == "hanging\n"
    os.killpg(app.pid, signal.SIGINT)
    _, err = app.communicate(timeout=10)
    assert app.returncode == 0 and err == ""
    assert ended(pid)


@linux
def test_a_killed_request_takes_its_compiler_along(make: Callable[..., GpuService]) -> None:
    service = make()
    seconds = f"61.{os.getpid()}"
    ticket = service.submit("hang", {"how": "child", "s": seconds}, timeout_s=0.3)

    def sleepers() -> list[str]:
        found = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                found += [path.parent.name] if path.read_bytes() == f"sleep\0{seconds}\0".encode() else []
            except OSError:
                continue
        return [pid for pid in found if not ended(int(pid))]

    until(sleepers)
    with pytest.raises(GpuError, match="longer than"):
        ticket.result(10)
    until(lambda: not sleepers(), 2)
