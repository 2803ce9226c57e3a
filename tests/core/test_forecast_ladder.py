"""The forecast of kernels 03 to 13 on what was recorded after it was fixed: the ladder, and a sweep over tile sizes."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest

from fmha import ladder
from fmha.forecast import forecast, time_us
from fmha.hardware import GPUS
from fmha.kernels import KERNELS
from fmha.measurement import Entry, Recording
from fmha.model_errors import measured, spearman
from fmha.model_facts_tiled import (
    LATER,
    LATER_DRAM,
    LATER_L2,
    SWEEP,
    SWEEP_RANKING,
    later_sentence,
    sweep_sentence,
)
from fmha.problem import Problem, Tiling
from fmha.tilemap import sweeps
from fmha.visit_costs import COSTED

H200 = GPUS["H200"]


def spans(recordings: Iterable[Recording], wanted: Iterable[str]) -> list[tuple[Entry, Problem, float]]:
    """Recorded runs of some kernels: the entry, its problem, and the error of the predicted time."""
    return [
        (e, p, time_us(KERNELS[e.name], p, Tiling(*e.tiling), recording.device.gpu) / e.time.median_us - 1)
        for recording in recordings for run in recording.runs for e in run.entries
        if e.name in wanted and e.time and e.tiling
        for p in [run.problem.replace(dtype=e.dtype)]
    ]  # fmt: skip


def test_the_page_says_how_later_recordings_were_met() -> None:
    """All of the ladder; none of it was used for a number. A change of the model must not change what is told of it."""
    found = spans(ladder.shipped(), COSTED)
    errors = np.abs([error for *_, error in found])
    assert (len(errors), int((errors <= LATER.bound).sum())) == (LATER.of, LATER.within)
    assert np.median(errors) == pytest.approx(LATER.median, abs=0.005)
    assert errors.max() == pytest.approx(LATER.largest, abs=0.005) and f"{LATER.within} (median" in later_sentence()


def test_bytes_of_the_ladder() -> None:
    worst: dict[str, float] = {}
    dram = []
    for entry, problem, _ in spans(ladder.shipped(), COSTED):
        if entry.counters and entry.tiling:
            said = forecast(KERNELS[entry.name], problem, Tiling(*entry.tiling), H200)
            group = next(name for name in LATER_L2 if name[:2] <= entry.name <= name[-2:])
            counted = measured(entry)
            worst[group] = max(worst.get(group, 0.0), abs(said.levels.l2 / counted["l2"] - 1))
            dram.append(abs((said.dram_read + said.dram_written) / counted["dram"] - 1))
    assert len(dram) == 22 and max(dram) == pytest.approx(LATER_DRAM, abs=0.005)
    assert worst == pytest.approx(LATER_L2, abs=0.006)


def test_the_ranking_of_tiles_that_were_recorded_later() -> None:
    found = spans(sweeps(), ("12",))
    errors = np.abs([error for *_, error in found])
    took = [entry.time.median_us for entry, *_ in found if entry.time]
    said = [time * (1 + error) for time, (*_, error) in zip(took, found, strict=True)]
    assert (len(errors), int((errors <= SWEEP.bound).sum())) == (SWEEP.of, SWEEP.within)
    assert np.median(errors) == pytest.approx(SWEEP.median, abs=0.005)
    assert errors.max() == pytest.approx(SWEEP.largest, abs=0.005)
    assert spearman(said, took) == pytest.approx(SWEEP_RANKING, abs=0.005) and SWEEP_RANKING >= 0.8
    assert int(np.argmin(said)) == int(np.argmin(took)) and "fastest were" in sweep_sentence()
