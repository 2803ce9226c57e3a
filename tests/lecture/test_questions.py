"""Answers are computed: against formulas written down here, and from settings that the deck did not foresee."""

from __future__ import annotations

import math
from typing import Any

import pytest

from fmha.errors import FmhaError, LimitError
from fmha.hardware import GPUS
from fmha.lecture.deck import Step, read_deck
from fmha.lecture.errors import DeckError
from fmha.lecture.library import FIRST, decks, load
from fmha.lecture.pictures import PICTURES
from fmha.lecture.quantities import QUANTITIES
from fmha.lecture.questions import answer, changed


def asked(picture: str, question: str, settings: str = "") -> Step:
    text = f"---\ndeck: T\n---\n---\ntitle: T\npicture: {picture}\n{settings}\n{question}\n---\n"
    return read_deck(text).steps[0]


BR = "ask: Br doubles?\ncompute: ratio kv_bytes\nchange: Br * 2\nchoices: halve = 1/2; stay = 1; double = 2"


def test_the_answer_follows_the_settings() -> None:
    step = asked("traffic", BR, "N: 4096\nBr: 32")
    assert step.question is not None
    found = answer(step.question, step.settings, step.picture.settings)
    assert found.right == 0 and found.value == 0.5
    assert "Br = 64" in found.text and "0.5x" in found.text
    # with tiles as tall as the sequence there is one worker a head, before and after: nothing changes
    short = answer(step.question, dict(step.settings) | {"N": 128, "Br": 128}, step.picture.settings)
    assert short.right == 1 and short.value == 1


def test_where_no_choice_is_right_none_is() -> None:
    step = asked("memory", "ask: N?\ncompute: ratio matrix_bytes\nchange: N * 2\nchoices: a = 4; b = 3", "N: 1024")
    assert step.question is not None
    other = asked(
        "naive", "ask: d?\ncompute: ratio naive_bytes\nchange: d * 2\nchoices: a = 1.03; b = 3", "N: 2048\nd: 64"
    )
    assert other.question is not None
    assert answer(other.question, dict(other.settings) | {"N": 128}, other.picture.settings).right is None


def test_a_change_beyond_the_picture_is_said() -> None:
    step = asked("traffic", BR, "Br: 128")
    assert step.question is not None
    with pytest.raises(LimitError, match="Br"):
        changed(step.question, dict(step.settings) | {"Br": 256}, step.picture.settings)


def value(name: str, **settings: Any) -> float:
    picture = next(p for p in PICTURES.values() if set(QUANTITIES[name].needs) <= set(p.settings) >= set(settings))
    return QUANTITIES[name].of({n: s.default for n, s in picture.settings.items()} | settings)


def test_quantities_are_what_they_say() -> None:
    N, d, Br, Bc = 64, 8, 16, 32
    sizes: dict[str, Any] = {"N": N, "d": d, "Br": Br, "Bc": Bc, "H": 1, "dtype": "fp32"}
    s = {n: x.default for n, x in PICTURES["traffic"].settings.items()} | sizes
    assert QUANTITIES["kv_bytes"].of(s) == (N / Br) * 2 * N * d * 4
    assert QUANTITIES["q_bytes"].of(s) == N * d * 4
    assert QUANTITIES["requested_bytes"].of(s) == (N / Br) * 2 * N * d * 4 + 2 * N * d * 4
    assert QUANTITIES["matrix_bytes"].of(s) == 2 * N * N * 4
    assert QUANTITIES["workers"].of(s) == N / Br
    assert QUANTITIES["visits"].of(s) == (N / Br) * (N / Bc)
    assert QUANTITIES["flops"].of(s) == 4 * N * N * d
    assert QUANTITIES["saving"].of(s) == QUANTITIES["naive_bytes"].of(s) / QUANTITIES["requested_bytes"].of(s)
    assert QUANTITIES["smem_bytes"].of(s) == 4 * (2 * Br * d + 2 * Bc * d + Br * Bc + 4 * Br)
    row: dict[str, Any] = {"scores": "1, 2, 3, 4", "Bc": 2, "tile": 2}
    assert value("alpha", **row) == pytest.approx(math.exp(-2))
    assert value("m", **row) == 4
    assert value("l", **row) == pytest.approx(sum(math.exp(x - 4) for x in (1, 2, 3, 4)))
    assert value("rises", scores="5, 1, 6, 2, 3, 7", Bc=2, tile=1) == 2
    assert value("weight", s1=0.0, s2=0.0, s3=0.0, s4=0.0) == pytest.approx(0.25)
    assert value("offset", b=1, h=2, n=3, k=3) == 2 * 3 * 4 * 4 - 1
    assert 0 < value("word_weight", layer=3, head=1, word=10) <= 1
    held = value("longest_naive", N=128, d=64, H=16, B=1, dtype="fp16", gpu="H200") ** 2 * 2 * 16 * 2
    assert 0.9 < held / GPUS["H200"].hbm_bytes < 1.01, "S and P of the longest N about fill the card"


def test_every_quantity_can_be_computed_for_some_picture() -> None:
    for name in QUANTITIES:
        assert math.isfinite(value(name)), name


MISTAKES = {
    "no choices": (BR.replace("choices", "notes"), "choices"),
    "unknown quantity": (BR.replace("kv_bytes", "speed"), "kv_bytes"),
    "quantity of another picture": (BR.replace("kv_bytes", "alpha"), "requested_bytes"),
    "ratio of nothing": (BR.replace("change: Br * 2\n", ""), "change"),
    "change of nothing": (BR.replace("Br * 2", "Bq * 2"), "Br"),
    "change by no number": (BR.replace("Br * 2", "Br * two"), "number"),
    "divided by 0": (BR.replace("Br * 2", "Br / 0"), "0"),
    "change that is code": (BR.replace("Br * 2", "__import__('os')"), "no change"),
    "one choice": (BR.replace("halve = 1/2; stay = 1; double = 2", "halve = 1/2"), "2 to"),
    "choice without a number": (BR.replace("stay = 1", "stay"), "no choice"),
    "choices too close": (BR.replace("stay = 1", "stay = 0.51"), "too close"),
    "no right choice": (BR.replace("halve = 1/2", "thirds = 1/3"), "none of the choices is right"),
    "HTML in the question": (BR.replace("Br doubles?", "<b>x</b>"), "HTML"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_in_a_question_is_one_sentence(name: str) -> None:
    question, word = MISTAKES[name]
    with pytest.raises(DeckError, match=word) as caught:
        asked("traffic", question, "Br: 32")
    assert caught.value.line >= 7 and "\n" not in str(caught.value)


def test_every_question_of_the_shipped_deck_has_one_right_choice_and_wrong_ones() -> None:
    for step in load(decks()[FIRST]).steps:
        if step.question is None:
            continue
        found = answer(step.question, step.settings, step.picture.settings)
        assert found.right is not None and math.isfinite(found.value), step.title
        assert len(step.question.choices) >= 3


def test_settings_beside_the_deck_never_raise_another_error() -> None:
    """Whatever the live controls of the shipped deck can be set to, there is an answer or a sentence."""
    for step in load(decks()[FIRST]).steps:
        for name in step.live:
            kind = step.picture.settings[name].kind
            ends = kind.options if hasattr(kind, "options") else (getattr(kind, "lo", None), getattr(kind, "hi", None))
            for end in ends:
                if step.question is None or end is None:
                    continue
                try:
                    answer(step.question, dict(step.settings) | {name: end}, step.picture.settings)
                except FmhaError as error:
                    assert str(error)
