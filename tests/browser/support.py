"""A running app and a browser looking at it; used by the browser tests and by tests/measure_ui.py."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from playwright.sync_api import Locator, Page

ROOT = Path(__file__).resolve().parent.parent.parent
ARGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip
# The script has not been running for a fifth of a second, nothing is faded out as stale, every element is there (its
# code may still be on its way: a skeleton holds the place) and every chart is drawn.
SETTLED = """() => {
  const app = document.querySelector('[data-testid=stApp]');
  const quiet = app?.dataset.testScriptState === 'notRunning'
    && !document.querySelector('[data-stale=true], [data-testid=stSkeleton]')
    && [...document.querySelectorAll('.fmha-chart')].every((c) => c.dataset.drawn);
  if (!quiet) { window.__quietSince = undefined; return false; }
  window.__quietSince ??= performance.now();
  return performance.now() - window.__quietSince > 200;
}"""
START_S = 90  # a cold start on a busy machine


def free_port() -> int:
    """A port of this machine that nothing uses at the moment."""
    first = int(os.environ.get("FMHA_PORT", "0"))  # a port to begin with, where ports are dealt out by hand
    for port in range(first, first + 50) if first else (0,):
        with socket.socket() as s:
            try:
                s.bind(("127.0.0.1", port))
            except OSError:
                continue
            return int(s.getsockname()[1])
    raise RuntimeError(f"no free port from {first} on")


@contextmanager
def serve(script: Path = ROOT / "app.py") -> Iterator[str]:
    """Run `streamlit run script` and yield its address; the server ends with the block."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "streamlit", "run", str(script), "--server.headless=true"]
    command += [f"--server.port={port}", "--server.address=127.0.0.1", "--server.fileWatcherType=none"]
    with tempfile.TemporaryFile("w+") as log:
        env = {**os.environ, "PYTHONPATH": str(ROOT)}
        server = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT, env=env)
        try:
            end = time.monotonic() + START_S
            while not is_up(url):
                if server.poll() is not None or time.monotonic() > end:
                    log.seek(0)
                    raise RuntimeError(f"the app did not start:\n{log.read()[-4000:]}")
                time.sleep(0.05)
            yield url
        finally:
            server.terminate()
            try:
                server.wait(10)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()


def is_up(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/_stcore/health", timeout=2) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


class Visit:
    """One browser page on the app, and everything that went wrong on it."""

    def __init__(self, page: Page, base: str) -> None:
        self.page, self.base = page, base
        self.errors: list[str] = []
        self.strangers: list[str] = []  # requests that left this machine
        page.on("console", lambda message: self._console(message.type, message.text, message.location))
        page.on("pageerror", lambda error: self.errors.append(f"page error: {error}"))
        page.on("request", lambda request: self._request(request.url))

    def _console(self, kind: str, text: str, where: Mapping[str, Any]) -> None:
        # On a deep link Streamlit's own page looks for its server below the page's path first: two 404s.
        probing = "404" in text and str(where.get("url", "")).endswith(("/_stcore/health", "/_stcore/host-config"))
        if kind == "error" and not probing:
            self.errors.append(f"console: {text} ({where.get('url', '')})")

    def _request(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("data", "blob", "about") and parts.hostname not in ("127.0.0.1", "localhost"):
            self.strangers.append(url)

    def open(self, path: str = "/") -> Visit:
        """Go to a page of the app and wait until it is there in full."""
        self.page.goto(self.base + path)
        return self.settled()

    def settled(self, heading: str | None = None) -> Visit:
        """Wait until the script has run, the heading (if given) is shown and every chart is drawn."""
        failed = self.page.get_by_test_id("stException")
        self.page.locator("h1", has_text=heading).or_(failed).first.wait_for(timeout=60_000)
        assert not failed.count(), failed.all_inner_texts()
        self.page.evaluate("window.__quietSince = undefined")
        self.page.wait_for_function(SETTLED, timeout=60_000)
        return self

    def go(self, title: str) -> Visit:
        """Follow the menu to another page."""
        self.follow(title)
        return self.settled(title)

    def follow(self, title: str) -> None:
        """Click a page in the menu, without waiting for it."""
        for section in self._sections():
            section.click()
            link = self.page.get_by_role("menuitem", name=title, exact=True)
            self.page.get_by_role("menu").wait_for()
            if link.count():
                link.click()
                return
            self.page.keyboard.press("Escape")
        raise AssertionError(f"no page {title!r} in the menu")

    def control(self, name: str) -> Locator:
        """The box of the control `name`, whichever widget it is: one that has taken another's place has a number."""
        return self.page.locator(f'.st-key-{name}, [class*="st-key-{name}-"]').first

    def slider(self, name: str) -> Locator:
        """The handle of the slider for the setting `name`."""
        return self.control(name).locator("input[type=range]").first

    def menu(self) -> list[str]:
        """The titles in the menu, section after section."""
        titles: list[str] = []
        for section in self._sections():
            section.click()
            self.page.get_by_role("menu").wait_for()
            titles += self.page.get_by_role("menuitem").all_inner_texts()
            self.page.keyboard.press("Escape")
            self.page.get_by_role("menu").wait_for(state="hidden")
        return titles

    def _sections(self) -> list[Locator]:
        return self.page.get_by_test_id("stTopNavSection").all()

    def query(self) -> str:
        """The address bar's query string."""
        return urlsplit(self.page.url).query

    def until(self, truth: Callable[[], bool], seconds: float = 10) -> None:
        """Wait until `truth` holds; it is asserted at the end."""
        end = time.monotonic() + seconds
        while not truth() and time.monotonic() < end:
            self.page.wait_for_timeout(100)
        assert truth()

    def check(self) -> None:
        """Nothing went wrong: no error on the console, no exception on the page, no request to the outside."""
        exceptions = self.page.get_by_test_id("stException").all_inner_texts()
        assert not exceptions, exceptions
        assert not self.errors, self.errors
        assert not self.strangers, self.strangers
