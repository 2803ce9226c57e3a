"""The player in a browser: play, step, scrub, click, keyboard, links, sliders, pages."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.browser.conftest import Opener

PATH = "/tiles-in-motion"
THERE = "window.__fmhaPlayer && window.__fmhaPlayer.drawn > 0"


class Player:
    """The player on an open page, driven as a person would."""

    def __init__(self, visitor: Opener, query: str = "", **look: Any) -> None:
        self.visit = visitor(f"{PATH}?{query}", **look).settled("Tiles in motion")
        self.page = self.visit.page
        self.page.wait_for_function(THERE, timeout=60_000)

    def state(self) -> dict[str, Any]:
        return dict(self.page.evaluate("({...window.__fmhaPlayer.controller.state})"))

    def event(self) -> int:
        return int(self.page.evaluate("window.__fmhaPlayer.controller.chosen().event"))

    def press(self, *keys: str) -> Player:
        self.page.locator(".fmha-player").focus()
        for key in keys:
            self.page.keyboard.press(key)
        return self

    def button(self, name: str) -> Player:
        self.page.get_by_role("button", name=name, exact=True).click()
        return self

    def pixels(self) -> str:
        self.page.evaluate("new Promise((ok) => requestAnimationFrame(() => requestAnimationFrame(ok)))")
        return str(self.page.locator(".fmha-player canvas").evaluate("c => c.toDataURL()"))

    def moment(self) -> str:
        """What Python says below the player."""
        return self.page.locator("p", has_text="Chosen moment").inner_text()

    def wait_moment(self, part: str) -> None:
        self.page.locator("p", has_text="Chosen moment").filter(has_text=part).wait_for(timeout=20_000)

    def wait_url_event(self, event: int) -> None:
        """Until Python has put this event into the address."""
        says = f"new URLSearchParams(location.search).get('event') === '{event}'"
        self.page.wait_for_function(says, timeout=20_000)

    def part(self, path: str) -> tuple[float, float]:
        """The middle of a rectangle of the layout, in page pixels."""
        r = self.page.evaluate(f"(() => {{ const L = window.__fmhaPlayer.L; return L.{path}; }})()")
        box = self.page.locator(".fmha-player canvas").bounding_box()
        assert box is not None
        return box["x"] + r["x"] + r["w"] / 2, box["y"] + r["y"] + r["h"] / 2


def test_stepping_forth_and_back_shows_the_same_picture(visitor: Opener) -> None:
    player = Player(visitor)
    first, where = player.press("Home", "ArrowRight", "ArrowRight").pixels(), player.event()
    assert player.press("ArrowRight").pixels() != first
    assert player.press("ArrowLeft").pixels() == first
    assert player.event() == where
    player.visit.check()


def test_sliding_stepping_and_playing_give_the_same_frame(visitor: Opener) -> None:
    player = Player(visitor)
    for _ in range(6):
        player.press("Shift+ArrowRight")
    stepped, t = player.pixels(), player.state()["t"]
    player.press("Home")
    player.page.evaluate(f"window.__fmhaPlayer.controller.act('seek', {t})")
    assert player.pixels() == stepped
    player.press("Home", " ")
    player.page.wait_for_function("window.__fmhaPlayer.controller.state.t > 0")
    player.press(" ")
    assert not player.state()["playing"]
    player.page.evaluate(f"window.__fmhaPlayer.controller.act('seek', {t})")
    assert player.pixels() == stepped
    player.visit.check()


def test_play_pause_by_button_and_python_learns_the_moment(visitor: Opener) -> None:
    player = Player(visitor)
    player.press("Home").button("Play or pause")
    player.page.wait_for_timeout(900)
    assert player.state()["playing"]
    player.button("Play or pause")
    t = player.state()["t"]
    assert t > 0
    player.wait_url_event(player.event())
    assert player.state()["t"] == t  # Python's answer moves nothing
    player.visit.check()


def test_keyboard_speed_loop_help_and_worker(visitor: Opener) -> None:
    player = Player(visitor)
    player.press("+", "+", "l", "ArrowDown")
    state = player.state()
    assert (state["speed"], state["loop"], state["focus"]) == (4, True, 1)
    player.wait_moment("SM 1")
    player.press("?")
    dialog = player.page.get_by_role("dialog")
    dialog.wait_for()
    assert "Space" in dialog.inner_text()
    player.page.keyboard.press("Escape")
    dialog.wait_for(state="hidden")
    player.press("End")
    assert player.state()["t"] == player.page.evaluate("window.__fmhaPlayer.controller.data.end")
    player.visit.check()


def test_full_screen_by_key(visitor: Opener) -> None:
    player = Player(visitor)
    player.press("f")
    player.page.wait_for_function("document.fullscreenElement !== null", timeout=10_000)
    player.page.wait_for_function("window.__fmhaPlayer.canvas.clientWidth > 0.9 * innerWidth", timeout=10_000)
    player.page.evaluate("document.exitFullscreen()")
    player.visit.check()


def test_scrubbing_on_the_timeline(visitor: Opener) -> None:
    player = Player(visitor)
    x, y = player.part("track")
    player.page.mouse.move(x, y)
    player.page.mouse.down()
    player.page.mouse.move(x + 60, y, steps=4)
    assert 0.5 < player.state()["t"] / player.page.evaluate("window.__fmhaPlayer.controller.data.end") < 0.6
    player.page.mouse.up()
    player.wait_url_event(player.event())
    player.visit.check()


def test_clicks_on_a_bench_a_tile_and_a_row(visitor: Opener) -> None:
    player = Player(visitor)
    player.page.mouse.click(*player.part("benches[5]"))
    assert player.state()["focus"] == 5
    player.page.mouse.click(*player.part("matrix"))
    state = player.state()
    assert state["focus"] in (7, 8)  # the middle row of tiles belongs to that worker
    x, y = player.part("slots.bars")
    player.page.mouse.click(x, y + 5)
    assert player.state()["row"] == 4
    player.wait_moment(f"Q tile {state['focus']}")
    player.visit.check()


def test_touch(visitor: Opener) -> None:
    player = Player(visitor, size=(390, 844), touch=True)
    x, y = player.part("benches[2]")
    player.page.evaluate(
        f"window.scrollTo(0, 0); document.querySelector('[data-testid=stMain]').scrollTo(0, {y - 400})"
    )
    x, y = player.part("benches[2]")
    player.page.touchscreen.tap(x, y)
    assert player.state()["focus"] == 2
    assert player.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    player.visit.check()


def test_a_copied_link_opens_the_same_moment(visitor: Opener) -> None:
    player = Player(visitor, "N=96&Br=16&Bc=8&causal=br&H=2&sms=4")
    player.press("ArrowDown", "Shift+ArrowRight", "Shift+ArrowRight", "ArrowRight")
    event = player.event()
    player.wait_url_event(event)
    player.page.wait_for_timeout(300)
    other = Player(visitor, player.visit.query())
    assert other.event() == event
    assert other.state()["focus"] == player.state()["focus"] == 1
    assert other.moment() == player.moment()
    player.visit.check()
    other.visit.check()


def test_a_slider_that_leaves_the_schedule_alone_leaves_the_place_alone(visitor: Opener) -> None:
    player = Player(visitor, "input=random")
    player.press("Shift+ArrowRight", "ArrowRight", "ArrowDown")
    before = player.state()
    scores = "window.__fmhaPlayer.controller.data.meta.S_high"
    high = player.page.evaluate(f"window.__fmhaMark = window.__fmhaPlayer, {scores}")
    seed = player.page.locator(".st-key-seed input")
    seed.fill("7")
    seed.press("Enter")
    player.page.wait_for_function(f"{scores} !== {high}", timeout=20_000)  # other numbers are shown
    after = player.state()
    assert {k: after[k] for k in ("t", "focus", "row")} == {k: before[k] for k in ("t", "focus", "row")}
    assert player.page.evaluate("window.__fmhaMark === window.__fmhaPlayer")  # by the same component, not a new one
    player.visit.check()


def test_a_setting_and_a_chosen_moment_within_one_frame_both_count(visitor: Opener) -> None:
    """The browser tells both in one message, which asks for a run of the player's part of the page alone."""
    player = Player(visitor, "input=random")
    scores = "window.__fmhaPlayer.controller.data.meta.S_high"
    high = player.page.evaluate(scores)
    player.page.locator(".st-key-seed input").fill("7")
    player.page.evaluate(
        """() => {
          const player = window.__fmhaPlayer;
          player.controller.act("focus", 3);
          player.component.setStateValue("at", player.controller.chosen());
          const enter = { key: "Enter", code: "Enter", keyCode: 13, bubbles: true };
          document.querySelector(".st-key-seed input").dispatchEvent(new KeyboardEvent("keydown", enter));
        }"""
    )
    player.page.wait_for_function(f"{scores} !== {high}")
    player.page.wait_for_function("location.search.includes('seed=7') && location.search.includes('sm=3')")
    player.visit.check()


