"""Blocks, waves, idle SMs and shares of time, read from a timed event table and the number of SMs, and nothing else.

So it is the same whoever filled in `t0`, `t1` and `sm`: the clock of `fmha.timeline`, or a run on a GPU that wrote
time stamps. A *block* is a worker in a kernel: a run of consecutive rows. A *place* is room for a block on an SM.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fmha.dispatch import Floats, Ints
from fmha.errors import InputError
from fmha.events import PHASES
from fmha.timeline import covered_us

_IS_LOAD = np.array([phase.is_load for phase in PHASES])
_SLACK = 1e-9  # of the whole time: sums of floating-point numbers that differ by less are the same moment
MOST_AREAS = 4000  # idle stretches that are listed, the longest ones


@dataclass(frozen=True)
class Blocks:
    """Every block, in the order of its rows; all arrays [blocks].

    first, stop: its rows. t0, t1: microseconds. sm, lane: where it is; lane counts the places of an SM. visits: of K/V
    tiles. by_phase: microseconds of each phase, [blocks, phases]. phases: those that occur, in the order of the table.
    lanes: places that an SM uses. tracks: 2 where a block loads and computes at the same time, else 1. begin, end: of
    everything. slack: microseconds that mean nothing.
    """

    first: Ints
    stop: Ints
    t0: Floats
    t1: Floats
    sm: Ints
    lane: Ints
    worker: Ints
    kernel: Ints
    visits: Ints
    by_phase: Floats
    phases: tuple[int, ...]
    sms: int
    lanes: int
    tracks: int
    begin: float
    end: float
    slack: float

    def __len__(self) -> int:
        return len(self.first)

    @property
    def span(self) -> float:
        """Microseconds from the first event to the last."""
        return self.end - self.begin

    @property
    def places(self) -> int:
        """Blocks that run at once, at most."""
        return self.sms * self.lanes


def blocks_of(events: NDArray[np.void], sms: int) -> Blocks:
    """The blocks of a timed event table on `sms` SMs.

    Raises:
        InputError: no events, no times, or an SM outside 0 .. sms - 1.
    """
    if not len(events):
        raise InputError("there is no event to show: choose a problem with at least one token.")
    t0, t1, sm, phase = (np.ascontiguousarray(events[name]) for name in ("t0", "t1", "sm", "phase"))
    low, high = int(sm.min()), int(sm.max())
    if low < 0 or high >= sms:
        wrong = "have no SM yet" if low < 0 else f"name SM {high}"
        raise InputError(f"events {wrong}, and SMs are 0 to {sms - 1}: give every event its time and its SM.")
    begin, end = float(t0.min()), float(t1.max())
    if not (np.isfinite(end - begin) and (t1 >= t0).all()):
        raise InputError("an event ends before it begins, or has no time: give every event t0 <= t1, in microseconds.")
    slack = _SLACK * (end - begin)
    new = np.ones(len(events), np.bool_)
    new[1:] = (np.diff(events["worker"]) != 0) | (np.diff(events["kernel"].astype(np.int16)) != 0)
    first = np.flatnonzero(new)
    stop = np.append(first[1:], len(events))
    turn = new | _differs(events["i"]) | _differs(events["j"])
    block = np.repeat(np.arange(len(first)), stop - first)
    by_phase = np.bincount(block * len(PHASES) + phase, t1 - t0, len(first) * len(PHASES)).astype(np.float64)
    there = np.flatnonzero(np.bincount(phase, minlength=len(PHASES)))
    phases = sorted(there.tolist(), key=lambda code: int(np.argmax(phase == code)))
    overlap = bool(((t0[1:] < t1[:-1] - slack) & ~new[1:]).any())
    starts, ends = np.minimum.reduceat(t0, first), np.maximum.reduceat(t1, first)
    where = sm[first].astype(np.int64)
    lane = _lanes(where, starts, ends, slack)
    return Blocks(
        first, stop, starts, ends, where, lane, events["worker"][first].astype(np.int64),
        events["kernel"][first].astype(np.int64), np.add.reduceat(turn.astype(np.int64), first),
        by_phase.reshape(-1, len(PHASES)), tuple(phases), sms, int(lane.max()) + 1, 2 if overlap else 1, begin, end,
        slack,
    )  # fmt: skip


def _differs(column: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Whether a row has another value than the one before it: [rows]."""
    out = np.zeros(len(column), np.bool_)
    out[1:] = column[1:] != column[:-1]
    return out


