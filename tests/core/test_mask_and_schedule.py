"""Row intervals, tile kinds and visits against the definition of the masks, pair by pair."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from fmha import Problem, Tiling
from fmha.errors import LimitError, ProblemError
from fmha.mask import FULL, PARTIAL, SKIP, keep, key_tile_bounds, row_bounds, tile_kinds
from fmha.schedule import ORDERS, check_order, schedule
from tests.core.yardstick import problems, sees, tile_keys, tile_rows, tilings, visited


@settings(max_examples=100)
@given(problems())
def test_rows_see_what_the_definition_says(p: Problem) -> None:
    dense = keep(p)
    assert dense.shape == (p.B, p.Nq, p.Nk)
    for b in range(p.B):
        low, high = row_bounds(p, b)
        assert (low <= high).all()
        for row, key in np.ndindex(p.Nq, p.Nk):
            expected = sees(p, b, row, key)
            assert dense[b, row, key] == expected == (low[row] <= key < high[row])


@settings(max_examples=100)
@given(problems(), tilings())
def test_tile_kinds(p: Problem, t: Tiling) -> None:
    kinds = tile_kinds(p, t)
    assert kinds.shape == (p.B, t.Tr(p), t.Tc(p)) and kinds.dtype == np.uint8
    for b, i, j in np.ndindex(*kinds.shape):
        keys = tile_keys(p, t, b, j)
        pairs = [sees(p, b, row, key) for row in tile_rows(p, t, i) for key in keys]
        assert kinds[b, i, j] == (FULL if pairs and all(pairs) else PARTIAL if any(pairs) else SKIP)
        first, stop = (int(bound[j]) for bound in key_tile_bounds(p, t, b))
        assert list(range(first, stop)) == keys


def test_ragged_last_tile_is_full_without_a_mask() -> None:
    assert (tile_kinds(Problem(N=33), Tiling(32, 32)) == FULL).all()
    causal = tile_kinds(Problem(N=64, causal="br"), Tiling(16, 16))[0]
    assert causal[0].tolist() == [PARTIAL, SKIP, SKIP, SKIP] and causal[3].tolist() == [FULL, FULL, FULL, PARTIAL]


@settings(max_examples=100)
@given(problems(), tilings())
def test_every_visible_tile_is_visited_once(p: Problem, t: Tiling) -> None:
    seen = {(b, i, j) for b, i, j in np.ndindex(p.B, t.Tr(p), t.Tc(p)) if visited(p, t, b, i, j)}
    for order in ("q-outer", "kv-outer"):
        plan = schedule(p, t, order)
        visits = list(zip(plan.b, plan.h, plan.i, plan.j, strict=True))
        assert len(set(visits)) == len(visits) == len(plan)
        assert {(b, i, j) for b, _, i, j in visits} == seen
        assert len(visits) == len(seen) * p.H
        assert (np.diff(plan.worker) >= 0).all() and plan.workers > plan.worker.max(initial=-1)
        inner, outer = (plan.j, plan.i) if order == "q-outer" else (plan.i, plan.j)
        same_worker = np.diff(plan.worker) == 0
        turn = np.diff(outer) != 0
        assert ((np.diff(inner) > 0) | turn)[same_worker].all()
        assert (np.diff(outer) >= 0)[same_worker].all()
    assert len(schedule(p, t, "naive")) == p.B * p.H * t.Tr(p) * t.Tc(p)


def test_unknown_order() -> None:
    assert all(check_order(order) == order for order in ORDERS)
    for wrong in ("flash", "", None, "<b>x</b>" * 100):
        with pytest.raises(ProblemError, match="use q-outer, kv-outer, naive") as caught:
            check_order(wrong)  # type: ignore[arg-type]
        assert len(str(caught.value)) < 120


def test_huge_maps_are_refused() -> None:
    with pytest.raises(LimitError, match=r"4\.00 GiB"):
        keep(Problem(N=1 << 20))
    with pytest.raises(LimitError, match=r"4\.00 GiB"):
        tile_kinds(Problem(N=1 << 24), Tiling(1, 1))
