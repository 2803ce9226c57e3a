"""The player of a step: which run it shows, and at which moment it stands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from fmha.errors import LimitError
from fmha.events import CODE
from fmha.hardware import GPUS
from fmha.inputs import INPUTS
from fmha.lecture.quantities import problem_of, tiling_of
from fmha.player import scene
from fmha.problem import Problem, Tiling
from fmha.simulation import Run
from fmha.ui.parameters import Value


class Asked(NamedTuple):
    """The run that settings name; hashable, so that it can be kept. gpu: a key of `fmha.hardware.GPUS`."""

    problem: Problem
    tiling: Tiling
    order: str
    input: str
    sms: int
    seed: int
    layer: int
    head: int
    gpu: str

    def played(self) -> scene.Played:
        """Simulate it."""
        return scene.prepare(
            self.problem, self.tiling, self.order, self.input,
            sms=self.sms, seed=self.seed, layer=self.layer, head=self.head, gpu=GPUS[self.gpu],
        )  # fmt: skip


class Moment(NamedTuple):
    """Row of the event table, SM in focus, row and column of the score tile."""

    event: int
    sm: int
    row: int
    col: int


def asked(settings: Mapping[str, Value]) -> Asked:
    """The run of a step's settings; an input with a length of its own cuts the problem.

    Raises:
        LimitError: more tiles than the player shows.
    """
    s: dict[str, Any] = dict(settings)
    problem, tiling = problem_of(s), tiling_of(s)
    source = INPUTS[s["input"]]
    if source.d and source.d != problem.d:
        problem = problem.replace(d=source.d)
    if source.N and problem.Nq > source.N:
        problem = problem.replace(N=source.N)
    if max(tiling.Tr(problem), tiling.Tc(problem)) > scene.MAX_TILES:
        raise LimitError(
            f"Br = {tiling.Br}, Bc = {tiling.Bc} make more than {scene.MAX_TILES} tiles of N = {problem.Nq}: try "
            "larger tiles or a smaller N."
        )
    return Asked(problem, tiling, s["order"], s["input"], s["sms"], s["seed"], s["layer"], s["head"], s["gpu"])


def prepared(run: Run, settings: Mapping[str, Value]) -> Moment | None:
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
    return Moment(event, int(events["sm"][event]), min(row, run.tiling.Br - 1), 0)


__all__ = ["Asked", "Moment", "asked", "prepared"]
