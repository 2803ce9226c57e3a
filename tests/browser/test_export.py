"""What people take home, opened as they would: a file without network, a notebook's frame, films, charts, the box."""

from __future__ import annotations

import base64
import csv
import io
import json
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import av
import pytest
from PIL import Image, ImageStat
from playwright.sync_api import Browser, Page

from fmha import Run, export
from fmha.export.filming import find_browser
from tests.browser.conftest import Opener
from tests.export.support import made

PLAYER = "window.__fmhaPlayer"
AS_BASE64 = """async ([kind, options]) => {
  const blob = await window.__fmhaPlayer.film(kind, options), bytes = new Uint8Array(await blob.arrayBuffer());
  let text = "";
  for (let k = 0; k < bytes.length; k += 4096) text += String.fromCharCode(...bytes.subarray(k, k + 4096));
  return btoa(text);
}"""


def wait_until(truth: Callable[[], bool], page: Page, seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while not truth():
        assert time.monotonic() < end
        page.wait_for_timeout(50)


class File:
    """A file on an open page: no network, and everything that goes wrong is written down."""

    def __init__(self, page: Page, path: Path) -> None:
        self.page, self.wrong = page, []
        page.on("console", lambda m: self.wrong.append(m.text) if m.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: self.wrong.append(str(error)))
        page.on(
            "request", lambda r: self.wrong.append(r.url) if not r.url.startswith(("file:", "blob:", "data:")) else None
        )
        page.goto(path.as_uri())
        page.locator("html[data-ready=true]").wait_for()

    def state(self) -> dict[str, Any]:
        return dict(self.page.evaluate(f"({{...{PLAYER}.controller.state}})"))

    def pixels(self) -> str:
        self.page.evaluate("new Promise((ok) => requestAnimationFrame(() => requestAnimationFrame(ok)))")
        return str(self.page.locator("canvas").evaluate("c => c.toDataURL()"))

    def until(self, truth: str) -> None:
        """Wait until an expression holds. Playwright's own way needs eval, which the file's policy forbids."""
        wait_until(lambda: bool(self.page.evaluate(truth)), self.page)

    def film(self, kind: str, **options: Any) -> bytes:
        return base64.b64decode(self.page.evaluate(AS_BASE64, [kind, options]))


@pytest.fixture(scope="module")
def run() -> Run:
    return made(N=128, d=16, causal=True, sms=16)


@pytest.fixture
def file(browser: Browser, run: Run, tmp_path: Path) -> Iterator[File]:
    (tmp_path / "run.html").write_text(export.html(run), encoding="utf-8")
    context = browser.new_context(viewport={"width": 1280, "height": 900}, offline=True)
    yield File(context.new_page(), tmp_path / "run.html")
    context.close()


def test_the_file_plays_steps_scrubs_and_follows_every_worker(file: File) -> None:
    page = file.page
    page.locator(".fmha-player").focus()
    for key in ("Home", "ArrowRight", "ArrowRight"):
        page.keyboard.press(key)
    first, start = file.pixels(), file.state()["t"]
    page.keyboard.press("ArrowRight")
    assert file.state()["t"] > start and file.pixels() != first
    page.keyboard.press("ArrowLeft")
    assert file.pixels() == first
    page.keyboard.press(" ")
    file.until(f"{PLAYER}.controller.state.t > {PLAYER}.controller.data.end * 0.02")
    page.keyboard.press(" ")
    assert not file.state()["playing"]
    page.locator(".scrub").fill("5000")
    end = page.evaluate(f"{PLAYER}.controller.data.end")
    assert file.state()["t"] == pytest.approx(end / 2, rel=1e-3)
    words = page.locator("[aria-live]")
    for sm in range(1, 16):  # Python is not there to send the numbers of another worker: they are in the file
        page.locator(".fmha-player").focus()
        page.keyboard.press("ArrowDown")
        words.filter(has_text=f"SM {sm},").wait_for(state="attached")
        assert "m_new" in words.inner_text() or "O[0]" in words.inner_text()
    page.keyboard.press("?")
    page.get_by_role("dialog", name="Keys and clicks").wait_for()
    assert not file.wrong


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_the_file_follows_the_readers_theme_and_fits_a_phone(
    browser: Browser, run: Run, tmp_path: Path, dark: bool
) -> None:
    (tmp_path / "run.html").write_text(export.html(run, race=True), encoding="utf-8")
    look = {"color_scheme": "dark" if dark else "light", "viewport": {"width": 390, "height": 844}}
    context = browser.new_context(**look, offline=True)  # type: ignore[arg-type]
    file = File(context.new_page(), tmp_path / "run.html")
    ground = file.page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert ground == ("rgb(16, 21, 28)" if dark else "rgb(255, 255, 255)")
    assert file.page.evaluate(f"{PLAYER}.theme.isDark") == dark
    assert file.page.evaluate("document.documentElement.scrollWidth") <= 390
    file.page.emulate_media(color_scheme="light" if dark else "dark")
    file.until(f"{PLAYER}.theme.isDark !== {json.dumps(dark)}")
    assert not file.wrong
    context.close()


def test_films_are_read_by_pillow_and_ffmpeg(file: File) -> None:
    with Image.open(io.BytesIO(file.film("png", width=900))) as png:
        assert png.format == "PNG" and png.width == 900 and max(ImageStat.Stat(png.convert("L")).stddev) > 10
    with Image.open(io.BytesIO(file.film("gif", width=800, seconds=1))) as gif:
        assert (gif.format, gif.width, gif.n_frames) == ("GIF", 800, 10)
        first = gif.convert("RGB")
        gif.seek(9)
        assert first.tobytes() != gif.convert("RGB").tobytes()
    kinds = ["webm"] + ["mp4"] * bool(file.page.evaluate("MediaRecorder.isTypeSupported('video/mp4')"))
    for kind in kinds:
        with av.open(io.BytesIO(file.film(kind, width=800, seconds=1))) as video:
            pictures = [picture.to_image() for picture in video.decode(video=0)]
            assert kind in video.format.name.split(",") and pictures[0].width == 800
            assert video.duration and len(pictures) >= 2 and pictures[0].tobytes() != pictures[-1].tobytes()
    assert not file.wrong


def test_a_film_is_saved_from_the_box_and_can_be_broken_off(file: File) -> None:
    page = file.page
    page.get_by_role("button", name="Save a picture or a film").click()
    box = page.get_by_role("dialog", name="Save a picture or a film")
    box.get_by_label("Width in pixels").select_option("800")
    with page.expect_download() as download:
        box.get_by_role("button", name="PNG").click()
    assert download.value.suggested_filename == "fmha-q-outer-N128-d16-Br8-Bc8-causal.png"
    box.get_by_role("button", name="WebM video").click()
    box.get_by_text("Filming").wait_for()
    page.keyboard.press("Escape")
    box.wait_for(state="hidden")
    page.keyboard.press("s")
    box.get_by_role("button", name="WebM video", disabled=False).wait_for()
    assert box.get_by_role("status").inner_text() == ""
    assert not file.wrong


def test_a_notebooks_frame_plays_and_saves(browser: Browser, run: Run, tmp_path: Path) -> None:
    path = tmp_path / "notebook.html"
    path.write_text(f"<!DOCTYPE html><body>{run._repr_html_()}</body>", encoding="utf-8")
    context = browser.new_context(offline=True)
    page, wrong = context.new_page(), []
    page.on("console", lambda m: wrong.append(m.text) if m.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.goto(path.as_uri())
    frame = page.frame_locator("iframe")
    frame.locator("html[data-ready=true]").wait_for()
    inner = page.frames[1]
    frame.get_by_role("button", name="To the start").click()
    frame.get_by_role("button", name="Play or pause").click()
    wait_until(lambda: inner.evaluate(f"{PLAYER}.controller.state.t > 0"), page)
    frame.get_by_role("button", name="Save a picture or a film").click()
    with page.expect_download():
        frame.get_by_role("button", name="PNG").click()
    frame.get_by_role("button", name="Close").click()
    frame.get_by_role("dialog").wait_for(state="hidden")
    assert not wrong
    context.close()


def test_python_films_with_a_browser_of_its_own(browser: Browser, run: Run) -> None:
    with Image.open(
        io.BytesIO(export.film(run, "gif", seconds=1, width=800, theme="dark", browser=find_browser()))
    ) as gif:
        assert (gif.format, gif.n_frames) == ("GIF", 10)
        r, g, b = gif.convert("RGB").getpixel((2, 2))  # type: ignore[misc]
        assert max(r, g, b) < 60


def test_a_chart_is_saved_as_png_svg_and_csv_by_keyboard(visitor: Opener) -> None:
    visit = visitor("/hbm-traffic").settled("HBM traffic")
    page, saved = visit.page, {}
    menu = page.locator("details.fmha-save").first
    menu.locator("summary").wait_for()  # it is there when its chart is drawn
    for kind in ("PNG", "SVG", "CSV"):
        menu.locator("summary").focus()
        page.keyboard.press("Enter")
        menu.get_by_role("button", name=kind).focus()
        with page.expect_download() as download:
            page.keyboard.press("Enter")
        assert download.value.suggested_filename == f"fmha-requested-bytes.{kind.lower()}"
        saved[kind] = Path(download.value.path()).read_bytes()
        menu.evaluate("d => new Promise((ok) => (function look() { d.open ? setTimeout(look, 20) : ok(); })())")
    with Image.open(io.BytesIO(saved["PNG"])) as png:
        assert png.width > 1000 and png.convert("RGBA").getpixel((1, 1)) == (255, 255, 255, 255)
    svg = ElementTree.fromstring(saved["SVG"])
    assert svg.tag == "{http://www.w3.org/2000/svg}svg" and "Requested bytes" in "".join(svg.itertext())
    head, *rows = csv.reader(io.StringIO(saved["CSV"].decode()))
    assert head[0] == "series" and len(rows) > 10 and all(float(row[1]) > 0 for row in rows)
    visit.check()


def test_the_box_takes_the_view_home(visitor: Opener, tmp_path: Path, browser: Browser) -> None:
    visit = visitor("/tiles-in-motion?N=64&d=16&causal=br").settled("Tiles in motion")
    page = visit.page
    page.wait_for_function(f"{PLAYER} && {PLAYER}.drawn > 0")
    page.get_by_role("button", name="Take it home").click()
    got: dict[str, bytes] = {}
    for name in ("Player, one HTML file", "NumPy", "Parquet", "Perfetto"):
        with page.expect_download() as download:
            page.get_by_role("button", name=name).click()
        got[download.value.suggested_filename.rpartition(".")[2]] = Path(download.value.path()).read_bytes()
    assert set(got) == {"html", "npz", "parquet", "json"}
    assert "events.npy" in zipfile.ZipFile(io.BytesIO(got["npz"])).namelist() and got["parquet"][:4] == b"PAR1"
    assert any(e["ph"] == "C" for e in json.loads(got["json"])["traceEvents"])
    link = page.get_by_test_id("stPopoverBody").locator("code").first.inner_text()
    assert link.startswith(f"{visit.base}/tiles-in-motion?") and "causal=br" in link and "N=64" in link
    visit.check()
    (tmp_path / "home.html").write_bytes(got["html"])
    context = browser.new_context(offline=True)
    file = File(context.new_page(), tmp_path / "home.html")
    here, there = (p.evaluate(f"{PLAYER}.controller.chosen().event") for p in (page, file.page))
    assert here == there and not file.wrong
    context.close()
