"""Under the hood of HBM: what the page says is what the model and the recordings say, for every setting."""

from __future__ import annotations

from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from fmha import Problem, Tiling
from fmha.bank_kernels import smem_use
from fmha.dispatch import BLOCK_ORDERS
from fmha.forecast import forecast
from fmha.hardware import GPUS
from fmha.kernels import KERNELS
from fmha.l2_range import l2_range
from fmha.measurement import shipped
from fmha.model_errors import errors, measured
from fmha.model_facts_tiled import tiled_error
from fmha.ui.hood_words import off
from fmha.units import format_bytes, format_count, format_time_us

PAGE = Path(__file__).resolve().parent.parent.parent / "pages" / "lab" / "under_the_hood.py"
RECORDED = Problem(N=4096, H=16, d=64)


def opened(**url: str) -> AppTest:
    at = AppTest.from_file(PAGE, default_timeout=60)
    for name, text in url.items():
        at.query_params[name] = text
    at.run()
    assert not at.exception, [e.value for e in at.exception]
    return at


def said(at: AppTest) -> str:
    return "\n".join(m.value for m in [*at.subheader, *at.markdown, *at.caption])


def test_default_settings_are_recorded_ones_with_the_models_error_beside() -> None:
    at = opened()
    run = next(run for r in shipped() for run in r.runs if run.problem == RECORDED)
    entry = run.entry("02", Tiling(32, 32))
    assert entry is not None
    model = forecast(KERNELS["02"], RECORDED, Tiling(32, 32), GPUS["H200"])
    wavefronts = smem_use(KERNELS["02"], RECORDED, Tiling(32, 32)).wavefronts
    text = said(at)
    assert off(errors(model, wavefronts, measured(entry))) in text
    for nbytes in (model.levels.requested, model.levels.l2, model.levels.dram):
        assert format_bytes(nbytes) in at.subheader[0].value
    assert "NVIDIA H200" in text and "equal to the byte" in text
    expected = l2_range(model, KERNELS["02"], RECORDED, Tiling(32, 32), GPUS["H200"])
    assert expected is not None and f"{format_bytes(expected.least)} to {format_bytes(expected.most)}" in text
    for without in ({"kernel": "01"}, {"gpu": "T4"}):  # not followed; no SMs whose requests merge
        assert "L2 may be asked for" not in said(opened(**without))


@pytest.mark.parametrize(
    "url", [{"N": "128"}, {"l2": "4"}, {"blocks": "tile-major"}, {"gpu": "A100-80"}, {"Br": "8", "Bc": "8"}]
)
def test_nothing_measured_is_shown_where_nothing_matches(url: dict[str, str]) -> None:
    text = said(opened(**url))
    assert "Here the model is off" not in text
    assert "Nothing was measured" in text or "No GPU is built like this" in text


@pytest.mark.parametrize("kernel", ["01", "02"])
@pytest.mark.parametrize("gpu", ["T4", "H200", "B200"])
@pytest.mark.parametrize("causal", ["none", "br"])
def test_every_kernel_and_gpu_has_its_forecast(kernel: str, gpu: str, causal: str) -> None:
    at = opened(kernel=kernel, gpu=gpu, causal=causal, N="2048", Br="16", Bc="16", d="64")
    problem = Problem(N=2048, H=16, d=64, causal=None if causal == "none" else "br")  # type: ignore[arg-type]
    model = forecast(KERNELS[kernel], problem, Tiling(16, 16), GPUS[gpu])
    heading = at.subheader[0].value
    assert format_bytes(model.levels.l2 - model.levels.spilled) in heading
    assert ("of spilled registers" in heading) == (kernel == "13") == bool(model.levels.spilled)
    assert not at.error


def test_a_link_may_name_the_kernel_in_the_ways_of_the_command_line() -> None:
    at = opened(kernel="Lag", N="512", H="1")
    assert not at.warning and "12" in [box.value for box in at.selectbox]


def test_without_l2_dram_serves_what_l2_served() -> None:
    none = forecast(KERNELS["02"], RECORDED, Tiling(32, 32), GPUS["H200"], l2_bytes=0).levels
    assert format_bytes(none.dram) in opened(l2="0").subheader[0].value
    assert none.dram > 5 * forecast(KERNELS["02"], RECORDED, Tiling(32, 32), GPUS["H200"]).levels.dram


