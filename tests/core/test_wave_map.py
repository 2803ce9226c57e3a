"""Blocks on SMs over time: hand-worked pictures, and what no picture may break."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fmha import Problem, Tiling
from fmha.dispatch import BLOCK_ORDERS, Waves
from fmha.errors import ProblemError
from fmha.lockstep import reach
from fmha.wave_map import MAX_BLOCKS, wave_map


def test_two_heads_of_three_tiles_on_four_slots() -> None:
    """Six equal blocks of 4 visits: a full wave of four, then two; half of the slots idle in the second."""
    drawn = wave_map(Problem(N=48, H=2, d=8), Tiling(16, 12), sms=4, blocks_per_sm=1, bins=4)
    assert drawn.head.tolist() == [[0, 0, 1, 1], [0, 0, 1, 1], [0, 0, -1, -1], [1, 1, -1, -1]]
    assert drawn.tile.tolist() == [[0, 0, 1, 1], [1, 1, 2, 2], [2, 2, -1, -1], [0, 0, -1, -1]]
    assert (drawn.end, drawn.starving, drawn.tail) == (8.0, 4.0, 0.5)
    assert drawn.busy == pytest.approx(6 / 8) == Waves(6, 4).busy


def test_slots_of_one_sm_are_neighbours() -> None:
    drawn = wave_map(Problem(N=64, d=8), Tiling(16, 16), sms=2, blocks_per_sm=2, bins=1)
    assert drawn.sm.tolist() == [0, 0, 1, 1]
    assert drawn.tile.ravel().tolist() == [0, 2, 1, 3]  # the first two blocks fall on different SMs


def test_many_slots_are_thinned_out() -> None:
    drawn = wave_map(Problem(N=4096, H=16, d=64), Tiling(16, 16), sms=132, blocks_per_sm=6, most_rows=60)
    assert len(drawn.sm) == len(drawn.head) == 60 and drawn.slots == 792
    assert drawn.sm[0] == 0 and drawn.sm[-1] == 131


def test_under_a_causal_mask_heavy_first_has_the_shorter_tail() -> None:
    p, t = Problem(N=2048, d=64, causal="br"), Tiling(32, 32)
    light, heavy = (wave_map(p, t, sms=24, blocks_per_sm=1, order=o) for o in ("head-major", "heavy-first"))
    assert heavy.end < light.end and heavy.busy > light.busy


def test_a_huge_grid_is_followed_in_part() -> None:
    drawn = wave_map(Problem(N=1 << 20, H=16, d=64), Tiling(8, 8), sms=132, blocks_per_sm=1)
    assert drawn.blocks == MAX_BLOCKS < drawn.total == 16 * (1 << 20) // 8


def test_an_unknown_order_is_refused() -> None:
    with pytest.raises(ProblemError, match="block order"):
        wave_map(Problem(N=64, d=8), Tiling(16, 16), sms=2, blocks_per_sm=1, order="random")


@given(
    n=st.integers(1, 300),
    heads=st.integers(1, 4),
    sms=st.integers(1, 9),
    per_sm=st.integers(1, 3),
    causal=st.sampled_from([None, "br", "tl"]),
    order=st.sampled_from(BLOCK_ORDERS),
)
def test_every_block_works_for_as_long_as_it_lasts(
    n: int, heads: int, sms: int, per_sm: int, causal: str | None, order: str
) -> None:
    p, t = Problem(N=n, H=heads, d=8, causal=causal), Tiling(16, 16)  # type: ignore[arg-type]
    drawn = wave_map(p, t, sms=sms, blocks_per_sm=per_sm, order=order, bins=16)
    work = float(reach(p, t).duration.sum()) * heads
    assert drawn.busy * drawn.slots * drawn.end == pytest.approx(work)
    assert 0 < drawn.busy <= 1 + 1e-12 and 0 <= drawn.starving <= drawn.end
    assert ((drawn.head >= 0) == (drawn.tile >= 0)).all()
    assert drawn.head.max() < heads and drawn.tile.max() < t.Tr(p)
    if not np.isclose(drawn.busy, 1) and drawn.starving < drawn.end / 2:
        assert (drawn.head[:, -1] < 0).any(), "somebody idles at the end"
