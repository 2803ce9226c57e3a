"""Kernels broken on purpose: what can be taken out is found in the text, and the tracer tells what it was good for."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from fmha import Problem, Tiling
from fmha.kernels import KERNELS
from fmha.trace.breaking import changes
from tests.trace.support import line_of, traced


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=lambda k: k.name)
def test_every_barrier_is_found_and_lines_keep_their_numbers(kernel) -> None:  # type: ignore[no-untyped-def]
    text = kernel.source()
    found = changes(text)
    assert sum(c.kind == "barrier" for c in found) == text.count("__syncthreads();")
    assert len({c.key for c in found}) == len(found)
    before = text.split("\n")
    for change in found:
        after = change.apply(text).split("\n")
        assert [n for n, (a, b) in enumerate(zip(before, after, strict=True), 1) if a != b] == [change.line]
        if change.kind == "barrier":
            assert " before " in change.why and change.why in before[change.line - 1]


def test_a_change_that_does_not_fit_is_refused() -> None:
    change = changes(KERNELS["02"].source())[0]
    with pytest.raises(ValueError, match="does not hold"):
        dataclasses.replace(change, line=1).apply(KERNELS["02"].source())


def test_lanes_that_read_together_are_told_as_several(cache: Path) -> None:
    """A thread is never said to collide with itself."""
    kernel = KERNELS["01"]
    text = kernel.source()
    change = next(c for c in changes(text) if "the next chunk overwrites Pij" in c.why)
    run = traced(kernel, Problem(N=64, d=8), Tiling(32, 32), cache, text=change.apply(text), flops=False)
    races = [f for f in run.findings if f.kind == "race"]
    assert races
    for finding in races:
        assert f"which thread {finding.thread} " not in finding.text, finding.text
    assert any("several threads read" in f.text for f in races)
    assert line_of(kernel, "part[r][c] += Pij") in {f.other_line for f in races}
