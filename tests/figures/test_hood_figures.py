"""Figures of the pages Under the hood of HBM and Tile map: their traces are the numbers they were given."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import plotly.graph_objects as go
import pytest

from fmha import Problem, Tiling
from fmha.figures.answered import ANSWERS, answered
from fmha.figures.l2_sizes import l2_sizes
from fmha.figures.tile_cells import BEST, NAMES, SHORT, tile_cells
from fmha.figures.wave_picture import wave_picture
from fmha.forecast import forecast
from fmha.hardware import GPUS, MIB
from fmha.kernels import KERNELS
from fmha.tile_designs import presets
from fmha.tilemap import Predicted, tile_map
from fmha.wave_map import wave_map

H200 = GPUS["H200"]
P = Problem(N=1024, H=4, d=64)


def check(fig: go.Figure) -> None:
    """JSON that a browser can read, with named axes and a height."""

    def refuse(word: str) -> None:
        raise AssertionError(f"{word} in a figure's JSON")

    json.loads(fig.to_json(), parse_constant=refuse)
    assert fig.layout.height and fig.layout.xaxis.title.text


@pytest.mark.parametrize("number", ["01", "02"])
def test_who_answers_adds_up_to_all_loads(number: str) -> None:
    for one in forecast(KERNELS[number], P, Tiling(32, 32), H200).functions:
        fig = answered(one.levels)
        check(fig)
        assert [trace.name for trace in fig.data] == [name for name, *_ in ANSWERS]
        assert np.allclose(sum(np.array(trace.x) for trace in fig.data), 100)
        for trace in fig.data:
            assert trace.textfont.size >= 14


def test_dram_by_size_of_l2() -> None:
    sizes, dram = [0, 4 * MIB, 60 * MIB], [4e9, 1e9, 2e8]
    fig = l2_sizes(sizes, dram, 1.5e8, 60 * MIB, 4 * MIB)
    check(fig)
    bars = fig.data[0]
    assert np.allclose(np.array(bars.y) * 4e9, dram)
    assert list(fig.layout.xaxis.ticktext) == ["0 MiB", "4 MiB<br>(chosen)", "60 MiB<br>(as built)"]
    assert fig.data[1].y[0] * 4e9 == pytest.approx(1.5e8)
    check(l2_sizes([0], [0.0], 0.0, 0, 0))


@pytest.mark.parametrize("causal", [None, "br"])
def test_waves_are_drawn_as_they_are_dealt(causal: Any) -> None:
    drawn = wave_map(P.replace(causal=causal), Tiling(32, 32), sms=24, blocks_per_sm=1, bins=40)
    fig = wave_picture(drawn)
    check(fig)
    z = np.asarray(fig.data[0].z)
    assert z.shape == drawn.head.shape
    assert ((z == 0) == (drawn.head < 0)).all()
    there = drawn.head >= 0
    assert (z[there] == 2 * (drawn.head[there] % 2) + drawn.tile[there] % 2 + 1).all()


def test_the_tile_map_shows_values_reasons_presets_and_the_best() -> None:
    found = presets(64, False, H200)
    drawn = tile_map(
        "02", P, H200, (16, 32, 128, 192), (16, 32, 128, 192), model=lambda t: Predicted(1e9 / t.Br, 100.0 * t.Bc)
    )  # fmt: skip
    for metric in NAMES:
        fig = tile_cells(drawn, metric, (32, 32), found)
        check(fig)
        texts = np.array(fig.data[-1].text).reshape(4, 4)
        for i, row in enumerate(drawn.cells):
            for j, cell in enumerate(row):
                if not cell.runs:
                    assert SHORT[cell.need.why_not] in texts[i, j]
        best = drawn.best(metric)
        assert sum(BEST in text for text in texts.ravel()) == (best is not None)
        assert "FA-2" in texts[2, 2] and "FA-3" in texts[3, 3]
