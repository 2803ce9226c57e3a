"""The lecture as pages: text, picture, and the question with its computed answer behind a button."""

from __future__ import annotations

from html import escape

from fmha.hardware import DEFAULT_GPU
from fmha.lecture.deck import Deck, Step
from fmha.lecture.library import FIRST, decks, load
from fmha.lecture.pictures import OWN_GPU, Settings
from fmha.lecture.questions import Answer, Question, answer, changed
from fmha.picture.book import parts
from fmha.picture.parts import Player
from fmha.site import players, show
from fmha.site.frame import page
from fmha.site.text import html_of

FOLDER = "lecture"
_LETTERS = "ABCDEFGH"


def files(deck: Deck | None = None) -> dict[str, str]:
    """A page for each step, by path, and the players that the steps show. deck: by default the shipped one."""
    whole = deck or load(decks()[FIRST])
    made: dict[str, str] = {}
    for number, step in enumerate(whole.steps, 1):
        made |= _Page(whole, number, step).files()
    return made


class _Page:
    """One step."""

    def __init__(self, deck: Deck, number: int, step: Step) -> None:
        self.deck, self.number, self.step = deck, number, step
        self.players: dict[str, str] = {}

    def files(self) -> dict[str, str]:
        step, count = self.step, len(self.deck.steps)
        settings = _named(step.settings)
        left = html_of(step.text)
        if step.question is not None:
            left += self.question(step.question, settings)
        if step.do:
            left += f'<div class="box"><h3>In the app</h3>{html_of(step.do)}</div>'
        if step.notes:
            left += f"<details><summary>Notes for the speaker</summary><p>{escape(step.notes)}</p></details>"
        body = (
            f'{self.turn(count)}<h1>{self.number}. {escape(step.title)}</h1><div class="step"><div>{left}</div>'
            f"<div>{self.after(settings)}{self.before(settings)}</div></div>"
        )
        name = _file(self.number)
        return {name: page(name, f"{self.number}. {step.title}", body)} | self.players

    def turn(self, count: int) -> str:
        """The way back and on."""
        n = self.number
        back = f'<a rel="prev" href="{n - 1:02}.html">‹ Back</a>' if n > 1 else "<span></span>"
        on = f'<a rel="next" href="{n + 1:02}.html">Next ›</a>' if n < count else "<span></span>"
        return f'<div class="turn">{back}<span>{escape(self.deck.title)}: step {n} of {count}</span>{on}</div>'

    def picture(self, settings: Settings) -> str:
        return show.shown(parts(self.step.picture, dict(settings)), "../", self.player)

    def player(self, part: Player) -> str:
        """The address of a player of this step, whose file is made here."""
        name = f"step-{self.number:02}{'' if not self.players else f'-{len(self.players)}'}.html"
        self.players[f"{players.FOLDER}/{name}"] = players.of_step(part, self.step.title)
        return f"../{players.FOLDER}/{name}"

    def question(self, question: Question, settings: Settings) -> str:
        """The question, its choices, and the answer behind a button."""
        choices = "".join(f"<li>{escape(choice.label)}</li>" for choice in question.choices)
        found = answer(question, settings, self.step.picture.settings)
        return (
            f'<div class="box"><h2>Predict</h2>{html_of(question.ask)}<ol class="choices">{choices}</ol>'
            '<details class="reveal"><summary>Reveal</summary>'
            f'<div class="right">{_told(question, found)}</div></details></div>'
        )

    def before(self, settings: Settings) -> str:
        """The picture."""
        return f'<div class="before"><h2>Before</h2>{self.picture(settings)}</div>'

    def after(self, settings: Settings) -> str:
        """The picture after the question's change, seen once the answer is; nothing where nothing changes."""
        question = self.step.question
        if question is None or not question.changes:
            return ""
        after = changed(question, settings, self.step.picture.settings)
        what = ", ".join(f"{change.name} = {after[change.name]}" for change in question.changes)
        return f'<div class="after"><h2>After: {escape(what)}</h2>{self.picture(after)}</div>'


def _told(question: Question, found: Answer) -> str:
    """The answer in words."""
    right = (
        "None of these" if found.right is None else f"{_LETTERS[found.right]}: {question.choices[found.right].label}"
    )
    return f"<p><b>{escape(right)}.</b><br>{escape(found.text)}</p>{html_of(question.because)}"


def _named(settings: Settings) -> Settings:
    """The settings with a GPU that is the same on every reader's machine."""
    return {**settings, "gpu": DEFAULT_GPU} if settings.get("gpu") == OWN_GPU else settings


def _file(number: int) -> str:
    return f"{FOLDER}/{number:02}.html"


__all__ = ["FOLDER", "files"]
