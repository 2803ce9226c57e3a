"""Controls: widget, URL and session agree, on one page and across pages (AppTest, no browser)."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest
from streamlit.testing.v1 import AppTest

from fmha.ui.parameters import Range
from fmha.ui.settings import Book
from tests.app.controls_support import control

HEAD = "import streamlit as st\nfrom fmha.ui import controls\n"
PAGE = HEAD + dedent(
    """
    N = controls.slider("N", "Length", lo=1, hi=512, default=128)
    Br = controls.slider("Br", "Rows", lo=1, hi=min(N, 64), default=32)
    d = controls.slider("d", "Head dim", options=[16, 32, 64], default=32)
    dtype = controls.choice("dtype", "Type", ["fp32", "fp16"], default="fp32")
    causal = controls.causal()
    race = controls.toggle("race", "Race")
    row = controls.hidden("row", lo=0, hi=N - 1, default=0)
    controls.notices()
    st.text(f"{N} {Br} {d} {dtype} {causal} {race} {row}")
    """
)


def run(script: str = PAGE, **url: str | list[str]) -> AppTest:
    at = AppTest.from_string(script, default_timeout=30)
    for name, value in url.items():
        at.query_params[name] = value
    at.run()
    assert not at.exception
    return at


def seen(at: AppTest) -> str:
    return at.text[0].value


def test_defaults_write_no_url_and_no_notice() -> None:
    at = run()
    assert seen(at) == "128 32 32 fp32 None False 0"
    assert not at.warning and not at.query_params


def test_a_link_sets_every_control() -> None:
    at = run(N="24", d="64", Br="16", dtype="fp16", causal="1", race="1", row="3")
    assert seen(at) == "24 16 64 fp16 bottom-right True 3"
    assert not at.warning
    assert at.query_params == {
        "N": "24", "d": "64", "Br": "16", "dtype": "fp16", "causal": "br", "race": "1", "row": "3",
    }  # fmt: skip


@pytest.mark.parametrize(("text", "mask"), [("br", "bottom-right"), ("tl", "top-left"), ("0", None), ("false", None)])
def test_causal_texts(text: str, mask: str | None) -> None:
    assert seen(run(causal=text)).split()[4] == str(mask)


@pytest.mark.parametrize(
    ("name", "text", "position", "used"),
    [
        ("N", "0", 0, "1"),
        ("N", "-5", 0, "1"),
        ("N", "1e9", 0, "512"),
        ("N", "abc", 0, "128"),
        ("N", ["128", "256"], 0, "128"),
        ("N", "128.5", 0, "128"),
        ("d", "", 2, "32"),
        ("dtype", "fp3", 3, "fp32"),
        ("dtype", "<b>x</b>", 3, "fp32"),
        ("N", "7" * 10_000, 0, "128"),
        ("causal", "![x](http://127.0.0.1/)", 4, "None"),
    ],
)
def test_a_hostile_link_opens_with_one_notice(name: str, text: str | list[str], position: int, used: str) -> None:
    at = run(**{name: text})
    assert seen(at).split()[position] == used
    told = [line for line in at.warning[0].value.splitlines() if f"**{name}**" in line]
    assert len(at.warning) == 1 and len(told) == 1 and len(told[0]) < 200
    assert at.query_params.get(name) in (None, used), "the address bar does not keep what was not taken"


def test_unknown_names_are_told_once_and_dropped() -> None:
    at = run(nonsense="1", mask="<b>x</b>", N="64", utm_source="mail")
    assert len(at.warning) == 1 and "`nonsense`, `mask`" in at.warning[0].value
    assert at.query_params == {"N": "64"}
    control(at, "N").set_value(65).run()
    assert seen(at).startswith("65 ")


def test_names_of_other_pages_are_no_news() -> None:
    assert not run(gpu="H200", layer="3").warning


def test_a_moved_slider_wins_and_is_written() -> None:
    at = run()
    for value in (129, 130, 200):
        control(at, "N").set_value(value).run()
        assert seen(at).startswith(f"{value} ") and at.query_params["N"] == str(value)
    control(at, "N").set_value(128).run()
    assert at.query_params["N"] == "128", "a touched setting stays in the link at its default too"
    assert not at.warning


def test_a_notice_goes_when_its_control_is_moved() -> None:
    at = run(N="abc", d="999")
    assert len(at.warning[0].value.splitlines()) == 2
    control(at, "N").set_value(100).run()
    assert "**N**" not in at.warning[0].value and "**d**" in at.warning[0].value
    control(at, "d").set_value(16).run()
    assert not at.warning


def test_a_dependent_value_is_clamped_told_and_comes_back() -> None:
    at = run(Br="64")
    control(at, "N").set_value(8).run()
    assert seen(at).startswith("8 8 ")
    assert control(at, "Br").max == 8, "the range on screen is the range computed with"
    assert "**Br** = `64`" in at.warning[0].value and at.query_params["Br"] == "8"
    control(at, "N").set_value(256).run()
    assert seen(at).startswith("256 64 ") and not at.warning


def test_an_untouched_default_is_clamped_in_silence_by_a_link_and_told_when_it_is_seen_to_move() -> None:
    at = run(N="8")
    assert seen(at).startswith("8 8 ") and not at.warning and at.query_params == {"N": "8"}
    at = run()
    control(at, "N").set_value(8).run()
    assert "**Br** = `32`" in at.warning[0].value
    control(at, "race").set_value(True).run()
    assert "**Br** = `32`" in at.warning[0].value, "told as long as it holds"
    control(at, "N").set_value(64).run()
    assert seen(at).startswith("64 32 ") and not at.warning


def test_a_single_choice_is_a_fixed_value() -> None:
    at = run(N="1")
    assert seen(at).startswith("1 1 ")
    assert [s.key for s in at.slider] == ["N"], "Br has one possible value and is no slider"
    assert any("Rows" in m.value and "**1**" in m.value for m in at.markdown)
    control(at, "N").set_value(40).run()
    assert seen(at).startswith("40 32 ") and control(at, "Br").value == 32


@pytest.mark.parametrize(
    "control",
    [
        'controls.slider("H", "Heads", lo=1, hi=1, default=1)',
        'controls.slider("H", "Heads", lo=4, hi=2, default=1)',
        'controls.slider("H", "Heads", options=[4], default=1)',
        'controls.number("H", "Heads", lo=1, hi=1, default=1)',
        'controls.choice("H", "Heads", ["4"], default="4")',
        'controls.slider("H", "Heads", lo=np.int64(1), hi=np.int64(8), default=np.int64(4))',
        'controls.slider("H", "Heads", options=np.array([1, 4]), default=np.int64(4))',
        'controls.slider("H", "Heads", lo=0, hi=8.0, step=0.5, default=4)',
    ],
)
def test_ranges_that_collapse_and_numpy_bounds(control: str) -> None:
    at = run(f"import numpy as np\n{HEAD}x = {control}\ncontrols.notices()\nst.text(type(x).__name__)")
    assert seen(at) in ("int", "float", "str")


def test_number_and_text_fields() -> None:
    script = HEAD + dedent(
        """
        seed = controls.number("seed", "Seed", lo=0, hi=999, default=7)
        words = controls.text("input", "Words", default="a b", pattern="[a-z ]+", what="small letters")
        controls.notices()
        st.text(f"{seed!r} {words!r}")
        """
    )
    at = run(script, seed="12", input="x y")
    assert seen(at) == "12 'x y'"
    control(at, "seed").set_value(13).run()
    control(at, "input").set_value("<b>").run()
    assert seen(at) == "13 'a b'" and "small letters" in at.warning[0].value
    assert control(at, "input").value == "<b>", "it stays to be corrected"
    control(at, "input").set_value("b").run()
    assert seen(at) == "13 'b'" and not at.warning
    control(at, "seed").set_value(None).run()
    assert seen(at).startswith("13 "), "an emptied field keeps what was there"


def test_assign_sets_controls_from_a_button() -> None:
    script = PAGE + 'st.button("go", key="go", on_click=controls.assign, kwargs={"N": 300, "causal": "tl", "row": 5})\n'
    at = run(script, N="20")
    at.button(key="go").click().run()
    assert seen(at) == "300 32 32 fp32 top-left False 5"
    assert control(at, "N").value == 300 and at.query_params["N"] == "300"


def test_a_control_that_leaves_the_page_leaves_the_link() -> None:
    script = HEAD + dedent(
        """
        if controls.toggle("race", "Race"):
            controls.slider("row", "Row", lo=0, hi=9, default=0)
        controls.notices()
        """
    )
    at = run(script, race="1", row="99")
    assert at.query_params == {"race": "1", "row": "9"} and len(at.warning) == 1
    control(at, "race").set_value(False).run()
    assert at.query_params == {"race": "0"} and not at.warning
    control(at, "race").set_value(True).run()
    assert control(at, "row").value == 9


def test_a_text_that_is_refused_where_nothing_is_the_default_is_left_out() -> None:
    at = run(HEAD + 'controls.text("rows", "Rows", pattern="[0-9]+", what="a number")\ncontrols.notices()', rows="x")
    assert at.warning[0].value == "**rows** = `x`: a number is needed here. It is left out."


def test_what_was_moved_while_the_connection_was_lost_counts() -> None:
    """The session that the browser comes back to is a new one, and has not made its widgets."""
    at = run(N="20")
    del at.session_state["fmha.settings"]
    control(at, "N").set_value(222).run()
    assert seen(at).startswith("222 ") and at.query_params["N"] == "222"


@pytest.fixture
def two_pages(tmp_path: Path) -> AppTest:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "one.py").write_text(PAGE)
    other = PAGE.replace("hi=512, default=128", "hi=100, default=50").replace("[16, 32, 64]", "[32, 64, 128]")
    (tmp_path / "sub" / "two.py").write_text(other)
    (tmp_path / "main.py").write_text(
        'import streamlit as st\nst.navigation([st.Page("sub/one.py", default=True), st.Page("sub/two.py")]).run()\n'
    )
    return AppTest.from_file(tmp_path / "main.py", default_timeout=30)


def test_values_are_kept_over_pages_with_other_ranges(two_pages: AppTest) -> None:
    at = two_pages.run()
    control(at, "N").set_value(300).run()
    control(at, "d").set_value(64).run()
    control(at, "race").set_value(True).run()
    at.switch_page("sub/two.py").run()
    assert seen(at) == "100 32 64 fp32 None True 0"
    assert "**N** = `300`" in at.warning[0].value and at.query_params["N"] == "100"
    control(at, "d").set_value(128).run()
    at.switch_page("sub/one.py").run()
    assert seen(at).startswith("300 32 64 ")
    assert at.query_params["N"] == "300" and at.query_params["race"] == "1"
    at.switch_page("sub/two.py").run()
    assert seen(at).startswith("100 32 128 "), "what was set on this page is still there"
    control(at, "N").set_value(80).run()
    at.switch_page("sub/one.py").run()
    assert seen(at).startswith("80 ") and control(at, "N").value == 80


def test_untouched_settings_take_each_page_its_default(two_pages: AppTest) -> None:
    at = two_pages.run()
    assert seen(at).startswith("128 ")
    at.switch_page("sub/two.py").run()
    assert seen(at).startswith("50 ") and not at.warning and not at.query_params


ALL_KINDS = HEAD + dedent(
    """
    controls.slider("N", "Length", lo=1, hi=512, default=128)
    controls.slider("d", "Head dim", options=[16, 32, 64], default=32)
    controls.choice("dtype", "Type", ["fp32", "fp16"], default="fp32")
    controls.choice("gpu", "GPU", list("abcdefgh"), default="a")
    controls.toggle("race", "Race")
    controls.number("seed", "Seed", lo=0, hi=999, default=7)
    controls.text("input", "Words")
    values = {"N": 300, "d": 64, "dtype": "fp32", "gpu": "b", "race": False, "seed": 3, "input": "z"}
    st.button("go", key="go", on_click=controls.assign, kwargs=values)
    controls.notices()
    """
)
LINK = {"N": "200", "d": "16", "dtype": "fp16", "gpu": "h", "race": "1", "seed": "12", "input": "x y"}


def drawn(at: AppTest) -> dict[str, object]:
    """What a browser shows that draws each control from this run's message alone."""
    found = {}
    for name in LINK:
        proto = control(at, name).proto
        assert not proto.set_value, "an order to set a widget may be lost on its way"
        default = proto.default[0] if name in ("N", "d", "dtype") else proto.default
        if name in ("d", "dtype", "gpu"):
            options = proto.options
            default = getattr(options[int(default)], "content", options[int(default)])
        found[name] = default
    return found


