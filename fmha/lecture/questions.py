"""Predict, then reveal: a question with choices, whose right one is computed from the settings at hand.

    ask: Br doubles. What happens to the bytes of K and V?
    compute: ratio kv_bytes
    change: Br * 2
    choices: they halve = 1/2; they stay = 1; they double = 2

`compute` names a quantity; with `ratio` or `difference` before it, the answer is what the change makes of it, else its
value after the change. `change` says what is done to the settings. A choice is right when its value is the computed
one within 3 %.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from fmha.errors import LimitError
from fmha.lecture.blocks import Field
from fmha.lecture.errors import DeckError, shown
from fmha.lecture.markup import checked
from fmha.lecture.pictures import Picture, Setting, Settings
from fmha.lecture.quantities import QUANTITIES, Unit, said
from fmha.ui.parameters import Value, read_number

Mode = Literal["value", "ratio", "difference"]
_MODES: dict[str, Mode] = {"ratio": "ratio", "difference": "difference"}
NEAR = 0.03  # relative: choices are written with few digits
MOST_CHOICES = 6
_CHANGE = re.compile(r"(?P<name>[A-Za-z]\w*)\s*(?P<how>[*/+=-])\s*(?P<value>[\w.+-]+)")
_VALUE = re.compile(r"(?P<top>[+-]?[\d.,eE+-]+?)(?:\s*/\s*(?P<bottom>[\d.]+))?\s*(?P<unit>[A-Za-z]*)")
_UNITS: dict[str, float] = {"": 1, "x": 1, "tokens": 1} | {
    unit: 1024.0**power for power, unit in enumerate(("B", "KiB", "MiB", "GiB", "TiB", "PiB"))
}


@dataclass(frozen=True)
class Choice:
    """One answer: what is read, and the number that it stands for."""

    label: str
    value: float


@dataclass(frozen=True)
class Change:
    """What is done to one setting: multiply, divide, add, subtract, or set."""

    name: str
    how: str
    value: Value

    def of(self, old: Value) -> Value:
        """The value after the change."""
        if self.how == "=" or isinstance(old, str) or isinstance(self.value, str):
            return self.value
        new = {"*": old * self.value, "/": old / self.value, "+": old + self.value, "-": old - self.value}[self.how]
        return int(new) if isinstance(old, int) and float(new).is_integer() else new


@dataclass(frozen=True)
class Question:
    """A question of a step. ask, because: Markdown; mode: whether the new value is asked for, or what became of it."""

    ask: str
    choices: tuple[Choice, ...]
    compute: str
    mode: Mode
    changes: tuple[Change, ...]
    because: str = ""


@dataclass(frozen=True)
class Answer:
    """right: index of the right choice, None where none is; value: what was computed; text: it in one sentence."""

    right: int | None
    value: float
    text: str


def changed(question: Question, settings: Settings, offered: Mapping[str, Setting]) -> dict[str, Value]:
    """The settings after the question's change.

    Raises:
        LimitError: the picture does not offer the new value.
    """
    after = dict(settings)
    for change in question.changes:
        new = change.of(after[change.name])
        fit = offered[change.name].kind.fit(change.name, new, offered[change.name].default)
        if fit.problem:
            raise LimitError(
                f"{change.name} = {after[change.name]} cannot become {new} here: set it to another value first."
            )
        after[change.name] = fit.value
    return after


def answer(question: Question, settings: Settings, offered: Mapping[str, Setting]) -> Answer:
    """The answer for these settings, computed.

    Raises:
        FmhaError: the settings, or those after the change, cannot be.
    """
    quantity = QUANTITIES[question.compute]
    after = changed(question, settings, offered)
    new = quantity.of(after)
    if question.mode == "value":
        return Answer(_nearest(question.choices, new), new, f"{quantity.what} is {said(new, quantity.unit)}.")
    old = quantity.of(settings)
    if question.mode == "ratio":
        found = new / old if old else math.inf
        became = said(found, "times")
    else:
        found = new - old
        became = f"a difference of {said(found, quantity.unit)}"
    what = ", ".join(f"{c.name} = {after[c.name]}" for c in question.changes)
    text = (
        f"{quantity.what}: {said(old, quantity.unit)} before, {said(new, quantity.unit)} with {what}, that is {became}."
    )
    return Answer(_nearest(question.choices, found), found, text)


def _nearest(choices: tuple[Choice, ...], value: float) -> int | None:
    near = [n for n, choice in enumerate(choices) if math.isclose(choice.value, value, rel_tol=NEAR, abs_tol=1e-9)]
    return min(near, key=lambda n: abs(choices[n].value - value)) if near else None


# --- from the file ----------------------------------------------------------------------------------------------------


def read_question(fields: Mapping[str, Field], picture: Picture, settings: Settings) -> Question:
    """The question of a step's header.

    Raises:
        DeckError: with the line; also where no choice is right at the step's own settings.
    """
    ask = fields["ask"]
    for name in ("choices", "compute"):
        if name not in fields:
            raise DeckError(ask.line, f"a question needs {name}: add it below ask.")
    compute, mode = _compute(fields["compute"], picture)
    changes = _changes(fields["change"], picture) if "change" in fields else ()
    if mode != "value" and not changes:
        raise DeckError(fields["compute"].line, f"a {mode} needs change: say what changes, for example change: N * 2.")
    choices = _choices(fields["choices"], QUANTITIES[compute].unit)
    because = fields.get("because", Field("", 0))
    question = Question(
        checked(ask.value, ask.line, 300), choices, compute, mode, changes, checked(because.value, because.line, 400)
    )
    try:
        found = answer(question, settings, picture.settings)
    except ValueError as wrong:  # every error of this package is one
        raise DeckError(ask.line, f"the answer cannot be computed: {wrong}") from None
    if found.right is None:
        raise DeckError(fields["choices"].line, f"none of the choices is right. {found.text} Offer that.")
    return question


def _compute(entry: Field, picture: Picture) -> tuple[str, Mode]:
    mode: Mode = "value"
    name = entry.value.strip()
    first, _, after = name.partition(" ")
    if first in _MODES:
        mode, name = _MODES[first], after.strip()
    possible = [n for n, q in QUANTITIES.items() if set(q.needs) <= set(picture.settings)]
    if name not in possible:
        offer = f"try {', '.join(possible)}" if possible else "no quantity goes with this picture"
        raise DeckError(entry.line, f"compute: {shown(name)} is no quantity of the picture {picture.name}; {offer}.")
    return name, mode


def _changes(entry: Field, picture: Picture) -> tuple[Change, ...]:
    changes = []
    for part in entry.value.split(","):
        match = _CHANGE.fullmatch(part.strip())
        if match is None:
            raise DeckError(entry.line, f"{shown(part)} is no change: write N * 2, Br / 2, tile = 3, ...")
        if match["name"] not in picture.settings:
            raise DeckError(
                entry.line,
                f"the picture {picture.name} has no setting {shown(match['name'])}; try {', '.join(picture.settings)}.",
            )
        number = read_number(match["value"])
        if match["how"] != "=" and not number:
            raise DeckError(entry.line, f"{shown(part)}: a number above or below 0 is needed after {match['how']}.")
        changes.append(Change(match["name"], match["how"], match["value"] if number is None else number))
    return tuple(changes)


def _choices(entry: Field, unit: Unit) -> tuple[Choice, ...]:
    choices = []
    for part in (p.strip() for p in entry.value.split(";")):
        label, equals, text = part.rpartition("=")
        value = _number(text if equals else part)
        label = label.strip() if equals else part
        if value is None or not label:
            raise DeckError(entry.line, f"{shown(part)} is no choice: write words = number, such as they halve = 1/2.")
        if len(label) > 60:
            raise DeckError(entry.line, f"the choice {shown(label)} is longer than 60 characters: cut it.")
        choices.append(Choice(label, value))
    if not 2 <= len(choices) <= MOST_CHOICES:
        raise DeckError(
            entry.line, f"{len(choices)} choices were given: 2 to {MOST_CHOICES} are possible, with ; between."
        )
    values = sorted(choice.value for choice in choices)
    for low, high in pairwise(values):
        if math.isclose(low, high, rel_tol=2 * NEAR, abs_tol=2e-9):
            raise DeckError(entry.line, f"two choices are too close to tell apart: {low:g} and {high:g}.")
    return tuple(choices)


def _number(text: str) -> float | None:
    """ "1/2", "0.14", "4 MiB", "2x" as a number."""
    match = _VALUE.fullmatch(text.strip())
    if match is None or match["unit"] not in _UNITS:
        return None
    top = read_number(match["top"].replace(",", ""))
    bottom = read_number(match["bottom"]) if match["bottom"] else 1
    return float(top) / float(bottom) * _UNITS[match["unit"]] if top is not None and bottom else None


__all__ = ["Answer", "Change", "Choice", "Question", "answer", "changed", "read_question"]
