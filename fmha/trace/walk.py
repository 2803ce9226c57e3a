"""One warp's way through a kernel: barrier interval by barrier interval, phase by phase, request by request."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmha.banks import BANK_BYTES, INACTIVE, WARP, WIDTHS, turns
from fmha.kernels import SECTOR
from fmha.phases import Phase, phase_at
from fmha.problem import Problem
from fmha.trace.run import NOWHERE, Region
from fmha.trace.tracing import Trace

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Request:
    """What the lanes of one warp asked for at once.

    array, space: whose bytes; "?" for those of no array. shape: of the array, row-major; () where it is not known.
    offsets: byte offsets from the array's beginning, one a lane; None: the lane sits out. first: where the array lies,
    in bytes from the beginning of its memory. nbytes: of one lane. cost: wavefronts of shared memory, or sectors of
    device memory; least: the fewest that would do.
    """

    file: str
    line: int
    array: str
    space: str
    is_write: bool
    nbytes: int
    shape: tuple[int, ...]
    offsets: tuple[int | None, ...]
    first: int
    size: int
    cost: int
    least: int

    @property
    def ways(self) -> float:
        """How many times the fewest wavefronts or sectors."""
        return self.cost / self.least if self.least else 0.0

    @property
    def lanes(self) -> int:
        """How many lanes take part."""
        return sum(offset is not None for offset in self.offsets)

    @property
    def itemsize(self) -> int:
        """Bytes of one number of the array: a lane may ask for several at once."""
        return max(1, self.size // math.prod(self.shape)) if math.prod(self.shape) else self.nbytes

    def element(self, lane: int) -> tuple[int, ...] | None:
        """The index of a lane's element in `shape`, of several the first; None for a lane that sits out, or asks for
        what is outside."""
        offset = self.offsets[lane]
        if offset is None or not self.shape or not 0 <= offset < self.size:
            return None
        rest, index = offset // self.itemsize, []
        for extent in reversed(self.shape):
            rest, at = divmod(rest, extent)
            index.append(at)
        return tuple(reversed(index))


@dataclass(frozen=True)
class Stop:
    """What one warp does in one phase between two barriers.

    interval: number of the barrier interval in its block; barrier: line of the barrier that ends it (0: the end).
    phase: None for lines before any phase's comment. requests: in the order of the program; none where it only waits.
    """

    interval: int
    barrier: int
    phase: Phase | None
    requests: tuple[Request, ...]

    @property
    def worst(self) -> int:
        """The index of the first of the requests that cost most over their least."""
        return max(range(len(self.requests)), key=lambda r: (self.requests[r].ways, -r), default=0)


@dataclass(frozen=True)
class Visit:
    """A turn of a block's outermost loop with barriers: intervals from `first` to `last`, of K/V tile `tile` (None
    where it is not one tile's). What comes before the first turn and after the last one belongs to it."""

    tile: int | None
    first: int
    last: int


def visits(trace: Trace, launch: int, block: int) -> tuple[Visit, ...]:
    """The turns of one block. A visit of a tile ends with the interval in which it is added to O; in kernels without
    tiles, and where no phase says so, a turn begins where a barrier's line comes again."""
    intervals = trace.raw.intervals
    lines = intervals["line"][(intervals["launch"] == launch) & (intervals["block"] == block)].tolist()
    if not lines:
        return ()
    rows = trace.raw.rows
    rows = rows[(rows["launch"] == launch) & (rows["block"] == block)]
    added = _intervals_of(trace, rows, launch, "O") if trace.kernel.tiled else []
    starts = [0, *(interval + 1 for interval in added[:-1])] if added else _starts(lines)
    ends = [*(start - 1 for start in starts[1:]), len(lines) - 1]
    tiles = _tiles(trace, rows, launch, len(lines))
    return tuple(
        Visit(_tile(tiles, first, added[number] if added else last), first, last)
        for number, (first, last) in enumerate(zip(starts, ends, strict=True))
    )


def _starts(lines: list[int]) -> list[int]:
    """Where a barrier's line comes again."""
    starts, seen = [0], set[int]()
    for index, line in enumerate(lines):
        if line and line in seen:
            starts.append(index)
            seen = set()
        seen.add(line)
    return starts


def _intervals_of(trace: Trace, rows: NDArray[np.void], launch: int, code: str) -> list[int]:
    """The intervals in which shared memory is read in a phase of the event table."""
    sites, regions = trace.program.sites, trace.raw.regions[launch]
    found = set()
    for number, region, interval in {(int(r["site"]), int(r["region"]), int(r["interval"])) for r in rows}:
        site = sites[number]
        phase = phase_at(trace.phases, site.line) if site.file == trace.kernel.file else None
        is_read = not site.is_write and region < len(regions) and regions[region].space == "shared"
        if phase and phase.code == code and is_read:
            found.add(interval)
    return sorted(found)


def _tile(tiles: list[int | None], first: int, last: int) -> int | None:
    """The tile that intervals up to `last` work on: the one that was read before the last of them, or else in it, for
    then the next one may be on its way."""
    before = [tile for tile in tiles[:last] if tile is not None]
    return before[-1] if before else tiles[last] if first <= last < len(tiles) else None


