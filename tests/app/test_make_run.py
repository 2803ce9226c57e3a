"""`make run` in a terminal: Ctrl-C is its end and no failure; what fails is told and has a status."""

from __future__ import annotations

import os
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.browser.support import free_port
from tests.tools import need

pty = pytest.importorskip("pty")
ROOT = Path(__file__).resolve().parents[2]
CTRL_C = b"\x03"
LIMIT_S = 30.0
APP = "import streamlit as st\nif __name__ == '__main__':\n    st.write('here')\nelse:\n    app = st.App(__file__)\n"
STARTING = "import time\nprint('starting', flush=True)\ntime.sleep(60)\n"  # what is imported before anything is served
FAILING = "raise SystemExit('no such thing')\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the Makefile, an app, and a .venv that is set up."""
    need("make", shutil.which("make"))
    shutil.copy(ROOT / "Makefile", tmp_path)
    shutil.copytree(ROOT / ".streamlit", tmp_path / ".streamlit")
    (tmp_path / "app.py").write_text(APP)
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    for name in ("requirements.txt", "requirements-gpu.txt", ".venv/.run-stamp", ".venv/.gpu-stamp"):
        (tmp_path / name).touch()
    return tmp_path


def run(folder: Path, stop: Callable[[int, int], object], when: str, streamlit: str | None = None) -> tuple[str, int]:
    """`make run`, stopped when it has said `when`: all that it said, and its status. stop(process, terminal).
    streamlit: what stands in its place."""
    if streamlit is not None:
        (folder / "streamlit" / "web").mkdir(parents=True)
        (folder / "streamlit" / "__init__.py").touch()
        (folder / "streamlit" / "web" / "cli.py").write_text(streamlit)
    terminal, inner = pty.openpty()
    env = {**os.environ, "STREAMLIT_SERVER_HEADLESS": "true", "MAKEFLAGS": "", "PYTHONPATH": ""}

    # The leader of a session that opens a terminal makes it its own: its Ctrl-C goes to all processes in it.
    command = ["sh", "-c", 'exec "$@" <"$0" >"$0" 2>&1', os.ttyname(inner), "make", "run", f"PORT={free_port()}"]
    made = subprocess.Popen(command, cwd=folder, env=env, start_new_session=True)
    said, is_stopped, end = b"", False, time.monotonic() + LIMIT_S
    try:
        while made.poll() is None:
            assert time.monotonic() < end, f"it did not end: {said!r}"
            said += read(terminal)
            if not is_stopped and when.encode() in said:
                is_stopped = True
                stop(made.pid, terminal)
        said += read(terminal)
    finally:
        os.close(terminal)
        os.close(inner)
        if made.poll() is None:
            os.killpg(made.pid, signal.SIGKILL)
            made.wait()
    return said.decode(errors="replace"), made.returncode


def read(terminal: int) -> bytes:
    """What is there, or comes in a moment."""
    return os.read(terminal, 65536) if select.select([terminal], [], [], 0.1)[0] else b""


def press(_process: int, terminal: int) -> None:
    os.write(terminal, CTRL_C)


@pytest.mark.parametrize(("streamlit", "when"), [(None, "URL:"), (STARTING, "starting")])
def test_ctrl_c_ends_it_without_a_complaint(folder: Path, streamlit: str | None, when: str) -> None:
    said, status = run(folder, press, when, streamlit)
    assert when in said and status in (0, -signal.SIGINT), said
    assert not re.search(r"error|abort|traceback|interrupt|\*\*\*", said, re.IGNORECASE), said


def test_who_ends_make_ends_the_app(folder: Path) -> None:
    starting = STARTING.replace("starting", "%d is its number").replace(", flush", " % os.getpid(), flush")
    said, status = run(
        folder, lambda process, _: os.kill(process, signal.SIGTERM), "is its number", f"import os\n{starting}"
    )
    assert status == -signal.SIGTERM
    number = re.search(r"(\d+) is its number", said)
    with pytest.raises(ProcessLookupError):
        for _ in range(100):  # make does not wait for it
            os.kill(int(number[1]) if number else 0, 0)
            time.sleep(0.1)


def test_a_failure_is_told_and_has_a_status(folder: Path) -> None:
    said, status = run(folder, press, "never said", FAILING)
    assert status == 2 and "no such thing" in said and "Error 1" in said
