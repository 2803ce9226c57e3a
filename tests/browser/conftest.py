"""Browser tests: one server and one Chromium for all of them, a fresh profile for each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from tests.browser.support import ARGS, Visit, serve
from tests.tools import find_chromium, need

Opener = Callable[..., Visit]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All browser tests in one process of pytest-xdist: they share the server and the browser."""
    for item in items:
        if "browser" in item.path.parts:
            item.add_marker(pytest.mark.xdist_group("browser"))


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    chromium = need("browser", find_chromium())
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=chromium, args=ARGS)
        yield running
        running.close()


@pytest.fixture(scope="session")
def server(browser: Browser) -> Iterator[str]:
    """The app's address. Depends on the browser: without one there is nothing to start the app for."""
    with serve() as url:
        yield url


@pytest.fixture(scope="module")
def profile(browser: Browser) -> Iterator[BrowserContext]:
    """One profile for the tests of a file, in which nothing beyond this machine is reached: what the app's pages are
    made of is fetched once.
    """
    context = browser.new_context()
    context.set_default_timeout(30_000)
    context.route(
        lambda url: not url.startswith(("http://127.0.0.1", "http://localhost", "data:", "blob:")),
        lambda route: route.abort(),
    )
    yield context
    context.close()


@pytest.fixture
def tab(profile: BrowserContext, server: str) -> Iterator[Opener]:
    """Opens pages in new tabs of the file's profile, each a visit of its own to the app, as `visitor` does."""
    opened: list[Page] = []

    def open_page(
        path: str = "/", *, dark: bool = False, size: tuple[int, int] = (1280, 800), still: bool = False
    ) -> Visit:
        page = profile.new_page()
        opened.append(page)
        page.set_viewport_size({"width": size[0], "height": size[1]})
        page.emulate_media(
            color_scheme="dark" if dark else "light", reduced_motion="reduce" if still else "no-preference"
        )
        return Visit(page, server).open(path)

    yield open_page
    for page in opened:
        page.close()


@pytest.fixture
def visitor(browser: Browser, server: str) -> Iterator[Opener]:
    """Opens pages as a new visitor: `visitor("/memory-wall?N=64", dark=True, size=(390, 844))`."""
    contexts: list[Any] = []

    def open_page(
        path: str = "/",
        *,
        dark: bool = False,
        size: tuple[int, int] = (1280, 800),
        touch: bool = False,
        base: str = server,
    ) -> Visit:
        context = browser.new_context(
            viewport={"width": size[0], "height": size[1]},
            color_scheme="dark" if dark else "light",
            has_touch=touch,
        )
        context.set_default_timeout(30_000)
        contexts.append(context)
        return Visit(context.new_page(), base).open(path)

    yield open_page
    for context in contexts:
        context.close()
