"""Stack distances against a loop over sets, and how long a line survives."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fmha.reuse import bytes_between, mean_survival, survival


def by_hand(tiles: list[int], size: list[int]) -> list[float]:
    """The definition, access by access."""
    out = []
    for now, tile in enumerate(tiles):
        last = max((k for k in range(now) if tiles[k] == tile), default=None)
        between = set() if last is None else set(tiles[last + 1 : now])
        out.append(float("inf") if last is None else float(sum(size[t] for t in between)))
    return out


def test_hand_worked() -> None:
    tiles, size = [0, 1, 2, 0, 0, 2, 1], np.array([10, 20, 30])
    found = bytes_between(np.array(tiles), size[tiles])
    assert found.tolist() == [np.inf, np.inf, np.inf, 50, 0, 10, 40]


@pytest.mark.parametrize("count", [0, 1, 2])
def test_short(count: int) -> None:
    assert bytes_between(np.zeros(count, int), np.ones(count)).tolist() == [np.inf, 0.0][:count]


@given(st.lists(st.integers(0, 7), max_size=70), st.lists(st.integers(1, 9), min_size=8, max_size=8))
def test_equals_the_definition(tiles: list[int], size: list[int]) -> None:
    nbytes = np.array(size)[np.array(tiles, int)]
    assert bytes_between(np.array(tiles, int), nbytes).tolist() == by_hand(tiles, size)


@given(st.lists(st.integers(0, 9), min_size=1, max_size=60), st.integers(1, 12))
def test_lru_hits_are_those_of_a_cache(tiles: list[int], room: int) -> None:
    """A list that is kept in order of use, cut to `room` tiles, hits exactly where the distance says so."""
    cache: list[int] = []
    for tile, between in zip(tiles, bytes_between(np.array(tiles), np.ones(len(tiles))), strict=True):
        assert (tile in cache) == (between + 1 <= room)
        cache = ([tile] + [t for t in cache if t != tile])[:room]


def test_survival_has_the_right_limits() -> None:
    assert survival(0.0, 100.0) == 1.0
    assert survival(1e9, 100.0) == pytest.approx(0.0, abs=1e-12)
    assert survival(10.0, 0.0) == 0.0
    assert survival(np.inf, 100.0) == pytest.approx(0.0, abs=1e-12)
    assert survival(np.array([99.0, 100.0]), 100.0, None).tolist() == [1.0, 0.0]
    assert survival(50.0, 100.0, 1) == pytest.approx(np.exp(-0.5))  # direct mapped: nobody fell into this set


@given(st.floats(0, 1e6), st.floats(1, 1e6), st.floats(1, 4), st.sampled_from([1, 4, 16, None]))
def test_a_larger_cache_never_loses_more(between: float, capacity: float, factor: float, ways: int | None) -> None:
    small, large = survival(between, capacity, ways), survival(between, factor * capacity, ways)
    assert 0 <= small <= large + 1e-12 <= 1 + 2e-12


def test_mean_survival() -> None:
    assert mean_survival(1.0, 1e9) == pytest.approx(1.0)
    assert mean_survival(200.0, 100.0, None) == pytest.approx(0.5, abs=0.01)  # the later half is still there
    assert mean_survival(float("inf"), 100.0) == 0.0
    assert mean_survival(1.0, 0.0) == 0.0