def test_padding_cures_the_worst_access() -> None:
    plain, padded = (smem_use(KERNELS["02"], RECORDED, Tiling(32, 32), pad=pad) for pad in (0, 1))
    worst = plain.worst()
    assert worst is not None and worst.ways == 32
    at = opened()
    assert "32 wavefronts" in said(at) and format_count(padded.wavefronts) in said(at)
    at.select_slider(key="pad").set_value(at.select_slider(key="pad").options[1]).run()
    assert not at.exception
    text = said(at)
    assert "1 wavefront** for this access" in text and format_count(plain.wavefronts) in text


def test_a_stride_of_ones_own() -> None:
    at = opened(site02="stride", stride="2")
    assert "2 wavefronts" in said(at)
    at.slider(key="stride").set_value(33).run()
    assert "1 wavefront** for this access" in said(at)


def test_all_block_orders_side_by_side() -> None:
    at = opened(orders="1", causal="br", N="1024")
    table = next(d.value for d in at.dataframe if "places that work" in d.value.columns)
    assert list(table["order"]) == list(BLOCK_ORDERS)
    for order, dram in zip(table["order"], table["DRAM"], strict=True):
        problem = Problem(N=1024, H=16, d=64, causal="bottom-right")
        model = forecast(KERNELS["02"], problem, Tiling(32, 32), GPUS["H200"], order=order)
        assert dram == format_bytes(model.levels.dram)


def test_errors_of_all_recorded_runs_on_demand() -> None:
    at = opened(check="1")
    table = next(d.value for d in at.dataframe if "bytes asked of L2" in d.value.columns)
    kernels = [e for r in shipped() for run in r.runs for e in run.entries if e.is_kernel and e.counters]
    assert len(table) == len(kernels)


def test_a_refused_launch_is_said_and_the_page_goes_on() -> None:
    at = opened(Br="128", Bc="128")
    assert len(at.error) == 1 and "threads" in at.error[0].value.lower()
    assert any("Try this" in h.value for h in at.header)
    assert dict(at.query_params) == {"Br": ["128"], "Bc": ["128"]} or dict(at.query_params) == {
        "Br": "128",
        "Bc": "128",
    }


def test_the_link_says_what_was_set() -> None:
    at = opened(l2="4", blocks="heavy-first", pad="2", turn="0", site02="67-Kjs_coldk")
    assert not at.warning
    assert {"l2", "blocks", "pad"} <= set(at.query_params)


def test_a_causal_head_that_outgrows_l2_has_no_dram_bytes_and_says_why() -> None:
    text = said(opened(N="131072", H="1", causal="bottom-right"))
    assert "What the memory chips move cannot be predicted here" in text and "under the causal mask" in text
    assert "is moved by the memory chips" not in text and "L2 answers" not in text
    assert "cannot be predicted" not in said(opened(N="131072", H="1"))
    assert "cannot be predicted" not in said(opened(N="131072", H="1", causal="bottom-right", kernel="01"))


@pytest.mark.parametrize("kernel", ["03", "06", "12", "13"])
def test_kernels_whose_time_is_forecast(kernel: str) -> None:
    """With tiles that they can take from the start, and with the time and what takes it."""
    at = opened(kernel=kernel, N="1024")
    assert not at.error
    Br, Bc = (int(value) for _, value in _tiles(at))
    problem = KERNELS[kernel].fitting(Problem(N=1024, H=16, d=64))
    model = forecast(KERNELS[kernel], problem, Tiling(Br, Bc), GPUS["H200"])
    text = said(at)
    assert f"Time, predicted: {format_time_us(model.time_us)}" in text and tiled_error(kernel) in text
    heading = at.subheader[0].value
    assert format_bytes(model.levels.l2 - model.levels.spilled) in heading
    assert ("of spilled registers" in heading) == (kernel == "13") == bool(model.levels.spilled)
    assert "bank by bank for kernels 01 and 02" in text


def _tiles(at: AppTest) -> list[tuple[str, str]]:
    line = next(c.value for c in at.caption if "kernel = " in c.value)
    return [(name, line.split(f"{name} = ")[1].split()[0]) for name in ("Br", "Bc")]


def test_a_gpu_that_lacks_what_a_kernel_is_built_on() -> None:
    at = opened(kernel="12", gpu="T4", N="1024")
    assert len(at.error) == 1 and "8.0" in at.error[0].value
    at = opened(kernel="12", Br="32", N="1024")
    assert len(at.error) == 1 and "Br=64" in at.error[0].value
