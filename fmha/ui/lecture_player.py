"""The player as a step shows it: with given settings, standing at a given moment."""

from __future__ import annotations

from typing import Any

import streamlit as st

from fmha.errors import LimitError
from fmha.events import CODE
from fmha.hardware import GPUS
from fmha.inputs import INPUTS
from fmha.lecture.pictures import Settings
from fmha.lecture.quantities import problem_of, tiling_of
from fmha.player import scene
from fmha.player.component import player
from fmha.player.payload import Scene, build, schedule_digest
from fmha.problem import Problem, Tiling
from fmha.simulation import Run
from fmha.ui.page import explained_errors

Moment = tuple[int, int, int, int]  # row of the event table, SM, row and column of the tile


@st.cache_resource(max_entries=16, show_spinner=False)
def _played(
    problem: Problem, tiling: Tiling, order: str, input_name: str, sms: int, seed: int, layer: int, head: int, gpu: str
) -> scene.Played:
    return scene.prepare(
        problem, tiling, order, input_name, sms=sms, seed=seed, layer=layer, head=head, gpu=GPUS[gpu]
    )  # fmt: skip


@st.cache_data(max_entries=48, show_spinner=False)
def _payload(
    key: tuple[Any, ...], _now: scene.Played, sm: int, tile: tuple[int, int] | None, race: bool, start: Any
) -> bytes:
    look = Scene(_now.gpu, _now.sms, sm, tile, race, start, _now.inputs.heads, _now.inputs.tokens)
    return build(_now.run, _now.naive_events, _now.served(), look)


def prepared(run: Run, settings: Settings) -> Moment | None:
    """The moment that the settings name; None: the start.

    Raises:
        LimitError: the run has no such moment.
    """
    code = str(settings["phase"])
    if code == "none":
        return None
    i, j, row = (int(settings[name]) for name in ("Q_tile", "KV_tile", "row"))
    events = run.events
    here = (events["phase"] == CODE[code]) & (events["h"] == 0) & (events["i"] == i)
    once = here & (events["j"] < 0)  # loads, stores and the division of a Q tile belong to no K/V tile
    found = ((here & (events["j"] == j)) | once).nonzero()[0]
    if not len(found):
        raise LimitError(f"the phase {code} of Q tile {i} and K/V tile {j} does not occur here: choose another moment.")
    event = int(found[0])
    return event, int(events["sm"][event]), min(row, run.tiling.Br - 1), 0


def draw(settings: Settings, key: str, gpu: str) -> None:
    """The player. It keeps what the person does in it until the step is left. A fragment is around it."""
    s: dict[str, Any] = dict(settings)
    problem, tiling = problem_of(s), tiling_of(s)
    source = INPUTS[s["input"]]
    if source.d and source.d != problem.d:
        problem = problem.replace(d=source.d)
    if source.N and problem.Nq > source.N:
        problem = problem.replace(N=source.N)
    if max(tiling.Tr(problem), tiling.Tc(problem)) > scene.MAX_TILES:
        raise LimitError(
            f"Br = {tiling.Br}, Bc = {tiling.Bc} make more than {scene.MAX_TILES} tiles of N = {problem.Nq}."
        )
    arguments = (problem, tiling, s["order"], s["input"], s["sms"], s["seed"], s["layer"], s["head"], gpu)
    _mount(arguments, bool(s["race"]), {name: s[name] for name in ("phase", "Q_tile", "KV_tile", "row")}, key)


@st.fragment
def _mount(arguments: tuple[Any, ...], race: bool, moment: dict[str, Any], key: str) -> None:
    with explained_errors():
        now = _played(*arguments)
        run = now.run
        stands = prepared(run, moment)
    start = None if stands is None else (stands[0], stands[2], stands[3], False)
    at = _chosen(key, run, now.sms)
    event, sm = at if at is not None else (stands[0], stands[1]) if stands is not None else (0, 0)
    row = run.events[event]
    tile = (int(row["h"]), int(row["i"])) if row["i"] >= 0 and row["sm"] == sm else None
    with explained_errors():
        blob = _payload((arguments, race), now, sm, tile, race, start)
    player(blob, key=key)


def _chosen(key: str, run: Run, sms: int) -> tuple[int, int] | None:
    """(event, SM) that the person last chose in the player, in this very run."""
    state = st.session_state.get(key)
    at = dict((state.get("at") if state is not None else None) or {})
    if at.get("schedule") != schedule_digest(run):
        return None
    event, sm = int(at["event"]), int(at["sm"])
    return (event, sm) if 0 <= event < len(run.events) and 0 <= sm < sms else None


__all__ = ["draw", "prepared"]
