"""How many requests reach L2 when blocks of kernel 01 on neighbouring SMs ask for the same tile at the same moment.

Between L1 and L2, requests of the SMs of one cluster for the same line become one, four of them at most; what was
measured of that is told in `fmha.in_step`, which follows kernels 02 to 13 in time. The blocks of kernel 01 all do the
same, and what they share is read off their numbers, so a rule for how fast they come out of step is enough:

    coherence(v) = 1 / (1 + sqrt(v / v0))

is the share of merging that is left after v visits: as of a random walk. v0 is smaller when a thread waits for several
loads one after the other in a visit, and much smaller when blocks share an SM, because then the scheduler prefers one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmha.dispatch import Floats

IN_STEP_VISITS = 48.0  # v0 of a block that has its SM to itself and waits for one load in a visit


def in_step_visits(rounds: float, resident: float) -> float:
    """v0: visits after which half of the merging is left, for `resident` blocks an SM and `rounds` loads in a row."""
    return IN_STEP_VISITS / max(rounds, 1.0) / max(resident, 1.0) ** 2


def coherence(visits: NDArray[Any] | float, v0: float) -> Floats:
    """Share of merging that is left after `visits`: 1 at first, a half after v0."""
    return np.asarray(1.0 / (1.0 + np.sqrt(np.asarray(visits, np.float64) / v0)))
