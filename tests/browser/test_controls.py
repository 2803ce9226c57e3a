"""Sliders under fast keys and page changes; the address bar; copied links."""

from __future__ import annotations

import re
from urllib.parse import parse_qsl, urlencode

from playwright.sync_api import Browser, Route

from tests.browser.conftest import Opener
from tests.browser.support import Visit

OTHERS = ["HBM traffic", "Kernel lab", "Attention", "The memory wall", "Online softmax", "Worked example"]


def value(visit: Visit, name: str) -> str:
    """What the slider says its value is."""
    handle = visit.slider(name)
    return str(handle.evaluate("h => h.getAttribute('aria-valuetext') ?? h.value"))


def shown(visit: Visit) -> dict[str, str]:
    """Every slider of the page with its value."""
    boxes = visit.page.get_by_test_id("stSlider")
    return {
        boxes.nth(i).locator("label").first.inner_text(): boxes.nth(i)
        .locator("input[type=range]")
        .first.evaluate("h => h.getAttribute('aria-valuetext') ?? h.value")
        for i in range(boxes.count())
    }


def names(visit: Visit) -> dict[str, str]:
    """What the address bar says."""
    return dict(parse_qsl(visit.query()))


def test_eight_fast_keys_all_count(visitor: Opener) -> None:
    """Eight presses, faster than the page can follow: none is lost or undone, and the URL says the last value."""
    visit = visitor("/tiles-in-motion").settled("Tiles in motion")
    handle = visit.slider("N")
    handle.focus()
    visit.page.keyboard.press("Home")
    visit.page.wait_for_function("location.search.includes('N=')")
    visit.settled()
    start, end, step = handle.evaluate("h => [h.value, h.max, h.step || 1].map(Number)")
    first = names(visit)["N"]
    for _ in range(8):
        visit.page.keyboard.press("ArrowRight", delay=5)
    visit.page.wait_for_function(f"!/N={first}(&|$)/.test(location.search)")
    visit.page.wait_for_timeout(300)
    visit.settled()
    assert handle.evaluate("h => Number(h.value)") == min(start + 8 * step, end)
    assert names(visit)["N"] == value(visit, "N")
    assert f"N = {value(visit, 'N')}" in visit.page.get_by_test_id("stMain").inner_text(), "said beside the result"
    visit.check()


def test_values_outlive_every_page_change(visitor: Opener) -> None:
    visit = visitor("/tiles-in-motion?N=96&d=32&Br=16&Bc=16&H=2").settled("Tiles in motion")
    before, link = shown(visit), names(visit)
    for title in OTHERS:
        visit.go(title)
        visit.go("Tiles in motion")
        assert shown(visit) == before, title
        visit.until(lambda: names(visit).items() >= link.items())
    visit.check()


def test_a_key_just_before_a_page_change_is_kept(visitor: Opener) -> None:
    visit = visitor("/tiles-in-motion").settled("Tiles in motion")
    handle = visit.slider("N")
    handle.focus()
    visit.page.keyboard.press("ArrowLeft")
    visit.settled()
    visit.page.wait_for_function("location.search.includes('N=')")
    link = names(visit)["N"]
    visit.follow("HBM traffic")
    visit.follow("Online softmax")  # before the page in between has been drawn
    visit.settled("Online softmax")
    visit.go("Tiles in motion")
    assert names(visit)["N"] == link
    visit.check()


def test_a_copied_link_opens_the_same_view(visitor: Opener) -> None:
    visit = visitor("/tiles-in-motion").settled("Tiles in motion")
    for label, key in (("N", "ArrowLeft"), ("Br", "ArrowRight")):
        visit.slider(label).focus()
        visit.page.keyboard.press(key)
        visit.page.wait_for_timeout(150)
        visit.settled()
    visit.page.wait_for_function("location.search.includes('N=') && location.search.includes('Br=')")
    copy = visitor(f"/tiles-in-motion?{visit.query()}").settled("Tiles in motion")
    assert shown(copy) == shown(visit)
    copy.until(lambda: names(copy) == names(visit))
    assert copy.page.get_by_test_id("stAlert").count() == 0
    copy.check()


def test_back_undoes_a_change(visitor: Opener) -> None:
    visit = visitor("/tiles-in-motion?N=64").settled("Tiles in motion")
    visit.slider("N").focus()
    visit.page.keyboard.press("ArrowRight")
    visit.page.wait_for_function("!/N=64(&|$)/.test(location.search)")
    visit.settled()
    visit.page.go_back()
    visit.page.wait_for_function("/N=64(&|$)/.test(location.search)")
    visit.page.wait_for_timeout(300)
    visit.settled()
    assert value(visit, "N").startswith("64")
    assert names(visit)["N"] == "64"
    visit.check()


def test_controls_whose_code_comes_late_show_what_the_link_says(browser: Browser, server: str) -> None:
    """On a slow network the page has run several times before the browser has the code of its controls. Nothing falls
    back to where an untouched widget would begin."""
    context = browser.new_context()
    context.set_default_timeout(30_000)
    late: list[Route] = []
    code = re.compile(r"/static/js/(NumberInput|Selectbox|ButtonGroup|Checkbox|TextInput)\.")
    context.route(code, lambda route: late.append(route))
    visit = Visit(context.new_page(), server)
    link = {"N": "96", "Br": "16", "causal": "br", "race": "1", "seed": "7", "rows": "1, 2", "gpu": "H100"}
    visit.page.goto(f"{server}/tiles-in-motion?{urlencode(link)}")
    visit.slider("N").focus()
    for _ in range(3):
        before = names(visit)["N"]
        visit.page.keyboard.press("ArrowRight")
        visit.until(lambda before=before: names(visit)["N"] not in (before, "96"))
    moved = link | {"N": names(visit)["N"]}
    while late:
        late.pop().continue_()
        visit.page.wait_for_timeout(50)
    visit.settled("Tiles in motion")
    visit.slider("N").focus()
    visit.page.keyboard.press("ArrowLeft")  # the first message that tells of the late ones
    visit.until(lambda: names(visit)["N"] != moved["N"])
    visit.settled()
    assert {name: text for name, text in names(visit).items() if name in link} == moved | {"N": names(visit)["N"]}
    assert visit.control("seed").locator("input").input_value() == "7"
    assert visit.control("causal").locator("[aria-checked=true]").inner_text() == "bottom-right"
    visit.check()
    context.close()
