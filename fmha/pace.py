"""How fast the blocks of a q-outer kernel are, and by how much they differ: what decides who asks for a tile together.

Numbers are fitted to counters of an H200, apart for each reason that blocks come out of step (`fmha.model_facts`).
"""

from __future__ import annotations

from typing import NamedTuple

# By how much a visit differs from the next. Of a block that has its SM to itself, times the root of its loads in a row:
ALONE_US = 0.015
LOADS_UNDER_WAY = 4  # in a visit of a block that computes meanwhile
# Of blocks that share an SM, for each neighbour. Where each score has its thread, beside that a share of the visit:
BY_SCORE_US, BY_SCORE = 0.15, 0.01
ONE_THREAD_A_SCORE = ("02", "03", "04", "05")
# Where something other than tensor cores is always busy: instructions (07, 13), the banks of shared memory (08):
STEADY_US = {"07": 0.05, "08": 0.35, "13": 0.026}
# Where blocks wait for loads or for the tensor cores, a share of the visit:
OF_A_VISIT = {"06": 0.05, "09": 0.012, "10": 0.01, "11": 0.01, "12": 0.01}
# By what share some blocks are faster than others, from their first visit to their last.
SPEEDS = {"10": 0.004, "11": 0.004, "12": 0.004}
# Of a visit, by how much the last of the blocks on an SM is slower than the first; less where they wait for loads.
UNEVEN, UNEVEN_WAITING = 0.08, 0.06
IN_TURN = ("08",)  # the banks of shared memory keep these, and serve all alike


class Pace(NamedTuple):
    """How fast a block is.

    visit_us: time of a visit of a whole tile, while others share its SM. rounds: loads from device memory that it waits
    for one after the other in a visit; 0: it computes while they are under way. apart_us: by how much a visit differs
    from the next. uneven: by what share of their visits the blocks on an SM differ, the last from the first. speeds: by
    what share all blocks differ, whatever their SM. shrinks: a visit is shorter where rows or keys are missing. drift:
    how many times as much as was fitted visits and blocks differ. fewer: of blocks on SMs that hold one block less than
    others do; None: as the rest.
    """

    visit_us: float = 20.0
    rounds: float = 1.0
    apart_us: float = 0.0
    uneven: float = 0.0
    speeds: float = 0.0
    shrinks: bool = True
    drift: float = 1.0
    fewer: Pace | None = None


def pace(number: str, visit_us: float, rounds: float, there: int) -> Pace:
    """Of kernel `number`, one of 02 to 13, with `there` blocks on an SM; the rest as in `Pace`."""
    by_score = number in ONE_THREAD_A_SCORE
    if there == 1:
        apart_us = ALONE_US * float(max(rounds or LOADS_UNDER_WAY, 1.0)) ** 0.5
    elif by_score:
        apart_us = float((BY_SCORE_US**2 + (BY_SCORE * (there - 1) * visit_us) ** 2) ** 0.5)
    else:
        apart_us = (STEADY_US.get(number, 0.0) + OF_A_VISIT.get(number, 0.0) * visit_us) * (there - 1)
    uneven = UNEVEN_WAITING if rounds and not by_score else UNEVEN
    apart = 0.0 if there == 1 else SPEEDS.get(number, 0.0)
    return Pace(visit_us, rounds, apart_us, 0.0 if number in IN_TURN else uneven, apart, by_score)


__all__ = ["Pace", "pace"]