def test_whichever_run_a_browser_draws_a_control_from_it_shows_its_value() -> None:
    """A browser whose code for a kind of control comes late never sees the first runs' messages."""
    at = run(ALL_KINDS, **LINK)
    first = {"N": 200, "d": "16", "dtype": "fp16", "gpu": "h", "race": True, "seed": 12, "input": "x y"}
    assert drawn(at) == first and drawn(at.run()) == first
    control(at, "N").set_value(201).run()
    assert drawn(at) == first | {"N": 201}
    at.button(key="go").click().run()
    then = {"N": 300, "d": "64", "dtype": "fp32", "gpu": "b", "race": False, "seed": 3, "input": "z"}
    assert drawn(at) == then and drawn(at.run()) == then


KIND = Range(1, 512)


def draw_in(book: Book) -> str:
    """Draw N, and return the key of its widget."""
    fit = book.fit("N", KIND, 128)
    key = book.widget("N", KIND, fit)
    book.draw("N", KIND, fit, key)
    return key


def test_what_a_slow_browser_reports_of_a_widget_that_is_gone_is_no_move_unless_it_was_moved() -> None:
    book = Book(page="page")
    old = draw_in(book)
    book.give("N", 300)
    new = draw_in(book)
    assert new != old, "a widget on somebody's screen is never set"
    book.listen({old: 128}.get)
    assert draw_in(book) == new and book.fit("N", KIND, 128).value == 300, "the browser has not heard of it yet"
    book.listen({old: 129}.get)
    assert book.fit("N", KIND, 128).value == 129, "moved before the new one was on the screen"
    newest = draw_in(book)
    assert newest not in (old, new) and book.drawn["N"].value == 129
    for _ in range(2):
        book.listen({old: 129, new: 300, newest: 130}.get)
        assert draw_in(book) == newest and book.fit("N", KIND, 128).value == 130, "a widget that is moved stays"


def test_a_move_just_before_the_page_is_left_is_kept(two_pages: AppTest) -> None:
    at = two_pages.run()
    control(at, "d").set_value(64)
    at.switch_page("sub/two.py").run()
    assert seen(at).split()[2] == "64"
