"""`simulate`: one call from arrays to output, state and event table."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fmha.errors import InputError
from fmha.events import emit
from fmha.hardware import DEFAULT_GPU, GPUS, Gpu
from fmha.machine import Machine
from fmha.problem import Problem, Tiling, check_whole
from fmha.reference import check_inputs
from fmha.schedule import Order, check_order
from fmha.state import Array, Precision, TileRecord, check_size, replay
from fmha.timeline import clock


@dataclass(frozen=True)
class WorkerState:
    """What one worker holds after an event: m, l, alpha [rows], O [rows, d], and resident tiles by slot name.

    Values that do not exist yet are None. Unnormalised O until "O = O / l" (always normalised in kv-outer).
    """

    worker: int
    m: Array | None
    l: Array | None  # the papers' letter
    alpha: Array | None
    O: Array | None
    smem: dict[str, Array]


@dataclass(frozen=True)
class Run:
    """A simulated forward pass.

    O [B, H, Nq, d]; LSE [B, H, Nq]; m, l, alpha [B, H, Nq, Tc]: the state of each row after K/V tile j (naive: Tc = 1);
    events: the event table (`fmha.events`), with times.
    """

    problem: Problem
    tiling: Tiling
    order: Order
    precision: str
    Q: Array
    K: Array
    V: Array
    O: Array
    LSE: Array
    m: Array
    l: Array
    alpha: Array
    events: NDArray[np.void]
    tiles: TileRecord | None = None

    def _repr_html_(self) -> str:
        """What a notebook shows: the player, or in a sentence why this run has none."""
        from fmha.export.notebook import repr_html  # here: nothing else in the core knows pictures

        return repr_html(self)

    def state_at(self, event: int) -> WorkerState:
        """The state of that event's worker right after row `event` of the event table.

        Runs that worker's own events from its first, strictly. Not for naive, whose workers depend on one another.

        Raises:
            InputError: no such event, or order is naive.
        """
        event = check_whole("event", event, 0, len(self.events) - 1, InputError)
        if self.order == "naive":
            raise InputError(
                "state_at follows one worker alone; naive attention's kernels hand S and P to one another."
            )
        worker = int(self.events["worker"][event])
        precision: Precision = "dtype" if self.precision == "dtype" else "float64"
        machine = Machine(self.problem, self.tiling, self.Q, self.K, self.V, self.order, precision)
        rows = np.flatnonzero(self.events["worker"][: event + 1] == worker)
        machine.run(self.events[rows])
        slots = {name: tile for name, (_, tile) in machine.smem[worker].items()}
        held = {name: slots.get(name) for name in ("m", "l", "alpha", "O")}
        smem = {name: slots[name] for name in slots if name in ("Q", "K", "V", "S")}
        return WorkerState(worker, held["m"], held["l"], held["alpha"], held["O"], smem)


def simulate(
    problem: Problem,
    tiling: Tiling,
    Q: ArrayLike,
    K: ArrayLike,
    V: ArrayLike,
    order: str = "q-outer",
    *,
    precision: str = "float64",
    write_lse: bool = False,
    gpu: Gpu | None = None,
    sms: int | None = None,
    record_columns: int | None = None,
) -> Run:
    """Run attention tile by tile.

    Args:
        Q: [B, H, Nq, d]; K, V: [B, Hk, Nk, d].
        order: "q-outer", "kv-outer" or "naive".
        precision: "float64", or "dtype" to compute as a kernel of the problem's dtype would.
        write_lse: q-outer also stores LSE (the returned LSE is there in any case).
        record_columns: also keep S, P and this many columns of O of every visited tile in `Run.tiles`.
        gpu, sms: whose cost the times follow, and on how many of its SMs; the default GPU with all of them.

    Raises:
        ProblemError, InputError, LimitError: in one sentence. An input that is so large that scores overflow is an
            InputError too: no result ever holds NaN.
    """
    known = check_order(order)
    check_size(problem, tiling, known, record_columns)  # first: the inputs of a huge problem are huge, too
    events = emit(problem, tiling, known, write_lse=write_lse)
    Q, K, V = check_inputs(problem, Q, K, V)
    done = replay(events, problem, tiling, Q, K, V, precision, record_columns)
    timed = clock(events, gpu or GPUS[DEFAULT_GPU], problem.dtype, sms)
    return Run(
        problem, tiling, known, precision, Q, K, V, done.O, done.LSE, done.m, done.l, done.alpha, timed, done.tiles
    )  # fmt: skip
