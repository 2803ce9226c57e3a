"""The chart below the player: running maxima of a Q tile's rows."""

from __future__ import annotations

import numpy as np

from fmha.figures.running_rows import running_rows
from fmha.player.scene import prepare
from fmha.problem import Problem, Tiling


def test_lines_are_the_runs_own_maxima() -> None:
    run = prepare(Problem(N=24, d=4, causal="bottom-right"), Tiling(8, 4), "q-outer", "random", sms=2).run
    m = run.m[0, 0, 8:16]
    fig = running_rows(m, 8, [10], 3)
    others, chosen = fig.data
    np.testing.assert_array_equal(chosen.y, m[2])
    assert chosen.name == "row 10"
    rows = np.asarray(others.customdata).reshape(7, 7)
    lines = np.asarray(others.y, float).reshape(7, 7)
    assert list(rows[:, 0]) == [8, 9, 11, 12, 13, 14, 15]
    np.testing.assert_array_equal(lines[:, :-1], np.where(np.isfinite(m), m, np.nan)[[0, 1, 3, 4, 5, 6, 7]])
    assert np.isnan(lines[:, -1]).all()  # the gap between two rows


def test_rows_that_see_nothing_and_single_rows_can_be_drawn() -> None:
    empty = running_rows(np.full((2, 3), -np.inf), 0, [0], -1)
    assert np.isnan(np.asarray(empty.data[1].y, float)).all()
    assert "NaN" not in empty.to_json()
    single = running_rows(np.zeros((1, 1)), 5, [5], 0)
    assert single.data[1].name == "row 5" and not single.data[0].showlegend
