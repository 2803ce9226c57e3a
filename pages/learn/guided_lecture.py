"""The guided lecture: steps from a deck, each with a live picture, a thing to do and perhaps a question."""

from __future__ import annotations

from urllib.parse import urlencode

import streamlit as st

from fmha.lecture.deck import Deck, Step
from fmha.presenter.component import presenter
from fmha.ui import controls, lecture_parts
from fmha.ui.lecture_parts import PRESENTER, sitting
from fmha.ui.lecture_pictures import draw
from fmha.ui.lecture_style import style
from fmha.ui.page import explained_errors, page, plain
from fmha.ui.parameters import Value

IDEA = (
    "One key goes on and back: **Page Down, Page Up**, or the arrow keys. "
    "**P** presents, **L** points, **N** opens notes."
)
MOMENT = ("gpu", "play", "phase", "Q_tile", "KV_tile", "row", "part")  # of this page alone


def text_of(step: Step) -> tuple[dict[str, Value], str]:
    """What is read and done beside the picture. Returns the picture's settings, and the answer in words."""
    with st.container(key="lecture-text"):
        st.markdown(step.text)
    settings, said = lecture_parts.live(step), ""
    if step.question is not None:
        with st.container(border=True, key="lecture-ask"):
            said = lecture_parts.ask(step.question, settings, step.picture)
    if step.do and (step.question is None or sitting().revealed):  # first the prediction, then the thing to do
        with st.container(border=True, key="lecture-do"):
            st.header("Try this", anchor=False)
            st.markdown(step.do)
    return settings, said


def more_of(step: Step, settings: dict[str, Value]) -> None:
    """A link to the page that shows more of this picture, with the same settings."""
    if not step.picture.page:
        return
    links = {n: v for n, v in settings.items() if n not in MOMENT}
    texts = {"step" if n == "at" else n: int(v) if isinstance(v, bool) else v for n, v in links.items()}
    if "scores" in texts:
        texts["input"] = "own"
    with st.container(key="lecture-link"):
        st.caption(f"[More of this picture]({step.picture.page}?{urlencode(texts)}), on a page of its own")


def show(deck: Deck, number: int, speaker: bool, present: bool) -> None:
    """One step, or its notes."""
    step, now = deck.steps[number - 1], sitting()
    now.after = None
    bar = {
        "step": number, "count": len(deck.steps), "revealed": now.revealed, "present": present, "notes": speaker,
        "questions": [n for n, s in enumerate(deck.steps, 1) if s.question is not None],
        "told": now.told, "session": now.visit, "play": bool(step.settings.get("play")), "title": step.title,
        "said": step.notes, "next": deck.steps[number].title if number < len(deck.steps) else "", "answer": "",
    }  # fmt: skip
    if speaker:
        presenter(bar, key=PRESENTER, on_move=lecture_parts.moved)
        return
    with st.container(key="lecture-step"):
        st.header(plain(step.title), anchor=False)
        left, right = st.columns([4, 9], gap="medium")
        with left:
            settings, bar["answer"] = text_of(step)
    presenter(bar, key=PRESENTER, on_move=lecture_parts.moved)  # before the picture: keys work while it is made
    with right, explained_errors():
        settings = lecture_parts.picture_shows(step.question, settings)
        draw(step.picture, settings, f"lecture-{now.deck}-{number}")
        more_of(step, settings)


with st.container(key="lecture-idea"):
    page("Guided lecture", IDEA, begins_with="words")  # each step sees to its figure
notice, body = st.container(), st.container()
with st.container(key="lecture-more"), st.expander("All steps, other decks"):
    name, chosen = lecture_parts.choose_deck()
    if chosen is not None:
        titles = {str(n): f"{n}. {step.title}" for n, step in enumerate(chosen.steps, 1)}
        at = int(controls.choice("step", "Step", titles, default="1"))
        lecture_parts.arrive(name, at)
    lecture_parts.own_deck()
is_present = bool(controls.hidden("present", lo=0, hi=1, default=0))
is_speaker = bool(controls.hidden("notes", lo=0, hi=1, default=0))
st.html(style(present=is_present and not is_speaker, speaker=is_speaker))
with body:
    if chosen is not None:
        show(chosen, at, is_speaker, is_present)
with notice:
    controls.notices()
