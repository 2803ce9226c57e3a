"""Browser tests: one server and one Chromium for all of them, a fresh profile for each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, sync_playwright

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
