"""The tracer's own test: every barrier and every bound of a kernel is taken out in turn, and it has to notice.

What the tracer has for it: findings, no end within the time limit, a result that float64 denies, and other bytes than
the plan's. Where taking out a check changes nothing, the reason is stated, and the results must be equal to the bit.
"""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from fmha import Problem, Tiling
from fmha.check import check
from fmha.errors import TraceError
from fmha.kernels import KERNELS, Kernel
from fmha.trace import Trace
from tests.trace.support import inputs, traced

NAIVE, FMHA101 = KERNELS["01"], KERNELS["02"]
TILES = Tiling(8, 6)  # 48 threads: two warps, one of them half empty
# Chosen so that every check has something to do. Whether LSE is asked for comes second.
PROBLEMS = {
    "ragged": (Problem(H=2, Nq=13, Nk=15, d=7), True),
    "whole tiles": (Problem(Nq=24, Nk=30, d=7, causal="tl"), False),
    "blind rows": (Problem(Nq=20, Nk=9, d=7, causal="br"), True),
    "padded": (Problem(B=3, Nq=14, Nk=20, d=7, causal="tl", lens_k=(17, 0, 20), left_pad=(8, 0, 3)), True),
    "less than a tile": (Problem(N=4, d=5), True),
}
NO_TILE = ["blind rows", "padded"]  # where a block visits none
RACE, BOUNDS, SMEM = "race", "out of bounds", "beyond shared memory"
UNWRITTEN, NULL = "read of what nothing wrote", "null pointer"
WRONG, BYTES, ENDLESS = "wrong result", "other bytes", "no end"


class Bound(NamedTuple):
    """In the `nth` line that holds `line`: `old` becomes `new`. caught: how, at least; or, if nothing, why not."""

    line: str
    old: str
    new: str
    caught: str
    nth: int = 0
    why_not: str = ""


ROWS = "e < rows * d"
BLIND = (
    "only a row that sees no key has l = 0 or NaN, and both are not > 0, so its O is 0 and its LSE -inf all the same"
)
BOUNDS_OF_FMHA101 = (
    Bound("rows = min(", "min(Br, Nq - first_row)", "Br", BOUNDS),
    Bound("keys = real_keys(", "real_keys(key_range, int(bh / H), Nk)", "{0, Nk}", WRONG),
    Bound("Qi[e] = Q[", ROWS, "e < Br * d", BOUNDS),
    Bound("Qi[e] = Q[", ROWS, "e <= rows * d", BOUNDS),
    Bound("Oi[e] = 0.0f", "e < Br * d", "e <= Br * d", RACE),
    Bound("if (tid < Br)", "tid < Br", "true", SMEM),
    Bound("if (tid < Br)", "tid < Br", "tid <= Br", RACE),
    Bound("const int end = ", "seen_end(keys, first_row + rows - 1, causal_offset)", "keys.end", BYTES),
    Bound("for (int j = ", "j * Bc < end && ", "", ENDLESS),
    Bound("for (int j = ", "j * Bc < end", "j * Bc <= end", BYTES),
    Bound("for (int j = ", " && keys.first < end", "", BYTES),
    Bound(
        "for (int j = ", "keys.first / Bc", "0", "",
        why_not="tiles of padding are gone through, but c_first to c_end is empty in them and no key in them is seen",
    ),
    Bound("c_first = ", "max(keys.first - j * Bc, 0)", "0", WRONG),
    Bound("c_first = ", "max(keys.first - j * Bc, 0)", "keys.first - j * Bc", SMEM),
    Bound("c_first = ", "min(keys.end - j * Bc, Bc)", "Bc", BOUNDS),
    Bound("c_first = ", "min(keys.end - j * Bc, Bc)", "keys.end - j * Bc", RACE),
    Bound("e = c_first * d + tid", "c_first * d + tid", "tid", BYTES),
    Bound("e = c_first * d + tid", "e < c_end * d", "e < Bc * d", BOUNDS),
    Bound("e = c_first * d + tid", "e < c_end * d", "e <= c_end * d", BOUNDS),
    Bound("row_end = ", "seen_end(keys, first_row + s_row, causal_offset) - j * Bc", "c_end", WRONG),
    Bound("bool seen = ", "s_row < rows && ", "", UNWRITTEN),
    Bound("bool seen = ", "s_col >= c_first && ", "", WRONG),
    Bound("bool seen = ", " && s_col < row_end", "", WRONG),
    Bound("bool seen = ", "s_col < row_end", "s_col <= row_end", WRONG),
    Bound("if (seen)", "seen", "true", UNWRITTEN),
    Bound("score += ", "k < d", "k <= d", WRONG),
    Bound("? score * scale", "seen ? score * scale : MINUS_INFINITY", "score * scale", WRONG),
    Bound("if (s_col == 0)", "s_col == 0", "true", RACE),
    Bound("row_m = fmaxf(", "c < Bc", "c <= Bc", RACE),
    Bound("shift = row_m", "row_m == MINUS_INFINITY ? 0.0f : row_m", "row_m", WRONG),
    Bound("c < Bc; ++c) {", "c < Bc", "c <= Bc", RACE),
    Bound("alpha[s_row] = mi", "mi[s_row] == mi_new ? 1.0f : ", "", "", why_not=f"exp(0) is 1, and {BLIND}"),
    Bound(
        "beta[s_row] = row_m", "row_m == MINUS_INFINITY ? 0.0f : ", "", "",
        why_not=f"exp(-inf - m) is 0, and {BLIND}",
    ),
    Bound(
        "for (int e = tid; e < rows * d; e += threads) {", ROWS, "e < Br * d", "",
        why_not="rows behind the last have weights, alpha, beta and an accumulator too, and are not stored",
    ),
    Bound("for (int e = tid; e < rows * d; e += threads) {", ROWS, "e <= rows * d", RACE),
    Bound("pv += ", "c = c_first", "c = 0", UNWRITTEN),
    Bound("pv += ", "c < c_end", "c < Bc", UNWRITTEN),
    Bound("pv += ", "c < c_end", "c <= c_end", RACE),
    Bound("for (int e = tid; e < rows * d; e += threads) {", ROWS, "e < Br * d", BOUNDS, nth=1),
    Bound("for (int e = tid; e < rows * d; e += threads) {", ROWS, "e <= rows * d", BOUNDS, nth=1),
    Bound("? Oi[e] / l", "l > 0.0f ? Oi[e] / l : 0.0f", "Oi[e] / l", WRONG),
    Bound("if (LSE != nullptr", "LSE != nullptr && ", "", NULL),
    Bound("if (LSE != nullptr", " && tid < rows", "", BOUNDS),
    Bound("if (LSE != nullptr", "tid < rows", "tid <= rows", BOUNDS),
    Bound(
        "mi[tid] + logf(", "li[tid] > 0.0f ? mi[tid] + logf(li[tid]) : MINUS_INFINITY", "mi[tid] + logf(li[tid])", "",
        why_not="for a row that sees no key both are -inf, and so is their sum",
    ),
)  # fmt: skip


