"""The player fed by a kernel's traced run: whether it can be, the run, and how it compares with the simulator's."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fmha.errors import TraceError
from fmha.events import emit
from fmha.hardware import Gpu
from fmha.inputs import Inputs
from fmha.kernels import KERNELS, Kernel
from fmha.problem import Problem, Tiling
from fmha.simulation import Run, simulate
from fmha.trace.compilers import compiler
from fmha.trace.replay import KEPT, traced_run
from fmha.units import format_count

MOST = 1 << 25  # N x N x d x heads that are traced: about a second and a half
ROUNDING = 1e-4  # of sums of some hundred numbers exp(S - m) in fp32, S being good to some 1e-5


def _can_be_read(kernel: Kernel) -> bool:
    """Whether all that the player shows lies in shared memory at its barriers, and not in registers."""
    if kernel.order != "q-outer":
        return False
    plan = kernel.plan(kernel.fitting(Problem(N=64, d=64)), Tiling(*kernel.tiles[0]))
    return {*KEPT} <= {slot.name for slot in plan.launches[0].smem}


KERNELS_SHOWN = {number: kernel for number, kernel in KERNELS.items() if _can_be_read(kernel)}
_MOVED = ("worker", "phase", "b", "h", "i", "j", "tensor", "src", "dst", "nbytes")


def complaint(kernel: Kernel, problem: Problem, tiling: Tiling, order: str, gpu: Gpu) -> str | None:
    """Why this kernel cannot be followed with these settings; None when it can."""
    if order != kernel.order:
        return f"{kernel.file} works in the loop order {kernel.order}: choose that order, or the simulator."
    size = problem.Nq * problem.Nk * problem.d * problem.H
    if size > MOST:
        return (
            f"tracing goes through every access, and N x N x d x H = {format_count(size)} is more than the "
            f"{format_count(MOST)} that are traced here: use a smaller N or d, or the simulator."
        )
    if why := kernel.complaint(problem, tiling, gpu):
        return why
    try:
        compiler()
    except TraceError as error:
        return str(error)
    return None


@dataclass
class Follower:
    """Makes the traced run, with `columns` columns of O, and compares it with the simulator's; then `said` says how."""

    kernel: Kernel
    tiling: Tiling
    gpu: Gpu
    sms: int
    columns: int
    said: str = field(default="", init=False)

    def __call__(self, problem: Problem, inputs: Inputs) -> Run:
        """The run of these heads, as the player takes it. Errors as `fmha.trace.trace`."""
        arrays = (inputs.Q, inputs.K, inputs.V)
        run, traced = traced_run(
            self.kernel, problem, self.tiling, *arrays, gpu=self.gpu, sms=self.sms, record_columns=self.columns
        )
        model = simulate(problem, self.tiling, *arrays, precision="dtype")
        self.said = (
            f"As traced from {self.kernel.file}, which this machine's CPU ran in {traced.seconds * 1e3:.0f} ms: "
            f"S, P, m, l, alpha and O are what lay in its shared memory, and each byte was counted. "
            f"{agreement(run, model)}"
        )
        return run


def agreement(run: Run, model: Run) -> str:
    """How a traced run compares with a simulated one, in a sentence or two."""
    events = emit(run.problem, run.tiling)
    if len(events) != len(run.events):
        return f"It has {len(run.events):,} events and the simulator {len(events):,}: they do not agree."
    equal = np.ones(len(events), np.bool_)
    for name in _MOVED:
        equal &= events[name] == run.events[name]
    off = max(_furthest(getattr(run, name), getattr(model, name)) for name in ("m", "l", "O"))
    largest = max(float(np.abs(model.l).max(initial=0.0)), 1.0)  # l adds up most
    why = "which is rounding" if off <= ROUNDING * largest else "which is more than rounding"
    numbers = f"m, l and O differ by {off:.1g} at most, {why}" if off else "m, l and O are equal"
    return (
        f"The simulator's {len(events):,} events agree with it in {int(equal.sum()):,}: worker, tile, phase and bytes; "
        f"{numbers}."
    )


def _furthest(a: NDArray[np.floating], b: NDArray[np.floating]) -> float:
    """The largest difference where both are finite; infinite where only one is."""
    both = np.isfinite(a) & np.isfinite(b)
    if not np.array_equal(np.isfinite(a), np.isfinite(b)):
        return float("inf")
    return float(np.abs(a[both].astype(np.float64) - b[both]).max()) if both.any() else 0.0


__all__ = ["KERNELS_SHOWN", "Follower", "agreement", "complaint"]
