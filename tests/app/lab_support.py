"""What the tests of the kernel lab share: the page, and machines with and without a GPU."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from streamlit.testing.v1 import AppTest

from fmha.gpu.diagnosis import Diagnosis, Facts, GpuFound, judge
from fmha.ui import live

PAGE = Path(__file__).resolve().parent.parent.parent / "pages" / "lab" / "kernel_lab.py"
OPS = "tests.app.lab_ops"
READY = Diagnosis((GpuFound(0, "NVIDIA H200", "9.0"),), "580.1.2", (13, 0), "2026.1", (), ())
NONE = judge(Facts())
SMALL = {"N": "128", "d": "16", "H": "2"}

Opener = Callable[..., AppTest]


def opened(**url: str) -> AppTest:
    at = AppTest.from_file(PAGE, default_timeout=60)
    for name, text in url.items():
        at.query_params[name] = text
    return run(at)


def run(at: AppTest) -> AppTest:
    at.run()
    assert not at.exception, [e.value for e in at.exception]
    return at


def text_of(at: AppTest) -> str:
    """All that the page says."""
    kinds = ("title", "header", "subheader", "markdown", "caption", "info", "warning", "error", "success")
    return "\n".join(e.value for kind in kinds for e in getattr(at, kind))


def button(at: AppTest, label: str) -> Any:
    found = [b for b in at.button if b.label.startswith(label)]
    assert len(found) <= 1
    return found[0] if found else None


def finished(at: AppTest) -> AppTest:
    """Wait for the request under way, and look at the page after it. One that fails at once may be gone already."""
    desk = live.desk_in(at.session_state)
    assert desk.asked is not None
    if desk.ticket is not None:
        assert desk.ticket.wait(30)
    return run(at)


def started(**url: str) -> AppTest:
    at = opened(**(SMALL | url))
    button(at, "Run on").click()
    return run(at)
