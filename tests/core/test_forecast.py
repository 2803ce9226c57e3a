"""The forecast against what an H200 measured: the recordings, and counters of settings that were read afterwards.

Errors that hold here are those that the pages state. What was counted: counted.py.
"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest

from fmha.dispatch import BLOCK_ORDERS
from fmha.errors import LimitError, ProblemError
from fmha.forecast import (
    ERRORS_OF_THE_MODEL,
    FITTED,
    LIMITS_OF_THE_MODEL,
    MODELLED,
    forecast,
    spilled_to_l2,
    time_us,
)
from fmha.hardware import GPUS, Gpu
from fmha.kernels import KERNELS, SECTOR
from fmha.l2_range import DRIFTS, l2_range, widened
from fmha.measurement import shipped
from fmha.model_record import BEYOND, EVERYTHING, RANGE_HOLDS, REPEATED, SETTINGS, Error, Repeated, since_then
from fmha.problem import Causal, Problem, Tiling
from tests.core.counted import (
    H200,
    L2,
    LOADS,
    SETS,
    STORES,
    USED,
    Case,
    cases,
    doubted,
    recorded,
    repeated,
)

# Of L2 bytes: the largest error, and how many are beyond 20 %, the bound.
L2_BOUNDS = {
    "recorded": (0.16, 0), "read afterwards": (0.20, 0), "read later": (0.20, 0), "read again": (0.20, 0),
    "read third": (0.21, 1), "read fourth": (0.20, 0), "the ladder": (0.20, 0), "random": (0.61, 3),
    "random again": (0.39, 5), "random, used for nothing": (0.98, 7),
}  # fmt: skip


def test_there_is_enough_to_compare_with() -> None:
    afterwards = SETS["read afterwards"]()
    assert len(recorded()) >= 96 and len(afterwards) == 18 and len(SETS["read later"]()) == 13
    assert {case.kernel for case in recorded()} == {"01", "02"}
    big = [c for c in (*recorded(), *afterwards) if 8 * c.problem.Nk * c.problem.d > H200.l2_bytes / 2]
    assert len(big) >= 4  # K and V of a head outgrow L2 when they take two places


@pytest.mark.parametrize("which", list(SETS))
def test_requested_bytes_are_equal(which: str) -> None:
    for case, found in cases(which):
        assert found.levels.requested == SECTOR * (case.total(LOADS) + case.total(STORES)), case[:3]


@pytest.mark.parametrize("which", list(SETS))
def test_l2_bytes(which: str) -> None:
    """Within 20 %, half of them within 10 %; but for one of those that were not drawn at random. Median: 2 to 7 %."""
    errors = np.abs([found.levels.l2 / case.l2 - 1 for case, found in cases(which)])
    largest, beyond = L2_BOUNDS[which]
    assert errors.max() <= largest and (errors > 0.20).sum() <= beyond
    assert np.median(errors) <= 0.085


@pytest.mark.parametrize("which", list(SETS))
def test_dram_bytes(which: str) -> None:
    """Within 15 %, half of them within 7 %, where the model says something. Beyond are kernel 12 with one head whose K
    and V outgrow L2, and with four that nearly do."""
    pairs = [(case, found) for case, found in cases(which) if not doubted(case, found)]
    errors = np.abs([(found.dram_read + found.dram_written) / case.dram - 1 for case, found in pairs])
    beyond = [case for (case, _), error in zip(pairs, errors, strict=True) if error > 0.155]
    assert len(beyond) <= (2 if which == "read third" else 0)
    assert all(case.kernel == "12" and 4 * case.problem.Nk * case.problem.d > H200.l2_bytes / 2 for case in beyond)
    assert errors.max() <= (0.06 if which == "recorded" else 0.45) and np.median(errors) <= 0.03


@pytest.mark.parametrize("which", list(SETS))
def test_time(which: str) -> None:
    """Within a factor of two is asked; it is within 15 %, but for kernel 01 with d=32."""
    both = [pair for pair in cases(which) if pair[0].kernel in MODELLED]
    ratios = np.array([found.time_us / case.time_us for case, found in both])
    known = [case.kernel == "01" and case.problem.d not in (64, 128) for case, _ in both]
    assert (ratios[~np.array(known)] >= 0.85).all() and ratios.min() >= 0.65 and ratios.max() <= 1.15
    for (case, found), unlike in zip(both, known, strict=True):
        assert unlike or found.longest.binds == ("shared memory" if case.kernel == "02" else "issue slots")


@pytest.mark.parametrize("said", [ERRORS_OF_THE_MODEL, EVERYTHING], ids=["recorded", "everything"])
def test_the_stated_errors_are_the_real_ones(said: tuple[Error, ...]) -> None:
    found = cases("recorded") if said is ERRORS_OF_THE_MODEL else [pair for which in USED for pair in cases(which)]
    assert said is ERRORS_OF_THE_MODEL or (len(found) == SETTINGS and f"{SETTINGS} settings in all" in since_then())
    alone = said is ERRORS_OF_THE_MODEL  # of the counters that the app ships, one reading a setting
    errors = {
        "L2 bytes": [f.levels.l2 / (SECTOR * c.total(L2) if alone else c.l2) - 1 for c, f in found],
        "DRAM bytes": [(f.dram_read + f.dram_written) / c.dram - 1 for c, f in found if not doubted(c, f)],
        "time": [f.time_us / c.time_us - 1 for c, f in found],
    }
    assert set(errors) == {stated.what for stated in said}
    assert said is ERRORS_OF_THE_MODEL or int((np.abs(errors["L2 bytes"]) > 0.20).sum()) == BEYOND
    for stated in said:
        sizes = np.abs(errors[stated.what])
        assert np.median(sizes) == pytest.approx(stated.median, abs=0.0101)
        assert sizes.max() == pytest.approx(stated.largest, abs=0.0101)


def _ranks(values: list[float]) -> np.ndarray:
    return np.argsort(np.argsort(values))


def test_ranking_of_tile_sizes() -> None:
    by_problem = defaultdict(list)
    for case, found in cases("recorded"):
        if case.kernel == "02":
            by_problem[case.problem].append((case.time_us, found.time_us))
    correlations = [
        np.corrcoef(_ranks([m for m, _ in pairs]), _ranks([p for _, p in pairs]))[0, 1]
        for pairs in by_problem.values()
        if len(pairs) >= 4
    ]
    assert len(correlations) >= 12
    assert min(correlations) >= 0.8 - 1e-9


def test_blocks_per_sm_are_those_of_the_driver() -> None:
    for recording in shipped():
        for run in recording.runs:
            for entry in run.entries:
                if entry.build is None or entry.name not in KERNELS:
                    continue
                tiling = Tiling(*(entry.tiling or (32, 32)))
                found = forecast(KERNELS[entry.name], run.problem, tiling, recording.device.gpu, most=1000)
                for use, part in zip(entry.build.functions, found.functions, strict=True):
                    assert part.held.blocks == use.blocks_per_sm, (run.problem, use)
        break  # one d is enough for this


@lru_cache(maxsize=1)
def followed() -> tuple[list[Case], dict[float, np.ndarray]]:
    """All settings but those of kernel 01, and what is predicted of L2 when blocks drift apart at other speeds."""
    pairs = [pair for which in SETS for pair in cases(which) if pair[0].kernel != "01"]
    said = {1.0: np.array([found.levels.l2 for _, found in pairs])}
    for drift in DRIFTS:
        said[drift] = np.array(
            [
                forecast(KERNELS[c.kernel], c.problem, c.tiling, c.gpu, registers=c.registers, drift=drift).levels.l2
                for c, _ in pairs
            ]
        )
    return [case for case, _ in pairs], said


def test_blocks_drift_apart_as_fast_as_was_fitted() -> None:
    """Half as fast, and twice, L2 bytes of all settings are further off."""
    everything, said = followed()
    counted = np.array([case.l2 for case in everything])
    off = {drift: float(((found / counted - 1) ** 2).mean()) for drift, found in said.items()}
    assert all(off[drift] > 1.3 * off[1.0] for drift in DRIFTS)


def test_what_threads_spill() -> None:
    """Stores of local memory, counted by the hardware, are those that the machine code has; L2 sees all of them."""
    entries = json.loads((Path(__file__).parent / "counters_h200_repeated.json").read_text())["entries"]
    spilling = [e for e in entries if e["runs"][0][3]]
    assert len(spilling) >= 25 and {e["kernel"] for e in spilling} >= {"08", "09", "10", "11", "13"}
    for e in spilling:
        kernel, p, tiles = KERNELS[e["kernel"]], Problem(**e["problem"]), Tiling(*e["tiling"])
        plan = kernel.plan(p, tiles, H200)
        counted, vector = SECTOR * e["runs"][0][3], p.B * p.H * p.Nq * p.d * p.itemsize
        # Those of less than 16 bytes a thread are not in the table, and a masked tile takes the other way.
        few = 16 * plan.launches[0].block * plan.launches[0].grid
        assert abs(spilled_to_l2(kernel, plan) - counted) <= 0.01 * counted + few, e
        asked, read = e["runs"][0][:2]
        assert SECTOR * (asked - read) == pytest.approx(vector + counted, rel=0.01, abs=few), e
    spilled = cases("the ladder")
    assert any(found.levels.spilled > 0.3 * case.l2 for case, found in spilled if case.kernel == "08")


def test_how_well_the_hardware_repeats() -> None:
    spreads = []
    for which in SETS:
        for case, _ in cases(which):
            runs = [case.total(L2), *repeated().get((case.kernel, case.problem, case.tiling), ())]
            spreads += [max(runs) / min(runs) - 1] if len(runs) > 1 else []
    entries = json.loads((Path(__file__).parent / "counters_h200_random.json").read_text())["entries"]
    spreads += [max(e["l2_runs"]) / min(e["l2_runs"]) - 1 for e in entries]
    found = Repeated(len(spreads), *np.percentile(spreads, [50, 90, 100]))
    assert found == pytest.approx(REPEATED, abs=0.003)


def test_the_range_holds_the_counters() -> None:
    everything, said = followed()
    spilled = [found.levels.spilled for which in SETS for case, found in cases(which) if case.kernel != "01"]
    inside = 0
    for n, case in enumerate(everything):
        requested = SECTOR * (case.total(LOADS) + case.total(STORES)) + spilled[n]
        found = widened([values[n] for values in said.values()], requested)
        inside += found.least <= case.l2 <= found.most
    assert (inside, len(everything)) == RANGE_HOLDS
    c = everything[0]
    whole = cases("recorded")
    pair = next(pair for pair in whole if pair[0].kernel == "02")
    one = l2_range(pair[1], KERNELS["02"], c.problem, c.tiling, c.gpu)
    assert one is not None and one.least < pair[1].levels.l2 < one.most
    naive = next(found for case, found in whole if case.kernel == "01")
    assert l2_range(naive, KERNELS["01"], c.problem, c.tiling, c.gpu) is None
    assert l2_range(pair[1], KERNELS["02"], c.problem, c.tiling, GPUS["T4"]) is None


# --- without measurements ---------------------------------------------------------------------------------------------


def test_a_larger_l2_moves_fewer_dram_bytes() -> None:
    p = Problem(N=16384, H=2, d=128)
    sizes = [10 << 20, 30 << 20, 60 << 20, 200 << 20]
    dram = [forecast(KERNELS["02"], p, Tiling(64, 16), H200, l2_bytes=size).levels.all.dram_read for size in sizes]
    assert dram == sorted(dram, reverse=True) and dram[0] >= 2 * dram[-1]
    assert dram[-1] == pytest.approx(3 * 4 * p.H * p.Nk * p.d)  # Q, K, V once


@pytest.mark.parametrize("order", BLOCK_ORDERS)
def test_block_orders(order: str) -> None:
    p = Problem(N=2048, H=16, d=64, causal="bottom-right")
    found = forecast(KERNELS["02"], p, Tiling(32, 32), H200, order=order)
    assert found.levels.requested == forecast(KERNELS["02"], p, Tiling(32, 32), H200).levels.requested
    assert 0 < found.functions[0].busy <= 1


def test_heavy_first_shortens_the_tail() -> None:
    p = Problem(N=512, H=16, d=64, causal="bottom-right")
    plain, heavy = (forecast(KERNELS["02"], p, Tiling(32, 32), H200, order=o) for o in ("head-major", "heavy-first"))
    assert heavy.functions[0].busy > plain.functions[0].busy
    assert heavy.time_us < plain.time_us


@pytest.mark.parametrize("gpu", [gpu for gpu in GPUS.values() if gpu.is_cuda], ids=lambda gpu: gpu.key)
@pytest.mark.parametrize("kernel", ["01", "02"])
def test_every_cuda_gpu(gpu: Gpu, kernel: str) -> None:
    found = forecast(KERNELS[kernel], Problem(N=1024, H=4, d=32), Tiling(16, 16), gpu)
    assert 0 < found.levels.dram <= found.levels.l2 * (1 + 1e-9) <= found.levels.requested * (1 + 2e-9)
    assert found.time_us > 0 and all(time >= 0 for part in found.functions for time in part.resources.values())


def test_more_sms_and_bandwidth_are_faster() -> None:
    p = Problem(N=4096, H=16, d=64)
    for kernel in ("01", "02"):
        half = forecast(KERNELS[kernel], p, Tiling(32, 32), replace(H200, sms=66))
        assert half.time_us > forecast(KERNELS[kernel], p, Tiling(32, 32), H200).time_us


def test_refusals() -> None:
    p, t = Problem(N=64, d=8), Tiling(8, 8)
    with pytest.raises(LimitError, match="CUDA"):
        forecast(KERNELS["02"], p, t, GPUS["MI300X"])
    with pytest.raises(ProblemError, match="heavy-first"):
        forecast(KERNELS["02"], p, t, H200, order="sideways")
    with pytest.raises(LimitError, match="threads"):
        forecast(KERNELS["02"], p, Tiling(64, 64), H200)
    with pytest.raises(LimitError, match="not modelled"):
        forecast(replace(KERNELS["02"], number="99"), p, t, H200)


def test_what_is_fitted_and_what_is_left_out_is_said() -> None:
    assert all(constant.name and constant.value and constant.source for constant in FITTED)
    text = " ".join(LIMITS_OF_THE_MODEL)
    for word in ("TLB", "partial lines", "writes back", "clock", "H200"):
        assert word in text


@pytest.mark.parametrize("causal", [None, "bottom-right"])
@pytest.mark.parametrize("N", [512, 3000, 8192])
def test_time_alone_is_the_forecasts(N: int, causal: Causal | None) -> None:
    """Also where the caches were not followed, because they could not matter."""
    p = Problem(H=4, N=N, d=64, causal=causal)
    for chosen in (KERNELS["01"], KERNELS["02"]):  # those that the model knows
        for tiles in ((8, 8), (32, 32), (128, 8)):
            alone = time_us(chosen, p, Tiling(*tiles), H200, most=3000)
            assert alone == pytest.approx(forecast(chosen, p, Tiling(*tiles), H200, most=3000).time_us, rel=1e-12)
