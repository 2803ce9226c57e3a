"""The player as a step shows it: with given settings, standing at a given moment."""

from __future__ import annotations

from typing import Any

import streamlit as st

from fmha.lecture.pictures import Settings
from fmha.picture.moment import Asked, asked, prepared
from fmha.player import scene
from fmha.player.component import player
from fmha.player.payload import Scene, build, schedule_digest
from fmha.simulation import Run
from fmha.ui.page import explained_errors


@st.cache_resource(max_entries=16, show_spinner=False)
def _played(wanted: Asked) -> scene.Played:
    return wanted.played()


@st.cache_data(max_entries=48, show_spinner=False)
def _payload(
    key: tuple[Any, ...], _now: scene.Played, sm: int, tile: tuple[int, int] | None, race: bool, start: Any
) -> bytes:
    look = Scene(_now.gpu, _now.sms, sm, tile, race, start, _now.inputs.heads, _now.inputs.tokens)
    return build(_now.run, _now.naive_events, _now.served(), look)


def draw(settings: Settings, key: str) -> None:
    """The player. It keeps what the person does in it until the step is left. A fragment is around it.

    Raises:
        LimitError: more tiles than the player shows.
    """
    _mount(*_named(settings), key)


def rehearse(settings: Settings) -> None:
    """Compute what `draw` will show, before anybody asks for it.

    Raises:
        FmhaError: these settings cannot be.
    """
    _blob(*_named(settings), None)


def _named(settings: Settings) -> tuple[Asked, bool, dict[str, Any]]:
    """The run, whether naive attention races against it, and the moment that it stands at."""
    s: dict[str, Any] = dict(settings)
    return asked(s), bool(s["race"]), {name: s[name] for name in ("phase", "Q_tile", "KV_tile", "row")}


@st.fragment
def _mount(wanted: Asked, race: bool, moment: dict[str, Any], key: str) -> None:
    with explained_errors():
        blob = _blob(wanted, race, moment, key)
    player(blob, key=key)


def _blob(wanted: Asked, race: bool, moment: dict[str, Any], key: str | None) -> bytes:
    """What the player gets. key: whose choice counts; None: nobody has chosen yet."""
    now = _played(wanted)
    run = now.run
    stands = prepared(run, moment)
    start = None if stands is None else (stands.event, stands.row, stands.col, False)
    at = _chosen(key, run, now.sms) if key is not None else None
    event, sm = at if at is not None else (stands.event, stands.sm) if stands is not None else (0, 0)
    row = run.events[event]
    tile = (int(row["h"]), int(row["i"])) if row["i"] >= 0 and row["sm"] == sm else None
    return _payload((wanted, race), now, sm, tile, race, start)


def _chosen(key: str, run: Run, sms: int) -> tuple[int, int] | None:
    """(event, SM) that the person last chose in the player, in this very run."""
    state = st.session_state.get(key)
    at = dict((state.get("at") if state is not None else None) or {})
    if at.get("schedule") != schedule_digest(run):
        return None
    event, sm = int(at["event"]), int(at["sm"])
    return (event, sm) if 0 <= event < len(run.events) and 0 <= sm < sms else None


__all__ = ["draw", "rehearse"]
