"""HBM traffic at other levels than requested: the default stays, what is drawn is what the model says."""

from __future__ import annotations

from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from fmha import Problem, Tiling
from fmha.hardware import GPUS
from fmha.measurement import shipped
from fmha.model_errors import measured
from fmha.ui.levels_box import LENGTHS, counted, level_curves

PAGE = Path(__file__).resolve().parent.parent.parent / "pages" / "lab" / "hbm_traffic.py"
H200 = GPUS["H200"]


def opened(**url: str) -> AppTest:
    at = AppTest.from_file(PAGE, default_timeout=60)
    for name, text in url.items():
        at.query_params[name] = text
    at.run()
    assert not at.exception, [e.value for e in at.exception]
    return at


def test_the_default_is_requested() -> None:
    at = opened()
    assert at.selectbox(key="level").value == "requested"
    assert any("Theorem 2" in c.value for c in at.caption)


@pytest.mark.parametrize("level", ["L2", "DRAM", "SMEM", "all"])
@pytest.mark.parametrize("dtype", ["fp16", "fp32"])
def test_every_level_says_what_it_is(level: str, dtype: str) -> None:
    at = opened(level=level, dtype=dtype, Br="32", Bc="32")
    assert not at.warning and not at.error
    told = [i.value for i in at.info if "fp32" in i.value]
    assert len(told) == (dtype != "fp32")
    assert any("Under the hood of HBM" in m.value for m in at.markdown)


def test_refused_tiles_and_gpus_are_said_in_a_sentence_and_the_page_goes_on() -> None:
    for url in ({"Br": "256", "Bc": "256", "d": "256"}, {"gpu": "MI300X"}):
        at = opened(level="DRAM", **url)
        assert len(at.warning) == 1
        assert any("Try this" in h.value for h in at.header)


def test_only_orders_with_a_kernel_have_shared_memory() -> None:
    p = Problem(N=128, H=2, d=64)
    assert set(level_curves(p, Tiling(32, 32), H200, "SMEM")) == {"naive", "q-outer"}
    assert set(level_curves(p, Tiling(64, 64), H200, "SMEM")) == {"naive"}
    for level in ("requested", "L2", "DRAM"):
        found = level_curves(p, Tiling(64, 64), H200, level)  # type: ignore[arg-type]
        assert set(found) == {"naive", "q-outer", "kv-outer"}
        assert all(len(values) == len(LENGTHS) for values in found.values())


def test_counted_points_are_the_recordings() -> None:
    p, tiles = Problem(N=777, H=16, d=64), Tiling(32, 32)
    points = counted(p, tiles, H200)
    runs = [run for r in shipped() for run in r.runs if run.problem == p.replace(N=run.problem.Nq)]
    assert len(runs) == 6
    entries = {run.problem.Nq: run.entry("02", tiles) for run in runs}
    assert dict(points["DRAM"]) == {n: measured(e)["dram"] for n, e in entries.items() if e is not None}
    assert dict(points["SMEM"]) == {n: 128 * measured(e)["smem"] for n, e in entries.items() if e is not None}
    assert counted(p.replace(H=8), tiles, H200) == counted(p, tiles, GPUS["H100"]) == {}


@pytest.mark.parametrize("level", ["DRAM", "all"])
def test_the_dram_curve_ends_where_nothing_can_be_said(level: str) -> None:
    ask = {"level": level, "dtype": "fp32", "Br": "32", "Bc": "32", "d": "128", "H": "1"}
    words = "cannot be predicted from N = 65,536 on"
    masked, whole = opened(**ask, causal="bottom-right"), opened(**ask)
    assert any(words in m.value for m in masked.markdown)
    assert not any("cannot be predicted" in m.value for m in whole.markdown)
