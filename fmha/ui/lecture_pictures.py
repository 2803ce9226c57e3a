"""The pictures of a lecture, drawn by Streamlit: each part that `fmha.picture.book` yields."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

import streamlit as st

from fmha.lecture.pictures import OWN_GPU, Picture, Settings
from fmha.picture.book import parts
from fmha.picture.parts import Beside, Chart, Drawing, Maths, Note, Origin, Part, Player, Words
from fmha.ui import cards, charts, lecture_player
from fmha.ui.this_gpu import default_gpu
from fmha.ui.warm import whole_libraries

PLAYER = "player"  # the picture that needs no figure


def resolved(settings: Settings, session: MutableMapping[str, Any] | None = None) -> dict[str, Any]:
    """The settings with the GPU named: the visitor's, or that of another `session`."""
    own = {"gpu": default_gpu(session=session)} if settings.get("gpu") == OWN_GPU else {}
    return dict(settings) | own


def draw(picture: Picture, settings: Settings, key: str) -> None:
    """Draw a picture. key: one for each step, so that no step inherits the state of another.

    Raises:
        FmhaError: these settings cannot be.
    """
    if picture.name != PLAYER:
        whole_libraries()
    for part in parts(picture, resolved(settings)):
        _show(part, key)


def rehearse(picture: Picture, settings: Settings) -> None:
    """Compute what a picture that is a player will show, before anybody asks for it.

    Raises:
        FmhaError: these settings cannot be.
    """
    if picture.name == PLAYER:
        lecture_player.rehearse(resolved(settings, {}))


def _show(part: Part, key: str) -> None:
    match part:
        case Words(text, quiet):
            (st.caption if quiet else st.markdown)(text)
        case Note(text):
            st.info(text)
        case Maths(latex):
            st.latex(latex)
        case Drawing(html):
            st.html(html)
        case Chart(figure, name, alt):
            charts.show(figure, key=f"{key}-{name}", alt=alt)
        case Player(settings):
            lecture_player.draw(settings, f"{key}-player")
        case Origin(found):
            cards.provenance(found, "Recorded")
        case Beside(inside):
            for column, one in zip(st.columns(len(inside)), inside, strict=True):
                with column:
                    _show(one, key)


__all__ = ["draw", "rehearse", "resolved"]
