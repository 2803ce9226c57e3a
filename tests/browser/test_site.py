"""The static site as its reader has it: opened from the disk, without a network, page after page."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from fmha.lecture.library import FIRST, decks, load
from fmha.site import players
from fmha.site.build import build
from fmha.site.frame import MENU
from tests.browser.axe import violations
from tests.browser.test_export import wait_until

STEPS = load(decks()[FIRST]).steps
PLAYER = "window.__fmhaPlayer"
# Every figure that can be seen is drawn; as figures are drawn when they come near, all are brought near first.
DRAWN = """() => {
  const seen = [...document.querySelectorAll('.fmha-chart')].filter((c) => c.checkVisibility());
  const wait = seen.find((c) => !c.dataset.drawn);
  wait?.scrollIntoView();
  return !wait;
}"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("out") / "site"
    build(folder)
    return folder


class Reader:
    """A page without network, and everything that goes wrong on it."""

    def __init__(self, page: Page, site: Path) -> None:
        self.page, self.site = page, site
        self.wrong: list[str] = []
        page.on("console", lambda m: self.wrong.append(m.text) if m.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: self.wrong.append(str(error)))
        page.on("requestfailed", lambda request: self._failed(request.url, str(request.failure)))
        page.on(
            "request", lambda r: self.wrong.append(r.url) if not r.url.startswith(("file:", "blob:", "data:")) else None
        )

    def _failed(self, url: str, why: str) -> None:
        if "ERR_ABORTED" not in why:  # the reader turned the page while it came
            self.wrong.append(f"{why}: {url}")

    def open(self, name: str) -> Page:
        self.page.goto((self.site / name).as_uri())
        self.page.locator("h1").first.wait_for()
        return self.page

    def drawn(self) -> None:
        wait_until(lambda: bool(self.page.evaluate(DRAWN)), self.page)


@pytest.fixture
def reader(browser: Browser, site: Path) -> Iterator[Reader]:
    context = browser.new_context(viewport={"width": 1280, "height": 900}, offline=True)
    context.set_default_timeout(20_000)
    yield Reader(context.new_page(), site)
    context.close()


def test_every_page_opens_and_draws_without_a_network(reader: Reader) -> None:
    names = sorted(path.relative_to(reader.site).as_posix() for path in reader.site.rglob("*.html"))
    figures = 0
    for name in names:
        page = reader.open(name)
        if name.startswith(f"{players.FOLDER}/"):
            page.locator("html[data-ready=true]").wait_for()
            continue
        page.evaluate("document.querySelectorAll('.step details').forEach((d) => { d.open = true; })")
        reader.drawn()
        figures += page.locator(".fmha-chart[data-drawn]").count()
        assert not reader.wrong, (name, reader.wrong)
    assert len(names) > 35 and figures > 30
    assert not reader.wrong


def test_the_lecture_is_read_with_page_down_alone(reader: Reader) -> None:
    page = reader.open("lecture/01.html")
    for number, step in enumerate(STEPS, 1):
        page.locator("h1", has_text=f"{number}. {step.title}").wait_for()
        page.locator("html[data-ready=true]").wait_for()
        if step.question is not None:
            answer = page.locator(".right")
            assert not answer.is_visible()
            page.keyboard.press("PageDown")
            answer.wait_for()
            assert not step.question.changes or page.locator(".after").is_visible()
        page.keyboard.press("PageDown")
    assert page.url.endswith(f"{len(STEPS):02}.html"), "there is nothing after the last step"
    page.keyboard.press("PageUp")
    page.locator("h1", has_text=f"{len(STEPS) - 1}. ").wait_for()
    assert not reader.wrong


def test_players_play_in_the_first_page_and_lead_on(reader: Reader) -> None:
    page = reader.open("index.html")
    frame = page.frame_locator("iframe")
    frame.locator("html[data-ready=true]").wait_for()
    inner = page.frames[1]
    frame.get_by_role("button", name="To the start").click()
    frame.get_by_role("button", name="Play or pause").click()
    wait_until(lambda: inner.evaluate(f"{PLAYER}.controller.state.t > 0"), page)
    page.get_by_role("link", name="The player alone").click()
    for preset in players.PRESETS[1:3]:
        page.get_by_role("link", name=preset.title).click()
        page.locator("h1", has_text=preset.title).wait_for()
        page.locator("html[data-ready=true]").wait_for()
    page.get_by_role("link", name="All players").click()
    page.locator("h1", has_text="Players").wait_for()
    assert not reader.wrong


def test_a_figure_is_saved(reader: Reader) -> None:
    page = reader.open("figures.html")
    menu = page.locator("details.fmha-save").first
    menu.locator("summary").wait_for()
    menu.locator("summary").focus()
    page.keyboard.press("Enter")
    with page.expect_download() as download:
        menu.get_by_role("button", name="CSV").click()
    head, *rows = csv.reader(io.StringIO(Path(download.value.path()).read_text(encoding="utf-8")))
    assert head[0] == "series" and len(rows) > 10
    assert not reader.wrong


@pytest.mark.parametrize(("look", "wide"), [("light", 1280), ("dark", 390)])
def test_pages_are_accessible_and_fit(look: str, wide: int, reader: Reader) -> None:
    page = reader.page
    page.emulate_media(color_scheme=look, reduced_motion="reduce")  # type: ignore[arg-type]
    page.set_viewport_size({"width": wide, "height": 800})
    for name in [*(target for target, _ in MENU), "lecture/09.html", "lecture/11.html", "players/race.html"]:
        reader.open(name)
        page.evaluate("document.querySelectorAll('.step details').forEach((d) => { d.open = true; })")
        reader.drawn()
        assert page.evaluate("document.documentElement.scrollWidth") <= wide, f"{name} scrolls sideways"
        assert not violations(page), name
    assert not reader.wrong
