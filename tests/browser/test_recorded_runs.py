"""A recorded run in a browser: on Timeline beside the prediction, opened from a file, and in the player."""

from __future__ import annotations

from pathlib import Path

from fmha.stamp_files import shipped
from tests.browser.conftest import Opener
from tests.browser.test_player import Player

NAME = "h200-02-n2048-h1"


def test_a_recording_is_opened_looked_at_and_played(visitor: Opener, tmp_path: Path) -> None:
    """On a phone, too, it does not scroll sideways; a file that is none is refused in a sentence."""
    visit = visitor(f"/timeline?clock=run&gpurun={NAME}", size=(390, 844)).settled("Timeline")
    page = visit.page
    assert page.evaluate("document.querySelector('[data-testid=stMain]').scrollWidth <= innerWidth")
    page.get_by_text("The run took").wait_for()
    page.set_viewport_size({"width": 1280, "height": 800})
    upload = page.locator(".st-key-timeline-file input[type=file]")
    bad, good = tmp_path / "bad.npz", tmp_path / "mine.npz"
    bad.write_bytes(b"PK no")
    good.write_bytes(shipped()["h200-02-n256-h1"].read_bytes())
    upload.set_input_files(bad)
    page.get_by_test_id("stAlert").filter(has_text="is not a recording of time stamps").wait_for()
    page.locator(".st-key-timeline-file").get_by_role("button", name="Remove").or_(
        page.get_by_test_id("stFileUploaderDeleteBtn").get_by_role("button")
    ).first.click()
    upload.set_input_files(good)
    page.get_by_text("8 blocks on 132 SMs").first.wait_for()
    visit.until(lambda: "gpurun=opened" in visit.query())
    visit.check()

    player = Player(visitor, f"by=gpu&gpurun={NAME}")
    before = player.pixels()
    player.press("Home", "ArrowRight", "ArrowRight")
    assert player.pixels() != before
    player.wait_url_event(player.event())
    player.page.get_by_text("As run: when each phase began").wait_for()
    player.visit.check()
