"""A time-stamped run beside the model's: one event table with two clocks, and how far the model's is off.

Predicted is what `fmha.timeline` says of the same blocks on the same SMs, as many on an SM at once as ran there and in
the order of that kernel; where it loads while it computes, with the next tiles loaded under computation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmha.dispatch import Floats
from fmha.errors import FmhaError
from fmha.events import PHASES, emit
from fmha.forecast import forecast
from fmha.hardware import GPUS, DriverFacts, Gpu, from_driver
from fmha.kernels import KERNELS, Kernel
from fmha.problem import Problem, Tiling
from fmha.spans import Blocks, blocks_of
from fmha.stamp_events import stamped_events
from fmha.stamps import Stamps
from fmha.timeline import MAX_BLOCKS_PER_SM, clock
from fmha.units import format_count
from fmha.visit_costs import LONGEST_FIRST

_IS_LOAD = np.array([phase.is_load for phase in PHASES])
_STEP_US = 0.1  # of the time that SMs share: 32 ns on an H200


@dataclass(frozen=True)
class AsRun:
    """A recorded run. events: the event table with the times and the SM numbers of the GPU; blocks: of it; sms: all
    that the GPU has."""

    stamps: Stamps
    events: NDArray[np.void]
    blocks: Blocks

    @property
    def problem(self) -> Problem:
        """What was run."""
        return self.stamps.problem

    @property
    def tiling(self) -> Tiling:
        """With which tiles."""
        return self.stamps.tiling

    @property
    def sms(self) -> int:
        """SMs of the GPU."""
        return self.blocks.sms

    @property
    def kernel(self) -> Kernel | None:
        """The kernel; None if it is not in the registry."""
        return KERNELS.get(self.stamps.facts["kernel"])

    @property
    def is_of_this_source(self) -> bool:
        """Whether the kernel's source is still what was run."""
        return self.kernel is not None and self.kernel.source_hash() == self.stamps.facts["source"]

    @property
    def gpu(self) -> Gpu | None:
        """The GPU's limits and peaks, from what the driver told, else by its name; None if neither says them."""
        facts = self.stamps.facts
        try:
            return from_driver(DriverFacts(**facts["gpu"]))
        except (KeyError, TypeError, ValueError, AttributeError):
            words = str(facts["device"]).split()
            alike = (gpu for gpu in GPUS.values() if gpu.key.split("-")[0] in words and gpu.sms == facts["sms"])
            return next(alike, None)

    @property
    def key(self) -> str:
        """Names the recording."""
        facts = self.stamps.facts
        return " ".join(str(facts[name]) for name in ("device", "made", "kernel", "source", "problem", "tiling"))

    @property
    def origin(self) -> str:
        """Where and when it was recorded, with which source: one sentence of plain text."""
        f = self.stamps.facts
        return f"Recorded on {f['device']} on {f['made'][:10]}: kernel {f['kernel']}, source {f['source']}."

    @property
    def title(self) -> str:
        """Device, kernel and problem in a few words."""
        return title(self.stamps)


def title(stamps: Stamps) -> str:
    """Device, kernel and problem of a recording in a few words."""
    p, t, facts = stamps.problem, stamps.tiling, stamps.facts
    device = facts["device"].removeprefix("NVIDIA ").strip()[:24]
    heads = f", {p.B * p.H} heads" if p.B * p.H > 1 else ""
    mask = ", causal" if p.causal else ""
    return f"{facts['kernel']} on {device}: N = {format_count(p.Nq)}{heads}, d = {p.d}, {t.Br} x {t.Bc}{mask}"


def as_run(stamps: Stamps) -> AsRun:
    """The event table of a recording, and its blocks.

    Raises:
        InputError: its phases do not follow one another as the events of the loop order do.
    """
    events = stamped_events(stamps)
    events["sm"] = stamps.sm[events["worker"]]
    later = _in_turn(stamps.sm, stamps.begin_us, stamps.end_us) - float(stamps.begin_us.min())
    events["t0"] += later[events["worker"]]
    events["t1"] += later[events["worker"]]
    return AsRun(stamps, events, blocks_of(events, int(stamps.facts["sms"])))


def _in_turn(sm: NDArray[np.int32], begin_us: Floats, end_us: Floats) -> Floats:
    """By how much each block begins later than its time stamp says: [blocks], microseconds.

    The time that SMs share moves in steps, so a block can seem to begin a moment before the one ended whose place it
    took. Within a step, it begins when that one ends.
    """
    later = np.zeros(len(sm))
    for number in np.unique(sm).tolist():
        ends: list[float] = []
        mine = np.flatnonzero(sm == number)
        for block in mine[np.argsort(begin_us[mine], kind="stable")].tolist():
            begin = float(begin_us[block])
            later[block] = max([end - begin for end in ends if begin < end <= begin + _STEP_US], default=0.0)
            ends = [end for end in ends if end > begin] + [float(end_us[block]) + later[block]]
    return later


def predicted(run: AsRun) -> NDArray[np.void]:
    """The same events by the model's clock.

    Raises:
        FmhaError: the recording does not tell enough of the GPU.
    """
    gpu = run.gpu
    if gpu is None:
        raise FmhaError("the recording does not tell the peaks of its GPU, so nothing can be predicted for it.")
    p, places = run.problem, min(run.blocks.lanes, MAX_BLOCKS_PER_SM)
    order = "heavy-first" if run.stamps.facts["kernel"] in LONGEST_FIRST else "head-major"
    return clock(
        emit(p, run.tiling), gpu, p.dtype, run.sms, block_order=order, blocks_per_sm=places, stages=run.blocks.tracks,
        copy=False,
    )  # fmt: skip


