"""Accessibility: keyboard, the player's words, less motion, tips on phones. The network is cut.

axe-core looks at every page in `test_pages.py`, where each is open anyway, and at the static site in `test_site.py`.
"""

from __future__ import annotations

import pytest
from playwright.sync_api import BrowserContext, Page

from tests.browser.axe import BY_LOOK, SCRIPT, violations
from tests.browser.conftest import Opener

DESKTOP, PHONE = {"width": 1280, "height": 800}, {"width": 390, "height": 844}
# What has the focus, also inside a component's own tree.
FOCUS = """() => {
  let e = document.activeElement;
  while (e?.shadowRoot?.activeElement) e = e.shadowRoot.activeElement;
  if (!e || e === document.body) return null;
  return {tag: e.tagName.toLowerCase(), act: e.dataset?.act ?? '', cls: String(e.className),
          role: e.getAttribute('role') ?? '', type: e.getAttribute('type') ?? ''};
}"""


@pytest.mark.skipif(SCRIPT is None, reason="axe-core comes with .ci/requirements-test.txt")
def test_axe_sees_what_is_wrong(profile: BrowserContext) -> None:
    """The test of the test: a picture without a name is found, and pale letters on a phone."""
    page = profile.new_page()
    pale = '<p style="color: #bbb; background: #fff">pale</p>'
    page.set_content(f'<html lang="en"><title>x</title><main><h1>x</h1><div role="img"></div>{pale}</main></html>')
    found = violations(page)
    assert any("role-img-alt" in line for line in found) and any("color-contrast" in line for line in found)
    assert [line.split(":")[0] for line in violations(page, BY_LOOK)] == ["serious color-contrast"]
    page.close()


def walked(page: Page, most: int = 200) -> list[dict[str, str]]:
    """What the Tab key reaches, in its order, until it leaves the page."""
    seen: list[dict[str, str]] = []
    for _ in range(most):
        page.keyboard.press("Tab")
        focus = page.evaluate(FOCUS)
        if focus is None:
            break
        seen.append(focus)
    return seen


def test_words_and_controls_are_reached_by_keyboard_and_explain_themselves(tab: Opener) -> None:
    """On a page with real charts; then its words on a phone."""
    visit = tab("/hbm-traffic").settled("HBM traffic")
    page, main = visit.page, visit.page.get_by_test_id("stMain")
    main.locator("input[type=range]").nth(4).wait_for()  # Streamlit fetches its widgets' code when they appear
    main.get_by_role("combobox").first.wait_for()
    main.get_by_role("switch").first.wait_for()
    reached = walked(page)
    sliders = main.locator("input[type=range]").count()
    assert sliders >= 5 and sum(f["type"] == "range" for f in reached) == sliders
    words = main.locator(".fmha-term")
    assert words.count() >= 5 and sum("fmha-term" in f["cls"] for f in reached) == words.count()
    boxes = main.locator("summary").count()
    assert boxes >= 2 and sum(f["tag"] == "summary" for f in reached) == boxes
    assert sum(f["type"] == "checkbox" for f in reached) == main.locator("input[type=checkbox]").count() >= 1
    assert sum(f["role"] == "combobox" for f in reached) == main.locator("[role=combobox]").count() >= 1

    word = words.filter(has_text="loop order").first
    tip = word.locator(".fmha-tip")
    assert not tip.is_visible()
    word.focus()
    assert tip.is_visible() and "Which loop is outside" in tip.inner_text()
    page.evaluate("document.activeElement.blur()")
    tip.wait_for(state="hidden")
    word.hover()
    tip.wait_for(state="visible")
    page.mouse.move(0, 0)
    for size in (DESKTOP, PHONE):
        page.set_viewport_size(size)
        for word in words.all():
            word.focus()
            box = word.locator(".fmha-tip").bounding_box()
            assert box is not None and box["x"] >= 0 and box["x"] + box["width"] <= size["width"]
    visit.check()


def test_the_player_says_what_it_shows_and_keeps_still_where_that_is_wanted(tab: Opener) -> None:
    """Used by keyboard alone; with less motion pictures follow one another, and nothing travels."""
    visit = tab("/tiles-in-motion", still=True).settled("Tiles in motion")
    page = visit.page
    page.wait_for_function("window.__fmhaPlayer?.drawn > 0")
    assert page.evaluate("getComputedStyle(document.querySelector('summary, button')).transitionDuration") == "0s"
    assert not page.evaluate("__fmhaPlayer.controller.state.playing"), "it does not begin by itself"
    buttons = page.evaluate("[...__fmhaPlayer.root.querySelectorAll('.bar [data-act]')].map(b => b.dataset.act)")
    acts = [focus["act"] for focus in walked(page) if focus["act"]]
    assert acts == buttons
    live = "__fmhaPlayer.root.querySelector('[aria-live=polite]').textContent"
    page.evaluate("__fmhaPlayer.act('home')")
    page.evaluate("__fmhaPlayer.box.focus()")
    texts = []
    for _ in range(3):
        before = page.evaluate(live)
        page.keyboard.press("ArrowRight")
        page.wait_for_function(f"(before) => {live} !== before", arg=before)
        texts.append(page.evaluate(live))
    assert len(set(texts)) == 3 and all("Q tile" in text and "requested so far" in text for text in texts)
    stood = page.evaluate("""() => new Promise((resolve) => {
      const player = window.__fmhaPlayer, times = [];
      player.play();
      const look = () => {
        if (times.at(-1) !== player.paintedAt) times.push(player.paintedAt);
        if (times.length < 5) requestAnimationFrame(look);
        else { player.pause(); resolve(times.slice(2).map((t, k) => t - times[k + 1])); }
      };
      look();
    })""")
    assert len(stood) == 3 and min(stood) >= 490, stood
    visit.check()
