"""Every page of the menu under AppTest: default settings, extreme ones, hostile links, and standing alone."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from app import MENU

ROOT = Path(__file__).resolve().parent.parent.parent
FILES = [file for entries in MENU.values() for file, _ in entries]
TITLES = {file: title for entries in MENU.values() for file, title in entries}

EXTREMES: dict[str, dict[str, str]] = {
    "smallest": {"N": "1", "d": "1", "Br": "1", "Bc": "1", "H": "1", "B": "1"},
    "largest": {"N": "999999999", "d": "999999", "Br": "999999", "Bc": "999999", "H": "999999", "B": "9999"},
    "ragged causal": {"N": "33", "d": "5", "Br": "24", "Bc": "16", "causal": "br", "dtype": "fp16", "B": "2"},
    "tile above length": {"N": "8", "Br": "64", "Bc": "64", "causal": "tl", "dtype": "bf16"},
    "nonsense": {"N": "abc", "d": "", "Br": "<b>x</b>", "dtype": "fp3", "order": "x", "gpu": "x", "input": "x"},
    "kv-outer": {"order": "kv-outer", "input": "sink", "H": "3", "seed": "5", "layer": "5", "head": "11"},
    "naive": {"order": "naive", "input": "rising", "N": "7", "row": "6"},
}  # fmt: skip


def test_the_menu_lists_every_page_file() -> None:
    assert sorted(FILES) == sorted(str(path.relative_to(ROOT / "pages")) for path in (ROOT / "pages").glob("*/*.py"))


def checked(at: AppTest) -> AppTest:
    at.run()
    assert not at.exception, [e.value for e in at.exception]
    assert len(at.title) == 1, "a page has one heading"
    texts = [m.value for m in (*at.markdown, *at.caption, *at.header, *at.subheader, *at.info, *at.warning)]
    powers = [text for text in texts if re.search(r"\d\.?\d*e\+\d\d", text)]
    assert not powers, "1.96e+03 is written 1,960"
    return at


def not_taken(at: AppTest) -> list[str]:
    """The notices about settings that were not taken as asked; a page may have other warnings of its own."""
    return [w.value for w in at.warning if "used." in w.value or "no setting named" in w.value]


def alone(file: str) -> AppTest:
    return AppTest.from_file(ROOT / "pages" / file, default_timeout=60)


@pytest.mark.parametrize("file", FILES)
def test_pages_render_alone(file: str) -> None:
    at = checked(alone(file))
    assert at.title[0].value == TITLES[file]
    assert any("Try this" in s.value for s in at.header)
    assert not at.warning and not at.error


@pytest.mark.parametrize("file", FILES)
def test_pages_render_in_the_app(file: str) -> None:
    at = AppTest.from_file(ROOT / "app.py", default_timeout=60).run()
    at.switch_page(str(ROOT / "pages" / file))
    assert checked(at).title[0].value == TITLES[file]


@pytest.mark.parametrize("case", EXTREMES)
@pytest.mark.parametrize("file", FILES)
def test_pages_stand_extreme_links(file: str, case: str) -> None:
    at = alone(file)
    for name, text in EXTREMES[case].items():
        at.query_params[name] = text
    checked(at)
    assert len(not_taken(at)) <= 1, "one box says what was not taken"
    again = alone(file)
    for name, text in at.query_params.items():
        again.query_params[name] = text
    checked(again)
    assert not not_taken(again), "the link that the page writes is one that it takes"
    assert [m.value for m in again.caption] == [m.value for m in at.caption]


@pytest.mark.parametrize("file", FILES)
def test_every_slider_goes_to_both_ends(file: str) -> None:
    for end in ("min", "max"):
        at = checked(alone(file))
        for key in [s.key for s in at.slider]:
            slider = next((s for s in at.slider if s.key == key), None)
            if slider is not None and key is not None:
                slider.set_value(getattr(slider, end))
                checked(at)
        for key in [s.key for s in at.select_slider]:
            choice = next((s for s in at.select_slider if s.key == key), None)
            if choice is not None and key is not None:
                choice.set_value(choice.options[0 if end == "min" else -1])
                checked(at)
