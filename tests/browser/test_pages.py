"""Every page in a real browser: light, dark, phone, axe-core, deep links, links from hostile hands."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser

from app import MENU, url_path
from tests.browser.axe import BY_LOOK, violations
from tests.browser.conftest import Opener
from tests.browser.support import Visit, serve

PAGES = [(url_path(file), title) for entries in MENU.values() for file, title in entries]
TITLES = [title for _, title in PAGES]

WORDS = ("Glossary", "References", "Python API", "Guided lecture")  # pages that begin without a figure

each_page = pytest.mark.parametrize(("path", "title"), PAGES, ids=[path for path, _ in PAGES])


def test_a_deep_link_opens_a_cold_server_on_the_right_page(browser: Browser) -> None:
    """The very first request of a fresh server, straight to a page: that page, the whole menu, no dialog."""
    path, title = "hbm-traffic", "HBM traffic"
    with serve() as url:
        context = browser.new_context()
        visit = Visit(context.new_page(), url).open(f"/{path}?d=64")
        visit.settled(title)
        assert visit.menu() == TITLES
        assert visit.page.get_by_role("dialog").count() == 0
        assert visit.query() == "d=64"
        visit.check()
        context.close()


def test_a_link_that_names_the_first_page_opens_it_with_its_settings(tab: Opener) -> None:
    visit = tab("/guided-lecture?step=5").settled("Guided lecture")
    visit.until(lambda: visit.query() == "step=5")
    assert visit.page.url.startswith(f"{visit.base}/?")
    visit.check()


LOOKS = ({"dark": False, "size": (1280, 800)}, {"dark": True, "size": (390, 844)})
OPEN_BOXES = """document.querySelectorAll('[data-testid=stExpander] details:not([open]) summary')
  .forEach((summary) => summary.click())"""
ACROSS = """Math.max(...['stMain', 'stMainBlockContainer'].map(
  (id) => document.querySelector(`[data-testid=${id}]`).scrollWidth)) - innerWidth"""


@each_page
def test_pages_open_fit_and_are_accessible(path: str, title: str, tab: Opener) -> None:
    """By its link, with every box opened: light on a wide screen and dark on a phone; which comes first alternates.

    axe-core is asked everything once, and by the rules that depend on colours and window in the other look; the menu,
    which is another one on a phone, is the same on all pages.
    """
    number = PAGES.index((path, title))
    looks = LOOKS if number % 2 else LOOKS[::-1]
    visit = tab(f"/{path}", **looks[0], still=True).settled(title)
    page = visit.page
    assert page.get_by_role("dialog").count() == 0
    has_library = page.locator("script#fmha-plotly").count() == 1
    assert has_library == (title not in WORDS), "what draws charts is loaded once, and only where there are some"
    visit.check()
    page.evaluate(OPEN_BOXES)
    wrong = {}
    for look in looks:
        width, height = look["size"]
        page.emulate_media(color_scheme="dark" if look["dark"] else "light")
        page.set_viewport_size({"width": width, "height": height})
        visit.settled(title)
        assert page.evaluate(ACROSS) <= 0, "the page scrolls sideways"
        everything = look is looks[0] or number < 2
        wrong["dark phone" if look["dark"] else "light"] = violations(page, None if everything else BY_LOOK)
    assert not any(wrong.values()), wrong
    visit.check()


HOSTILE = [
    "N=0", "N=-5", "N=1e9", "N=abc", "N=128&N=256", "N=128.5", "d=", "Br=64&N=8", "dtype=fp3",
    "mask=<b>x</b>&N=<img src=x onerror=alert(1)>", "N=" + "9" * 10_000, "nonsense=1&causal=![x](//example.org/x)",
]  # fmt: skip


@pytest.mark.parametrize("query", HOSTILE, ids=[q[:24] for q in HOSTILE])
def test_hostile_links_open(query: str, tab: Opener) -> None:
    visit = tab(f"/tiles-in-motion?{query}").settled("Tiles in motion")
    notices = visit.page.get_by_test_id("stAlert")
    notices.first.wait_for()
    assert notices.count() == 1
    assert query.split("=")[0] in notices.first.inner_text()
    assert visit.page.locator("[data-testid=stMain] img, [data-testid=stAlert] b").count() == 0
    visit.check()


def test_the_chart_follows_the_theme(tab: Opener) -> None:
    visit = tab("/hbm-traffic").settled("HBM traffic")
    colour = "getComputedStyle(document.querySelector('.fmha-chart .xtick text')).fill"
    before = visit.page.evaluate(colour)
    visit.page.emulate_media(color_scheme="dark")
    visit.page.wait_for_function(f"{colour} !== {before!r}")
    visit.check()
