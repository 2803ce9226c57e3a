"""The roofline page: its sentences hold for the numbers shown, and a measured point stands under its own GPU only."""

from __future__ import annotations

import dataclasses
import itertools
import math
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from fmha import ladder, measurement
from fmha.bank_kernels import smem_use
from fmha.figures.roof_chart import Mark, roof_chart, spread
from fmha.forecast import forecast
from fmha.hardware import GPUS
from fmha.kernels import KERNELS
from fmha.measurement import Recording, shipped
from fmha.problem import Problem, Tiling
from fmha.roofline import LEVELS, roofs
from fmha.speeds import useful_flops
from fmha.traffic import closed_form, compulsory_bytes
from fmha.ui.roof_points import (
    best_kernel,
    found_kernels,
    libraries,
    measured_kernels,
    origins,
    other_tiles,
    predictions,
)
from tests.app.recordings import TILES

PAGE = Path(__file__).resolve().parent.parent.parent / "pages" / "lab" / "roofline.py"
ASKED, H200 = Problem(H=16, N=4096, d=64), GPUS["H200"]


def opened(**settings: str) -> AppTest:
    at = AppTest.from_file(PAGE, default_timeout=60)
    for name, text in settings.items():
        at.query_params[name] = text
    at.run()
    assert not at.exception, [e.value for e in at.exception]
    return at


def said_of(at: AppTest) -> str:
    return "\n".join(m.value for m in [*at.markdown, *at.caption])


def said(at: AppTest) -> str:
    return "\n".join(m.value for m in [*at.subheader, *at.markdown, *at.info])


