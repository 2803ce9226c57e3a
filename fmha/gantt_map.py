"""A timed event table as a picture of SMs x time: which phase runs at each place in each column of pixels.

Where a visit of a K/V tile is wide enough to be seen, its phases are where they are in the table. Where it is not, all
visits of a block are taken together: the block's bar is cut into as many pieces as it has phases, in the order in which
they first occur, each as long as that phase is in all. Lengths are true then; the order within the block is not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fmha.dispatch import Floats, Ints
from fmha.events import PHASES
from fmha.spans import Blocks
from fmha.wave_map import running_at

IDLE, WAITS, FIRST_PHASE = 0, 1, 2  # what a cell holds: nothing, a block that waits, or FIRST_PHASE + a phase
LEAST_VISIT = 16  # columns: a narrower visit cannot show its six phases
LEAST_BLOCK = 10  # columns: between narrower blocks no gap is left
MOST_ROWS = 300  # of all SMs' places that are drawn; one place of each SM always is
_IS_LOAD = np.array([phase.is_load for phase in PHASES])


@dataclass(frozen=True)
class GanttMap:
    """Cells [rows, columns] of some SMs and a stretch of time.

    cells: IDLE, WAITS or FIRST_PHASE + phase. worker: who has the place, -1: nobody. first_sm, sms: SMs from there on.
    lanes, tracks: rows of an SM: places for a block, and where `tracks` is 2 for each the loads above the rest. hidden:
    further places that an SM has. begin, end: microseconds. how: whether cells show single visits, or whole blocks.
    """

    cells: NDArray[np.uint8]
    worker: NDArray[np.int32]
    first_sm: int
    sms: int
    lanes: int
    tracks: int
    hidden: int
    begin: float
    end: float
    how: Literal["visits", "blocks"]


@dataclass(frozen=True)
class View:
    """What is looked at: SMs `first_sm` to `first_sm + sms - 1`, microseconds `begin` to `end`."""

    first_sm: int
    sms: int
    begin: float
    end: float


def whole(blocks: Blocks) -> View:
    """Everything."""
    return View(0, blocks.sms, blocks.begin, blocks.end)


def gantt_map(events: NDArray[np.void], blocks: Blocks, view: View, columns: int = 1000) -> GanttMap:
    """Look at the middle of each of `columns` stretches of time. `blocks` are those of `events`."""
    shown = blocks_in(blocks, view)
    lanes = min(blocks.lanes, max(1, MOST_ROWS // (view.sms * blocks.tracks)))
    shown = shown[blocks.lane[shown] < lanes]
    rows = view.sms * lanes * blocks.tracks
    width = (view.end - view.begin) / columns
    moments = view.begin + (np.arange(columns) + 0.5) * width
    row = ((blocks.sm[shown] - view.first_sm) * lanes + blocks.lane[shown]) * blocks.tracks
    lasts = blocks.t1[shown] - blocks.t0[shown]
    how: Literal["visits", "blocks"] = "blocks"
    if float(lasts.sum()) >= LEAST_VISIT * width * float(blocks.visits[shown].sum()):
        how = "visits"

    place = running_at(np.arange(0, rows, blocks.tracks), moments, row, blocks.t0[shown], blocks.t1[shown])
    place = np.repeat(place, blocks.tracks, axis=0)
    parts = _visits(events, blocks, view, shown, row) if how == "visits" else _pieces(blocks, shown, row)
    part_row, t0, t1, phase = parts
    found = running_at(np.arange(rows), moments, part_row, t0, t1) if len(t0) else np.full((rows, columns), -1)
    cells = np.where(place >= 0, WAITS, IDLE).astype(np.uint8)
    there = (found >= 0) & (place >= 0)
    cells[there] = FIRST_PHASE + phase[found[there]]
    if len(shown) and float(lasts.mean()) >= LEAST_BLOCK * width:  # a gap before a block that follows another
        follows = (place[:, 1:] != place[:, :-1]) & (place[:, 1:] >= 0) & (place[:, :-1] >= 0)
        cells[:, :-1][follows] = IDLE
    worker = np.where(place >= 0, blocks.worker[shown][place] if len(shown) else -1, -1).astype(np.int32)
    return GanttMap(
        cells, worker, view.first_sm, view.sms, lanes, blocks.tracks, blocks.lanes - lanes, view.begin, view.end, how
    )  # fmt: skip


def blocks_in(blocks: Blocks, view: View) -> Ints:
    """The blocks that can be seen."""
    on = (blocks.sm >= view.first_sm) & (blocks.sm < view.first_sm + view.sms)
    return np.flatnonzero(on & (blocks.t1 > view.begin) & (blocks.t0 < view.end))


def rows_in(events: NDArray[np.void], blocks: Blocks, view: View) -> tuple[Ints, Ints]:
    """The rows of the event table that can be seen, and the block of each."""
    return _rows_of(events, blocks, view, blocks_in(blocks, view))


def _rows_of(events: NDArray[np.void], blocks: Blocks, view: View, shown: Ints) -> tuple[Ints, Ints]:
    lengths = (blocks.stop - blocks.first)[shown]
    block = np.repeat(shown, lengths)
    before = np.repeat(np.cumsum(lengths) - lengths, lengths)
    row = np.arange(len(block)) - before + blocks.first[block]
    t0, t1 = events["t0"][row], events["t1"][row]
    seen = (t1 > view.begin) & (t0 < view.end) & (t1 > t0)
    return row[seen], block[seen]


def track_of(blocks: Blocks, phase: NDArray[np.uint8]) -> Ints:
    """The row of a place that a phase is drawn in: loads above the rest, where blocks do both at once."""
    return np.where(_IS_LOAD[phase], 0, 1) if blocks.tracks == 2 else np.zeros(len(phase), np.int64)


def _visits(
    events: NDArray[np.void], blocks: Blocks, view: View, shown: Ints, row: Ints
) -> tuple[Ints, Floats, Floats, NDArray[np.uint8]]:
    """Row, begin, end and phase of every event that can be seen."""
    rows, block = _rows_of(events, blocks, view, shown)
    row_of = np.zeros(len(blocks), np.int64)
    row_of[shown] = row
    phase = events["phase"][rows]
    return row_of[block] + track_of(blocks, phase), events["t0"][rows], events["t1"][rows], phase


def _pieces(blocks: Blocks, shown: Ints, row: Ints) -> tuple[Ints, Floats, Floats, NDArray[np.uint8]]:
    """The same with one piece for each phase of a block, side by side from where the block begins."""
    phases = np.array(blocks.phases, np.uint8)
    lasts = blocks.by_phase[np.ix_(shown, phases)]  # [blocks, phases]
    track = track_of(blocks, phases)
    begins = np.empty_like(lasts)
    for k in range(blocks.tracks):
        mine = track == k
        begins[:, mine] = np.cumsum(lasts[:, mine], axis=1) - lasts[:, mine]
    begins += blocks.t0[shown][:, None]
    real = lasts > 0
    rows = row[:, None] + track
    return rows[real], begins[real], (begins + lasts)[real], np.broadcast_to(phases, lasts.shape)[real]
