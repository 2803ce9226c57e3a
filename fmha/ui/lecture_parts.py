"""Parts of the lecture's page: the controls of a step, its question, the choice of a deck."""

from __future__ import annotations

import random
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import streamlit as st

from fmha.errors import FmhaError
from fmha.lecture import library
from fmha.lecture.deck import Deck, Step, read_deck
from fmha.lecture.errors import DeckError
from fmha.lecture.pictures import SETTING_NAMES, Picture, Setting
from fmha.lecture.questions import Answer, Question, answer, changed
from fmha.presenter.component import whole
from fmha.ui import controls, lecture_pictures
from fmha.ui.lecture_pictures import resolved
from fmha.ui.page import plain
from fmha.ui.parameters import Choice, Flag, Numbers, Range, Text, Value
from fmha.ui.settings import LECTURE

PREFIX = LECTURE  # of a live control's name in the address: its own, so that a lecture does not move other pages
LIVE_NAMES = tuple(PREFIX + name for name in SETTING_NAMES)
PRESENTER = "lecture-presenter"
LETTERS = "ABCDEFGH"
_UPLOAD_MB = 1


@dataclass
class Sitting:
    """What one visitor's lecture is at, beside the step, which is in the address. Nothing about people is kept."""

    deck: str = ""
    step: int = 0
    revealed: bool = False
    after: dict[str, Value] | None = None  # the settings after a question's change, once it is revealed
    guess: int | None = None  # what was chosen before the reveal; forgotten with the step
    told: int = 0  # the last message of the browser's presenter
    visit: str = field(default_factory=lambda: f"{random.getrandbits(48):x}")
    uploaded: tuple[str, str] | None = None  # name and text of an own deck, for this visit only


def sitting() -> Sitting:
    """The visitor's."""
    state: Sitting = st.session_state.setdefault("fmha.lecture", Sitting())
    return state


def moved() -> None:
    """The presenter asks for another place."""
    at: Any = getattr(st.session_state.get(PRESENTER), "at", None) or {}
    now = sitting()
    step, told = whole(at.get("step"), 1, 10_000), whole(at.get("told"), 0, 2**31)
    if step is None or told is None:
        return
    now.told = told
    go_to(step, bool(at.get("revealed")))
    controls.assign(present=int(bool(at.get("present"))))
    controls.whole_page()


def go_to(step: int, revealed: bool = False) -> None:
    """Go to a step; its controls stand where its deck says."""
    now = sitting()
    if step != now.step:
        controls.forget(*LIVE_NAMES)
    now.guess = st.session_state.get(_guess_key(now), now.guess) if revealed and step == now.step else None
    now.step, now.revealed = step, revealed
    controls.assign(step=str(step))


def _guess_key(now: Sitting) -> str:
    return f"lecture-guess-{now.deck}-{now.step}"


def arrive(deck: str, step: int) -> None:
    """Note which step is on the page. One that was come to by another way than `go_to` begins afresh, too."""
    now = sitting()
    if (now.deck, now.step) == (deck, step):
        return
    if now.deck:  # else it is the first page of this visit, and its link may set controls
        controls.forget(*LIVE_NAMES)
    now.deck, now.step, now.revealed, now.guess = deck, step, False, None


# --- settings ---------------------------------------------------------------------------------------------------------


def live(step: Step) -> dict[str, Value]:
    """The step's settings, with a control for each that is live."""
    settings = dict(step.settings)
    if not step.live:
        return settings
    columns = st.columns(min(2, len(step.live)))
    for n, name in enumerate(step.live):
        with columns[n % 2]:
            settings[name] = _control(name, step.picture.settings[name], settings[name])
    return settings


def _control(name: str, setting: Setting, default: Any) -> Value:
    kind, key = setting.kind, PREFIX + name
    if isinstance(kind, Numbers):
        value: Value = controls.slider(key, setting.label, options=kind.options, default=default)
    elif isinstance(kind, Range):
        value = controls.slider(key, setting.label, lo=kind.lo, hi=kind.hi, step=kind.step, default=default)
    elif isinstance(kind, Choice):
        value = controls.choice(key, setting.label, setting.labels, default=default)
    elif isinstance(kind, Flag):
        value = controls.toggle(key, setting.label, default=default)
    else:
        assert isinstance(kind, Text)
        value = controls.text(
            key, setting.label, default=default, longest=kind.longest, pattern=kind.pattern, what=kind.what
        )
    return value


# --- question ---------------------------------------------------------------------------------------------------------


def ask(question: Question, settings: dict[str, Value], picture: Picture) -> str:
    """Ask, and after the reveal answer. Returns the answer in words, for the speaker."""
    now = sitting()
    st.header("Predict", anchor=False)
    st.markdown(question.ask)
    try:
        found = answer(question, resolved(settings), picture.settings)
    except FmhaError as wrong:
        st.info(plain(_sentence(wrong)))
        return ""
    if not now.revealed:
        labels = [f"**{LETTERS[n]}** {plain(choice.label)}" for n, choice in enumerate(question.choices)]
        st.radio(
            "Your prediction", range(len(labels)), format_func=labels.__getitem__, index=None, key=_guess_key(now),
            label_visibility="collapsed",
        )  # fmt: skip
        st.button("Reveal", on_click=go_to, args=(now.step, True), key="lecture-reveal", type="primary")
        return _in_words(question, found)
    guess = now.guess
    _reveal(question, found, guess)
    if question.changes:
        now.after = changed(question, settings, picture.settings)
    return _in_words(question, found)