def place(kernel: Kernel, snippet: str, nth: int = 0) -> int:
    """Index of the nth source line that holds `snippet`."""
    return [n for n, line in enumerate(kernel.source().split("\n")) if snippet in line][nth]


def changed(kernel: Kernel, index: int, old: str, new: str) -> str:
    lines = kernel.source().split("\n")
    assert lines[index].count(old) == 1, lines[index]
    lines[index] = lines[index].replace(old, new)
    return "\n".join(lines)


def run_of(kernel: Kernel, name: str, cache: Path, text: str | None, **settings: Any) -> Trace:
    p, write_lse = PROBLEMS[name]
    return traced(kernel, p, TILES, cache, text=text, write_lse=write_lse, flops=False, **settings)


def faults(run: Trace) -> set[str]:
    """Everything that the tracer has against a run."""
    found = {finding.kind for finding in run.findings}
    if not check(run.problem, *inputs(run.problem), run.O, run.LSE).ok:
        found.add(WRONG)
    moved = {name: pair for name, pair in run.global_bytes.items() if name != "key_range"}
    if moved != {name: pair for name, pair in run.plan.requested.by_tensor.items() if pair != (0, 0)}:
        found.add(BYTES)
    return found


@functools.cache
def sound(name: str, cache: Path) -> Trace:
    """The kernel as it is."""
    run = run_of(FMHA101, name, cache, None)
    assert not faults(run)
    return run


@pytest.mark.parametrize("bound", BOUNDS_OF_FMHA101, ids=lambda b: f"{b.old}, {b.new or 'gone'}")
def test_bounds_of_fmha101(bound: Bound, cache: Path) -> None:
    text = changed(FMHA101, place(FMHA101, bound.line, bound.nth), bound.old, bound.new)
    found: set[str] = set()
    for name in PROBLEMS:
        try:
            run = run_of(FMHA101, name, cache, text, timeout_s=2 if bound.caught == ENDLESS else 20)
        except TraceError as error:
            assert "did not end within 2 s" in str(error) and f"{FMHA101.file}:" in str(error)
            found.add(ENDLESS)
            break
        found |= faults(run)
        if bound.caught in found:
            break
        if bound.why_not:
            before = sound(name, cache)
            assert np.array_equal(run.O.view(np.uint32), before.O.view(np.uint32))
            assert run.LSE is None or np.array_equal(run.LSE, before.LSE)
    assert (bound.caught in found) if bound.caught else (found == set() and bound.why_not)


