"""The check finds what is wrong, whatever it is, and lets right results pass."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fmha import Problem, Tiling, load, reference, simulate
from fmha.check import HeadRows, check, choose_rows, error_map, truth_of

P = Problem(B=2, H=2, N=40, d=8, causal="br")


def arrays(p: Problem, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    inputs = load("random", p, seed=seed)
    return inputs.Q.astype(np.float32), inputs.K.astype(np.float32), inputs.V.astype(np.float32)


@given(
    st.builds(
        Problem,
        B=st.integers(1, 2), H=st.integers(1, 3), Nq=st.integers(1, 70), Nk=st.integers(1, 70), d=st.integers(1, 64),
        causal=st.sampled_from([None, "br", "tl"]), dtype=st.sampled_from(["fp32", "fp16", "bf16"]),
    ),
    st.integers(1, 40), st.integers(1, 40), st.integers(0, 99),
)  # fmt: skip
def test_right_results_pass(p: Problem, Br: int, Bc: int, seed: int) -> None:
    run = simulate(p, Tiling(Br, Bc), *arrays(p, seed), precision="dtype")
    found = check(p, *arrays(p, seed), run.O, run.LSE)
    assert found.ok, found.verdict
    assert found.rows == found.rows_checked == p.B * p.H * p.Nq


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda O: O.__setitem__((1, 1, 39, 7), np.nan), "1 number of O is NaN or infinite, one of them at b=1, h=1"),
        (lambda O: O.__setitem__((0, 1), np.inf), "320 numbers of O are NaN or infinite"),
        (lambda O: O.__setitem__((1, 0, 3, 2), 9.0), "at b=1, h=0, row 3, column 2"),
        (lambda O: O.fill(0.0), "O is off by"),
        (lambda O: O.__imul__(np.float32(1 + 2e-6)), "O is off by"),
        (lambda O: O.__setitem__((0, 0), O[0, 1].copy()), "O is off by"),
    ],
)  # fmt: skip
def test_wrong_results_do_not(spoil: object, said: str) -> None:
    O = simulate(P, Tiling(8, 8), *arrays(P), precision="dtype").O.astype(np.float32)
    spoil(O)  # type: ignore[operator]
    found = check(P, *arrays(P), O)
    assert not found.ok and found.verdict.startswith("wrong: ") and said in found.verdict
    assert "\n" not in found.verdict


def test_lse_is_checked_too_and_minus_infinity_must_be_exact() -> None:
    p = Problem(Nq=4, Nk=2, d=2, causal="br")
    truth = reference(p, *arrays(p))
    assert check(p, *arrays(p), truth.O, truth.LSE).ok
    for wrong in (np.inf, np.nan, -1e30, 0.0):
        LSE = truth.LSE.copy()
        LSE[0, 0, 0] = wrong
        assert "LSE is off by" in check(p, *arrays(p), truth.O, LSE).verdict
    O = truth.O.copy()
    O[0, 0, 0, 0] = 1e-3  # a row that sees no key is exactly zero
    assert not check(p, *arrays(p), O).ok


def test_nothing_but_zeros_is_allowed_where_no_row_sees_a_key() -> None:
    p = Problem(N=3, d=2, lens_k=(0,))
    assert check(p, *arrays(p), np.zeros((1, 1, 3, 2))).ok
    assert not check(p, *arrays(p), np.full((1, 1, 3, 2), 1e-3)).ok


def test_a_number_that_is_not_finite_counts_outside_the_sample() -> None:
    p = Problem(H=4, N=64, d=4)
    O = reference(p, *arrays(p)).O
    O[0, 2, 5, 1] = np.nan
    rows = (HeadRows(0, 0, np.arange(64)),)
    assert not check(p, *arrays(p), O, rows=rows).ok


@given(st.integers(1, 5), st.integers(1, 40), st.integers(1, 3000), st.integers(1, 3000), st.integers(8, 1 << 20))
def test_the_sample_keeps_the_ends_and_the_budget(B: int, H: int, Nq: int, Nk: int, budget: int) -> None:
    p = Problem(B=B, H=H, Nq=Nq, Nk=Nk, d=1)
    chosen = choose_rows(p, budget)
    assert (chosen[0].b, chosen[0].h) == (0, 0) and (chosen[-1].b, chosen[-1].h) == (B - 1, H - 1)
    for head in chosen:
        assert head.rows[0] == 0 and head.rows[-1] == Nq - 1 and (np.diff(head.rows) > 0).all()
    scores = sum(len(head.rows) for head in chosen) * Nk
    assert scores <= max(budget, 4 * Nk)
    if B * H * Nq * Nk <= budget:
        assert scores == B * H * Nq * Nk
    assert len({(head.b, head.h) for head in chosen}) == len(chosen)


def test_the_error_map_shows_where() -> None:
    O = reference(P, *arrays(P)).O
    O[1, 0, 20, 5] += 0.25
    head = HeadRows(1, 0, np.arange(40))
    cells = error_map(P, head, *arrays(P), O, side=8)
    assert cells.shape == (8, 8) and np.unravel_index(cells.argmax(), cells.shape) == (4, 5)
    assert cells[4, 5] == pytest.approx(0.25, abs=1e-6) and (np.delete(cells.ravel(), 37) < 1e-6).all()
    O[1, 0, 0, 0] = np.nan
    assert error_map(P, head, *arrays(P), O, side=8)[0, 0] == np.inf


def test_one_truth_serves_many_results() -> None:
    """Made once, it gives the same verdicts as without, right and wrong, also where other orders of sums are tried."""
    p = Problem(B=2, H=2, N=40, d=8, dtype="bf16", causal="br")
    arrays = load("random", p, seed=3)
    Q, K, V = arrays.Q, arrays.K, arrays.V
    right = simulate(p, Tiling(8, 8), Q, K, V, precision="dtype").O
    rows = (HeadRows(0, 1, np.array([0, 7, 39])), HeadRows(1, 0, np.arange(40)))
    for chosen in (None, rows):
        known = truth_of(p, Q, K, V, chosen)
        for O in (right, right * np.float32(1.1), np.where(right > 0.5, np.float32(np.nan), right)):
            assert check(p, Q, K, V, O, truth=known) == check(p, Q, K, V, O, rows=chosen)
    assert check(p, Q, K, V, right, truth=known).rows_checked == 43


def test_rows_in_which_the_plain_computation_is_exact_may_each_be_rounded() -> None:
    """One key: O is V. A result that is off by half of its last place in every row is as good as fp32 allows, one that
    is off by two places is not; how many rows there are does not matter."""
    for N in (1, 32, 200):
        p = Problem(Nq=N, Nk=1, d=12)
        arrays = load("random", p, seed=1)
        Q, K, V = (a.astype(np.float32) for a in (arrays.Q, arrays.K, arrays.V))
        O = np.broadcast_to(V, (1, 1, N, 12)).copy()
        step = np.spacing(np.abs(O))
        assert check(p, Q, K, V, O).ok and check(p, Q, K, V, O + step).ok
        found = check(p, Q, K, V, O + 3 * step)
        assert not found.ok and "allowed" in found.verdict
