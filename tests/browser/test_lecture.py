"""The guided lecture in a real browser: played with Page Down alone, keys, present mode, notes, a lost connection."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page

from fmha.lecture.library import FIRST, decks, load
from tests.browser.conftest import Opener
from tests.browser.support import Visit

STEPS = load(decks()[FIRST]).steps
ASKS = [number for number, step in enumerate(STEPS, 1) if step.question is not None]

# What is seen of a step: its picture is there, and it is drawn.
PICTURE = """() => {
  const main = document.querySelector('.st-key-lecture-step');
  if (!main) return false;
  const canvas = window.__fmhaPlayer?.box?.isConnected && window.__fmhaPlayer.drawn > 0;
  const charts = [...main.querySelectorAll('.fmha-chart')].filter((c) => c.querySelector('.main-svg'));
  return Boolean(canvas || charts.length || main.querySelector('.lecture-code .now'));
}"""


def heading(visit: Visit) -> str:
    return visit.page.locator(".st-key-lecture-step h2").first.inner_text()


def at_step(visit: Visit, number: int) -> None:
    """Wait until the step is on the page in full, with its picture."""
    visit.page.locator(".st-key-lecture-step h2", has_text=STEPS[number - 1].title).first.wait_for()
    visit.page.locator(".fmha-presenter .place", has_text=f"{number} / {len(STEPS)}").first.wait_for()
    visit.page.wait_for_function(PICTURE)


def press(page: Page, key: str) -> None:
    page.keyboard.press(key)


@pytest.mark.parametrize("look", ["light", "dark"])
def test_a_lecture_is_played_with_page_down_alone(look: str, visitor: Opener) -> None:
    """In present mode: every step shows its picture, every question its answer, and nothing goes wrong."""
    visit = visitor("/?present=1", dark=look == "dark", size=(1280, 720))
    for number in range(1, len(STEPS) + 1):
        at_step(visit, number)
        assert visit.page.locator(".st-key-lecture-step [data-testid=stAlertContentError]").count() == 0
        if number in ASKS:
            assert visit.page.get_by_test_id("stAlertContentSuccess").count() == 0
            press(visit.page, "PageDown")
            visit.page.get_by_test_id("stAlertContentSuccess").wait_for()
            at_step(visit, number)
        assert visit.page.locator("[data-testid=stHeader]").is_hidden()
        press(visit.page, "PageDown")
    assert heading(visit) == STEPS[-1].title, "there is nothing after the last step"
    visit.until(lambda: f"step={len(STEPS)}" in visit.query() and "present=1" in visit.query())
    visit.check()


def test_fast_keys_all_count_and_the_way_back(visitor: Opener) -> None:
    visit = visitor("/")
    at_step(visit, 1)
    for _ in range(8):
        visit.page.keyboard.press("PageDown", delay=5)
    seen = place_after(8)
    visit.until(lambda: f"step={seen}" in visit.query())
    at_step(visit, seen)
    press(visit.page, "PageUp")
    visit.until(lambda: f"step={seen - 1}" in visit.query())
    at_step(visit, seen - 1)
    visit.check()


def place_after(presses: int) -> int:
    """The step after so many presses from the first one: a question takes one more."""
    step, revealed = 1, False
    for _ in range(presses):
        if step in ASKS and not revealed:
            revealed = True
        else:
            step, revealed = step + 1, False
    return step


def test_arrows_move_the_lecture_until_the_player_has_the_focus(visitor: Opener) -> None:
    player_step = next(n for n, s in enumerate(STEPS, 1) if s.picture.name == "player" and not s.settings["play"])
    visit = visitor(f"/?step={player_step}")
    at_step(visit, player_step)
    visit.page.locator("canvas").first.click(position={"x": 5, "y": 5})
    before = visit.page.evaluate("window.__fmhaPlayer.controller.state.t")
    press(visit.page, "ArrowRight")
    assert visit.page.evaluate("window.__fmhaPlayer.controller.state.t") != before
    assert heading(visit) == STEPS[player_step - 1].title
    press(visit.page, "PageUp")
    at_step(visit, player_step - 1)
    visit.page.evaluate("document.activeElement?.blur()")
    press(visit.page, "ArrowLeft")
    visit.until(lambda: f"step={player_step - 2}" in visit.query())
    at_step(visit, player_step - 2)
    visit.check()


def test_the_first_step_moves_by_itself_unless_motion_is_unwanted(visitor: Opener) -> None:
    visit = visitor("/")
    at_step(visit, 1)
    visit.page.wait_for_function("window.__fmhaPlayer.controller.state.t > 0")
    still = visitor("/?step=2")
    at_step(still, 2)
    still.page.emulate_media(reduced_motion="reduce")
    press(still.page, "PageUp")
    at_step(still, 1)
    still.page.wait_for_timeout(600)
    assert still.page.evaluate("window.__fmhaPlayer.controller.state.playing") is False
    visit.check()
    still.check()


def test_present_mode_fills_the_window(visitor: Opener) -> None:
    """From 1024 x 768 to 4K: the player and the text beside it lie in the window, in letters that grow with it."""
    visit = visitor("/?present=1&step=1", size=(1024, 768))
    at_step(visit, 1)
    zoom = "parseFloat(document.documentElement.style.getPropertyValue('--fmha-zoom'))"
    for wide, high in ((1024, 768), (1920, 1080), (3840, 2160)):
        visit.page.set_viewport_size({"width": wide, "height": high})
        visit.page.wait_for_function(f"Math.abs({zoom} - Math.min({wide} / 1280, {high} / 780)) < 0.01")
        canvas = visit.page.locator("canvas").first
        visit.until(lambda c=canvas, w=wide: (c.bounding_box() or {"width": 0})["width"] > 0.55 * w)
        box = canvas.bounding_box()
        assert box is not None and box["x"] + box["width"] <= wide and box["y"] + box["height"] <= high
        text = visit.page.locator(".st-key-lecture-text p").first
        letters = text.evaluate("p => parseFloat(getComputedStyle(p).fontSize)") * visit.page.evaluate(zoom)
        assert letters >= high / 50, "readable from the last row"
        across = visit.page.evaluate(
            "(m => m.scrollWidth - m.clientWidth)(document.querySelector('[data-testid=stMain]'))"
        )
        assert across <= 0, "nothing to scroll sideways"
    visit.check()


def test_present_pointer_and_back_to_the_page(visitor: Opener) -> None:
    visit = visitor("/?step=5")
    at_step(visit, 5)
    press(visit.page, "p")
    visit.page.locator("[data-testid=stHeader]").wait_for(state="hidden")
    press(visit.page, "l")
    visit.page.mouse.move(300, 200)
    dot = visit.page.locator(".fmha-laser")
    box = dot.bounding_box()
    assert box is not None and abs(box["x"] + box["width"] / 2 - 300) < 3
    press(visit.page, "l")
    dot.wait_for(state="hidden")
    press(visit.page, "p")
    visit.page.locator("[data-testid=stHeader]").wait_for()
    visit.until(lambda: "present=1" not in visit.query())
    visit.check()


def test_speaker_notes_follow_in_a_second_window_and_lead(visitor: Opener) -> None:
    visit = visitor("/?step=2")
    at_step(visit, 2)
    with visit.page.expect_popup() as opened:
        press(visit.page, "n")
    notes = opened.value
    title, said = notes.locator(".speaker .title"), notes.locator(".speaker .said")
    title.filter(has_text=STEPS[1].title).wait_for()
    assert said.inner_text() == STEPS[1].notes
    notes.locator(".linked", has_text="Follows").wait_for()
    press(visit.page, "PageDown")
    title.filter(has_text=STEPS[2].title).wait_for()
    answer = notes.locator(".answer", has_text="Not yet revealed")
    answer.wait_for()
    assert STEPS[2].question is not None and re.search("it stays the same", answer.inner_text())
    notes.bring_to_front()
    press(notes, "PageDown")  # reveals
    visit.page.get_by_test_id("stAlertContentSuccess").wait_for()
    press(notes, "PageDown")
    at_step(visit, 4)
    title.filter(has_text=STEPS[3].title).wait_for()
    assert notes.locator(".st-key-lecture-step").count() == 0
    visit.check()


def test_a_reload_comes_back_to_the_same_step_in_the_same_mode(visitor: Opener) -> None:
    visit = visitor("/?present=1&step=11")
    at_step(visit, 11)
    press(visit.page, "PageDown")
    visit.until(lambda: "step=12" in visit.query())
    at_step(visit, 12)
    visit.page.reload()
    visit.settled()
    at_step(visit, 12)
    assert visit.page.locator("[data-testid=stHeader]").is_hidden()
    press(visit.page, "PageUp")
    at_step(visit, 11)
    visit.check()