def test_race_shows_both_and_flash_ends_first(visitor: Opener) -> None:
    player = Player(visitor, "race=1&N=256&d=4")
    ends = player.page.evaluate("window.__fmhaPlayer.controller.data.meta.end")
    assert ends["flash"] < ends["naive"]
    start = player.press("Home").pixels()
    assert player.press("End").pixels() != start
    player.visit.check()


def test_leaving_the_page_while_it_plays(visitor: Opener) -> None:
    """Case D02 (c): play, change page, come back: no white page, and everything still reacts."""
    player = Player(visitor, "N=256&Br=4&Bc=4")
    for _ in range(3):
        player.press(" ")
        player.page.wait_for_timeout(300)
        player.visit.go("HBM traffic")
        player.visit.go("Tiles in motion")
        player.page.wait_for_function(THERE, timeout=60_000)
        assert re.search(r"\bN=256\b", player.visit.query())
    player.press("Home", "ArrowRight")
    assert player.event() >= 0
    player.visit.check()


def test_space_works_before_any_click_and_leaves_fields_alone(visitor: Opener) -> None:
    player = Player(visitor)
    player.page.keyboard.press(" ")
    player.page.wait_for_function("window.__fmhaPlayer.controller.state.playing", timeout=10_000)
    player.page.keyboard.press(" ")
    assert not player.state()["playing"]
    player.page.locator(".st-key-rows input").click()
    player.page.keyboard.press(" ")
    assert not player.state()["playing"]
    player.visit.check()


