"""What pages say of the model's errors is what comes out when all shipped recordings are computed again."""

from __future__ import annotations

import pytest

from fmha.measurement import shipped
from fmha.model_errors import LEVELS, STATED, Off, against, measured, spread
from fmha.model_facts import ERRORS_OF_THE_MODEL


@pytest.fixture(scope="module")
def rows() -> list[Off]:
    return against(shipped())


def test_every_recorded_kernel_is_there(rows: list[Off]) -> None:
    kernels = [e for r in shipped() for run in r.runs for e in run.entries if e.is_kernel and e.counters]
    assert len(rows) == len(kernels) >= 96
    assert all(set(row.errors) == set(LEVELS) for row in rows)


@pytest.mark.parametrize("level", list(STATED))
def test_the_stated_errors_are_the_computed_ones_rounded_up(level: str, rows: list[Off]) -> None:
    found = spread(rows, level)
    median, worst = STATED[level]
    assert found.median <= median <= 1.6 * found.median + 1e-4
    assert found.worst <= worst <= 1.25 * found.worst + 1e-4


def test_errors_of_bytes_and_time_are_within_what_the_model_says_of_itself(rows: list[Off]) -> None:
    said = {error.what: error for error in ERRORS_OF_THE_MODEL}
    for level, name in (("l2", "L2 bytes"), ("dram", "DRAM bytes"), ("time", "time")):
        found = spread(rows, level)
        assert found.median <= said[name].median + 0.005 and found.worst <= said[name].largest + 0.005


def test_requested_bytes_are_equal_to_the_byte(rows: list[Off]) -> None:
    assert {row.errors["requested"] for row in rows} == {0.0}


def test_an_error_by_hand() -> None:
    row = Off("02", shipped()[0].runs[0].problem, None, {"l2": -0.5})
    assert spread([row, row._replace(errors={"l2": 0.1}), row._replace(errors={"l2": 0.2})], "l2") == (0.2, 0.5, 3)
    assert spread([row], "dram").runs == 0


def test_what_was_not_read_is_missing() -> None:
    entry = next(e for run in shipped()[0].runs for e in run.entries if not e.counters and e.time)
    assert set(measured(entry)) == {"time"}
