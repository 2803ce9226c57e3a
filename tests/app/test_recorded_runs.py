"""Time-stamped runs on Timeline and in the player: what was recorded, what was predicted, files of one's own."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from fmha.as_run import as_run, calibrated_us, predicted, spread_of
from fmha.errors import InputError
from fmha.forecast import forecast
from fmha.kernels import KERNELS
from fmha.spans import blocks_of, shares_of
from fmha.stamp_files import open_stamps, shipped
from fmha.ui import run_choice
from fmha.units import format_time_us

LAB = Path(__file__).resolve().parent.parent.parent / "pages" / "lab"
FILES = shipped()
LONG = "h200-02-n2048-h1"


def opened(page: str, **url: str) -> AppTest:
    at = AppTest.from_file(LAB / f"{page}.py", default_timeout=60)
    for name, text in url.items():
        at.query_params[name] = text
    at.run()
    assert not at.exception, [e.value for e in at.exception]
    return at


def said(at: AppTest) -> str:
    text = "\n".join(m.value for m in [*at.markdown, *at.caption, *at.info, *at.error, *at.warning])
    return re.sub(r"\\(.)", r"\1", text)


def table(at: AppTest) -> dict[str, list[Any]]:
    rows = at.dataframe[0].value.values.tolist()
    return {row[0]: row[1:] for row in rows}


@pytest.mark.parametrize("name", FILES)
def test_the_prediction_stands_beside_the_run_with_its_error(name: str) -> None:
    at = opened("timeline", clock="run", gpurun=name)
    assert not at.error and not at.warning and not at.info
    run = as_run(open_stamps(FILES[name]))
    ran = spread_of(run.blocks, shares_of(run.events, run.blocks).idle)
    model = blocks_of(predicted(run), run.sms)
    span = calibrated_us(run) or model.span
    rows = table(at)
    assert rows["whole run"] == [format_time_us(ran.span_us), format_time_us(span), f"{ran.span_us / span:.3g}x"]
    visit = spread_of(model, 0.0).visit_us * span / model.span
    assert rows["a visit, median"][2] == f"{ran.visit_us / visit:.3g}x"
    assert rows["workers on an SM at once"][:2] == [str(run.blocks.lanes)] * 2
    text = said(at)
    assert f"The run took {format_time_us(ran.span_us)}" in text and "Recorded on NVIDIA H200" in text
    assert f"{len(run.blocks)} blocks on 132 SMs take {format_time_us(ran.span_us)}" in text
    facts = run.stamps.facts
    assert ("row by row, look longer than they are" in text) == (facts["stamped_us"] > 1.1 * facts["plain_us"])
    told = f"without them the kernel takes {format_time_us(facts['plain_us'])} in place of"
    assert (told in text) == (facts["stamped_us"] > 1.1 * facts["plain_us"]), "a prediction knows no stamps"
    assert ("a tile loads from where the kernel asks for it" in text) == (facts["kernel"] in ("07", "13"))


def test_kernel_02_is_held_against_both_predictions() -> None:
    run = as_run(open_stamps(FILES[LONG]))
    simple = format_time_us(blocks_of(predicted(run), 132).span)
    calibrated = format_time_us(forecast(KERNELS["02"], run.problem, run.tiling, run.gpu).time_us)  # type: ignore[arg-type]
    assert f"calibrated: {calibrated}; the simple cost alone: {simple}" in said(
        opened("timeline", clock="run", gpurun=LONG)
    )
    other = said(opened("timeline", clock="run", gpurun=LONG, against="simple"))
    assert f"simple cost: {simple}; the calibrated forecast: {calibrated}" in other


def test_what_bench_wrote_here_is_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copy(FILES[LONG], tmp_path / "fmha-timeline-20990101-000000.npz")
    (tmp_path / "fmha-timeline-broken.npz").write_bytes(b"no")
    monkeypatch.chdir(tmp_path)
    at = opened("timeline", clock="run", gpurun="fmha-timeline-20990101-000000")
    assert not at.error and not at.warning
    box = next(b for b in at.selectbox if b.label == "Recording")
    assert any("20990101" in option for option in box.options) and not any("broken" in o for o in box.options)


def test_a_file_that_is_no_recording_is_refused_in_a_sentence() -> None:
    with pytest.raises(InputError, match="The file is not a recording of time stamps"):
        run_choice.read(b"PK no", "The file")
    assert run_choice.read(FILES[LONG].read_bytes(), "x").problem.Nq == 2048


def test_without_any_recording_the_page_says_how_to_make_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(run_choice, "shipped", dict)
    monkeypatch.chdir(tmp_path)
    assert "bench --timestamps" in said(opened("timeline", clock="run"))
    at = opened("tiles_in_motion", by="gpu")
    assert "The simulator is shown" in said(at) and not at.error


@pytest.mark.parametrize("name", [LONG, "h200-06-n1024-h16"])
def test_the_player_shows_a_recording(name: str) -> None:
    at = opened("tiles_in_motion", by="gpu", gpurun=name)
    assert not at.error and not at.warning
    text = said(at)
    run = as_run(open_stamps(FILES[name]))
    assert "As run: when each phase began" in text and "Naive attention was not recorded" in text
    assert f"N = {run.problem.Nq:,} · d = 64" in text and "SMs = 64" in text
    assert ("of 16 heads" in text) == (run.problem.H == 16)
