"""The traced counts of the kernels against what an H200 counted, line by line; what the compiler changed is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from fmha import Problem, Tiling
from fmha.gpu.lines import fp32_kernels, runs_of
from fmha.kernels import KERNELS
from fmha.line_counts import LineCount, LineCounts, shipped
from fmha.trace.against import compare, statements
from tests.trace.agreement import agree
from tests.trace.support import traced

SHIPPED = shipped()
# Shared-memory wavefronts of a whole run, where the compiler left every line as it is or nearly.
EQUAL = {("04", 256), ("04", 200), ("06", 256), ("07", 256), ("13", 256)}


@pytest.mark.parametrize("counted", SHIPPED, ids=[one.title for one in SHIPPED])
def test_counts_by_line_are_those_of_the_h200(counted: LineCounts, cache: Path) -> None:
    kernel = KERNELS[counted.facts["kernel"]]
    if kernel.source_hash() != counted.facts["source"]:
        pytest.skip(f"{kernel.file} has changed since it was counted")
    p = counted.problem
    run = traced(kernel, p, counted.tiling, cache, flops=False)
    rows = agree(run, counted)
    shared = [row for row in rows if row.space == "shared"]
    same = [row for row in shared if row.is_same]
    assert len(same) >= 0.5 * len(shared)  # a comparison that leaves most out would say nothing
    assert len([row for row in same if row.is_split]) <= 4 * (p.Nq == 200 and kernel.number in ("06", "07", "13"))
    ours, theirs = (sum(getattr(row, side).wavefronts for row in shared) for side in ("traced", "measured"))
    if (kernel.number, p.Nq) in EQUAL:
        assert ours == theirs


def test_every_kernel_in_fp32_was_counted() -> None:
    current = {(one.facts["kernel"], one.problem.Nq) for one in SHIPPED}
    assert current >= {(kernel.number, run.problem.Nq) for kernel in fp32_kernels() for run in runs_of(kernel)}


def test_what_the_compiler_did_is_told(cache: Path) -> None:
    p, t = Problem(N=16, d=8), Tiling(8, 8)
    run = traced(KERNELS["02"], p, t, cache, flops=False)
    mine = [c for c in run.counts if c.space == "shared"]
    same = {(c.line, c.is_write): c for c in mine}

    def counted(**changes: int) -> tuple[LineCount, ...]:
        made = []
        for (line, is_write), _ in same.items():
            both = [c for c in mine if (c.line, c.is_write) == (line, is_write)]
            row = {n: sum(getattr(c, n) for c in both) for n in ("requests", "lanes", "wavefronts", "ideal_wavefronts")}
            row |= {"access_bytes": 4, "sectors": 0} | (changes if line == mine[0].line else {})
            made.append(LineCount(both[0].function, both[0].file, line, "LDS", "shared", is_write, **row))
        return tuple(made)

    def why(lines: tuple[LineCount, ...]) -> set[str]:
        there = LineCounts({}, {}, lines)
        return {r.why_not for r in compare(run, there) if r.space == "shared"}

    lanes, ideal = (getattr(same[mine[0].line, mine[0].is_write], name) for name in ("lanes", "ideal_wavefronts"))
    assert why(counted()) == {""}
    assert why(counted(access_bytes=16, lanes=lanes // 4)) == {"", "joined: 4 bytes a thread in the source, 16 bytes a "
                                                               "thread as compiled"}  # fmt: skip
    assert why(counted(ideal_wavefronts=1 << 20)) == {
        "", f"split: some lanes do it apart from the rest, so 1,048,576 wavefronts are the fewest, not {ideal}",
    }  # fmt: skip
    assert why(counted(lanes=lanes // 2)) == {"", "50 % of the accesses left out: the values are in registers"}
    assert why(counted(lanes=0)) == {"", "no access as compiled: the values are in registers"}
    assert why(counted(lanes=lanes + 7)) == {"", "7 accesses more than the source has"}
    assert any("later there" in text for text in why(counted(requests=0)))


def test_a_statement_over_several_lines_counts_as_its_first() -> None:
    text = "int a = f(b,\n          c +\n          d);\nif (x)\n  y();\n// a,\nz();\nfor (;;) {\n  w();\n}\n"
    assert statements(text) == {2: 1, 3: 1}
    assert statements(KERNELS["05"].source())  # one of its statements does
