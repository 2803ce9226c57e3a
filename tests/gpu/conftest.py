"""GPU tests: a live run must be possible here. Tests of the host side do not ask for `gpu`, and run anywhere."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest

from fmha.gpu.diagnosis import Diagnosis, diagnose
from fmha.gpu.service import GpuService
from tests.gpu.service_support import OPS


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All tests that use a GPU in one process of pytest-xdist: two at once would disturb each other's times."""
    for item in items:
        if "gpu" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("gpu"))


@pytest.fixture(scope="session")
def gpu() -> Diagnosis:
    """This machine, ready for live runs; the test is skipped, or fails where FMHA_REQUIRE names gpu, if it is not."""
    found = diagnose(timeout_s=60)
    if not found.ready:
        reason = " ".join(finding.what for finding in found.findings if finding.blocks)
        if "gpu" in os.environ.get("FMHA_REQUIRE", "").split(","):
            pytest.fail(f"{reason} FMHA_REQUIRE names gpu.", pytrace=False)
        pytest.skip(reason)
    return found


@pytest.fixture(scope="module")
def shared() -> Iterator[GpuService]:
    """A service for tests that look at one request each."""
    with GpuService(3, ops=OPS) as service:
        yield service


@pytest.fixture
def make() -> Iterator[Callable[..., GpuService]]:
    made: list[GpuService] = []

    def new(**options: object) -> GpuService:
        made.append(GpuService(ops=OPS, **options))  # type: ignore[arg-type]
        return made[-1]

    yield new
    for service in made:
        service.close()
