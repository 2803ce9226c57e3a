"""Measure the interface in headless Chromium: `make measure-ui`.

Starts the app, then measures on "Tiles in motion": the time from a key press on a slider to the new picture, and
the frames while playing, at the default size and at 64 x 64 tiles, in two window sizes, with and without telling
Python the step; for every page the time to its first picture on a warm server; and the time from the start of the
server, which nobody has used yet, to the first moving picture in a browser that has nothing of the app. Prints a table
with the limits that the app holds itself to, and writes `.measure/ui.json`. Run it on a quiet machine; the load is
printed.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright

from tests.browser.support import ARGS, ROOT, Visit, serve
from tests.tools import find_chromium

WARM_MS = 4000  # after the first picture the server imports what the other pages need
SIZES = {"1280x800": (1280, 800), "1920x1080": (1920, 1080)}
# name -> settings in the URL, most KiB of payload, most ms of a change (median, 95th percentile), of a frame
# (95th percentile; while telling Python the step)
PROBLEMS: dict[str, tuple[str, float, tuple[float, float], tuple[float, float]]] = {
    "default": ("", 150, (150, 250), (17, 17)),
    "64x64 tiles": ("N=512&Br=8&Bc=8", 1536, (250, 400), (17, 34)),
}
FIRST_PICTURE_S, FIRST_MOVE_S = 2.5, 4.0
SLIDERS = ("seed", "head", "d", "N")  # the first of these that the page has is moved

WATCH = """
window.__key = 0;
addEventListener('keydown', () => { window.__key = performance.now(); }, true);
window.__waitDrawn = (before) => new Promise((done) => {
  const look = () => {
    if ((window.__fmhaPlayer?.drawn ?? 0) > before) requestAnimationFrame(() => done(performance.now() - window.__key));
    else requestAnimationFrame(look);
  };
  look();
});
window.__frames = (ms) => new Promise((done) => {
  const gaps = []; let last = 0; let start = 0;
  const tick = (t) => {
    if (last) gaps.push(t - last); else start = t;
    last = t;
    if (t - start < ms) requestAnimationFrame(tick); else done(gaps.slice(2));
  };
  requestAnimationFrame(tick);
});
"""
FIRST_PICTURE = (
    "(window.__fmhaPlayer && window.__fmhaPlayer.drawn > 0) || document.querySelector('.fmha-chart[data-drawn]')"
)
WORDS = ("learn/glossary.py", "learn/references.py", "lab/api.py")  # pages without a picture
PLAYER_THERE = "window.__fmhaPlayer && window.__fmhaPlayer.drawn > 0"


def quantile(values: Sequence[float], part: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, round(part * (len(ordered) - 1)))]


def open_player(browser: Browser, base: str, query: str, size: tuple[int, int]) -> Page:
    page = browser.new_context(viewport={"width": size[0], "height": size[1]}).new_page()
    page.add_init_script(WATCH)
    Visit(page, base).open(f"/tiles-in-motion?{query}").settled("Tiles in motion")
    page.wait_for_function(PLAYER_THERE, timeout=60_000)
    page.wait_for_timeout(1500)
    return page


def measure_changes(page: Page, count: int) -> tuple[str, list[float]]:
    """Milliseconds from key press to new picture, `count` times. Goes up as far as there is room, then down."""
    name = next(n for n in SLIDERS if page.locator(f".st-key-{n} input[type=range]").count())
    handle = page.locator(f".st-key-{name} input[type=range]").first
    times = []
    key = "ArrowRight"
    for _ in range(count):
        at, lo, hi, step = handle.evaluate("h => [h.value, h.min, h.max, h.step || 1].map(Number)")
        if key == "ArrowRight" and at + step > hi:
            key = "ArrowLeft"
        elif key == "ArrowLeft" and at - step < lo:
            key = "ArrowRight"
        handle.focus()
        before = page.evaluate("window.__fmhaPlayer.drawn")
        page.keyboard.press(key)
        times.append(float(page.evaluate("b => window.__waitDrawn(b)", before)))
        page.wait_for_timeout(250)  # let the rest of the run end: each change is measured by itself
    return name, times


def measure_frames(page: Page, sync: bool, seconds: float) -> list[float]:
    """Milliseconds between frames while playing."""
    page.evaluate("on => { const p = window.__fmhaPlayer; p.syncHz = on ? 4 : 0; p.play(); }", sync)
    page.wait_for_timeout(400)
    gaps: list[float] = page.evaluate("ms => window.__frames(ms)", seconds * 1000)
    page.evaluate("window.__fmhaPlayer.pause()")
    page.wait_for_timeout(600)
    return gaps


def measure_player(browser: Browser, base: str, changes: int, seconds: float) -> list[dict[str, Any]]:
    rows = []
    for problem, (query, most_kib, most_ms, most_frame) in PROBLEMS.items():
        for size_name, size in SIZES.items():
            page = open_player(browser, base, query, size)
            where = {"problem": problem, "window": size_name}
            if size_name == "1280x800":
                kib = page.evaluate("window.__fmhaPlayer.payloadBytes") / 1024
                rows.append({**where, "what": "payload, KiB", "value": kib, "limit": most_kib})
            slider, times = measure_changes(page, changes)
            for what, part, limit in (("median", 0.5, most_ms[0]), ("p95", 0.95, most_ms[1])):
                what = f"key on {slider!r} -> new picture, {what}, ms"
                rows.append({**where, "what": what, "value": quantile(times, part), "limit": limit})
            for sync in (False, True):
                gaps = measure_frames(page, sync, seconds)
                how = "with step sync" if sync else "no sync"
                fps = 1000 * len(gaps) / sum(gaps)
                rows.append({**where, "what": f"playing, {how}, frames/s", "value": fps, "limit": None})
                row = {"what": f"playing, {how}, frame p95, ms", "value": quantile(gaps, 0.95)}
                rows.append({**where, **row, "limit": most_frame[sync]})
            page.context.close()
    return rows


def measure_first_pictures(browser: Browser, base: str, repeats: int) -> list[dict[str, Any]]:
    """For a new visitor (nothing cached): seconds to the heading, to the first player or chart, to the last one."""
    from app import MENU, url_path

    rows: list[dict[str, Any]] = []
    for number, (file, title) in enumerate(entry for entries in MENU.values() for entry in entries):
        times: dict[str, list[float]] = {"heading": [], "first picture": [], "all pictures": []}
        for _ in range(repeats):
            context = browser.new_context(viewport={"width": 1280, "height": 800})
            page = context.new_page()
            visit = Visit(page, base)
            start = time.perf_counter()
            page.goto(f"{base}/{url_path(file) if number else ''}")  # the first page is the one at "/"
            page.locator("h1", has_text=title).wait_for(timeout=60_000)
            times["heading"].append(time.perf_counter() - start)
            if file not in WORDS:
                page.wait_for_function(FIRST_PICTURE, timeout=60_000)
                times["first picture"].append(time.perf_counter() - start)
                visit.settled(title)
                times["all pictures"].append(time.perf_counter() - start)
            context.close()
        for what, values in ((what, values) for what, values in times.items() if values):
            limit = FIRST_PICTURE_S if what == "first picture" else None
            row = {"problem": title, "window": "1280x800", "what": f"{what}, median, s"}
            rows.append({**row, "value": quantile(values, 0.5), "limit": limit})
    return rows


def measure_starts(browser: Browser, repeats: int) -> list[dict[str, Any]]:
    """Seconds from the command that `make run` ends with to the player of the first page moving by itself."""
    moving = "window.__fmhaPlayer?.controller.state.playing && window.__fmhaPlayer.controller.state.t > 0"
    times = []
    for _ in range(repeats):
        page = browser.new_context(viewport={"width": 1280, "height": 800}).new_page()
        start = time.perf_counter()
        with serve() as base:
            page.goto(base, wait_until="commit")
            page.wait_for_function(moving, polling=20, timeout=60_000)
            times.append(time.perf_counter() - start)
            page.context.close()
    row = {"problem": "start", "window": "1280x800", "what": "first moving picture, median, s"}
    return [{**row, "value": quantile(times, 0.5), "limit": FIRST_MOVE_S}]


def table(rows: list[dict[str, Any]]) -> str:
    lines = [f"{'problem or page':<18}{'window':<11}{'what':<42}{'measured':>10}{'limit':>8}"]
    for row in rows:
        limit = "" if row["limit"] is None else f"{row['limit']:g}"
        over = "  over" if row["limit"] is not None and row["value"] > row["limit"] else ""
        lines.append(f"{row['problem']:<18}{row['window']:<11}{row['what']:<42}{row['value']:>10.1f}{limit:>8}{over}")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure the interface in headless Chromium.")
    parser.add_argument("--changes", type=int, default=25, help="key presses a measurement (25)")
    parser.add_argument("--seconds", type=float, default=5.0, help="seconds of playing a measurement (5)")
    parser.add_argument("--repeats", type=int, default=3, help="loads of each page (3)")
    parser.add_argument("--pages-only", action="store_true", help="only the first pictures")
    parser.add_argument("--starts-only", action="store_true", help="only the start of the app")
    parser.add_argument("--out", type=Path, default=ROOT / ".measure" / "ui.json", help="the JSON file")
    args = parser.parse_args()
    chromium = find_chromium()
    if chromium is None:
        print("No Chromium was found. Install it, or name it in FMHA_CHROMIUM.", file=sys.stderr)
        return 2
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=ARGS)
        machine = {
            "date": time.strftime("%Y-%m-%d"),
            "cores": os.cpu_count(),
            "machine": platform.machine(),
            "browser": browser.version,
            "load": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        }
        print(", ".join(f"{name} {value}" for name, value in machine.items()), flush=True)
        rows = measure_starts(browser, args.repeats)
        if not args.starts_only:
            with serve() as base:
                Visit(browser.new_page(), base).open("/").page.wait_for_timeout(WARM_MS)
                rows += measure_first_pictures(browser, base, args.repeats)
                if not args.pages_only:
                    rows += measure_player(browser, base, args.changes, args.seconds)
        browser.close()
    print(table(rows))
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps({"machine": machine, "rows": rows}, indent=2) + "\n", encoding="utf-8")
    print(f"written: {args.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