def test_no_bound_is_left_out() -> None:
    """Every comparison, choice, min and max of the kernel stands in a part that one of the changes above replaces."""
    lines = FMHA101.source().split("\n")
    spans = [
        (index, lines[index].index(bound.old), lines[index].index(bound.old) + len(bound.old))
        for bound in BOUNDS_OF_FMHA101
        for index in [place(FMHA101, bound.line, bound.nth)]
    ]
    checks = 0
    for index, line in enumerate(lines):
        code = line.split("//")[0]
        if code.startswith("#"):
            continue
        for found in re.finditer(r"[<>=!]=|[<>?]|\b(?:min|max)\(", code):
            checks += 1
            assert any(i == index and a <= found.start() < b for i, a, b in spans), f"line {index + 1}: {line.strip()}"
    assert checks > 25


# Barriers by their comments, and the two lines of a race that only this one prevents.
BARRIERS_OF_FMHA101 = (
    ("Qi, li, mi are read by threads that did not write them", "li[e / d]", "li[tid] = 0.0f"),
    ("Kj, Vj were filled by all threads", "score += ", "Kj[e] = K["),
    ("a row of Sij was filled by Bc threads", "row_m = fmaxf(row_m", "Sij[s_row * Bc + s_col] = "),
    ("P, alpha, beta were written by one thread a row", "pv += ", "Sij[s_row * Bc + c] = p"),
    ("the next tile overwrites Kj, Vj, Sij, alpha, beta", "Vj[e] = V[", "pv += "),
)
BARRIERS_OF_NAIVE = (
    ("Qi, Kj were filled by all threads", "sum[r][c] += Qi", "tile[r][c] = "),
    ("the next chunk overwrites Qi, Kj", "tile[r][c] = ", "sum[r][c] += Qi"),
    ("warps holds one number of each warp", "value = warps[0]", "warps[threadIdx.x / 32] = "),
    ("Pij, Vj were filled by all threads", "part[r][c] += Pij", "Vj[r][c] = "),
    ("the next chunk overwrites Pij, Vj", "Vj[r][c] = ", "part[r][c] += Pij"),
)


@pytest.mark.parametrize(
    ("kernel", "comment", "line", "other"),
    [
        *((FMHA101, *barrier) for barrier in BARRIERS_OF_FMHA101),
        *((NAIVE, *barrier) for barrier in BARRIERS_OF_NAIVE),
    ],
    ids=lambda value: value.name if isinstance(value, Kernel) else str(value)[:30],
)
def test_barriers(kernel: Kernel, comment: str, line: str, other: str, cache: Path) -> None:
    """Without it the tracer finds a race, between just those two lines: the one that needs it, and the other. Which
    of them it says of which depends on the order of the threads, so they run in both."""
    text = changed(kernel, place(kernel, comment), "__syncthreads();", ";")
    pair = {place(kernel, line) + 1, place(kernel, other) + 1}
    runs = []
    for way in (False, True):
        if kernel is NAIVE:
            p = Problem(Nq=5, Nk=40, d=40)  # two chunks of columns, and of keys
            runs.append(traced(kernel, p, TILES, cache, text=text, flops=False, is_reversed=way))
        else:
            runs += [run_of(kernel, name, cache, text, is_reversed=way) for name in PROBLEMS]
    races = [f for run in runs for f in run.findings if f.kind == RACE]
    assert pair in [{f.line, f.other_line} for f in races], [f.text for f in races]
    assert all(f.file == kernel.file and "with no barrier in between" in f.text for f in races)
    if comment.startswith("Qi, li, mi"):
        # The barrier after the first tile is loaded does its work too: it is needed where a block visits no tile.
        assert [name for name, run in zip(2 * [*PROBLEMS], runs, strict=True) if run.findings] == 2 * NO_TILE


def test_no_barrier_is_left_out() -> None:
    for kernel, barriers in ((FMHA101, BARRIERS_OF_FMHA101), (NAIVE, BARRIERS_OF_NAIVE)):
        lines = [n for n, line in enumerate(kernel.source().split("\n")) if re.search(r"__sync\w+\(", line)]
        assert lines == sorted(place(kernel, comment) for comment, _, _ in barriers)
