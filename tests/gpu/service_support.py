"""What the tests of the service share: asking it, waiting for something, processes that are gone."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from fmha.gpu.service import GpuService

ROOT = Path(__file__).resolve().parents[2]
OPS = "tests.gpu.fake_ops"
linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")


def ask(service: GpuService, op: str, timeout_s: float = 20, **payload: object) -> object:
    return service.submit(op, payload, timeout_s=timeout_s).result(25)


def until(condition: Callable[[], object], timeout_s: float = 10) -> None:
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.005)


def ended(pid: int) -> bool:
    """Whether a process is gone, or a zombie that nobody has fetched."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except OSError:
        return True
