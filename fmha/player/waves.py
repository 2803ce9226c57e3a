"""Waves: when each turn of blocks over the SMs begins, and how much of the SMs x time is idle."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fmha.dispatch import Waves
from fmha.timeline import busy_share


@dataclass(frozen=True)
class Turns:
    """begins: (microseconds, kernel, wave) of every wave, from the first on. waves: of the first kernel. busy: share of
    SMs x time in which an SM works, until the last event ends."""

    begins: tuple[tuple[float, int, int], ...]
    waves: Waves
    busy: float


def turns(events: NDArray[np.void], sms: int) -> Turns:
    """The waves of clocked events on `sms` SMs, one block on each at a time.

    Wave n of a kernel has blocks n x sms to (n + 1) x sms - 1, in the order in which they start; it begins when the
    first of them does.
    """
    new = np.ones(len(events), np.bool_)
    new[1:] = (events["worker"][1:] != events["worker"][:-1]) | (events["kernel"][1:] != events["kernel"][:-1])
    blocks = events[new]
    begins: list[tuple[float, int, int]] = []
    for kernel in np.unique(blocks["kernel"]).tolist():
        start = np.sort(blocks["t0"][blocks["kernel"] == kernel])
        begins += [(float(t), int(kernel), wave) for wave, t in enumerate(start[::sms])]
    first = int((blocks["kernel"] == blocks["kernel"][0]).sum()) if len(blocks) else 0
    return Turns(tuple(begins), Waves(first, sms), busy_share(events, sms))
