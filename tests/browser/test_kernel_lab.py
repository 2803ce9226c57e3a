"""The kernel lab in a browser, with a make-believe GPU: runs, cancelling, moving on during a run, files."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator

from tests.app.recordings import recording
from tests.browser.conftest import Opener
from tests.browser.support import ROOT, Visit, serve

SMALL = "N=128&d=16&H=2"
Lab = Callable[..., Visit]


@pytest.fixture(scope="module")
def lab_server(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FMHA_TEST_HOLD", str(tmp_path_factory.mktemp("hold")))  # a run ends when it is let go
        with serve(ROOT / "tests" / "app" / "lab_app.py") as url:
            yield url


@pytest.fixture
def lab(visitor: Opener, lab_server: str) -> Lab:
    """Opens the page and waits until its GPU is there."""

    def open_page(query: str = SMALL, **more: object) -> Visit:
        visit = visitor(f"/kernel-lab?{query}", base=lab_server, **more).settled("Kernel lab")
        run_button(visit).wait_for()
        return visit

    return open_page


def run_button(visit: Visit) -> Locator:
    return visit.page.locator(".st-key-run button")


def main_text(visit: Visit) -> str:
    return visit.page.get_by_test_id("stMain").inner_text()


def handle(visit: Visit, name: str) -> Locator:
    return visit.slider(name)


def value(visit: Visit, name: str) -> str:
    return str(handle(visit, name).evaluate("h => h.getAttribute('aria-valuetext') ?? h.value"))


def own_result(visit: Visit) -> Locator:
    """Where the result of a run of one's own says what it is; a recording may be shown before."""
    return visit.page.get_by_text("Your run on NVIDIA H200").first


def start(visit: Visit, *, to_its_end: bool = True) -> None:
    """Press Run, wait until the page tells how far the worker is, and let the run go on to its end."""
    run_button(visit).click()
    visit.page.get_by_test_id("stProgress").filter(has_text="timing").wait_for()
    if to_its_end:
        Path(os.environ["FMHA_TEST_HOLD"], "go").touch()


def test_a_run_goes_to_its_result_also_behind_another_page(lab: Lab) -> None:
    visit = lab()
    start(visit)
    own_result(visit).wait_for()
    text = main_text(visit.settled())
    assert "02 fmha101 takes 1.20 ms" in text and "N = 128 · d = 16 · Br = 32" in text
    visit.page.locator(".st-key-counters button").click()
    visit.page.get_by_text("equal to the byte").first.wait_for()
    with visit.page.expect_download() as saved:
        visit.page.get_by_role("button", name="Download this run").click()
    assert saved.value.suggested_filename == "fmha-02-N128-d16-NVIDIA-H200.json"
    handle(visit, "N").focus()
    visit.page.keyboard.press("ArrowRight")
    visit.page.get_by_text("not for those of the controls").wait_for()
    start(visit.settled())
    visit.go("HBM traffic")
    visit.page.wait_for_timeout(500)
    visit.go("Kernel lab")
    visit.page.get_by_text("N = 200 · d = 16 · Br = 32 · Bc = 32 · causal").first.wait_for()
    assert "Your run" in main_text(visit.settled()) and "not for those of the controls" not in main_text(visit)
    visit.check()


def test_settings_moved_during_a_run_keep_their_values_and_cancel_acts_at_once(lab: Lab) -> None:
    """The last value wins, and the run says what it belongs to (D02 d)."""
    visit = lab(f"{SMALL}&seed=1")
    start(visit, to_its_end=False)
    handle(visit, "N").focus()
    for _ in range(3):
        visit.page.keyboard.press("ArrowRight", delay=5)
    visit.page.get_by_text("This run is for other settings").wait_for()
    visit.until(lambda: value(visit, "N") == "512" and "N=512" in visit.query())
    visit.page.wait_for_timeout(1000)  # two looks at the run later
    assert value(visit, "N") == "512"
    begun = time.monotonic()
    visit.page.locator(".st-key-cancel button").click()
    visit.page.get_by_text("was cancelled").wait_for()
    assert time.monotonic() - begun < 10  # the run itself takes a minute; `measure-ui` is for exact times
    run_button(visit).wait_for()
    visit.settled()
    assert value(visit, "N") == "512" and "N=512" in visit.query()
    assert "N = 128 · d = 16" in main_text(visit), "what was cancelled is named by its own settings"
    visit.check()


def test_a_link_opens_the_same_settings(lab: Lab) -> None:
    visit = lab("kernel=02&N=1000&d=80&H=4&Hk=2&B=2&Br=16&Bc=64&causal=tl&cross=1&Nk=200&show=3&batch=1&seed=7")
    text = main_text(visit)
    assert "Br = 16 · Bc = 64" in text and " is used." not in text, "all settings are taken as asked"
    assert "asked seed = 7, recorded seed = 0" in text or "No result of this kernel" in text
    assert "Nk=200" in visit.query() and "Hk=2" in visit.query() and "show=3" in visit.query()
    start(visit)
    own_result(visit).wait_for()
    visit.settled()
    said = "B = 2 · H = 4 · Hk = 2 · Nq = 1,000 · Nk = 200 · d = 80 · Br = 16 · Bc = 64 · causal = top-left"
    assert said in main_text(visit) and "head 3, batch entry 1" in main_text(visit)
    visit.check()


def test_a_file_is_opened_and_nothing_in_it_is_rendered(lab: Lab, tmp_path: Path) -> None:
    evil = "<img src=x onerror=alert(1)> <b>H200</b> www.example.org"
    raw = json.loads(recording().to_json())
    raw["device"]["facts"]["name"] = evil
    for entry in raw["runs"][0]["entries"]:
        entry["title"] = evil
    file = tmp_path / "evil.json"
    file.write_text(json.dumps(raw))
    visit = lab()
    visit.page.locator(".st-key-recording input[type=file]").set_input_files(file)
    visit.page.get_by_text("Opened from evil.json").wait_for()
    visit.settled()
    main = "[data-testid=stMain]"
    assert "<b>H200</b>" in main_text(visit)
    assert visit.page.locator(f"{main} img, {main} a[href*=example], {main} .fmha-chart b").count() == 0
    visit.page.locator(".st-key-close button").click()
    visit.page.get_by_text("No result of this kernel is at hand").or_(visit.page.get_by_text("Recorded on")).wait_for()
    visit.check()
