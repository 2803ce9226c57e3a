"""Decks: what is read, what is refused, and on which line it says so."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fmha.lecture.blocks import blocks
from fmha.lecture.deck import read_deck
from fmha.lecture.errors import DeckError
from fmha.lecture.library import FIRST, decks, decode, load
from fmha.lecture.markup import checked
from fmha.lecture.pictures import PICTURES

SMALL = """---
deck: Small
by: Somebody
---
---
title: "One"
picture: player
N: 32
Br: 16
play: yes
live: Br, Bc
notes: First.
  Second line.
do: Press **Space**.
---
Some text with `code <b>` and $a < b$.

- a list
---
title: Two
picture: none
---
"""


def test_a_deck_is_read() -> None:
    deck = read_deck(SMALL)
    one, two = deck.steps
    assert (deck.title, deck.by) == ("Small", "Somebody")
    assert (one.title, one.notes, one.do) == ("One", "First. Second line.", "Press **Space**.")
    assert (one.settings["N"], one.settings["Br"], one.settings["play"]) == (32, 16, True)
    assert one.settings["d"] == PICTURES["player"].settings["d"].default, "what is not given has its default"
    assert one.live == ("Br", "Bc") and one.question is None
    assert one.text.startswith("Some text") and two.text == "" and two.line == 19


def test_line_ends_and_byte_order_marks_do_not_matter() -> None:
    assert read_deck(decode(b"\xef\xbb\xbf" + SMALL.replace("\n", "\r\n").encode())) == read_deck(SMALL)


def test_remarks_are_left_out() -> None:
    deck = read_deck(SMALL.replace("N: 32", "# a line\n  # one more\nN: 32  # tokens").replace('"One"', "One # two"))
    assert deck.steps[0].settings["N"] == 32 and deck.steps[0].title == "One # two"


def test_the_example_in_the_readme_is_a_deck() -> None:
    text = (Path(__file__).resolve().parents[2] / "README.md").read_text(encoding="utf-8")
    deck = read_deck(text.split("```markdown\n")[1].split("```")[0])
    assert deck.steps[0].live == ("Br", "N") and deck.steps[0].question is not None


def line_of(text: str) -> tuple[int, str]:
    with pytest.raises(DeckError) as caught:
        read_deck(text)
    return caught.value.line, str(caught.value)


MISTAKES = {
    "no deck": ("---\ntitle: x\npicture: none\n---\n", 1, "deck"),
    "text first": ("hello\n" + SMALL, 1, "begins with"),
    "not closed": (SMALL + "---\ntitle: Three\n", 23, "not closed"),
    "no steps": ("---\ndeck: x\n---\n", 0, "steps"),
    "no picture": (SMALL.replace("picture: none\n", ""), 19, "picture"),
    "unknown picture": (SMALL.replace("picture: none", "picture: film"), 21, "player"),
    "unknown setting": (SMALL.replace("Br: 16", "Brr: 16"), 9, "its settings"),
    "a value that is none": (SMALL.replace("N: 32", "N: many"), 8, "a number is needed"),
    "a value out of range": (SMALL.replace("N: 32", "N: 99999"), 8, "the most here is 1024"),
    "given twice": (SMALL.replace("N: 32", "N: 32\nN: 64"), 9, "twice"),
    "no name": (SMALL.replace("N: 32", "just words"), 8, "name: value"),
    "live of another picture": (SMALL.replace("live: Br, Bc", "live: Br, gpus"), 11, "gpus"),
    "too many live": (SMALL.replace("live: Br, Bc", "live: N, d, Br, Bc, H"), 11, "four"),
    "a stray choice": (SMALL.replace("do: Press **Space**.", "choices: a = 1; b = 2"), 14, "add ask"),
    "a title without end": (SMALL.replace("title: Two", "title: " + "x" * 200), 20, "characters"),
    "HTML": (SMALL.replace("- a list", "- a <img src=x onerror=alert(1)>"), 18, "HTML"),
    "HTML in what to do": (SMALL.replace("Press **Space**", "<script>1</script>"), 14, "HTML"),
    "an image": (SMALL.replace("- a list", "![x](https://example.org/x.png)"), 18, "images"),
    "a heading": (SMALL.replace("- a list", "# Big"), 18, "headings"),
    "a script in a link": (SMALL.replace("- a list", "[x](javascript:alert(1))"), 18, "link"),
    "a file in a link": (SMALL.replace("- a list", "see file:///etc/passwd"), 18, "link"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_one_sentence_with_its_line(name: str) -> None:
    text, line, word = MISTAKES[name]
    found, said = line_of(text)
    assert found == line and word in said, said
    assert "\n" not in said and len(said) < 700
    assert said.startswith(f"line {line}: ") or line == 0


@pytest.mark.parametrize(
    "text",
    [
        "a < b and 3 <4",
        "`<b>`",
        "$x<y$",
        "[page](memory-wall?N=64)",
        "[out](https://example.org)",
        "1. one\n2. two",
        "→ ∞ α",
    ],
)
def test_what_is_fine_is_taken_as_it_is(text: str) -> None:
    assert checked(text, 1) == text


@pytest.mark.parametrize(
    "text",
    ["<!-- x -->", "</div>", "[a]: javascript:x", "<https://x.org>", ":material/home:", "a\x00b",
     "[x](//example.org/x)",
     "[x]( data:text/html,1)", "x\n===", "`a` <b>`c`"],
)  # fmt: skip
def test_what_could_be_more_than_text_is_refused(text: str) -> None:
    with pytest.raises(DeckError):
        checked(text, 1)


def test_blocks_keep_lines() -> None:
    first, second, _ = blocks(SMALL)
    assert (first.line, first.fields["by"].line) == (1, 3)
    assert (second.line, second.fields["N"].line, second.text_line) == (5, 8, 16)


def test_the_shipped_deck_is_whole() -> None:
    deck = load(decks()[FIRST])
    assert 12 <= len(deck.steps) <= 16
    assert sum(step.question is not None for step in deck.steps) >= 5
    for step in deck.steps:
        words = re.sub(r"\$[^$]*\$|`[^`]*`", "", step.text)
        assert 1 <= len(re.findall(r"[.?!](?:\s|$)", words)) <= 5, f"{step.title}: a few sentences"
        assert step.do and step.notes and step.picture.name != "none", step.title
    shown = {step.picture.name for step in deck.steps}
    assert {"player", "words", "softmax", "heads", "memory", "row", "worked", "traffic", "source", "ladder"} <= shown


def test_own_decks_are_found_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FMHA_DECKS", str(tmp_path))
    (tmp_path / "mine.md").write_text(SMALL)
    (tmp_path / "..hidden.md").write_text(SMALL)
    (tmp_path / "a b.md").write_text(SMALL)
    (tmp_path / "notes.pdf").write_text("x")
    (tmp_path / "folder.md").mkdir()
    (tmp_path / f"{FIRST}.md").write_text(SMALL)
    assert list(decks()) == [FIRST, "mine"]
    assert load(decks()["mine"]).title == "Small"
    assert load(decks()[FIRST]).title != "Small", "the shipped one keeps its name"


@pytest.mark.parametrize("data", [b"\xff\xfe\x00bad", b"x" * 1_000_000])
def test_files_that_are_no_text_are_refused(data: bytes) -> None:
    with pytest.raises(DeckError):
        read_deck(decode(data))
