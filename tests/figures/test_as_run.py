"""Figures of a recorded run: shares add up to all, workers' times are those that were given."""

from __future__ import annotations

import numpy as np

from fmha.figures.as_run import shares_beside, worker_times


def test_shares_of_both_timelines_add_up() -> None:
    shares = {
        "as run": {"load_K": 0.1, "load_V": 0.1, "S": 0.5, "m": 0.05, "P": 0.05, "O": 0.15, "normalize": 0.05},
        "predicted": {"load_K": 0.3, "load_V": 0.3, "S": 0.2, "m": 0.0, "P": 0.0, "O": 0.2, "normalize": 0.0},
    }
    fig = shares_beside(shares)
    assert [list(bar.y) for bar in fig.data] == [["as run", "predicted"]] * len(fig.data)
    for n in range(2):
        assert np.isclose(sum(bar.x[n] for bar in fig.data), 100.0)
    scores = next(bar for bar in fig.data if "scores" in bar.name)
    assert list(scores.x) == [50.0, 20.0] and "50 %" in scores.text[0]
    assert len({bar.name for bar in fig.data}) == len(fig.data)
    names = [bar.name for bar in fig.data]
    assert names.index("load K") < names.index("scores S") < names.index("O")


def test_times_of_workers_are_drawn_from_where_they_differ() -> None:
    fig = worker_times([("as run", np.array([103.0, 100.0, 101.0])), ("predicted", np.array([102.0] * 3))])
    measured, model = fig.data
    assert list(measured.x) == [100.0, 100.0, 101.0, 103.0] and measured.y[-1] == 100.0 and measured.y[0] == 0.0
    assert set(model.x) == {102.0}
    low, high = fig.layout.xaxis.range
    assert 90 < low < 100 and 103 < high < 110
    assert worker_times([("as run", np.array([10.0, 100.0]))]).layout.xaxis.range[0] == 0.0
