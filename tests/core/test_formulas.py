"""Formulas with numbers: equal to what the core counts, and what they print is what they say."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fmha import Problem, Tiling, load, reference, simulate, traffic
from fmha.algorithms import fa1_tiles
from fmha.formulas import (
    Formula,
    RowBefore,
    compulsory,
    flops,
    limit_ratio,
    matrix_bytes,
    moving_us,
    multiplying_us,
    number,
    paper_tiles,
    requested,
    row_step,
    smem,
    theorem2,
    tile_counts,
    visited,
)
from fmha.memory import hbm_held, smem_bytes
from fmha.reference import scores
from fmha.traffic import closed_form, compulsory_bytes, theorem2_bytes


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    B, Hk, group = draw(st.integers(1, 2)), draw(st.integers(1, 2)), draw(st.integers(1, 2))
    Nq, Nk = draw(st.integers(1, 40)), draw(st.integers(1, 40))
    masks = draw(st.sampled_from(["none", "causal", "padding", "both"]))
    lens = tuple(draw(st.integers(0, Nk)) for _ in range(B)) if masks in ("padding", "both") else None
    left = tuple(draw(st.integers(0, Nk)) for _ in range(B)) if masks == "both" else None
    causal = draw(st.sampled_from(["bottom-right", "top-left"])) if masks in ("causal", "both") else None
    return Problem(
        B=B, H=Hk * group, Hk=Hk, Nq=Nq, Nk=Nk, d=draw(st.integers(1, 9)), causal=causal, lens_k=lens, left_pad=left,
        dtype=draw(st.sampled_from(["fp32", "fp16"])),
    )  # fmt: skip


tilings = st.builds(Tiling, st.integers(1, 16), st.integers(1, 16))


@given(problems(), tilings, st.booleans())
def test_bytes_and_flops_are_those_of_the_event_table(problem: Problem, tiling: Tiling, lse: bool) -> None:
    for order in ("naive", "q-outer", "kv-outer"):
        write = lse and order == "q-outer"
        counted = traffic(problem, tiling, order, write_lse=write, method="events")
        assert requested(problem, tiling, order, write_lse=write).value == counted.requested_bytes
        assert flops(problem, tiling, order).value == counted.flops


@pytest.mark.parametrize("causal", [None, "bottom-right", "top-left"])
def test_long_sequences_too(causal: str | None) -> None:
    problem, tiling = Problem(H=4, Nq=65_000, Nk=70_001, d=128, dtype="fp16", causal=causal), Tiling(96, 176)
    for order in ("naive", "q-outer", "kv-outer"):
        assert requested(problem, tiling, order).value == closed_form(problem, tiling, order).requested_bytes


def test_sizes_are_those_of_the_core() -> None:
    problem, tiling = Problem(B=2, H=6, Hk=3, Nq=100, Nk=75, d=48, dtype="bf16"), Tiling(32, 16)
    assert [f.value for f in tile_counts(problem, tiling)] == [tiling.Tr(problem), tiling.Tc(problem)]
    assert compulsory(problem).value == compulsory_bytes(problem)
    assert theorem2(problem, 100_000).value == pytest.approx(theorem2_bytes(problem, 100_000), rel=1e-12)
    assert matrix_bytes(problem).value == hbm_held(problem, "naive")["S"]
    for itemsize in (2, 4):
        assert smem(tiling, 48, itemsize).value == smem_bytes(tiling, 48, itemsize)
    for M, d in ((98_304, 64), (1, 1), (1000, 7)):
        assert [f.value for f in paper_tiles(M, d)] == [fa1_tiles(M, d).Bc, fa1_tiles(M, d).Br]
    assert moving_us(3_000_000, 3000).value == pytest.approx(1.0)
    assert multiplying_us(2_000_000, 2).value == pytest.approx(1.0)


def test_the_ratio_is_the_limit_of_the_closed_forms() -> None:
    problem, tiling = Problem(N=1 << 22, d=64, dtype="fp16"), Tiling(128, 64)
    naive, flash = (closed_form(problem, tiling, order).requested_bytes for order in ("naive", "q-outer"))
    assert naive / flash == pytest.approx(limit_ratio(problem, tiling).value, rel=1e-3)


def test_visits_of_an_empty_batch_entry_cost_nothing() -> None:
    problem = Problem(B=1, N=8, lens_k=(0,))
    assert visited(problem, Tiling(4, 4)) == (0, 0, 0, 0)


@pytest.mark.parametrize("causal", [None, "bottom-right", "top-left"])
def test_a_row_followed_by_formulas_ends_as_the_simulator_and_the_truth(causal: str | None) -> None:
    problem, tiling = Problem(Nq=9, Nk=6, d=5, causal=causal), Tiling(4, 2)
    inputs = load("random", problem)
    run = simulate(problem, tiling, inputs.Q, inputs.K, inputs.V)
    truth, S = reference(problem, inputs.Q, inputs.K, inputs.V), scores(problem, inputs.Q, inputs.K)[0, 0]
    for row in range(problem.Nq):
        before, steps = RowBefore(), ()
        for j in range(tiling.Tc(problem)):
            part = slice(j * 2, j * 2 + 2)
            steps = row_step(before, S[row, part], inputs.V[0, 0, part, 3])
            m, alpha, l, O, *_ = (f.value for f in steps)
            before = RowBefore(m, l, O)
            if np.isfinite(S[row, part]).any():
                np.testing.assert_allclose([m, l, alpha], [x[0, 0, row, j] for x in (run.m, run.l, run.alpha)])
        assert steps[4].value == pytest.approx(truth.O[0, 0, row, 3], abs=1e-12)
        assert steps[5].value == pytest.approx(truth.LSE[0, 0, row])


def test_nothing_printed_is_nan_when_a_row_sees_no_key() -> None:
    steps = row_step(RowBefore(), [-math.inf, -math.inf], [1.0, 2.0])
    assert [f.value for f in steps] == [-math.inf, 1.0, 0.0, 0.0, 0.0, -math.inf]
    assert not any("NaN" in f.latex for f in steps)


def plain(numbers: str) -> float:
    """The value of the simple LaTeX that products and sums use, worked out by Python's own arithmetic."""
    text = numbers.replace("{,}", "").replace(r"\cdot", "*").replace(r"\,(", "*(").replace("^2", "**2")
    text = text.replace(r"\left\lceil \frac{", "-(-(").replace("}{", ")//(").replace(r"} \right\rceil", "))")
    assert not set(text) - set("0123456789+-*/(). "), text
    return float(eval(text))


def printed() -> list[Formula]:
    made: list[Formula] = []
    for causal in (None, "br"):
        problem, tiling = Problem(B=2, H=3, Nq=1234, Nk=999, d=48, causal=causal), Tiling(32, 24)
        for order in ("naive", "q-outer", "kv-outer"):
            made.append(requested(problem, tiling, order, write_lse=order == "q-outer"))
        made += [flops(problem, tiling), *tile_counts(problem, tiling)]
    return [*made, compulsory(problem), matrix_bytes(problem), smem(tiling, 48, 2), paper_tiles(98_304, 64)[0]]


@pytest.mark.parametrize("formula", printed(), ids=lambda f: f.title)
def test_the_numbers_on_screen_give_the_value_on_screen(formula: Formula) -> None:
    assert plain(formula.numbers) == formula.value
    assert formula.latex.endswith(number(formula.value) + (rf"\ \text{{{formula.unit}}}" if formula.unit else ""))
    assert formula.latex.count("{") == formula.latex.count("}")