@pytest.fixture
def only(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Replaces the recordings that come with the app."""

    def replace(*recordings: Recording) -> None:
        monkeypatch.setattr(measurement, "shipped", lambda: recordings)
        monkeypatch.setattr(ladder, "shipped", lambda: ())

    return replace


def test_the_headline_is_the_bound_by_hand() -> None:
    """Kernel 02 at 32 x 32: 128 bytes for each wavefront, at 128 bytes a clock and SM."""
    at = opened()
    wavefronts = smem_use(KERNELS["02"], ASKED, TILES, H200).wavefronts
    tflops = useful_flops(ASKED) / (wavefronts / (132 * 1.98e9)) / 1e12
    assert f"q-outer can do {tflops:.3g} TFLOP/s" in at.subheader[0].value
    assert f"{67 / tflops:.0f}x below its fp32 peak: shared memory binds" in at.subheader[0].value


def test_thousands_of_tflops_are_written_out() -> None:
    at = opened(gpu="B200", dtype="bf16", Br="128", Bc="128", d="128", N="65536")
    text = said(at) + said_of(at) + "".join(str(frame.value.to_csv()) for frame in at.dataframe)
    assert re.search(r"\b[1-9],\d\d0 TFLOP/s", text) and "e+0" not in text


def test_sentences_say_the_share_that_the_numbers_have() -> None:
    at = opened()
    text = said(at)
    kernels = measured_kernels(found_kernels(shipped(), ASKED, TILES))
    assert [k.found.entry.name for k in kernels if k.found] == ["01", "02"]
    for kernel in kernels:
        measured, most = kernel.bound.point.tflops, kernel.bound.tflops
        assert measured is not None and f"{measured:.3g} TFLOP/s" in text
        assert f"{100 * measured / most:.0f} % of it" in text
        assert kernel.found and kernel.found.entry.source_hash and kernel.found.entry.source_hash in text
    assert "NVIDIA H200" in text and "580.159.04" in text
    shares = [int(x) for x in re.findall(r"(\d+) % of it", text)]
    assert shares and all(0 < share <= 100 for share in shares)


def test_the_nearest_recording_says_how_it_differs() -> None:
    assert "nearest recording: asked N = 2\\,048" not in said(opened(N="2048"))
    assert "asked N = 131,072, recorded N = 16,384" in said(opened(N="131072"))


def test_another_gpu_has_no_measured_points_and_a_button_back() -> None:
    at = opened(gpu="A100-80")
    assert "only. A measured point belongs under the roofs of its own GPU" in said(at)
    assert "Measured:" not in said(at)
    at.button(key="show-H200").click()
    at.run()
    assert not at.exception and "Measured:" in said(at) and "H200" in at.query_params["gpu"]


def test_without_recordings_only_predictions(only: Callable[..., None]) -> None:
    only()
    at = opened()
    assert "only predictions are drawn" in said(at) and "Measured:" not in said(at)


def test_a_wrong_result_and_one_without_counters_are_not_drawn() -> None:
    right = shipped()[0]
    run = right.runs[0]
    assert measured_kernels(found_kernels([dataclasses.replace(right, runs=(run,))], run.problem, TILES))
    no_counters = tuple(dataclasses.replace(e, counters={}) for e in run.entries)
    no_check = tuple(dataclasses.replace(e, check=None) for e in run.entries)
    for entries in (no_counters, no_check):
        less = dataclasses.replace(right, runs=(dataclasses.replace(run, entries=entries),))
        assert not found_kernels([less], run.problem, TILES)


@pytest.mark.parametrize("key", GPUS)
@pytest.mark.parametrize("dtype", ["fp32", "fp16", "bf16"])
def test_every_gpu_and_type(key: str, dtype: str) -> None:
    at = opened(gpu=key, dtype=dtype, Br="64", Bc="64", causal="br")
    text = said(at)
    assert "nan" not in text.lower() and "inf " not in text
    assert not at.error
    if not GPUS[key].peak_tflops(dtype):
        assert any(dtype in w.value for w in at.warning), "what was not taken as asked is said"


def test_why_a_prediction_has_requested_bytes_only_is_said() -> None:
    too_many_threads = predictions(ASKED, Tiling(64, 64), H200)["q-outer"]
    complaint = KERNELS["02"].complaint(ASKED, Tiling(64, 64), H200)
    assert complaint and "SMEM" not in too_many_threads.bound.point.nbytes and too_many_threads.lacking
    assert "4,096" in too_many_threads.lacking.replace("\\", "") or "threads" in too_many_threads.lacking
    assert too_many_threads.lacking in too_many_threads.sentence()
    assert predictions(ASKED, TILES, H200)["q-outer"].lacking is None
    assert "does not run them" in str(predictions(ASKED, TILES, GPUS["MI300X"])["q-outer"].lacking)


def test_a_bound_of_requested_bytes_is_marked_as_the_two_level_model() -> None:
    shown = predictions(ASKED.replace(dtype="fp16"), TILES, H200)
    requested = closed_form(ASKED.replace(dtype="fp16"), TILES, "q-outer").requested_bytes
    assert shown["q-outer"].bound.point.nbytes == {"L2": requested, "HBM": requested}
    assert shown["q-outer"].bound.binds.level == "HBM" and "Two-level model" in shown["q-outer"].sentence()
    assert "Two-level model" not in predictions(ASKED, TILES, H200)["q-outer"].sentence()


def test_bytes_of_a_kernel_are_the_cache_model_s() -> None:
    """K and V of a head stay in L2, so device memory sees little more than the compulsory bytes; L2 sees more."""
    moved = predictions(ASKED, TILES, H200)["q-outer"].bound.point.nbytes
    assert 0.7 * compulsory_bytes(ASKED) < moved["HBM"] < 1.1 * compulsory_bytes(ASKED)
    assert moved["HBM"] < moved["L2"] < closed_form(ASKED, TILES, "q-outer").requested_bytes


def test_libraries_and_other_tiles_are_of_the_same_run() -> None:
    found = found_kernels(shipped(), ASKED, TILES)
    run = found[0].run
    peers = libraries(run, "bf16")
    times = {e.time.median_us for e in run.entries if e.dtype == "bf16" and e.time is not None}
    assert {p.median_us for p in peers} == times and len(peers) > 2
    mark = peers[0].mark()
    assert mark.intensity[""] == pytest.approx(4 * 64 * 4096**2 / (4 * 4096 * 64 * 2))
    tiles = {s.found.entry.tiling for s in other_tiles(found[1]) if s.found}
    assert tiles == {e.tiling for e in run.entries if e.name == "02"} - {(32, 32)}


def test_the_chart_shows_each_point_under_its_own_slope() -> None:
    marks = [s.mark() for s in predictions(ASKED, TILES, H200).values()]
    drawn = roofs(H200, ("fp32", "fp16", "bf16"))
    fig = roof_chart(drawn, marks, ["fp32"])
    rates = {roof.level: roof.rate for roof in drawn}
    touching = 0
    for level in LEVELS:
        trace = next(t for t in fig.data if t.name == f"at {level}")
        for x, y in zip(trace.x, trace.y, strict=True):
            assert y <= x * rates[level] / 1e3 * (1 + 1e-9)
            touching += math.isclose(y, x * rates[level] / 1e3)
        assert all(symbol.endswith("-open") for symbol in trace.marker.symbol), "predictions are hollow"
    assert touching >= 3, "a prediction that memory binds lies on that memory's slope"
    texts = [a.text for a in fig.layout.annotations]
    assert "fp16, bf16: 989 TFLOP/s" in texts and "<b>fp32: 67 TFLOP/s</b>" in texts


def test_names_from_files_are_text_in_the_chart() -> None:
    fig = roof_chart(roofs(H200), [Mark("<b onclick=x>", {"HBM": 1.0}, 1.0, True)], ["fp32"])
    assert not any("<b onclick" in (a.text or "") for a in fig.layout.annotations)


def test_labels_are_spread_no_more_than_needed() -> None:
    assert spread([0.0, 5.0], 1.0) == [0.0, 5.0]
    assert spread([1.0, 1.0], 1.0) == [0.5, 1.5]
    moved = spread([0.0, 0.1, 0.2, 3.0], 1.0)
    assert all(b - a >= 1.0 - 1e-12 for a, b in itertools.pairwise(moved)) and moved[3] == 3.0


@pytest.mark.parametrize("dtype", ["fp32", "fp16"])
def test_the_forecast_of_the_best_kernel_stands_below_its_roofs(dtype: str) -> None:
    p = ASKED.replace(dtype=dtype)
    best = best_kernel(p, Tiling(128, 64), H200)
    assert best is not None and best.foretold_us is not None and not best.measured
    said = forecast(
        KERNELS["12"], p.replace(dtype="bf16" if dtype == "fp32" else dtype), Tiling(128, 64), H200, most=8000
    )
    assert best.tflops == pytest.approx(useful_flops(p) / said.time_us / 1e6)
    assert best.tflops < best.bound.tflops and best.bound.binds.level == "SMEM"
    assert f"Forecast: **{best.tflops:.3g} TFLOP/s**" in best.sentence()
    small = best_kernel(p, Tiling(32, 32), H200)  # it has no such tiles: the best ones that are known
    assert small is not None and small.bound.point.label != "12 lag, 32 x 32"
    assert best_kernel(p, Tiling(128, 64), GPUS["T4"]) is None
    text = said_of(opened(dtype=dtype, Br="128", Bc="64"))
    assert "12 lag, 128 x 64" in text and "played no part in any fit" in text


def test_names_of_many_measured_kernels_stand_in_a_column() -> None:
    marks = [Mark(f"kernel {n}", {"L2": 10.0 + n, "HBM": 100.0 + n}, 10.0 + n / 10, True) for n in range(9)]
    notes = [a for a in roof_chart(roofs(H200), marks, ("fp32",)).layout.annotations if "kernel" in (a.text or "")]
    assert len(notes) == 9 and len({a.ax for a in notes}) == 1 and notes[0].ax > math.log10(108)
    heights = sorted(a.ay for a in notes)
    assert min(b - a for a, b in itertools.pairwise(heights)) > 0.04  # none over another
    few = roof_chart(roofs(H200), marks[:4], ("fp32",)).layout.annotations
    assert {a.axref for a in few if "kernel" in (a.text or "")} == {None}


def test_kernel_13_is_held_against_a_third_of_the_tf32_peak() -> None:
    found = found_kernels(ladder.shipped(), Problem(B=4, H=32, N=4096, d=64), Tiling(128, 64))
    shown = {f.entry.name: kernel for f, kernel in zip(found, measured_kernels(found), strict=True)}
    assert {"02", "07", "12", "13"} <= set(shown)  # every kernel that was counted
    assert shown["13"].bound.tflops == pytest.approx(494.5 / 3) and "the tf32 / 3 peak binds" in shown["13"].sentence()
    assert shown["07"].bound.binds.level == "fp32" and (shown["13"].bound.reached or 1) < 0.5


def test_the_forecasts_instruction_is_held_against_what_was_measured_of_it() -> None:
    (peak,) = [r.mma_sync_peak for r in ladder.shipped()]
    assert peak is not None
    text = said_of(opened(dtype="bf16", d="128"))
    assert f"alone it was measured to reach {100 * (peak.best('bf16') or 0) / 989:.0f} %" in text


def test_in_a_narrow_column_names_are_short_and_have_room() -> None:
    """On a phone the plot is 290 pixels wide: names of some 7 pixels a letter fit between points and edge."""
    marks = [Mark(f"0{n} a kernel, 32 x 32", {"SMEM": 0.1 * n, "HBM": 1000.0}, 2.0**n, True) for n in range(1, 7)]
    fig = roof_chart(roofs(H200, ["fp32"]), marks, ["fp32"])
    wanted = fig.layout.meta["narrow"]
    shown = [a.to_plotly_json() | wanted["annotations"].get(str(i), {}) for i, a in enumerate(fig.layout.annotations)]
    names = [a for a in shown if "kernel" in a["text"]]
    assert len(names) == 6 and all(a["text"] == f"<b>0{n} a kernel</b>" for n, a in enumerate(names, 1))
    left, right = wanted["xaxis"]["range"]
    assert (right - 3) * 290 / (right - left) > 7 * len("06 a kernel")
    (peak,) = [a for a in shown if "fp32" in a["text"]]
    assert peak["text"] == "<b>fp32: 67</b>" and peak["xref"] == "paper" and peak["xanchor"] == "left"


def test_kernels_of_which_the_same_is_to_be_said_share_a_line() -> None:
    founds = found_kernels((*shipped(), *ladder.shipped()), ASKED, TILES)
    lines = [line.replace("\\", "") for line in origins(founds)]
    assert len(lines) < len(founds)
    for found in founds:
        (line,) = [x for x in lines if f"**{found.entry.name}** (source {found.entry.source_hash})" in x]
        assert found.run.made[:10] in line and ("nearest recording" in line) == bool(found.differs)
