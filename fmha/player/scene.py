"""From settings to what the player needs: the problem it animates, its run, naive's events. No Streamlit here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fmha.events import PHASES, emit
from fmha.hardware import DEFAULT_GPU, GPUS, Gpu
from fmha.inputs import INPUTS, Inputs, load
from fmha.player.payload import COLUMNS, heads_that_fit
from fmha.problem import Problem, Tiling
from fmha.served import Served, Uses, serve, uses
from fmha.simulation import Run, simulate
from fmha.timeline import clock

MAX_TILES = 64  # along each side
MAX_SMS = 64
LENGTHS = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 100, 128, 192, 200, 256, 384, 512, 768, 1000, 1024)
HEAD_DIMS = (1, 2, 4, 8, 16, 24, 32, 48, 64, 80, 96, 128)
TILES = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128)


@dataclass(frozen=True)
class Played:
    """What is animated: the run of the heads that fit, the naive events on the same SMs, and the inputs.

    uses: of the run, and of naive attention: the order in which loads and stores reach L2.
    """

    run: Run
    naive_events: NDArray[np.void]
    inputs: Inputs
    gpu: Gpu
    sms: int
    uses: tuple[Uses, Uses]

    def served(self, l2_bytes: float | None = None) -> tuple[Served, Served]:
        """Who answers the loads of the run, and those of naive attention; None: with the L2 of the GPU."""
        size = self.gpu.l2_bytes if l2_bytes is None else l2_bytes
        return serve(self.uses[0], size), serve(self.uses[1], size)


def lengths(input_name: str) -> list[int]:
    """Sequence lengths on offer for an input."""
    longest = INPUTS[input_name].N or max(LENGTHS)
    return [n for n in LENGTHS if n <= longest]


def head_dims(input_name: str) -> list[int]:
    """Head dimensions on offer for an input: the recorded one, or any."""
    fixed = INPUTS[input_name].d
    return [fixed] if fixed else list(HEAD_DIMS)


def tile_sizes(N: int) -> list[int]:
    """Tile sizes on offer: no taller than the sequence, and no more than `MAX_TILES` tiles."""
    sizes = [size for size in TILES if size <= N and -(-N // size) <= MAX_TILES]
    return sizes or [N]


def prepare(
    problem: Problem,
    tiling: Tiling,
    order: str,
    input_name: str,
    *,
    sms: int,
    seed: int = 0,
    layer: int = 3,
    head: int = 0,
    gpu: Gpu = GPUS[DEFAULT_GPU],
    run_by: Callable[[Problem, Inputs], Run] | None = None,
) -> Played:
    """Simulate as many heads of `problem` as the player can show, in the problem's own precision.

    run_by: makes the run of the heads shown in another way; it must have recorded tiles, and times on `sms` SMs.

    Raises:
        FmhaError: for inputs that do not fit the problem.
    """
    heads = heads_that_fit(problem.H, tiling.Tr(problem), tiling.Tc(problem))
    shown = problem.replace(H=heads)
    inputs = load(input_name, shown, seed=seed, layer=layer, head=head)
    if run_by is not None:
        run = run_by(shown, inputs)
    else:
        run = simulate(
            shown, tiling, inputs.Q, inputs.K, inputs.V, order,
            precision="dtype", gpu=gpu, sms=sms, record_columns=COLUMNS,
        )  # fmt: skip
    naive_events = clock(emit(shown, tiling, "naive"), gpu, shown.dtype, sms)
    return Played(run, naive_events, inputs, gpu, sms, (uses(run.events, shown), uses(naive_events, shown)))


def opening_event(run: Run, sm: int) -> int:
    """Where a fresh player stands: the end of the third visit of that SM, where there is something to see."""
    mine = (run.events["sm"] == sm).nonzero()[0]
    ends = mine[[PHASES[phase].code in ("O", "O_norm") for phase in run.events["phase"][mine]]]
    return int(ends[min(2, len(ends) - 1)] if len(ends) else mine[0] if len(mine) else 0)
