"""How many requests reach L2 when blocks on neighbouring SMs ask for the same tile at the same moment.

Counters of an H200 show that four neighbouring SMs in step need one request to L2, not four. (The list of units in
Nsight Compute's Profiling Guide has one before L2 that tries to combine reads, the L2 request coalescer; that it is the
cause here, and that four SMs share one, is inferred from the counters.) Small differences in every visit bring blocks
out of step, like a random walk:

    coherence(v) = 1 / (1 + sqrt(v / v0))

is the share of merging that is left after v visits. A visit whose tile must come from DRAM does not count: those who
ask for it wait, and go on together. When they are all that run on the GPU, what they were out of step before is
forgotten too. Of a tile that is partly in L2, the part that is not counts in this way. v0 is smaller when a thread
waits for several loads one after the other in a visit, and much smaller when blocks share an SM, because then the
scheduler prefers one of them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmha.dispatch import Floats, Ints
from fmha.levels import Caches
from fmha.lockstep import TICKS, Fronts, Walk

IN_STEP_VISITS = 48.0  # v0 of a block that has its SM to itself and waits for one load in a visit
AT_ONCE = 0.05  # visits: how far out of step blocks are within the first one


def in_step_visits(rounds: float, resident: float) -> float:
    """v0: visits after which half of the merging is left, for `resident` blocks an SM and `rounds` loads in a row."""
    return IN_STEP_VISITS / max(rounds, 1.0) / max(resident, 1.0) ** 2


def coherence(visits: NDArray[Any] | float, v0: float) -> Floats:
    """Share of merging that is left after `visits`: 1 at first, a half after v0."""
    return np.asarray(1.0 / (1.0 + np.sqrt(np.asarray(visits, np.float64) / v0)))


def wait_together(resident: float) -> bool:
    """Whether blocks wait for DRAM together. Those that share an SM do not: another one takes the time."""
    return resident <= 1


def requests(
    walked: Walk, gathered: Fronts, missing: Floats, caches: Caches, sms: int, rounds: float, resident: float
) -> Floats:
    """Requests to L2 that each visit accounts for, [visits]: 1 alone, down to 1 / `merging_sms` in step.

    Args:
        missing: [fronts] share of the strip that must come from DRAM.
        rounds: loads that a thread makes one after the other in a visit.
        resident: blocks that share an SM, on average.
    """
    if not len(gathered.of_visit):
        return np.zeros(0)
    slot = walked.slot[walked.visit_block]
    waits = missing if wait_together(resident) else np.zeros(len(missing))
    out = age(slot, walked.moment, waits[gathered.of_visit], _all_wait(walked, gathered), walked.strip)
    # Blocks on one SM are in different squads: they do not merge, at best they find each other's tile in L1.
    squads = (int(slot.max()) // sms + 1) * sms
    squad = gathered.of_visit * squads + slot // sms * sms + (slot % sms) // caches.merging_sms
    _, inside, members = np.unique(squad, return_inverse=True, return_counts=True)
    left = np.bincount(inside, coherence(out, in_step_visits(rounds, resident))) / members
    return np.asarray((1 - left * (1 - 1 / members))[inside])


def _all_wait(walked: Walk, gathered: Fronts) -> NDArray[np.bool_]:
    """Whether all blocks that run at that moment are in the visit's front: [visits]."""
    moment = gathered.moment / TICKS
    ends = np.sort(walked.start + walked.duration)
    half_a_tick = 0.5 / TICKS
    running = np.searchsorted(np.sort(walked.start), moment + half_a_tick) - np.searchsorted(ends, moment + half_a_tick)
    return np.asarray((np.bincount(gathered.of_visit) >= running)[gathered.of_visit])


def age(slot: Ints, moment: Ints, missing: Floats, together: NDArray[np.bool_], strip: int) -> Floats:
    """How far each visit is out of step in its middle, in visits that count: [visits].

    A tile of which a share m comes from DRAM adds 1 - m. When all blocks of the GPU wait for it `together`, m of what
    was there is forgotten as well.

    Args:
        slot, moment: [visits] where and when. missing: [visits] m. strip: tiles in a visit.
    """
    order = np.lexsort((moment, slot))
    begins = np.ones(len(order), np.bool_)
    begins[1:] = np.diff(slot[order]) != 0
    row = np.cumsum(begins) - 1
    adds = 1 - missing[order]
    found = np.empty(len(order))
    if not (together & (missing > 0)).any():
        before = np.cumsum(adds * strip) - adds * strip
        found[order] = before - before[begins][row] + adds * strip / 2 + AT_ONCE
        return found
    at = np.arange(len(order)) - np.flatnonzero(begins)[row]
    keeps = np.where(together[order], adds, 1.0)
    grid = np.ones((2, int(at.max()) + 1, int(row[-1]) + 1))
    grid[:, at, row] = adds, keeps
    half, whole = _after(grid, strip / 2), _after(grid, strip)
    middle, now = np.empty(grid.shape[1:]), np.zeros(grid.shape[2])
    for k in range(len(middle)):  # all slots at once, visit after visit
        middle[k] = now * half[0, k] + half[1, k]
        now = now * whole[0, k] + whole[1, k]
    found[order] = middle[at, row] + AT_ONCE
    return found


def _after(grid: Floats, tiles: float) -> Floats:
    """What `tiles` visits do, each of which turns an age a into (a keeps) + adds: the factor and the summand."""
    adds, keeps = grid
    factor = keeps**tiles
    lost = 1 - keeps
    return np.stack([factor, adds * np.where(lost > 0, (1 - factor) / np.where(lost > 0, lost, 1.0), tiles)])
