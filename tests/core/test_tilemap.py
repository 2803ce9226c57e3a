"""The tile map: its cells are what the parts say, one by one."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fmha import Problem, Tiling
from fmha.dispatch import Waves
from fmha.errors import ProblemError
from fmha.forecast import forecast
from fmha.hardware import GPUS
from fmha.kernels import KERNELS
from fmha.measurement import shipped
from fmha.occupancy import occupancy
from fmha.speeds import tflops
from fmha.tile_designs import DESIGNS, presets
from fmha.tilemap import BASE_SIZES, Predicted, TileMap, asked_of_l2, least_time_us, tile_map
from fmha.traffic import closed_form

H200 = GPUS["H200"]
RECORDED = Problem(N=4096, H=16, d=64)


def cells(drawn: TileMap) -> list[tuple[int, int]]:
    """Tiles that can be."""
    return [(c.tiling.Br, c.tiling.Bc) for row in drawn.cells for c in row if c.runs]


def test_kernel_02_at_d_64_by_hand() -> None:
    """Without a shared-memory limit in reach, 1,024 threads are the limit: Br x Bc <= 1,024."""
    drawn = tile_map("02", RECORDED, H200)
    assert cells(drawn) == [(a, b) for a in BASE_SIZES for b in BASE_SIZES if a * b <= 1024]
    assert drawn.refused() == {"threads": 21}
    cell = drawn.at(32, 32)
    assert cell.requested_bytes == closed_form(RECORDED, Tiling(32, 32), "q-outer").requested_bytes
    assert cell.held is not None and (cell.held.blocks, cell.held.limited_by) == (1, "registers")
    assert cell.waves == Waves(2048, 132) and cell.l2_bytes is None and cell.time_us is None
    best = drawn.best("requested")
    assert best is not None and (best.tiling.Br, best.tiling.Bc) == (128, 8)


def test_recorded_speeds_are_those_of_the_recording() -> None:
    drawn = tile_map("02", RECORDED, H200, recordings=shipped())
    run = next(run for recording in shipped() for run in recording.runs if run.problem == RECORDED)
    there = {e.tiling: tflops(RECORDED, e.time.median_us) for e in run.entries if e.name == "02" and e.time}
    assert len(there) >= 4
    shown = {(c.tiling.Br, c.tiling.Bc): c.tflops for row in drawn.cells for c in row if c.tflops is not None}
    assert shown == there
    best = drawn.best("recorded")
    assert best is not None and best.tflops == max(there.values())


@pytest.mark.parametrize("change", [{"N": 4000}, {"H": 8}, {"causal": "tl"}, {"d": 32}])
def test_nothing_recorded_for_another_problem_or_gpu(change: dict[str, Any]) -> None:
    fields: dict[str, Any] = {"N": 4096, "H": 16, "d": 64, **change}
    assert tile_map("02", Problem(**fields), H200, recordings=shipped()).best("recorded") is None
    assert tile_map("02", RECORDED, GPUS["H100"], recordings=shipped()).best("recorded") is None


def test_the_model_is_asked_only_for_tiles_that_can_be() -> None:
    asked = []

    def model(tiling: Tiling) -> Predicted:
        asked.append((tiling.Br, tiling.Bc))
        return Predicted(1e9 / tiling.Br, float(tiling.Bc))

    drawn = tile_map("02", RECORDED, H200, model=model)
    assert asked == cells(drawn)
    least_l2, fastest = drawn.best("l2"), drawn.best("time")
    assert least_l2 is not None and least_l2.tiling.Br == 128
    assert fastest is not None and fastest.tiling.Bc == 8


@pytest.mark.parametrize("key", [key for key, gpu in GPUS.items() if gpu.is_cuda])
@pytest.mark.parametrize("d", [16, 64, 128, 256])
def test_flash_attentions_own_tiles_are_on_the_map(key: str, d: int) -> None:
    gpu = GPUS[key]
    found = presets(d, False, gpu)
    assert bool(found) == (float(gpu.compute) >= 8.0)  # older ones have no asynchronous copies
    for preset in found:
        problem = Problem(N=4096, H=16, d=d, dtype="fp16")
        drawn = tile_map(preset.design, problem, gpu, (preset.Br,), (preset.Bc,))
        assert not drawn.at(preset.Br, preset.Bc).need.why_not


@settings(max_examples=40)
@given(
    design=st.sampled_from(list(DESIGNS)),
    key=st.sampled_from(list(GPUS)),
    n=st.integers(1, 3000),
    d=st.sampled_from([16, 33, 64, 128, 256]),
    causal=st.sampled_from([None, "br", "tl"]),
)
def test_every_cell_is_possible_or_says_why(design: str, key: str, n: int, d: int, causal: str | None) -> None:
    p = Problem(N=n, H=3, d=d, dtype=DESIGNS[design].dtypes[0], causal=causal)  # type: ignore[arg-type]
    drawn = tile_map(design, p, GPUS[key], (8, 64, 192, 256), (8, 80, 176, 256))
    for cell in (cell for row in drawn.cells for cell in row):
        if cell.runs:
            assert cell.held is not None and cell.held.blocks >= 1 and cell.waves is not None
            assert cell.held == occupancy(
                GPUS[key], threads=cell.need.threads, smem_bytes=cell.need.smem_bytes,
                registers=cell.need.allocated or cell.need.registers,
            )  # fmt: skip
            assert cell.value("requested") == closed_form(p, cell.tiling, "q-outer").requested_bytes
        else:
            assert cell.need.sentence and cell.held is None
            assert all(cell.value(metric) is None for metric in ("requested", "l2", "time", "occupancy", "recorded"))
    assert sum(drawn.refused().values()) + len(cells(drawn)) == 16


def test_least_time_by_hand() -> None:
    """132 blocks on 132 SMs: the arithmetic peak; one block more: twice that."""
    p = Problem(N=128, H=132, d=128, dtype="fp16")
    flops = 4 * 132 * 128 * 128 * 128
    gpu = dataclasses.replace(H200, hbm_gbps=1e9, l2_bytes_per_clock=None)
    even = least_time_us(p, Tiling(128, 128), gpu, closed_form(p, Tiling(128, 128), "q-outer"))
    assert even == pytest.approx(flops / 989e6)
    more = p.replace(H=133)
    uneven = least_time_us(more, Tiling(128, 128), gpu, closed_form(more, Tiling(128, 128), "q-outer"))
    assert uneven == pytest.approx(2 * even)
    slow = dataclasses.replace(gpu, hbm_gbps=1.0)
    assert least_time_us(p, Tiling(128, 128), slow, closed_form(p, Tiling(128, 128), "q-outer")) == pytest.approx(
        4 * 132 * 128 * 128 * 2 / 1e3
    )


def test_refusals_in_one_sentence() -> None:
    with pytest.raises(ProblemError, match="not known"):
        tile_map("fa9", RECORDED, H200)
    with pytest.raises(ProblemError, match="fp16 or bf16, not in fp32"):
        tile_map("fa2", RECORDED, H200)
    with pytest.raises(ProblemError, match="not on this map"):
        tile_map("02", RECORDED, H200).at(7, 8)


def test_predicted_times_rank_recorded_tiles_as_they_were() -> None:
    """The order of the recorded tiles by predicted time, against that by recorded speed, over all recorded problems."""
    agree = total = 0
    for run in (run for recording in shipped() for run in recording.runs if run.problem.Nq <= 4096):
        there = [e for e in run.entries if e.name == "02" and e.time and e.tiling]
        said = [
            forecast(KERNELS["02"], run.problem, Tiling(*e.tiling), H200, most=3000).time_us for e in there if e.tiling
        ]
        took = [e.time.median_us for e in there if e.time]
        for i in range(len(took)):
            for k in range(i):
                if abs(math.log(took[i] / took[k])) > 0.1:
                    total += 1
                    agree += (took[i] < took[k]) == (said[i] < said[k])
    assert total > 40 and agree / total > 0.85


@pytest.mark.parametrize("gpu", ["H200", "T4", "RTX4090"])
@pytest.mark.parametrize("causal", [None, "br"])
def test_l2_bytes_of_a_cell_are_those_of_the_forecast(gpu: str, causal: Any) -> None:
    p = Problem(N=1500, H=4, d=64, causal=causal)
    for Br, Bc in cells(tile_map("02", p, GPUS[gpu])):
        said = forecast(KERNELS["02"], p, Tiling(Br, Bc), GPUS[gpu], most=2000).levels.l2
        assert asked_of_l2(p, Tiling(Br, Bc), GPUS[gpu], 2000) == said