def _lanes(sm: Ints, t0: Floats, t1: Floats, slack: float) -> Ints:
    """A place on its SM for every block, the lowest that is free: [blocks]."""
    order = np.lexsort((t0, sm))
    s, begins, ends = sm[order], t0[order], t1[order]
    same = s[1:] == s[:-1]
    lane = np.zeros(len(sm), np.int64)
    if not (same & (begins[1:] < ends[:-1] - slack)).any():
        return lane
    last, used = -1, 0
    busy: list[tuple[float, int]] = []
    free: list[int] = []
    for block, where, begin, end in zip(order.tolist(), s.tolist(), begins.tolist(), ends.tolist(), strict=True):
        if where != last:
            last, used, busy, free = where, 0, [], []
        while busy and busy[0][0] <= begin + slack:
            heapq.heappush(free, heapq.heappop(busy)[1])
        if not free:
            heapq.heappush(free, used)
            used += 1
        lane[block] = heapq.heappop(free)
        heapq.heappush(busy, (end, int(lane[block])))
    return lane


# --- waves and idle SMs -----------------------------------------------------------------------------------------------


def waves_of(blocks: Blocks) -> tuple[tuple[float, int, int, int], ...]:
    """When each wave begins: (microseconds, kernel, wave, blocks in it), one after another.

    Wave n of a kernel is the n-th turn of as many blocks as there are places, in the order in which they start.
    """
    found: list[tuple[float, int, int, int]] = []
    for kernel in np.unique(blocks.kernel).tolist():
        starts = np.sort(blocks.t0[blocks.kernel == kernel])
        for wave, t in enumerate(starts[:: blocks.places].tolist()):
            found.append((t, kernel, wave, min(blocks.places, len(starts) - wave * blocks.places)))
    return tuple(found)


def _unions(where: Ints, blocks: Blocks) -> tuple[Ints, Floats, Floats]:
    """Stretches without a pause: place, from, to; `where` says which place (or SM) a block is on. In order."""
    order = np.lexsort((blocks.t0, where))
    at, t0, t1 = where[order], blocks.t0[order], blocks.t1[order]
    lane = (at - at.min()) * (blocks.span + 1.0)
    until = np.maximum.accumulate(t1 + lane) - lane
    new = np.ones(len(at), np.bool_)
    new[1:] = (at[1:] != at[:-1]) | (t0[1:] > until[:-1] + blocks.slack)
    first = np.flatnonzero(new)
    return at[first], t0[first], np.maximum.reduceat(t1, first)


def at_work(blocks: Blocks) -> tuple[Floats, Ints]:
    """Moments at which the number of SMs with a block changes, and that number from each of them on."""
    _, start, stop = _unions(blocks.sm, blocks)
    moment = np.concatenate([start, stop])
    change = np.concatenate([np.ones(len(start), np.int64), -np.ones(len(stop), np.int64)])
    order = np.argsort(moment, kind="stable")
    moment, total = moment[order], np.cumsum(change[order])
    last = np.append(np.diff(moment) > blocks.slack, True)
    return moment[last], total[last]


def starving_from(blocks: Blocks) -> float:
    """When the first SM has nothing left to do: the tail begins."""
    last = np.full(blocks.sms, blocks.begin)
    np.maximum.at(last, blocks.sm, blocks.t1)
    return float(last.min())


@dataclass(frozen=True)
class Area:
    """Neighbouring places without a block over the same time: rows `first` to `last`, place = SM x lanes + lane."""

    begin: float
    end: float
    first: int
    last: int


