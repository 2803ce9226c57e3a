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

# The step is on the page in full: its script has run, and what it shows is its own picture, drawn.
THERE = """([deck, step, count, title]) => {
  const main = document.querySelector('.st-key-lecture-step');
  if (main?.querySelector('h2')?.textContent !== title) return false;
  if (window.__fmhaPresenter?.root.querySelector('.place')?.textContent !== `${step} / ${count}`) return false;
  if (document.querySelector('[data-testid=stApp]').dataset.testScriptState !== 'notRunning') return false;
  if (document.querySelector('[data-stale=true], [data-testid=stSkeleton]')) return false;
  const own = [...main.querySelectorAll(`[class*="st-key-lecture-${deck}-${step}-"]`)];
  const drawn = (e) => [...e.querySelectorAll('.fmha-chart')].every((c) => c.querySelector('.main-svg'));
  const player = window.__fmhaPlayer, host = player?.box?.isConnected && player.box.getRootNode().host;
  const canvas = host && player.drawn > 0 && own.some((e) => e.contains(host));
  const chart = own.some((e) => e.querySelector('.fmha-chart')) && own.every(drawn);
  return Boolean(canvas || chart || main.querySelector('.lecture-code .now'));
}"""

# What Streamlit does on a busy machine: it cleans up after a call of a component while the next one is on its way.
CLEANED_UP = """async (file) => {
  const one = () => file === 'presenter.mjs' ? window.__fmhaPresenter : window.__fmhaPlayer;
  const before = one(), { component } = before;
  const from = [...performance.getEntriesByType('resource')].find((e) => e.name.includes(file));
  (await import(from.name)).default(component)();
  await new Promise((ok) => setTimeout(ok, 30));
  return one() === before && !before.isDead;
}"""


def heading(visit: Visit) -> str:
    return visit.page.locator(".st-key-lecture-step h2").first.inner_text()


def at_step(visit: Visit, number: int) -> None:
    """Wait until the step is on the page in full, with its picture."""
    visit.page.wait_for_function(THERE, arg=[FIRST, number, len(STEPS), STEPS[number - 1].title])


def press(page: Page, key: str) -> None:
    page.keyboard.press(key)


@pytest.mark.parametrize("look", ["light", "dark"])
def test_a_lecture_is_played_with_page_down_alone(look: str, tab: Opener) -> None:
    """In present mode: every step shows its picture, every question its answer, and nothing goes wrong."""
    visit = tab("/?present=1", dark=look == "dark", size=(1280, 720))
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


def test_keys_move_the_lecture_and_it_moves_by_itself_only_where_that_is_wanted(tab: Opener) -> None:
    """The first step plays; keys that come fast all count; arrows belong to the player while it has the focus."""
    visit = tab("/")
    page = visit.page
    at_step(visit, 1)
    page.wait_for_function("window.__fmhaPlayer.controller.state.t > 0")
    for file in ("presenter.mjs", "player.mjs"):
        assert page.evaluate(CLEANED_UP, file), f"{file}: what is on the page goes on, and no key is lost"
    for _ in range(8):
        page.keyboard.press("PageDown", delay=5)
    seen = place_after(8)
    at_step(visit, seen)
    assert f"step={seen}" in visit.query()

    player_step = next(n for n, s in enumerate(STEPS, 1) if s.picture.name == "player" and not s.settings["play"])
    assert seen < player_step and seen not in ASKS
    for number in range(seen + 1, player_step + 1):
        press(page, "PageDown")
        if number - 1 in ASKS:
            page.get_by_test_id("stAlertContentSuccess").wait_for()
            press(page, "PageDown")
    at_step(visit, player_step)
    page.locator("canvas").first.click(position={"x": 5, "y": 5})
    before = page.evaluate("window.__fmhaPlayer.controller.state.t")
    press(page, "ArrowRight")
    assert page.evaluate("window.__fmhaPlayer.controller.state.t") != before
    assert heading(visit) == STEPS[player_step - 1].title
    press(page, "PageUp")
    at_step(visit, player_step - 1)
    page.evaluate("document.activeElement?.blur()")
    press(page, "ArrowLeft")
    at_step(visit, player_step - 2)

    page.emulate_media(reduced_motion="reduce")
    for _ in range(player_step - 3):
        page.keyboard.press("PageUp", delay=5)
    at_step(visit, 1)
    page.wait_for_timeout(600)
    assert page.evaluate("window.__fmhaPlayer.controller.state.playing") is False
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


def test_present_mode_fills_the_window_points_and_outlives_a_reload(tab: Opener) -> None:
    """From 1024 x 768 to 4K: the player and the text beside it lie in the window, in letters that grow with it."""
    visit = tab("/?present=1&step=1", size=(1024, 768))
    page = visit.page
    at_step(visit, 1)
    zoom = "parseFloat(document.documentElement.style.getPropertyValue('--fmha-zoom'))"
    for wide, high in ((1024, 768), (1920, 1080), (3840, 2160)):
        page.set_viewport_size({"width": wide, "height": high})
        page.wait_for_function(f"Math.abs({zoom} - Math.min({wide} / 1280, {high} / 780)) < 0.01")
        canvas = page.locator("canvas").first
        visit.until(lambda c=canvas, w=wide: (c.bounding_box() or {"width": 0})["width"] > 0.55 * w)
        box = canvas.bounding_box()
        assert box is not None and box["x"] + box["width"] <= wide and box["y"] + box["height"] <= high
        text = page.locator(".st-key-lecture-text p").first
        letters = text.evaluate("p => parseFloat(getComputedStyle(p).fontSize)") * page.evaluate(zoom)
        assert letters >= high / 50, "readable from the last row"
        across = page.evaluate("(m => m.scrollWidth - m.clientWidth)(document.querySelector('[data-testid=stMain]'))")
        assert across <= 0, "nothing to scroll sideways"
    page.set_viewport_size({"width": 1280, "height": 720})
    header = page.locator("[data-testid=stHeader]")
    press(page, "PageDown")
    at_step(visit, 2)
    visit.until(lambda: "step=2" in visit.query())
    page.reload()
    at_step(visit, 2)
    assert header.is_hidden(), "it comes back to the same step in the same mode"
    press(page, "PageUp")
    at_step(visit, 1)

    press(page, "l")
    page.mouse.move(300, 200)
    dot = page.locator(".fmha-laser")
    box = dot.bounding_box()
    assert box is not None and abs(box["x"] + box["width"] / 2 - 300) < 3
    press(page, "l")
    dot.wait_for(state="hidden")
    for is_hidden in (False, True, False):
        press(page, "p")
        header.wait_for(state="hidden" if is_hidden else "visible")
        visit.until(lambda hidden=is_hidden: ("present=1" in visit.query()) == hidden)
    visit.check()


def test_speaker_notes_follow_in_a_second_window_and_lead(tab: Opener) -> None:
    visit = tab("/?step=2")
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
