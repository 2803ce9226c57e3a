"""The player as GIF, WebM, MP4 or PNG, from Python. There is one drawing code, the browser's; so a browser draws.

A Chromium or Chrome without a window opens the player's file from a server that lives as long as the film takes, on
this machine only; the page films itself as it does for a person and hands the film back.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from fmha.errors import FmhaError, InputError
from fmha.export.player_file import html
from fmha.player.scene import Played
from fmha.processes import kill_tree
from fmha.simulation import Run

KINDS = ("png", "gif", "webm", "mp4")
MAX_SECONDS, MIN_WIDTH, MAX_WIDTH = 120, 320, 3840
_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "microsoft-edge", "msedge")
_PLACES = (
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
    "C:/Program Files/Google/Chrome/Application/chrome.exe",
    "C:/Program Files (x86)/Microsoft/Edge/Application/msedge.exe",
)
_QUIET = (
    "--headless", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-component-update",
    "--disable-sync", "--disable-quic", "--hide-scrollbars", "--window-size=1280,900", "--force-device-scale-factor=1",
)  # fmt: skip
_START_S = 60  # a cold browser on a busy machine
_MOST_BYTES = 1 << 30

_JOB = """(async () => {
  const { kind, options } = %s, root = document.documentElement;
  const tell = (what, body) => fetch(location.pathname + what, { method: "POST", body });
  try {
    while (!root.dataset.ready) await new Promise((go) => setTimeout(go, 20));
    if (!window.__fmhaPlayer) throw new Error(document.getElementById("stage").textContent);
    await tell("done", await window.__fmhaPlayer.film(kind, options));
  } catch (error) {
    await tell("failed", String(error.message));
  }
})();"""


def film(
    run: Run | Played,
    kind: str = "gif",
    *,
    seconds: int = 12,
    width: int = 1280,
    theme: str = "light",
    browser: str | None = None,
    **look: Any,
) -> bytes:
    """The whole run as a film of `seconds`, or (png) the moment at which the player opens, `width` pixels wide.

    A video takes as long to make as it lasts; a GIF is made as fast as the machine can.

    Args:
        kind: "gif", "webm", "mp4" or "png". Not every browser can write mp4.
        theme: "light" or "dark".
        browser: path of a Chromium or Chrome; by default `find_browser()`.
        look: as for `fmha.export.html`: inputs, gpu, sms, l2_bytes, race, event, row, col.

    Raises:
        InputError: another kind, length, width or theme.
        FmhaError: no browser was found, or it cannot make such a film.
    """
    if kind not in KINDS:
        raise InputError(f"kind={str(kind)[:20]!r} is no kind of film: use one of {', '.join(KINDS)}.")
    if theme not in ("light", "dark"):
        raise InputError(f"theme={str(theme)[:20]!r} is not known: use light or dark.")
    for name, value, most, usual in (("seconds", seconds, MAX_SECONDS, 12), ("width", width, MAX_WIDTH, 1280)):
        least = 1 if name == "seconds" else MIN_WIDTH
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise InputError(
                f"{name}={str(value)[:20]} is out of range: use {least:,} to {most:,}, for example {usual:,}."
            )
    options = {"seconds": seconds, "width": width}
    path = browser or find_browser()
    if path is None:
        raise FmhaError(
            f"a {kind} is drawn by a browser, and no Chromium or Chrome was found: install one, name it in "
            "FMHA_CHROMIUM, or export html and press s in the player."
        )
    page = html(run, theme=theme, job=_JOB % json.dumps({"kind": kind, "options": options}), **look)
    with _served(page) as (url, answer), _opened(path, url) as alive:
        return answer(alive, _START_S + 4 * seconds)


def find_browser() -> str | None:
    """The Chromium or Chrome of this machine: the one named in FMHA_CHROMIUM, the first on the PATH, a usual place."""
    names = (os.environ.get("FMHA_CHROMIUM"), *_NAMES)
    found = next((path for name in names if name and (path := shutil.which(name))), None)
    return found or next((place for place in _PLACES if Path(place).is_file()), None)


Alive = Callable[[], bool]


@contextmanager
def _served(page: str) -> Iterator[tuple[str, Callable[[Alive, float], bytes]]]:
    """Serve `page` at an address that cannot be guessed: (address, function that waits for what comes back)."""
    got: dict[str, bytes] = {}
    arrived = threading.Event()
    secret = f"/{secrets.token_urlsafe(16)}/"

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(page.encode() if self.path == secret else None)

        def do_POST(self) -> None:
            what, length = self.path.removeprefix(secret), int(self.headers.get("Content-Length") or 0)
            if not self.path.startswith(secret) or what not in ("done", "failed") or length > _MOST_BYTES:
                return self._answer(None)
            got[what] = self.rfile.read(length)
            self._answer(b"")
            arrived.set()

        def _answer(self, body: bytes | None) -> None:
            self.send_response(404 if body is None else 200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(body or b"")))
            self.end_headers()
            self.wfile.write(body or b"")

        def log_message(self, *_: Any) -> None:
            """Nothing on stderr."""

    def answer(alive: Alive, seconds: float) -> bytes:
        end = time.monotonic() + seconds
        while not arrived.wait(0.2):
            if not alive():
                raise FmhaError("the browser ended before the film was made: try another one through FMHA_CHROMIUM.")
            if time.monotonic() > end:
                raise FmhaError(f"the film was not made within {seconds:.0f} s: try fewer seconds or a smaller width.")
        if "failed" in got:
            said = " ".join(got["failed"].decode(errors="replace").split())[:200]
            raise FmhaError(f"the film was not made: {said}; try gif, or another browser through FMHA_CHROMIUM.")
        return got["done"]

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}{secret}", answer
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def _opened(path: str, url: str) -> Iterator[Alive]:
    """A browser without a window on `url`, with a profile of its own; both are gone in the end."""
    with tempfile.TemporaryDirectory(prefix="fmha-film-", ignore_cleanup_errors=True) as profile:
        command = [path, *_QUIET, f"--user-data-dir={profile}"]
        if sys.platform == "linux" and hasattr(os, "geteuid") and os.geteuid() == 0:
            command.append("--no-sandbox")  # Chromium refuses to start as root with it
        try:
            process = subprocess.Popen(
                [*command, url], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
        except OSError as error:
            raise FmhaError(f"the browser {path[:80]} did not start: {error.strerror or error}.") from None
        try:
            yield lambda: process.poll() is None
        finally:
            kill_tree(process)
            process.wait()


__all__ = ["KINDS", "film", "find_browser"]
