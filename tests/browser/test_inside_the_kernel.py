"""Inside the kernel in a real browser: the listing is clicked and driven by keys, and steps move its sign."""

from __future__ import annotations

import pytest
from playwright.sync_api import Locator

from fmha.errors import TraceError
from fmha.kernels import KERNELS
from fmha.trace.compilers import compiler
from tests.browser.conftest import Opener
from tests.browser.support import Visit
from tests.tools import need

SMALL = "N=64&d=32"
LINES = KERNELS["02"].source().split("\n")


@pytest.fixture(autouse=True)
def a_compiler() -> None:
    try:
        found = compiler().command[0]
    except TraceError:
        found = None
    need("cxx", found)


def line_of(words: str) -> int:
    return next(n for n, line in enumerate(LINES, 1) if words in line)


def row(visit: Visit, line: int) -> Locator:
    return visit.page.locator(f".fmha-source .row[data-line='{line}']").first


def scrolled(visit: Visit) -> tuple[float, float]:
    """Where the listing and the page are scrolled to."""
    script = "e => [e.scrollTop, document.querySelector('[data-testid=stMain]').scrollTop]"
    found = visit.page.locator(".fmha-source .list").first.evaluate(script)
    return float(found[0]), float(found[1])


def has_class(node: Locator, name: str) -> bool:
    return name in (node.get_attribute("class") or "").split()


def test_lines_are_clicked_steps_are_taken_and_nothing_jumps(visitor: Opener) -> None:
    visit = visitor(f"/inside-the-kernel?{SMALL}").settled("Inside the kernel")
    page, hot, load = visit.page, line_of("score += Qi["), line_of("Kj[e] = K[")
    visit.until(lambda: has_class(row(visit, hot), "chosen") and has_class(row(visit, hot), "now"))
    visit.until(lambda: scrolled(visit)[0] > 0)
    row(visit, load).scroll_into_view_if_needed()
    before = scrolled(visit)
    row(visit, load).locator(".code").click(position={"x": 40, "y": 5})
    page.get_by_text(f"Line {load}", exact=True).first.wait_for()
    visit.settled("Inside the kernel")
    assert has_class(row(visit, load), "chosen") and f"line={load}" in visit.query()
    assert scrolled(visit) == before, "neither the listing nor the page jumps"
    page.locator(".fmha-source .list").first.press("ArrowDown")
    visit.until(lambda: f"line={load + 1}" in visit.query())
    visit.settled("Inside the kernel")
    assert page.get_by_text(f"Line {load + 1}", exact=True).count() == 1

    page.get_by_role("button", name="Phase ▶").click()
    visit.until(lambda: has_class(row(visit, line_of("row_m = fmaxf")), "now"))
    visit.settled("Inside the kernel")
    assert page.locator(".fmha-lanes li.out").count() == 31, "one lane of a warp owns a row"
    page.get_by_role("button", name="◀ Request").click()
    visit.until(lambda: has_class(row(visit, line_of("Sij[s_row * Bc + s_col] = seen")), "now"))
    assert page.locator(".fmha-lanes li").count() == 33
    visit.check()


def test_a_barrier_taken_out_is_marked_in_the_source_on_a_dark_phone(visitor: Opener) -> None:
    barrier, reader = line_of("a row of Sij was filled"), line_of("row_m = fmaxf")
    visit = visitor(f"/inside-the-kernel?{SMALL}&take=barrier-{barrier}", dark=True, size=(390, 844), touch=True)
    visit.settled("Inside the kernel")
    visit.until(lambda: has_class(row(visit, reader), "bad"))
    assert row(visit, barrier).locator(".struck").all_inner_texts() == ["__syncthreads", "();"]
    assert "which nothing has written" in (row(visit, reader).get_attribute("title") or "")
    assert visit.page.locator(".fmha-source").first.evaluate("e => e.hasAttribute('data-dark')")
    visit.check()
