"""Tile map: the chosen cell, the best cell, presets, and tiles handed to all pages."""

from __future__ import annotations

from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from fmha import Problem, Tiling
from fmha.forecast import forecast
from fmha.hardware import GPUS
from fmha.kernels import KERNELS
from fmha.measurement import shipped
from fmha.model_facts_tiled import tiled_error
from fmha.tile_designs import DESIGNS, presets
from fmha.tilemap import sweeps, tile_map
from fmha.traffic import closed_form
from fmha.ui.settings import book_in
from fmha.units import format_bytes, format_time_us

ROOT = Path(__file__).resolve().parent.parent.parent
PAGE = ROOT / "pages" / "lab" / "tile_map.py"


def opened(**url: str) -> AppTest:
    at = AppTest.from_file(PAGE, default_timeout=60)
    for name, text in url.items():
        at.query_params[name] = text
    at.run()
    assert not at.exception, [e.value for e in at.exception]
    return at


def metrics(at: AppTest) -> dict[str, str]:
    return {m.label: m.value for m in at.metric}


def test_the_chosen_cell_in_numbers() -> None:
    p = Problem(N=4096, H=16, d=64)
    shown = metrics(opened())
    said = forecast(KERNELS["02"], p, Tiling(32, 32), GPUS["H200"])
    assert shown["Requested"] == format_bytes(closed_form(p, Tiling(32, 32), "q-outer").requested_bytes)
    assert shown["Asked of L2, predicted"] == format_bytes(said.levels.l2)
    assert shown["Time, predicted"] == format_time_us(said.time_us)
    assert "TFLOP/s" in shown["Recorded"]


def test_a_cell_that_cannot_be_says_why() -> None:
    at = opened(mBr="64", mBc="64")
    assert not at.metric
    assert "threads" in at.warning[0].value and "4,096" in at.warning[0].value


@pytest.mark.parametrize("design", list(DESIGNS))
@pytest.mark.parametrize("colour", ["requested", "l2", "time", "occupancy", "recorded"])
def test_every_design_and_colour(design: str, colour: str) -> None:
    at = opened(design=design, colour=colour, N="512")
    p = Problem(N=512, H=16, d=64, dtype=DESIGNS[design].dtypes[0])
    assert at.subheader[0].value.split()[2] == str(4 * 8 if design in ("12", "13") else 7 * 7)
    if design == "02" and colour == "recorded":
        best = tile_map("02", p, GPUS["H200"], recordings=shipped()).best("recorded")
        assert best is not None
        assert any(f"Br = {best.tiling.Br}, Bc = {best.tiling.Bc}" in m.value for m in at.markdown)
    if colour == "recorded":
        assert (len(at.info) == 1) == (design != "02")
        if design in ("12", "13"):
            assert f"Kernel {design} was recorded on NVIDIA H200" in at.info[0].value
            near = opened(design=design, colour=colour, N="4096", B="2").info[0].value
            assert "with this N, d and mask:" in near and "B = 4, H = 32" in near
    if design in ("fa2", "fa3") and colour == "l2":
        assert len(at.info) == 1
    if design in KERNELS and colour == "time":
        shown = metrics(at)
        Br, Bc = (int(part.split(" = ")[1]) for part in at.header[0].value.split(", "))
        assert shown["Time, predicted"] == format_time_us(
            forecast(KERNELS[design], p, Tiling(Br, Bc), GPUS["H200"]).time_us
        )
        text = " ".join(m.value for m in at.markdown)
        assert (
            "They hardly overlap" in text and tiled_error(design) in text if design != "02" else "takes longest" in text
        )


@pytest.mark.parametrize("gpu", ["H200", "A100-80", "RTX4090"])
@pytest.mark.parametrize("d", [64, 128, 256])
def test_presets_are_one_click_away(gpu: str, d: int) -> None:
    at = opened(gpu=gpu, d=str(d))
    for preset in presets(d, False, GPUS[gpu]):
        at.button(key=f"preset-{preset.design}").click().run()
        assert not at.exception
        assert f"Br = {preset.Br}, Bc = {preset.Bc}" in [h.value for h in at.header]
        assert at.metric, "the authors' own tiles can be in their own design"
        assert not at.warning


def test_use_these_tiles_everywhere() -> None:
    at = opened(mBr="64", mBc="16")
    at.button(key="everywhere").click().run()
    assert not at.exception
    book = book_in(at.session_state)
    assert (book.wishes["Br"], book.wishes["Bc"]) == (64, 16)
    assert any("All pages use Br = 64, Bc = 16" in m.value for m in at.markdown)
    assert {"Br", "Bc"} <= set(at.query_params)


def test_the_tiles_of_the_other_pages_are_the_first_choice() -> None:
    assert "Br = 16, Bc = 64" in [h.value for h in opened(Br="16", Bc="64").header]


@pytest.mark.parametrize("place", [None, {"x": 1, "y": 2}, {"x": 99, "y": 0}, {"x": "a"}, "junk"])
def test_a_clicked_cell_is_chosen_and_junk_is_not(place: object, monkeypatch: pytest.MonkeyPatch) -> None:
    from types import SimpleNamespace

    import streamlit as st

    from fmha.ui import charts

    monkeypatch.setattr(st, "session_state", {"tiles": SimpleNamespace(pick=place)})
    assert charts.pick("tiles") == ({1: (1, 2), 99: (99, 0)}.get(place["x"]) if isinstance(place, dict) else None)


def test_a_gpu_that_runs_none_of_it() -> None:
    at = opened(gpu="MI300X")
    assert at.subheader[0].value.startswith("None of 36")
    assert any("No tile size can be" in i.value for i in at.info)


def test_tiles_of_kernel_12_as_recorded() -> None:
    """With 16 tile sizes in one recording, whichever way its heads are cut into batch entries."""
    at = opened(design="12", colour="recorded", B="4", H="32")
    best = tile_map(
        "12", Problem(B=4, H=32, N=4096, d=64, dtype="bf16"), GPUS["H200"], (64, 128), (64, 96), recordings=sweeps()
    )
    cell = best.at(128, 96)
    assert cell.tflops is not None and cell.tflops > 300
    assert not at.info and "Fastest recorded: Br = 128, Bc = 96" in " ".join(m.value for m in at.markdown)
    assert metrics(at)["Recorded"].endswith("TFLOP/s")
