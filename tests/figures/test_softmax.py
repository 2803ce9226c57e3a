"""The lesson's algorithms: right answers, counted accesses, real overflow, and the misprints."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fmha import Problem
from fmha.reference import weights
from fmha.softmax import ALGORITHMS, HALF, SINGLE, dot_products, naive, online, recurrences, safe, softmax_in

rows = st.lists(st.floats(-30, 30), min_size=1, max_size=40)


@given(rows)
def test_all_three_are_softmax(row: list[float]) -> None:
    truth = weights(Problem(Nq=1, Nk=len(row), d=1, scale=1.0), [[[[1.0]]]], [[[[x] for x in row]]])[0, 0, 0]
    for algorithm in ALGORITHMS:
        assert np.allclose(algorithm(row).weights, truth, rtol=1e-12, atol=1e-15)


@given(rows)
def test_accesses_per_element(row: list[float]) -> None:
    assert [algorithm(row).per_element for algorithm in ALGORITHMS] == [3, 4, 3]


def test_only_naive_overflows() -> None:
    row = [1000.0, 999.0]
    assert np.isnan(naive(row).weights).any()
    for algorithm in (safe, online):
        assert np.allclose(algorithm(row).weights, [0.7310585786, 0.2689414214])


def test_masked_keys_weigh_nothing() -> None:
    assert online([-np.inf, 0.0, -np.inf]).weights.tolist() == [0, 1, 0]


@pytest.mark.parametrize(("dtype", "top"), [(HALF, 11.5), (SINGLE, 89.0)])
def test_softmax_in_a_type(dtype: type, top: float) -> None:
    row = [top, top - 1]
    assert np.isnan(softmax_in(row, dtype, subtract_max=False)).any()
    assert np.allclose(softmax_in(row, dtype, subtract_max=True), [0.7311, 0.2689], atol=1e-3)


def test_fp16_dot_product_overflows_before_the_scale() -> None:
    raw, first, wide = dot_products(40, 64, 4)
    assert np.isinf(raw.largest) and np.isnan(raw.weights).all()
    assert (first.score, wide.largest, wide.score) == (12800, 102400, 12800)
    assert first.weights.tolist() == wide.weights.tolist() == [0.25] * 4
    raw, first, wide = dot_products(256, 128, 4)
    assert np.isinf(raw.score) and np.isinf(first.score)
    assert wide.score == pytest.approx(741455, abs=1) and wide.weights.tolist() == [0.25] * 4


def test_the_right_rule_and_the_misprints() -> None:
    right, inverse, recap = recurrences([0.0, 2.0], [1.0, 3.0])
    assert right.output == pytest.approx((1 + 3 * np.e**2) / (1 + np.e**2), rel=1e-14)
    assert right.output == pytest.approx(2.761594, abs=5e-7)
    assert inverse.output == pytest.approx(9.150650, abs=5e-7)
    assert recap.output == pytest.approx(3.777727, abs=5e-7)
