"""A deck: its name, its steps, and how both are read from a file (`fmha.lecture.blocks` has the outer form).

The first block is about the deck (`deck:` and, if wanted, `by:`), every other one is a step:

    title    the step's heading                      do      one thing to do (Markdown)
    picture  one of `fmha.lecture.pictures`          notes   for the speaker alone (plain text)
    live     settings that get a control             ask ... see `fmha.lecture.questions`

Every other name is a setting of the picture. Below the header stands what the audience reads, in Markdown.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fmha.lecture.blocks import Block, Field, blocks
from fmha.lecture.errors import DeckError, shown
from fmha.lecture.markup import checked
from fmha.lecture.pictures import PICTURES, Picture
from fmha.lecture.questions import Question, read_question
from fmha.ui.parameters import Value

MOST_STEPS = 60
MOST_CHARACTERS = 200_000
_WORDS = ("title", "do", "picture", "live", "notes", "ask", "choices", "compute", "change", "because")


@dataclass(frozen=True)
class Step:
    """One step. settings: of the picture, all of them; live: those that get a control; line: where it begins."""

    title: str
    text: str
    do: str
    notes: str
    picture: Picture
    settings: Mapping[str, Value]
    live: tuple[str, ...]
    question: Question | None
    line: int


@dataclass(frozen=True)
class Deck:
    """A lecture."""

    title: str
    by: str
    steps: tuple[Step, ...]


def read_deck(text: str) -> Deck:
    """The deck that a file describes.

    Raises:
        DeckError: the first mistake, in one sentence, with its line.
    """
    if len(text) > MOST_CHARACTERS:
        raise DeckError(0, f"the file has {len(text):,} characters, and {MOST_CHARACTERS:,} are read at most.")
    found = blocks(text)
    if not found or "deck" not in found[0].fields:
        line = found[0].line if found else 1
        raise DeckError(line, "a deck begins with a header of its own: ---, then deck: and its title, then ---.")
    head, *rest = found
    for name, field in head.fields.items():
        if name not in ("deck", "by"):
            raise DeckError(field.line, f"{shown(name)} belongs into a step: the first header has deck: and by: only.")
    if head.text.strip():
        raise DeckError(head.text_line, "text needs a step: open one with ---, title: and picture: above it.")
    if not 1 <= len(rest) <= MOST_STEPS:
        raise DeckError(0, f"the deck has {len(rest)} steps: 1 to {MOST_STEPS} are possible.")
    by = head.fields.get("by", Field("", 0))
    return Deck(_line(head.fields["deck"], "deck"), by.value[:80], tuple(_step(block) for block in rest))


def _line(field: Field, name: str, longest: int = 90) -> str:
    """One line of plain text."""
    if not field.value:
        raise DeckError(field.line, f"{name} is empty: write a few words.")
    if len(field.value) > longest or not field.value.isprintable():
        raise DeckError(field.line, f"{name} takes up to {longest} printable characters.")
    return field.value


def _step(block: Block) -> Step:
    fields = block.fields
    for name in ("title", "picture"):
        if name not in fields:
            raise DeckError(block.line, f"this step has no {name}: every step needs title and picture.")
    picture = _picture(fields["picture"])
    settings = {name: setting.default for name, setting in picture.settings.items()}
    for name, field in fields.items():
        if name not in _WORDS:
            settings[name] = _setting(name, field, picture)
    question = None
    if "ask" in fields:
        question = read_question(fields, picture, settings)
    elif stray := next((f for n, f in fields.items() if n in ("choices", "compute", "change", "because")), None):
        raise DeckError(stray.line, "this belongs to a question: add ask.")
    do, notes = fields.get("do", Field("", 0)), fields.get("notes", Field("", 0))
    if len(notes.value) > 4000:
        raise DeckError(notes.line, "notes take up to 4,000 characters.")
    return Step(
        title=_line(fields["title"], "title"),
        text=checked(block.text, block.text_line),
        do=checked(do.value, do.line, 500),
        notes=notes.value,
        picture=picture,
        settings=settings,
        live=_live(fields["live"], picture) if "live" in fields else (),
        question=question,
        line=block.line,
    )


def _picture(field: Field) -> Picture:
    if field.value not in PICTURES:
        raise DeckError(field.line, f"there is no picture {shown(field.value)}; try {', '.join(PICTURES)}.")
    return PICTURES[field.value]


def _setting(name: str, field: Field, picture: Picture) -> Value:
    if name not in picture.settings:
        known = ", ".join(picture.settings) or "none"
        raise DeckError(field.line, f"the picture {picture.name} has no setting {shown(name)}; its settings: {known}.")
    setting = picture.settings[name]
    fit = setting.kind.fit(name, (field.value,), setting.default)
    if fit.problem:
        why = fit.problem.replace("**", "").replace("`", '"').rsplit(". ", 1)[0]
        raise DeckError(field.line, f"{why}.")
    return fit.value


def _live(field: Field, picture: Picture) -> tuple[str, ...]:
    names = tuple(name.strip() for name in field.value.split(",") if name.strip())
    for name in names:
        if name not in picture.settings:
            known = ", ".join(picture.settings) or "none"
            raise DeckError(
                field.line,
                f"the picture {picture.name} has no {shown(name)} to be live; its settings: {known}.",
            )
    if len(names) > 4:
        raise DeckError(field.line, f"{len(names)} settings are live: four controls fit on a step.")
    return names


__all__ = ["Deck", "Step", "read_deck"]