def test_further_rows_of_the_chart_live_in_the_link(visitor: Opener) -> None:
    player = Player(visitor, "rows=3,30")
    legend = player.page.locator(".fmha-chart .legendtext")
    legend.filter(has_text="row 30").wait_for()
    assert {"row 0", "row 3", "row 30"} <= set(legend.all_text_contents())
    player.visit.check()


def test_the_end_is_complete(visitor: Opener) -> None:
    player = Player(visitor)
    player.press("End")
    flash = player.page.evaluate(
        "(() => { const d = window.__fmhaPlayer.controller.data;"
        " return [d.flashMeter.t.at(-1) <= d.end, d.flashMeter.sum.at(-1) === d.meta.total.flash]; })()"
    )
    assert flash == [True, True]
    assert player.state()["t"] == player.page.evaluate("window.__fmhaPlayer.controller.data.end")
    player.visit.check()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_follows_the_theme_without_a_new_mount(visitor: Opener, scheme: str) -> None:
    player = Player(visitor)
    player.page.evaluate("window.__fmhaMark = window.__fmhaPlayer")
    player.page.emulate_media(color_scheme="dark" if scheme == "light" else "light")
    player.page.emulate_media(color_scheme=scheme)
    player.page.wait_for_function(
        f"window.__fmhaPlayer.theme.isDark === {str(scheme == 'dark').lower()}", timeout=20_000
    )
    assert player.page.evaluate("window.__fmhaMark === window.__fmhaPlayer")
    player.visit.check()


def test_a_smaller_l2_turns_hits_into_loads_from_hbm(visitor: Opener) -> None:
    player = Player(visitor, "sms=1&N=64")
    read = "(() => { const m = window.__fmhaPlayer.controller.data.flashMeter; return m.hbm[m.hbm.length - 1]; })()"
    player.press("End")
    t, before = player.state()["t"], player.page.evaluate(read)
    slider = player.page.get_by_role("slider", name="L2 holds")
    slider.focus()
    slider.press("Home")
    player.page.wait_for_function("window.__fmhaPlayer.controller.data.meta.l2.holds === 0", timeout=20_000)
    assert player.page.evaluate(read) > before
    assert player.state()["t"] == t  # the place is kept
    player.page.wait_for_function("new URLSearchParams(location.search).get('l2kib') === '0'", timeout=20_000)
    player.press("Home", "ArrowRight", "ArrowRight")
    player.wait_moment("(from HBM)")
    player.visit.check()


def test_a_link_opens_with_its_l2_and_says_who_answers(visitor: Opener) -> None:
    player = Player(visitor, "sms=4&N=64&l2kib=4&event=50")
    assert player.page.evaluate("window.__fmhaPlayer.controller.data.meta.l2.holds") == 4096
    player.page.get_by_text("Who answers the loads").wait_for()
    player.visit.check()
