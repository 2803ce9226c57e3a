"""Reading settings from a URL: every text gives an allowed value, and a sentence where it was not taken."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fmha.ui.parameters import (
    Choice,
    Flag,
    Numbers,
    Range,
    Text,
    as_numbers,
    powers_of_two,
    quote,
    read_number,
)

LENGTHS = Range(1, 1024)
TILES = Numbers((16, 32, 64))
DTYPES = Choice(("fp32", "fp16", "bf16"), {"half": "fp16"})
KINDS = [LENGTHS, TILES, DTYPES, Flag(), Text(), Range(0.5, 8.0, 0.25), Range(1, 1), Choice(("one",))]


@pytest.mark.parametrize(
    ("text", "value"),
    [("128", 128), ("1", 1), ("1024", 1024), ("+7", 7), ("1e2", 100), ("128.0", 128), (" 64 ", 64)],
)
def test_good_numbers_are_taken_without_a_word(text: str, value: int) -> None:
    fit = LENGTHS.fit("N", (text,), 128)
    assert fit == (value, None, False)
    assert type(fit.value) is int


@pytest.mark.parametrize(
    ("text", "value", "word"),
    [
        ("0", 1, "least"),
        ("-5", 1, "least"),
        ("1e9", 1024, "most"),
        ("99999999999999999999999999", 1024, "most"),
    ],
)
def test_numbers_out_of_range_are_clamped_and_told(text: str, value: int, word: str) -> None:
    fit = LENGTHS.fit("N", (text,), 128)
    assert fit.value == value and not fit.refused
    assert fit.problem is not None
    assert "**N**" in fit.problem and f"`{text}`" in fit.problem and word in fit.problem
    assert f"{value} is used" in fit.problem


HOSTILE = [
    "abc", "", " ", "128.5", "nan", "inf", "1e999", "0x10", "1_000", "１２８", "9" * 10_000, "1,2", "--1", "\0",
]  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE)
def test_no_numbers_give_the_default_and_one_sentence(text: str) -> None:
    fit = LENGTHS.fit("N", (text,), 128)
    assert fit.value == 128 and fit.refused
    assert fit.problem is not None and "**N**" in fit.problem and len(fit.problem) < 200


def test_a_name_given_twice_is_refused() -> None:
    for kind, default in [(LENGTHS, 64), (TILES, 32), (DTYPES, "fp16"), (Flag(), True), (Text(), "x")]:
        fit = kind.fit("N", ("128", "256"), default)
        assert fit.value == default and fit.refused and "2 times" in str(fit.problem)


def test_the_whole_text_is_read_and_not_its_first_letter() -> None:
    assert LENGTHS.fit("N", ("24",), 1).value == 24


def test_a_list_of_numbers_takes_the_nearest() -> None:
    assert TILES.fit("Br", ("32",), 16) == (32, None, False)
    assert TILES.fit("Br", ("40",), 16).value == 32
    assert "not one of" in str(TILES.fit("Br", ("40",), 16).problem)
    assert TILES.fit("Br", ("1e9",), 16).value == 64
    assert TILES.fit("Br", ("1",), 64).value == 16


def test_a_dependent_default_is_clamped_too() -> None:
    assert Range(1, 8).fit("Br", 32, 32) == (8, "**Br** = `32`: the most here is 8. 8 is used.", False)


def test_ranges_on_steps() -> None:
    assert Range(8, 100, 8).fit("N", 100, 8).value == 96
    assert Range(8, 100, 8).fit("N", 29, 8).value == 32
    assert Range(0.5, 8.0, 0.25).fit("x", ("0.3e1",), 1.0).value == 3.0
    assert type(Range(0.5, 8.0, 0.25).fit("x", 1, 1.0).value) is float
    assert Range(5, 1).fit("x", 9, 5).value == 5 and Range(5, 1).choices == 1


def test_choices_and_their_aliases() -> None:
    assert DTYPES.fit("dtype", ("fp16",), "fp32").value == "fp16"
    assert DTYPES.fit("dtype", ("HALF",), "fp32").value == "fp16"
    assert DTYPES.fit("dtype", ("BF16",), "fp32").value == "bf16"
    fit = DTYPES.fit("dtype", ("fp3",), "fp32")
    assert fit.value == "fp32" and "fp32, fp16, bf16" in str(fit.problem)
    assert DTYPES.fit("dtype", "x", "no such default").value == "fp32"


def test_flags() -> None:
    assert [Flag().fit("on", (t,), False).value for t in ("1", "true", "ON", "0", "none", "x")] == [
        True, True, True, False, False, False,
    ]  # fmt: skip
    assert Flag().fit("on", True, False) == (True, None, False)


def test_texts() -> None:
    word = Text(8, "[a-z]+", "a word")
    assert word.fit("w", ("abc",), "x").value == "abc"
    for bad in ("", "A", "abcdefghi", "a\nb", "<b>"):
        assert word.fit("w", (bad,), "x").value == "x"


def test_quoted_text_cannot_leave_its_code_span() -> None:
    assert quote("<b>x</b>") == "`<b>x</b>`"
    assert quote("`![](http://x)`") == "`'![](http://x)'`"
    assert quote("a\nb\tc\0d") == "`a b c d`"
    assert quote("") == "nothing"
    assert len(quote("x" * 10_000)) < 50


@given(st.lists(st.text(), min_size=1, max_size=3), st.sampled_from(KINDS))
def test_anything_gives_an_allowed_value(texts: list[str], kind: object) -> None:
    fit = kind.fit("N", tuple(texts), 1)  # type: ignore[attr-defined]
    again = kind.fit("N", (kind.to_url(fit.value),), 1)  # type: ignore[attr-defined]
    assert again.value == fit.value and again.problem is None
    if fit.problem:
        body = fit.problem.replace("`nothing`", "").split("`")
        assert len(body) in (1, 3), "at most one code span"
        assert "\n" not in fit.problem


def test_read_number_keeps_whole_numbers_exact() -> None:
    assert read_number("16777217") == 16777217 and type(read_number("1e3")) is int
    assert read_number(".5") == 0.5 and read_number("5.") == 5


def test_options_from_numpy_become_plain() -> None:
    import numpy as np

    assert as_numbers(np.array([64, 16, 16])) == (16, 64)
    assert all(type(x) is int for x in as_numbers(np.array([64, 16])))
    assert powers_of_two(1, 8) == [1, 2, 4, 8] and powers_of_two(17, 31) == []


def test_a_long_choice_is_told_in_short() -> None:
    steps, names = tuple(str(n) for n in range(1, 17)), tuple("abcdefghij")
    assert "the choice here is 1 to 16. 1 is used" in (Choice(steps).fit("step", "99", "1").problem or "")
    assert "the choice here is a, b, c, d, e, f, g, h and 2 more." in (Choice(names).fit("x", "z", "a").problem or "")
    assert "the choice here is fp32, fp16, bf16." in (DTYPES.fit("dtype", "fp3", "fp32").problem or "")