def _tiles(trace: Trace, rows: NDArray[np.void], launch: int, intervals: int) -> list[int | None]:
    """The K/V tile whose rows of K each interval of a block reads."""
    found: list[int | None] = [None] * intervals
    if not trace.kernel.tiled:
        return found
    p = trace.problem
    regions = trace.raw.regions[launch]
    number = next((n for n, region in enumerate(regions) if region.name == "K"), -1)
    for row in rows[rows["region"] == number]:
        key = (int(row["first"]) - regions[number].first) // (p.d * p.itemsize) % p.Nk
        found[int(row["interval"])] = key // trace.tiling.Bc
    return found


def walk(trace: Trace, launch: int, first: int, last: int) -> tuple[Stop, ...]:
    """The stops of the warp that was written down in detail, from interval `first` to `last`, in program order.

    trace: made with `blocks=[block]` and `detail=Detail(block, warp, first, last, launch)`.
    """
    intervals = trace.raw.intervals
    barriers = intervals["line"][intervals["launch"] == launch]
    requests, numbers = _requests(trace, launch), trace.raw.requests["interval"]
    stops = []
    for interval in range(first, min(last + 1, len(barriers))):
        groups: dict[Phase | None, list[Request]] = {}
        for index in np.flatnonzero(numbers == interval).tolist():
            request = requests[index]
            mine = request.file == trace.kernel.file
            groups.setdefault(phase_at(trace.phases, request.line) if mine else None, []).append(request)
        for phase, found in groups.items() or [(None, [])]:
            stops.append(Stop(interval, int(barriers[interval]), phase, tuple(found)))
    return tuple(stops)


def _requests(trace: Trace, launch: int) -> list[Request]:
    """The requests of a detailed trace, in its order."""
    raw = trace.raw.requests
    regions = trace.raw.regions[launch]
    active = (raw["lanes"][:, None] >> np.arange(WARP, dtype=np.uint32) & 1).astype(np.bool_)
    at = np.where(active, raw["at"].astype(np.int64), INACTIVE)
    shapes: list[tuple[int, ...]] = [_shape(trace, launch, region) for region in regions]
    made = []
    for row, lanes in zip(raw, at, strict=True):
        site = trace.program.sites[int(row["site"])]
        number = int(row["region"])
        region = regions[number] if number != NOWHERE and number < len(regions) else None
        is_shared = region is not None and region.space == "shared"
        cost, least = (_wavefronts if is_shared else _sectors)(lanes, site.nbytes)
        start = region.first if region else 0
        made.append(
            Request(
                site.file, site.line, region.name if region else "?", "shared" if is_shared else "global",
                site.is_write, site.nbytes, shapes[number] if region else (),
                tuple(None if x < 0 else x - start for x in lanes.tolist()), start, region.nbytes if region else 0,
                cost, least,
            )
        )  # fmt: skip
    return made


def _wavefronts(at: Ints, nbytes: int) -> tuple[int, int]:
    """Wavefronts of one request, and the fewest. Elements of less than a word count as their word."""
    if nbytes not in WIDTHS:
        at, nbytes = np.where(at >= 0, at & ~(BANK_BYTES - 1), at), BANK_BYTES
    cost, least = turns(at, nbytes)
    return int(cost), int(least)


def _sectors(at: Ints, nbytes: int) -> tuple[int, int]:
    """Sectors of one request, and the fewest that hold as many different elements."""
    mine = at[at >= 0]
    touched = np.unique(np.concatenate([mine // SECTOR, (mine + nbytes - 1) // SECTOR]))
    return len(touched), math.ceil(len(np.unique(mine)) * nbytes / SECTOR)


def _shape(trace: Trace, launch: int, region: Region) -> tuple[int, ...]:
    """The shape of an array: of tensors from the problem, of shared memory from the launch plan."""
    p = trace.problem
    plan: Any = trace.plan.launches[launch]
    if region.space == "shared":
        slots = [slot for each in (plan, *trace.plan.launches) for slot in each.smem]
        named = next((slot for slot in slots if slot.name == region.name), None)
        return named.shape if named and named.nbytes == region.nbytes else (region.nbytes // 4,)
    return _tensor_shape(p, region)


def _tensor_shape(p: Problem, region: Region) -> tuple[int, ...]:
    known = {
        "Q": (p.B, p.H, p.Nq, p.d), "O": (p.B, p.H, p.Nq, p.d), "K": (p.B, p.Hk, p.Nk, p.d),
        "V": (p.B, p.Hk, p.Nk, p.d), "LSE": (p.B, p.H, p.Nq), "key_range": (p.B, 2),
        "S": (p.B, p.H, p.Nq, -1), "P": (p.B, p.H, p.Nq, -1),
    }.get(region.name)  # fmt: skip
    if known is None:
        return (region.nbytes // 4,)
    if known[-1] == -1:  # rows of S and P are padded
        known = (*known[:-1], region.nbytes // 4 // math.prod(known[:-1]))
    return known


__all__ = ["Request", "Stop", "Visit", "visits", "walk"]
