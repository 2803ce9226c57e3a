"""Blocks dealt out to slots, by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fmha.dispatch import BLOCK_ORDERS, MEANING, Waves, blocks_in_order, deal
from fmha.errors import ProblemError


def test_equal_blocks_come_in_waves() -> None:
    start, slot = deal(np.full(5, 2.0), 2, at=1.0)
    assert start.tolist() == [1, 1, 3, 3, 5]
    assert slot.tolist() == [0, 1, 0, 1, 0]


def test_the_next_block_goes_where_room_is_first() -> None:
    start, slot = deal(np.array([3.0, 1.0, 1.0, 5.0, 1.0]), 2)
    assert start.tolist() == [0, 0, 1, 2, 3]
    assert slot.tolist() == [0, 1, 1, 1, 0]


@given(st.lists(st.integers(1, 9), min_size=1, max_size=40), st.integers(1, 6))
def test_slots_never_overlap_and_never_wait(durations: list[int], slots: int) -> None:
    start, slot = deal(np.array(durations, float), slots)
    assert (np.diff(start) >= 0).all()  # in block order
    for place in range(slots):
        mine = np.flatnonzero(slot == place)
        ends = start[mine] + np.array(durations)[mine]
        assert (start[mine][1:] == ends[:-1]).all() and (start[mine][:1] == 0).all()


def test_block_orders() -> None:
    assert blocks_in_order("head-major", 2, 3).tolist() == [0, 1, 2, 3, 4, 5]
    assert blocks_in_order("reversed K/V", 2, 3).tolist() == [0, 1, 2, 3, 4, 5]
    assert blocks_in_order("tile-major", 2, 3).tolist() == [0, 3, 1, 4, 2, 5]
    assert blocks_in_order("heavy-first", 2, 3).tolist() == [2, 1, 0, 5, 4, 3]
    assert blocks_in_order("heavy-first", 2, 3, 4).tolist() == [2, 1, 0, 5]
    assert set(MEANING) == set(BLOCK_ORDERS)
    with pytest.raises(ProblemError, match="tile-major"):
        blocks_in_order("sideways", 1, 1)


@pytest.mark.parametrize("order", BLOCK_ORDERS)
def test_every_worker_comes_once(order: str) -> None:
    assert sorted(blocks_in_order(order, 5, 7)) == list(range(35))


def test_waves() -> None:
    waves = Waves(blocks=256, slots=132)
    assert (waves.waves, waves.last) == (2, 124)
    assert waves.busy == pytest.approx(256 / 264)
    assert Waves(132, 132).busy == 1 and Waves(0, 132).busy == 0
