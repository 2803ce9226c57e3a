"""Accessibility: axe-core on every page, keyboard, the player's words, less motion, phones. The network is cut."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page

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


@pytest.fixture(scope="module")
def shared(browser: Browser) -> Iterator[BrowserContext]:
    """One profile, in which nothing beyond this machine is reached, and no colour is on its way to another."""
    context = browser.new_context(viewport=DESKTOP, reduced_motion="reduce")
    context.set_default_timeout(30_000)
    context.route(
        lambda url: not url.startswith(("http://127.0.0.1", "http://localhost", "data:", "blob:")),
        lambda route: route.abort(),
    )
    yield context
    context.close()


@pytest.fixture(scope="module")
def tour(shared: BrowserContext, server: str) -> Visit:
    """One visit that goes from page to page by the menu, so that each page need not fetch the app anew."""
    return Visit(shared.new_page(), server).open("/glossary").settled("Glossary")


def violations(page: Page) -> list[str]:
    """What axe-core calls serious or critical, one line each."""
    if not page.evaluate("'axe' in window"):
        page.evaluate(AXE)
    found: dict[str, Any] = page.evaluate("axe.run(document, {resultTypes: ['violations'], preload: false, iframes: false})")
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
    wrong["dark phone"] = violations(page)
    wide, window = page.evaluate(
        "[Math.max(...['stMain', 'stMainBlockContainer'].map(id =>"
        " document.querySelector(`[data-testid=${id}]`).scrollWidth)), innerWidth]"
    )
    assert wide <= window, "the page scrolls sideways on a phone"
    assert not any(wrong.values()), wrong
    visit.check()


def test_axe_sees_what_is_wrong(shared: BrowserContext) -> None:
    """The test of the test: a picture without a name is found."""
    page = shared.new_page()
    page.set_content('<html lang="en"><title>x</title><main><h1>x</h1><div role="img"></div></main></html>')
    assert any("role-img-alt" in line for line in violations(page))
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


def test_the_keyboard_reaches_every_control_and_every_explained_word(visitor: Opener) -> None:
    visit = visitor("/hbm-traffic").settled("HBM traffic")
    page, main = visit.page, visit.page.get_by_test_id("stMain")
    main.locator("input[type=range]").nth(4).wait_for()  # Streamlit fetches its widgets' code when they appear
    main.get_by_role("combobox").first.wait_for()
    main.get_by_role("switch").first.wait_for()
    reached = walked(page)
    sliders = main.locator("input[type=range]").count()
    assert sliders >= 5 and sum(f["type"] == "range" for f in reached) == sliders
    words = main.locator(".fmha-term").count()
    assert words >= 5 and sum("fmha-term" in f["cls"] for f in reached) == words
    boxes = main.locator("summary").count()
    assert boxes >= 2 and sum(f["tag"] == "summary" for f in reached) == boxes
    assert sum(f["type"] == "checkbox" for f in reached) == main.locator("input[type=checkbox]").count() >= 1
    assert sum(f["role"] == "combobox" for f in reached) == main.locator("[role=combobox]").count() >= 1
    visit.check()


def test_a_word_explains_itself_to_the_keyboard_and_to_the_pointer(visitor: Opener) -> None:
    visit = visitor("/hbm-traffic").settled("HBM traffic")
    word = visit.page.locator(".fmha-term", has_text="loop order").first
    tip = word.locator(".fmha-tip")
    assert not tip.is_visible()
    word.focus()
    assert tip.is_visible() and "Which loop is outside" in tip.inner_text()
    box, window = tip.bounding_box(), visit.page.viewport_size
    assert box is not None and window is not None and box["x"] >= 0 and box["x"] + box["width"] <= window["width"]
    visit.page.evaluate("document.activeElement.blur()")
    tip.wait_for(state="hidden")
    word.hover()
    tip.wait_for(state="visible")
    visit.check()


def test_a_tip_stays_inside_a_phone(visitor: Opener) -> None:
    visit = visitor("/online-softmax", size=(390, 844)).settled("Online softmax")
    for word in visit.page.locator(".fmha-term").all():
        word.focus()
        box = word.locator(".fmha-tip").bounding_box()
        assert box is not None and box["x"] >= 0 and box["x"] + box["width"] <= 390
    visit.check()


def test_the_player_is_used_by_keyboard_and_says_what_it_shows(visitor: Opener) -> None:
    visit = visitor("/tiles-in-motion").settled("Tiles in motion")
    page = visit.page
    page.wait_for_function("window.__fmhaPlayer?.drawn > 0")
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
    visit.check()


def test_with_less_motion_pictures_follow_one_another_and_nothing_travels(browser: Browser, server: str) -> None:
    context = browser.new_context(viewport=DESKTOP, reduced_motion="reduce")
    visit = Visit(context.new_page(), server).open("/tiles-in-motion").settled("Tiles in motion")
    page = visit.page
    page.wait_for_function("window.__fmhaPlayer?.drawn > 0")
    assert page.evaluate("getComputedStyle(document.querySelector('summary, button')).transitionDuration") == "0s"
    assert not page.evaluate("__fmhaPlayer.controller.state.playing"), "it does not begin by itself"
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
    context.close()
