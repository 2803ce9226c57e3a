"""Accessibility: axe-core on every page, keyboard, the player's words, less motion, phones. The network is cut."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import BrowserContext, Page

from app import MENU, url_path
from tests.browser.conftest import Opener
from tests.browser.support import Visit

axe_package = pytest.importorskip("axe_playwright_python", reason="axe-core comes with .ci/requirements-test.txt")
AXE = (Path(axe_package.__file__).parent / "axe.min.js").read_text(encoding="utf-8")
PAGES = [(url_path(file), title) for entries in MENU.values() for file, title in entries]
BAD = ("serious", "critical")
DESKTOP, PHONE = {"width": 1280, "height": 800}, {"width": 390, "height": 844}
# What has the focus, also inside a component's own tree.
FOCUS = """() => {
  let e = document.activeElement;
  while (e?.shadowRoot?.activeElement) e = e.shadowRoot.activeElement;
  if (!e || e === document.body) return null;
  return {tag: e.tagName.toLowerCase(), act: e.dataset?.act ?? '', cls: String(e.className),
          role: e.getAttribute('role') ?? '', type: e.getAttribute('type') ?? ''};
}"""


# In place of Plotly on the tour: a chart is one image to axe, whatever is drawn in it (`DRAWN_BY_PLOTLY` has the rest).
NO_PLOTLY = """window.Plotly = {
  async react(node, data, layout) {
    Object.assign(node, {data, layout, on() {}, _fullLayout: {width: node.clientWidth}});
  },
  relayout() {}, purge() {},
};"""
# Rules whose answer depends on colours and on the window; the others are asked once, on the wide light page.
BY_LOOK = ["color-contrast", "link-in-text-block", "meta-viewport", "scrollable-region-focusable", "target-size"]
DRAWN_BY_PLOTLY = "/hbm-traffic"


@pytest.fixture(scope="module")
def tour(profile: BrowserContext, server: str) -> Visit:
    """One visit that goes from page to page by the menu, so that each page need not fetch the app anew."""
    page = profile.new_page()
    page.route("**/plotly.min.js", lambda route: route.fulfill(body=NO_PLOTLY, content_type="text/javascript"))
    page.emulate_media(reduced_motion="reduce")  # no colour is on its way to another
    page.set_viewport_size(DESKTOP)
    return Visit(page, server).open("/glossary").settled("Glossary")


def violations(page: Page, rules: list[str] | None = None) -> list[str]:
    """What axe-core calls serious or critical, one line each; by some of its rules, or by all."""
    if not page.evaluate("'axe' in window"):
        page.evaluate(AXE)
    options: dict[str, Any] = {"resultTypes": ["violations"], "preload": False, "iframes": False}
    if rules is not None:
        options["runOnly"] = {"type": "rule", "values": rules}
    found: dict[str, Any] = page.evaluate("(options) => axe.run(document, options)", options)
    return [
        f"{v['impact']} {v['id']}: {node['html'][:150]} ({node['failureSummary'][:200]})"
        for v in found["violations"]
        if v["impact"] in BAD
        for node in v["nodes"]
    ]


@pytest.mark.parametrize(("path", "title"), PAGES, ids=[path for path, _ in PAGES])
def test_axe_finds_nothing_serious(path: str, title: str, tour: Visit) -> None:
    """Light on a wide screen and dark on a phone, with every box opened."""
    visit, page = tour, tour.page
    page.set_viewport_size(DESKTOP)
    page.emulate_media(color_scheme="light")
    page.get_by_test_id("stTopNavSection").nth(len(MENU) - 1).wait_for()  # a phone's menu is another one
    visit.go(title)
    assert url_path(path) in page.url or title == PAGES[0][1]
    page.evaluate(
        "document.querySelectorAll('[data-testid=stExpander] details:not([open]) summary').forEach(s => s.click())"
    )
    visit.settled()
    wrong = {"light": violations(page)}
    page.emulate_media(color_scheme="dark")
    page.set_viewport_size(PHONE)
    visit.settled()
    # The menu of a phone is another one, and the same on all pages.
    wrong["dark phone"] = violations(page, BY_LOOK if title != PAGES[0][1] else None)
    wide, window = page.evaluate(
        "[Math.max(...['stMain', 'stMainBlockContainer'].map(id =>"
        " document.querySelector(`[data-testid=${id}]`).scrollWidth)), innerWidth]"
    )
    assert wide <= window, "the page scrolls sideways on a phone"
    assert not any(wrong.values()), wrong
    visit.check()


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
    visit = tab(DRAWN_BY_PLOTLY).settled("HBM traffic")
    page, main = visit.page, visit.page.get_by_test_id("stMain")
    main.locator("input[type=range]").nth(4).wait_for()  # Streamlit fetches its widgets' code when they appear
    main.get_by_role("combobox").first.wait_for()
    main.get_by_role("switch").first.wait_for()
    assert main.locator(".fmha-chart .main-svg").count() and not violations(page)
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
