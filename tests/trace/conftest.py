"""Tests of the tracer: they need a C++ compiler, and share what it made."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fmha.errors import TraceError
from fmha.trace.compilers import compiler
from tests.tools import need


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Iterator[Path]:
    """A folder for compiled programs, the same one in all processes of pytest-xdist."""
    try:
        found = compiler().command[0]
    except TraceError:
        found = None
    need("cxx", found)
    base = tmp_path_factory.getbasetemp()
    yield (base if worker_id == "master" else base.parent) / "traces"
