"""A time-stamped run for the player: the simulator's numbers and bytes, the GPU's times."""

from __future__ import annotations

import dataclasses

from fmha.as_run import AsRun, part, stretched
from fmha.errors import LimitError
from fmha.events import emit
from fmha.hardware import DEFAULT_GPU, GPUS
from fmha.inputs import INPUTS, Inputs
from fmha.player import scene
from fmha.player.payload import COLUMNS, MAX_VISITS, tile_bytes
from fmha.problem import Problem
from fmha.simulation import Run, simulate
from fmha.timeline import clock
from fmha.units import format_bytes, format_ratio, format_time_us

MOST_TILE_BYTES = 5 << 18  # of S, P and O of one Q tile: the page sends what it shows anew with each change


def play(run: AsRun) -> tuple[scene.Played, str]:
    """What is animated of a recorded run, and what is to be said of it in a few sentences.

    Whole heads are shown, as many as have an SM for each worker; their SMs are numbered from 0. Naive attention was not
    recorded: its model's clock is slowed as much as the recording is slower than the model of the same workers.

    Raises:
        LimitError: not even one head can be shown; the sentence says why.
    """
    p, tiling = run.problem, run.tiling
    if (nbytes := tile_bytes(p, tiling)) > MOST_TILE_BYTES:
        raise LimitError(
            f"this recording cannot be played: the numbers of one of its Q tiles take {format_bytes(nbytes)}, and the "
            f"player takes {format_bytes(MOST_TILE_BYTES)}. Choose another one, or look at it on the page Timeline."
        )
    shown = part(run, MAX_VISITS, scene.MAX_SMS) if p.Hk == p.H else None
    if shown is None:
        raise LimitError(
            f"this recording cannot be played: the player takes one batch entry, a K/V head for each head, at most "
            f"{scene.MAX_SMS} workers and {MAX_VISITS:,} visits of a head, each worker alone on its SM. Choose another "
            "one, or look at it on the page Timeline."
        )
    problem = p.replace(H=shown.heads, Hk=shown.heads)
    gpu, facts = run.gpu or GPUS[DEFAULT_GPU], run.stamps.facts
    source = facts["input"] if facts["input"] in INPUTS else "random"
    seed = facts["seed"] if isinstance(facts.get("seed"), int) else 0

    def as_recorded(problem: Problem, inputs: Inputs) -> Run:
        made = simulate(
            problem, tiling, inputs.Q, inputs.K, inputs.V,
            precision="dtype", gpu=gpu, sms=shown.sms, record_columns=COLUMNS,
        )  # fmt: skip
        events = made.events.copy()
        for column in ("t0", "t1", "sm"):
            events[column] = shown.events[column]
        return dataclasses.replace(made, events=events)

    now = scene.prepare(
        problem, tiling, "q-outer", source, sms=shown.sms, seed=seed, gpu=gpu, run_by=as_recorded
    )  # fmt: skip
    took = float(shown.events["t1"].max())
    model = float(clock(emit(problem, tiling), gpu, p.dtype, shown.sms)["t1"].max())
    naive = stretched(now.naive_events, float(now.naive_events["t1"].max()) * took / model)
    used = len(set(run.stamps.sm.tolist()))
    every = f"all {shown.workers}" if shown.heads == p.H else f"the first {shown.workers} of {len(run.blocks)}"
    beside = f", up to {run.blocks.lanes} at once" if run.blocks.lanes > 1 else ""
    others = "" if shown.heads == p.H else f" Others that these SMs had{beside} are left out."
    ahead = (
        "" if run.blocks.tracks == 1 else " Tiles loaded under computation are shown where the kernel waits for them."
    )
    said = (
        f"As run: when each phase began on the GPU, by time stamps; bytes and numbers are the simulator's.{ahead} "
        f"{every[0].upper()}{every[1:]} workers are shown, on {shown.sms} of the {used} SMs that had one (the GPU has "
        f"{run.sms}), numbered here from 0.{others} The simple cost says {format_time_us(model)} for them, the GPU "
        f"took {format_time_us(took)}: {format_ratio(took / model)}. Naive attention was not recorded: its clock is "
        "the simple cost's, slowed by as much."
    )
    return dataclasses.replace(now, naive_events=naive), said


__all__ = ["MOST_TILE_BYTES", "play"]