def idle_areas(blocks: Blocks) -> tuple[Area, ...]:
    """Where places stand empty, the longest `MOST_AREAS` stretches of them, neighbours taken together."""
    place, start, stop = _unions(blocks.sm * blocks.lanes + blocks.lane, blocks)
    empty = np.setdiff1d(np.arange(blocks.places), place)
    opens = np.append(True, place[1:] != place[:-1])
    closes = np.append(opens[1:], True)
    before = np.where(opens, blocks.begin, np.append(blocks.begin, stop[:-1]))
    begins = np.concatenate([before, stop[closes], np.full(len(empty), blocks.begin)])
    ends = np.concatenate([start, np.full(len(begins) - len(start), blocks.end)])
    row = np.concatenate([place, place[closes], empty])
    real = np.flatnonzero(ends - begins > blocks.slack)
    longest = real[np.argsort(begins[real] - ends[real], kind="stable")][:MOST_AREAS]
    digits = blocks.slack or 1.0
    key = np.stack([np.round(begins[longest] / digits), np.round(ends[longest] / digits), row[longest]])
    found: list[Area] = []
    for k in longest[np.lexsort((key[2], key[1], key[0]))].tolist():
        area = Area(float(begins[k]), float(ends[k]), int(row[k]), int(row[k]))
        last = found[-1] if found else None
        if (
            last is not None
            and last.last == area.first - 1
            and max(abs(last.begin - area.begin), abs(last.end - area.end)) <= 2 * digits
        ):
            found[-1] = Area(last.begin, last.end, last.first, area.last)
        else:
            found.append(area)
    return tuple(found)


def first_load_us(events: NDArray[np.void], blocks: Blocks) -> float:
    """When the first block begins to load; its begin, if it loads nothing."""
    mine = events[blocks.first[0] : blocks.stop[0]]
    loads = mine["t0"][_IS_LOAD[mine["phase"]]]
    return float(loads.min()) if len(loads) else float(blocks.t0[0])


# --- shares -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Shares:
    """Parts of SMs x time that add up to 1: an SM only loads, only computes (and stores), does both, waits with a
    block on it, or has no block at all."""

    loads: float
    computes: float
    both: float
    waits: float
    idle: float

    @property
    def loading(self) -> float:
        """Share in which an SM loads, whatever else it does."""
        return self.loads + self.both

    @property
    def computing(self) -> float:
        """Share in which an SM computes, whatever else it does."""
        return self.computes + self.both


def shares_of(events: NDArray[np.void], blocks: Blocks) -> Shares:
    """How SMs spend their time. `blocks` are those of `events`."""
    whole = blocks.span * blocks.sms
    if not whole:
        return Shares(0.0, 0.0, 0.0, 0.0, 1.0)
    held = covered_us(blocks.sm, blocks.t0, blocks.t1)
    if blocks.lanes == 1 and blocks.tracks == 1:  # nothing runs beside anything: sums do
        loading = float(blocks.by_phase[:, _IS_LOAD].sum())
        computing = float(blocks.by_phase[:, ~_IS_LOAD].sum())
        any_of_both = loading + computing
    else:
        load = _IS_LOAD[events["phase"]]
        loading, computing = (_covered(events, blocks, rows) for rows in (load, ~load))
        any_of_both = covered_us(events["sm"], events["t0"], events["t1"])
    both = loading + computing - any_of_both
    parts = (loading - both, computing - both, both, held - any_of_both, whole - held)
    return Shares(*(part / whole if part > _SLACK * whole else 0.0 for part in parts))


def _covered(events: NDArray[np.void], blocks: Blocks, rows: NDArray[np.bool_]) -> float:
    """SM time with at least one of these rows: their sum, where they follow one another in the table and in time."""
    t0, t1 = events["t0"][rows], events["t1"][rows]
    block = np.repeat(np.arange(len(blocks)), blocks.stop - blocks.first)[rows]
    apart = (t0[1:] >= t1[:-1] - blocks.slack) | (block[1:] != block[:-1])
    return float((t1 - t0).sum()) if blocks.lanes == 1 and apart.all() else covered_us(events["sm"][rows], t0, t1)