def calibrated_us(run: AsRun) -> float | None:
    """How long the calibrated forecast says that the run takes; None where it does not know the kernel."""
    kernel, gpu = run.kernel, run.gpu
    if kernel is None or gpu is None:
        return None
    try:
        return forecast(kernel, run.problem, run.tiling, gpu).time_us
    except FmhaError:
        return None


def stretched(events: NDArray[np.void], span_us: float) -> NDArray[np.void]:
    """The same events over so many microseconds in all."""
    made = events.copy()
    factor = span_us / (float(made["t1"].max()) or 1.0)
    made["t0"] *= factor
    made["t1"] *= factor
    return made


@dataclass(frozen=True)
class Spread:
    """What a timeline says in numbers. span_us: of all; visit_us: median time of a visit of a K/V tile, with what the
    block does before and after it; worker_us: median of a worker; spread: of the middle 80 % of workers of one length,
    their range over their median; idle: share of SMs x time without a block; places: blocks at once on an SM;
    between_us: median time from a block's last phase to the first of the next one in its place, None where none
    follows; shares: of the workers' time, by phase."""

    span_us: float
    visit_us: float
    worker_us: float
    spread: float
    idle: float
    places: int
    between_us: float | None
    shares: dict[str, float]


def spread_of(blocks: Blocks, idle: float) -> Spread:
    """Read from the blocks of a timeline; idle: its share, as `fmha.spans.shares_of` has it."""
    lasts = blocks.t1 - blocks.t0
    alike = lasts[blocks.visits == np.bincount(blocks.visits).argmax()]
    low, high = np.quantile(alike, [0.1, 0.9])
    total = blocks.by_phase.sum(axis=0)
    whole = float(total.sum()) or 1.0
    shares = {PHASES[p].code: float(total[p]) / whole for p in blocks.phases}
    order = np.lexsort((blocks.t0, blocks.lane, blocks.sm))
    same = (np.diff(blocks.sm[order]) == 0) & (np.diff(blocks.lane[order]) == 0)
    between = (blocks.t0[order][1:] - blocks.t1[order][:-1])[same]
    return Spread(
        blocks.span, float(np.median(lasts / blocks.visits)), float(np.median(lasts)),
        float((high - low) / (np.median(alike) or 1.0)), idle, blocks.lanes,
        float(np.median(between)) if len(between) else None, shares,
    )  # fmt: skip


# --- what the player can show -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Part:
    """The first `heads` heads of a run, on `sms` SMs, numbered from 0 in the order of their own numbers. scale: span
    over the model's of the same part."""

    heads: int
    sms: int
    events: NDArray[np.void]
    workers: int


def part(run: AsRun, most_visits: int, most_sms: int) -> Part | None:
    """The most heads whose workers each have an SM to themselves, as far as the limits allow; None: not even one."""
    p = run.problem
    if p.B != 1:
        return None
    per_head = run.tiling.Tr(p)
    found = None
    for heads in range(1, p.H + 1):
        shown = run.blocks.worker < heads * per_head
        if heads * per_head * run.tiling.Tc(p) > most_visits or len(np.unique(run.blocks.sm[shown])) > most_sms:
            break
        if not _one_at_a_time(run.blocks.sm[shown], run.blocks.t0[shown], run.blocks.t1[shown], run.blocks.slack):
            break
        found = heads
    if found is None:
        return None
    events = run.events[run.events["worker"] < found * per_head].copy()
    numbers, place = np.unique(events["sm"], return_inverse=True)
    events["sm"] = place.ravel()
    start = float(events["t0"].min())
    events["t0"] -= start
    events["t1"] -= start
    shown_events = events if run.blocks.tracks == 1 else in_a_row(events)
    return Part(found, len(numbers), shown_events, found * per_head)


def in_a_row(events: NDArray[np.void]) -> NDArray[np.void]:
    """The same events, none before the one above it has ended: what was loaded under computation arrives where the
    worker waited for it, and its own loading ends where the next event begins."""
    made = events.copy()
    new = np.append(True, np.diff(made["worker"]) != 0)
    late = np.append(False, made["t0"][1:] < made["t1"][:-1]) & ~new & _IS_LOAD[made["phase"]]
    made["t0"][late] = made["t1"][late]
    until = np.where(np.append(new[1:], True), made["t1"], np.append(made["t0"][1:], 0.0))
    made["t1"] = np.where(_IS_LOAD[made["phase"]], np.minimum(made["t1"], np.maximum(until, made["t0"])), made["t1"])
    return made


def _one_at_a_time(sm: NDArray[Any], t0: Floats, t1: Floats, slack: float) -> bool:
    """Whether no SM ever has two blocks."""
    order = np.lexsort((t0, sm))
    same = sm[order][1:] == sm[order][:-1]
    return not (same & (t0[order][1:] < t1[order][:-1] - slack)).any()


__all__ = [
    "AsRun", "Part", "Spread", "as_run", "calibrated_us", "in_a_row", "part", "predicted", "spread_of", "stretched",
    "title",
]  # fmt: skip
