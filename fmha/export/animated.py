"""From any run to what the player animates: one batch entry, the heads that fit, their tiles, naive attention too."""

from __future__ import annotations

import numpy as np

from fmha.errors import LimitError, ProblemError
from fmha.events import emit
from fmha.hardware import DEFAULT_GPU, GPUS, Gpu
from fmha.inputs import Inputs
from fmha.player.payload import COLUMNS, MAX_VISITS, heads_that_fit
from fmha.player.scene import MAX_SMS, Played
from fmha.problem import Problem, check_whole
from fmha.served import uses
from fmha.simulation import Run, simulate
from fmha.timeline import clock

MAX_SCORES = 1 << 23


def animated(
    run: Run | Played, *, inputs: Inputs | None = None, gpu: Gpu | None = None, sms: int | None = None
) -> Played:
    """What the player shows of `run`; a `Played` is returned as it is.

    The first batch entry, and as many heads as can be animated. The run itself is taken where it has all that is needed
    (one batch entry, few enough heads, `record_columns` of 16 or d, times on `sms` SMs), else it is simulated again.

    Args:
        inputs: what `fmha.load` returned for the run, for its title and words.
        gpu: whose share of speed the times follow; the default GPU, as in `simulate`.
        sms: how many SMs share the workers; None: as many as the run used and its workers need, at most 64.

    Raises:
        ProblemError: a run of naive attention, which has no player of its own, or sms is not 1 to 64.
        LimitError: too many tiles or scores to animate.
    """
    if isinstance(run, Played):
        return run
    gpu = gpu or GPUS[DEFAULT_GPU]
    if run.order == "naive":
        raise ProblemError(
            "naive attention has no player of its own: simulate with order q-outer or kv-outer and show that with "
            "race=True."
        )
    shown = _shown(run)
    used = int(run.events["sm"].max(initial=0)) + 1
    workers = shown.H * (1 if run.order == "kv-outer" else run.tiling.Tr(shown))
    count = min(used, MAX_SMS, workers) if sms is None else check_whole("sms", sms, 1, MAX_SMS, ProblemError)
    has_tiles = run.tiles is not None and run.tiles.O.shape[-1] >= min(COLUMNS, shown.d)
    if shown != run.problem or not has_tiles or used != min(count, workers):
        Q, K, V = run.Q[:1, : shown.H], run.K[:1, : shown.Hk], run.V[:1, : shown.Hk]
        precision = "dtype" if run.precision == "dtype" else "float64"
        run = simulate(
            shown, run.tiling, Q, K, V, run.order, precision=precision, gpu=gpu, sms=count, record_columns=COLUMNS
        )
    naive = clock(emit(shown, run.tiling, "naive"), gpu, shown.dtype, count)
    title, tokens, heads = (inputs.title, inputs.tokens, inputs.heads) if inputs else ("", None, None)
    made = Inputs(
        np.asarray(run.Q), np.asarray(run.K), np.asarray(run.V), title,
        tokens if tokens and len(tokens) >= max(shown.Nq, shown.Nk) else None, heads[: shown.H] if heads else None,
    )  # fmt: skip
    return Played(run, naive, made, gpu, count, (uses(run.events, shown), uses(naive, shown)))


def _shown(run: Run) -> Problem:
    """The part of the problem that is animated."""
    problem, tiling = run.problem, run.tiling
    Tr, Tc = tiling.Tr(problem), tiling.Tc(problem)
    if Tr * Tc > MAX_VISITS:
        raise LimitError(
            f"{Tr} x {Tc} tiles are too many to animate: use at most {MAX_VISITS:,} in all; "
            "try larger Br and Bc or a smaller N."
        )
    heads = min(heads_that_fit(problem.H, Tr, Tc), max(1, MAX_SCORES // (Tr * Tc * tiling.Br * tiling.Bc)))
    if Tr * Tc * tiling.Br * tiling.Bc > MAX_SCORES:
        raise LimitError(
            f"{problem.Nq:,} x {problem.Nk:,} scores of a head are too many to animate: use at most {MAX_SCORES:,}; "
            "try a smaller N."
        )
    group = problem.group
    kv_heads = max(1, heads // group)
    heads = kv_heads * group if heads >= group else heads
    changes = {
        name: value[:1] for name in ("lens_k", "left_pad") if (value := getattr(problem, name)) is not None
    }  # one batch entry
    return problem.replace(B=1, H=heads, Hk=kv_heads, **changes)


__all__ = ["animated"]
