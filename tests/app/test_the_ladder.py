"""The page *The ladder*: with a recording of everything, of one shape, of none; stale sources; every rung."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from fmha import ladder, rungs
from fmha.kernels import KERNELS
from fmha.measurement import Recording
from tests.ladder_support import PEAK, ladder_recording, speed

PAGE = Path(__file__).resolve().parents[2] / "pages" / "lab" / "the_ladder.py"
EVERYTHING = ladder_recording([ladder.problem(4096, 64, None, dtype) for dtype in ("fp32", "bf16", "fp16")])


@pytest.fixture
def shipped(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    def replace(*recordings: Recording) -> None:
        monkeypatch.setattr(ladder, "shipped", lambda: recordings)

    return replace


def opened(**link: str) -> AppTest:
    at = AppTest.from_file(str(PAGE), default_timeout=60)
    for name, value in link.items():
        at.query_params[name] = value
    at.run()
    assert not at.exception, [e.value for e in at.exception]
    return at


def said(at: AppTest) -> str:
    every: list[Any] = [*at.markdown, *at.subheader, *at.header, *at.caption, *at.info, *at.warning]
    return "\n".join(element.value for element in every)


def test_the_climb_is_told_with_the_numbers_of_the_recording(shipped: Callable[..., None]) -> None:
    shipped(EVERYTHING)
    at = opened()
    fastest = max(KERNELS, key=speed)
    head = at.subheader[0].value
    assert head.startswith(f"From 0.9 to {speed(fastest):.3g} TFLOP/s: {fastest}") and "NVIDIA H200" in said(at)
    rows = at.dataframe[0].value
    in_order = sorted(KERNELS, key=lambda n: ("fp32" not in KERNELS[n].dtypes, n))
    assert list(rows["rung"]) == [f"{n} {KERNELS[n].name}" for n in in_order]
    assert list(rows["TFLOP/s"]) == [f"{speed(n):.3g}" for n in in_order]
    assert all(rows["registers"] == "128") and not at.warning
    assert "Medians of 20 runs." in said(at) and all(rows["runs"] == "20, ± 1.00 %")


def test_who_was_timed_fewer_times_is_told(shipped: Callable[..., None]) -> None:
    """Today's recording: three runs of what takes long."""
    (run,) = ladder_recording([ladder.problem(4096, 64)]).runs
    entries = tuple(
        dataclasses.replace(e, time=dataclasses.replace(e.time, repeats=3)) if e.name == "02" and e.time else e
        for e in run.entries
    )
    shipped(dataclasses.replace(EVERYTHING, runs=(dataclasses.replace(run, entries=entries),)))
    at = opened(dtype="fp32")
    rows = at.dataframe[0].value
    assert "Medians of 3 to 20 runs, of slow ones fewer." in said(at)
    assert rows["runs"][rows["rung"].str.startswith("02")].tolist() == ["3, ± 1.00 %"]


@pytest.mark.parametrize("chosen", KERNELS.values(), ids=[k.name for k in KERNELS.values()])
def test_each_rung_is_explained(shipped: Callable[..., None], chosen: Any) -> None:
    shipped(EVERYTHING)
    at = opened(rung=str(int(chosen.number)), diff="one column")
    text = said(at)
    assert f"{chosen.number} {chosen.name}: {chosen.title}" in text
    results = rungs.outcomes(chosen, (EVERYTHING,))
    assert text.count("confirmed:**") == sum(o.held is not None for o in results)
    assert text.count("? not measured") == sum(o.held is None for o in results)
    assert f"**{rungs.lines(chosen).code} lines of code**" in text


def test_a_shape_that_was_not_recorded_is_said_and_the_rest_stands(shipped: Callable[..., None]) -> None:
    shipped(EVERYTHING)
    at = opened(N="16384", d="128", causal="br", rung="3")
    assert "This shape was not recorded" in at.info[0].value and "The counter that moved" in said(at)
    assert "03 padding: No bank conflicts" in said(at)


def test_without_any_recording(shipped: Callable[..., None]) -> None:
    shipped()
    at = opened()
    text = said(at)
    assert "This shape was not recorded" in text and "No hardware counters" in text and "? not measured" in text


def test_a_kernel_that_changed_since_is_told(shipped: Callable[..., None]) -> None:
    runs = tuple(
        dataclasses.replace(
            run,
            entries=tuple(dataclasses.replace(e, source_hash="0" * 12) if e.name == "03" else e for e in run.entries),
        )
        for run in EVERYTHING.runs
    )
    shipped(dataclasses.replace(EVERYTHING, runs=runs))
    assert "The source of 03 has changed" in said(opened())


def test_fp32_alone(shipped: Callable[..., None]) -> None:
    shipped(EVERYTHING)
    rows = opened(dtype="fp32").dataframe[0].value
    assert list(rows["rung"]) == [f"{k.number} {k.name}" for k in KERNELS.values() if "fp32" in k.dtypes]


def test_a_dtype_that_was_not_recorded_at_a_length_is_said(shipped: Callable[..., None]) -> None:
    """fp32 is at two lengths, fp16 at one: the headline of the other length is not mistaken for fp16's."""
    shapes = [ladder.problem(N, 64) for N in (4096, 8192)] + [ladder.problem(4096, 64, None, "fp16")]
    shipped(ladder_recording(shapes))
    at = opened(N="8192", dtype="fp16")
    assert at.subheader[0].value.startswith("In fp32, from 0.9 to ")
    assert "in fp16 at this shape" in at.info[0].value and "at N = 4,096, d = 64, without a mask" in at.info[0].value
    at = opened(N="4096", dtype="fp16")
    assert at.subheader[0].value.startswith("From 0.9 to ") and not at.info
    at = opened(N="4096", dtype="bf16")
    assert "No kernel is recorded in bf16: choose another" in at.info[0].value


def test_what_mma_sync_alone_reaches_is_shown_where_it_is_recorded(shipped: Callable[..., None]) -> None:
    shipped(EVERYTHING)
    assert "alone and from registers" not in said(opened())
    shipped(dataclasses.replace(EVERYTHING, mma_sync_peak=PEAK))
    text = said(opened())
    assert "580 TFLOP/s in bf16 (59 % of the peak), 290 TFLOP/s in tf32 (59 % of the peak)" in text
    assert "581 TFLOP/s in fp16" in said(opened(dtype="fp16"))


def test_a_climb_that_begins_elsewhere_than_at_the_tutorials_kernel_says_where(shipped: Callable[..., None]) -> None:
    """At 8,192 tokens the tutorial's kernel takes too long for the table."""
    (run,) = ladder_recording([ladder.problem(8192, 64)]).runs
    entries = tuple(dataclasses.replace(e, time=None) if e.name == ladder.TUTORIAL else e for e in run.entries)
    shipped(dataclasses.replace(EVERYTHING, runs=(dataclasses.replace(run, entries=entries),)))
    head = opened(N="8192", dtype="fp32").subheader[0].value
    assert head.startswith("From 5 to ") and "as fast as 01 naive" in head and "tutorial" not in head
