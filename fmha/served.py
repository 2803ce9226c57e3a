"""Who answers each load of an event table: the L2 cache, or device memory behind it.

The cache is as simple as a cache can be, so that a person can follow it on screen: it keeps whole tiles, all of them in
one set, and throws out the tile that was used longest ago (LRU). Loads and stores pass it in the order in which their
events start; of those that start together, in row order. A tile that is loaded or stored stays in it; a stored tile is
written to device memory when it is thrown out (write-back), and is not read from there first, since all of it is new.

Left out, and modelled for whole kernels by `fmha.caches`: the L1 caches, requests that are merged on their way, two
copies of a line in the two halves of a real L2, and lines smaller than tiles.

Source of the rule for a hit: R. Mattson et al., Evaluation techniques for storage hierarchies, IBM Systems Journal 9
(1970). A tile is held exactly when it and all different tiles used since fit; so one count answers for every capacity.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fmha.errors import ProblemError
from fmha.events import PHASES, TENSORS
from fmha.problem import Problem
from fmha.reuse import bytes_between

_LOAD = np.array([phase.is_load for phase in PHASES])
_STORE = np.array([phase.is_store for phase in PHASES])
_OF_KV_HEAD = np.array([name in ("K", "V") for name in TENSORS])
_HAS_I = np.array([name not in ("K", "V") for name in TENSORS])
_HAS_J = np.array([name in ("K", "V", "S", "P") for name in TENSORS])
_TOGETHER = 1e-9  # of the whole run

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Uses:
    """Loads and stores of an event table in the order in which they reach L2: what holds for every capacity.

    row: of the event table, [U]. tile: which tile, numbered from 0, [U]. nbytes: of the event, [U]; size: of the tile,
    [U], the largest of its events. needs: bytes that L2 must hold for this use to find its tile there, [U]; infinite
    at a tile's first use. is_load: [U]. rows: of the event table.
    """

    rows: int
    row: Ints
    tile: Ints
    nbytes: Ints
    size: NDArray[np.float64]
    needs: NDArray[np.float64]
    is_load: NDArray[np.bool_]


@dataclass(frozen=True)
class Served:
    """Who answered, with an L2 of `l2_bytes`.

    from_hbm: [E], of each event whether it is a load that L2 could not answer. Bytes: read by SMs in all, of these from
    device memory; stored by SMs in all, of these written back to device memory before the end, and left in L2 at the
    end. The last two are fewer together than what was stored where a tile was stored again while L2 still held it.
    """

    l2_bytes: float
    from_hbm: NDArray[np.bool_]
    loaded: int
    hbm_read: int
    stored: int
    hbm_written: int
    left_dirty: int

    @property
    def l2_hits(self) -> int:
        """Bytes that L2 answered."""
        return self.loaded - self.hbm_read

    @property
    def hit_rate(self) -> float:
        """Share of the loaded bytes that L2 answered; 0 where nothing was loaded."""
        return self.l2_hits / self.loaded if self.loaded else 0.0


def uses(events: NDArray[np.void], problem: Problem) -> Uses:
    """Order the loads and stores of clocked events and see how far apart two uses of a tile are.

    Query heads that share a K/V head use the same tiles of K and V.
    """
    moves = np.flatnonzero((_LOAD | _STORE)[events["phase"]] & (events["nbytes"] > 0))
    row = moves[_in_order(events["t0"][moves])]
    what = events[row]
    tile = _tiles(what, problem)
    nbytes = what["nbytes"].astype(np.int64)
    largest = np.zeros(int(tile.max(initial=-1)) + 1, np.int64)
    np.maximum.at(largest, tile, nbytes)
    size = largest[tile].astype(np.float64)
    return Uses(len(events), row, tile, nbytes, size, bytes_between(tile, size) + size, _LOAD[what["phase"]])


def serve(used: Uses, l2_bytes: float) -> Served:
    """Who answers each load when L2 holds `l2_bytes` (0: nothing; infinite: everything).

    Raises:
        ProblemError: a capacity that is negative or no number.
    """
    if not isinstance(l2_bytes, int | float) or math.isnan(l2_bytes) or l2_bytes < 0:
        raise ProblemError(
            f"L2 of {l2_bytes!r} bytes: the capacity must be 0 or more; try the size of a real GPU's L2."
        )
    missed = ~(used.needs <= l2_bytes) | np.isinf(used.needs)
    from_hbm = np.zeros(used.rows, np.bool_)
    from_hbm[used.row[missed & used.is_load]] = True
    written, left = _written_back(used, missed, l2_bytes)
    return Served(
        float(l2_bytes), from_hbm, int(used.nbytes[used.is_load].sum()), int(used.nbytes[missed & used.is_load].sum()),
        int(used.nbytes[~used.is_load].sum()), written, left,
    )  # fmt: skip


def _in_order(start: NDArray[np.float64]) -> Ints:
    """Rows by start time; those that start together by their number: [U].

    Together is what differs by rounding only: blocks of one wave would otherwise take turns by chance.
    """
    order = np.argsort(start, kind="stable")
    if not len(order):
        return order
    moment = start[order]
    later = np.diff(moment, prepend=moment[0]) > _TOGETHER * (moment[-1] - moment[0])
    return order[np.lexsort((order, np.cumsum(later)))]


def _tiles(what: NDArray[np.void], problem: Problem) -> Ints:
    """A number for the tile of each of these events, from 0 on."""
    tensor = what["tensor"]
    head = np.where(_OF_KV_HEAD[tensor], what["h"] // problem.group, what["h"]).astype(np.int64)
    i = np.where(_HAS_I[tensor], what["i"], 0).astype(np.int64)
    j = np.where(_HAS_J[tensor], what["j"], 0).astype(np.int64)
    key = np.zeros(len(what), np.int64)
    for part, extent in ((tensor, len(TENSORS)), (what["b"], problem.B), (head, problem.H), (i, None), (j, None)):
        low = int(part.min(initial=0))
        key = key * (int(part.max(initial=0)) - low + 1 if extent is None else extent) + (part - low)
    return np.asarray(np.unique(key, return_inverse=True)[1], np.int64)


def _written_back(used: Uses, missed: NDArray[np.bool_], l2_bytes: float) -> tuple[int, int]:
    """Bytes of stored tiles that L2 threw out, and of those that it still holds at the end.

    A *stay* of a tile is a run of its uses from one miss to the next; it is dirty when one of them is a store.
    """
    count = len(used.row)
    if not count:
        return 0, 0
    order = np.argsort(used.tile, kind="stable")  # tile after tile, each in time order
    tile, miss, size = used.tile[order], missed[order], used.size[order]
    begins = np.flatnonzero(miss)  # the first use of a tile is always a miss
    dirty = np.logical_or.reduceat(~used.is_load[order], begins)
    stays = size[begins]
    is_last = np.append(tile[begins][1:] != tile[begins][:-1], True)
    # What was used after a tile's last use decides whether that tile is still there.
    last_use = np.append(np.flatnonzero(tile[1:] != tile[:-1]), count - 1)
    when = order[last_use]
    by_time = np.argsort(when)[::-1]
    through = np.empty(len(when))
    through[by_time] = np.cumsum(size[last_use][by_time])
    kept = np.zeros(len(begins), np.bool_)
    kept[is_last] = through <= l2_bytes
    return int(stays[dirty & ~kept].sum()), int(stays[dirty & kept].sum())
