"""The tile map in a real browser: a cell is chosen by a click, and its tiles are handed to all pages."""

from __future__ import annotations

from tests.browser.conftest import Opener


def test_a_click_on_a_cell_chooses_it_and_its_tiles_go_everywhere(visitor: Opener) -> None:
    visit = visitor("/tile-map").settled("Tile map")
    page = visit.page
    assert page.get_by_role("heading", name="Br = 32, Bc = 32").count() == 1
    area = page.locator(".fmha-chart .nsewdrag").first
    box = area.bounding_box()
    assert box is not None
    # Seven columns and seven rows, Br = 8 on top: the fourth row is Br = 64, the second column Bc = 16.
    page.mouse.click(box["x"] + box["width"] * 1.5 / 7, box["y"] + box["height"] * 3.5 / 7)
    page.get_by_role("heading", name="Br = 64, Bc = 16").wait_for(timeout=20_000)
    visit.settled("Tile map")
    assert "mBr=64" in visit.query() and "mBc=16" in visit.query()
    page.get_by_role("button", name="Use Br = 64, Bc = 16 everywhere").click()
    page.get_by_text("All pages use Br = 64, Bc = 16").wait_for(timeout=20_000)
    visit.go("HBM traffic")
    visit.until(lambda: "Br=64" in visit.query() and "Bc=16" in visit.query())
    assert page.get_by_text("Br = 64 · Bc = 16").count() == 1
    visit.check()


def test_a_click_on_the_same_cell_twice_and_then_another(visitor: Opener) -> None:
    visit = visitor("/tile-map?mBr=16&mBc=16").settled("Tile map")
    page = visit.page
    for row, column, name in ((0, 0, "Br = 8, Bc = 8"), (0, 0, "Br = 8, Bc = 8"), (1, 2, "Br = 16, Bc = 32")):
        box = page.locator(".fmha-chart .nsewdrag").first.bounding_box()
        assert box is not None
        page.mouse.click(box["x"] + box["width"] * (column + 0.5) / 7, box["y"] + box["height"] * (row + 0.5) / 7)
        page.get_by_role("heading", name=name).wait_for(timeout=20_000)
        visit.settled("Tile map")
    visit.check()