def picture_shows(question: Question | None, settings: dict[str, Value]) -> dict[str, Value]:
    """Above a picture whose question is answered: before or after the change. Returns the settings to draw it with."""
    now = sitting()
    if question is None or now.after is None:
        return settings
    after = now.after
    what = ", ".join(f"{c.name} = {after[c.name]}" for c in question.changes)
    which = st.segmented_control(
        "The picture shows", ["before", "after"], default="after", required=True, label_visibility="collapsed",
        key=f"lecture-shown-{now.deck}-{now.step}",
        format_func=lambda which: f"after: {what}" if which == "after" else which,
    )  # fmt: skip
    return after if which == "after" else settings


def _reveal(question: Question, found: Answer, guess: int | None) -> None:
    if found.right is None:
        st.warning(f"**None of these,** with the settings at hand. {plain(found.text)}")
        return
    verdict = ""
    if guess is not None:
        verdict = " That was your prediction." if guess == found.right else f" Your prediction was {LETTERS[guess]}."
    right = f"**{LETTERS[found.right]}: {plain(question.choices[found.right].label)}.**{verdict}"
    st.success(f"{right}  \n{plain(found.text)}  \n{question.because}")


def _in_words(question: Question, found: Answer) -> str:
    """The answer as the speaker's window shows it, in plain text."""
    if found.right is None:
        return f"none of the choices. {found.text}"
    return f"{LETTERS[found.right]}, {question.choices[found.right].label}. {found.text}"


def _sentence(error: FmhaError) -> str:
    text = str(error)
    return text[:1].upper() + text[1:]


# --- decks ------------------------------------------------------------------------------------------------------------


@st.cache_resource(max_entries=16, show_spinner=False)  # decks are frozen: shared, not copied
def _parsed(text: str) -> Deck:
    return read_deck(text)


@st.cache_resource(max_entries=16, show_spinner=False)
def _loaded(path: str, stamp: tuple[int, int]) -> Deck:
    """The deck in a file of this time and size: both are part of the key, so the name begins with no underscore."""
    return library.load(library.Path(path))


def _stored(file: library.Path) -> Deck:
    """A deck that lies in a folder, as long as its file stays the same."""
    stat = file.stat()
    return _loaded(str(file), (stat.st_mtime_ns, stat.st_size))


def rehearse() -> None:
    """Read the first deck and compute its first picture, before anybody asks for them. What cannot be is said when
    somebody does."""
    with suppress(FmhaError, DeckError, OSError):
        first = _stored(library.decks()[library.FIRST]).steps[0]
        lecture_pictures.rehearse(first.picture, first.settings)


def choose_deck() -> tuple[str, Deck | None]:
    """The deck in the link, or the uploaded one; its name, and None where it cannot be shown (it is said why)."""
    now = sitting()
    found = library.decks()
    name = controls.choice(
        "deck", "Deck", {n: n for n in found}, default=library.FIRST,
        help="Files in ./decks, or in the folder that the variable FMHA_DECKS names.",
    )  # fmt: skip
    try:
        if now.uploaded is not None:
            return f"upload {now.uploaded[0]}", _parsed(now.uploaded[1])
        return name, _stored(found[name])
    except (DeckError, OSError) as wrong:
        what = now.uploaded[0] if now.uploaded else name
        reason = _sentence(wrong) if isinstance(wrong, DeckError) else "Its file is gone."
        st.error(f"The deck *{plain(what)}* cannot be shown. {plain(reason)}")
        return name, None


def own_deck() -> None:
    """Open a file as a deck for this visit, go back from it, and take the shipped one home as a pattern."""
    now = sitting()
    key = "lecture-upload"

    def take() -> None:
        file = st.session_state.get(key)
        if file is None:
            return
        try:
            now.uploaded = (file.name[:60], library.decode(file.getvalue()))
        except DeckError as wrong:
            st.session_state["lecture-upload-wrong"] = str(wrong)
            return
        go_to(1)

    st.file_uploader(
        "Open your own deck (Markdown, for this window only)",
        type=["md", "txt", "yaml", "yml"], key=key, on_change=take, max_upload_size=_UPLOAD_MB,
    )  # fmt: skip
    if wrong := st.session_state.pop("lecture-upload-wrong", None):
        st.error(plain(f"This file cannot be read: {wrong}"))

    def close() -> None:
        now.uploaded = None
        go_to(1)

    if now.uploaded is not None:
        st.button(f"Close {plain(now.uploaded[0])}", on_click=close, key="lecture-close")
    st.download_button(
        "Download this lecture as a pattern", library.decks()[library.FIRST].read_text(encoding="utf-8"),
        file_name="my-lecture.md", mime="text/markdown", on_click="ignore", key="lecture-pattern",
    )  # fmt: skip


__all__ = [
    "LIVE_NAMES",
    "PRESENTER",
    "arrive",
    "ask",
    "choose_deck",
    "go_to",
    "live",
    "moved",
    "own_deck",
    "picture_shows",
    "sitting",
]
