"""What a page finds: the machine that it runs on, recordings, a GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from fmha import ladder, measurement
from fmha.gpu.diagnosis import Diagnosis
from fmha.measurement import Recording
from fmha.ui import live
from tests.app.lab_support import NONE, OPS, READY


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Callable[[Diagnosis], None]:
    """Makes the page believe that this is the state of the machine."""

    def believe(found: Diagnosis) -> None:
        monkeypatch.setattr(live, "_machine", live.Lookout(lambda: found))

    believe(NONE)
    return believe


@pytest.fixture
def shipped(monkeypatch: pytest.MonkeyPatch, machine: Any) -> Callable[..., None]:
    """Replaces the recordings that come with the app; none to begin with."""

    def replace(*recordings: Recording) -> None:
        monkeypatch.setattr(measurement, "shipped", lambda: recordings)
        monkeypatch.setattr(ladder, "shipped", tuple)

    replace()
    return replace


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch, machine: Any, shipped: Any) -> Iterator[None]:
    """A GPU whose worker is tests/app/lab_ops.py."""
    machine(READY)
    monkeypatch.setattr(live, "OPS", OPS)
    live.bench(0, OPS).describe().wait(20)
    yield
    live.close_benches()
