"""When each event happens: a simple, stated cost, and workers dealt out to SMs.

The cost of an event is what it moves and computes over *one SM's share* of the GPU:

    time = nbytes / (HBM bandwidth / SMs) + flops / (matrix peak / SMs) + vector_flops / (fp32 peak / SMs)

with no latency, no overlap and no cache. Workers start in block order, each on the SM that is free first (the
lowest number on a tie); the kernels of naive attention wait for one another.
"""

from __future__ import annotations

import heapq

import numpy as np
from numpy.typing import NDArray

from fmha.errors import ProblemError
from fmha.hardware import Gpu
from fmha.problem import check_whole

MAX_SMS = 4096


def event_cost_us(events: NDArray[np.void], gpu: Gpu, dtype: str) -> NDArray[np.float64]:
    """Duration of each event in microseconds: [E]. The matrix peak is that of `dtype` on `gpu`."""
    matrix_tflops = gpu.fp32_tflops if dtype == "fp32" else gpu.fp16_tflops
    per_us = 1e-6 / gpu.sms
    return np.asarray(
        events["nbytes"] / (gpu.hbm_gbps * 1e9 * per_us)
        + events["flops"] / (matrix_tflops * 1e12 * per_us)
        + events["vector_flops"] / (gpu.fp32_tflops * 1e12 * per_us)
    )


def clock(events: NDArray[np.void], gpu: Gpu, dtype: str, sms: int | None = None) -> NDArray[np.void]:
    """The same events with `t0`, `t1` (microseconds) and `sm` filled in, on `sms` SMs (all of the GPU's if None).

    A worker's events follow one another without a gap.

    Raises:
        ProblemError: `sms` is not a whole number from 1 to `MAX_SMS`.
    """
    count = gpu.sms if sms is None else check_whole("sms", sms, 1, MAX_SMS, ProblemError)
    out = events.copy()
    if not len(out):
        return out
    elapsed = np.concatenate([[0.0], np.cumsum(event_cost_us(out, gpu, dtype))])
    new_block = np.ones(len(out), np.bool_)
    new_block[1:] = (out["worker"][1:] != out["worker"][:-1]) | (out["kernel"][1:] != out["kernel"][:-1])
    first = np.flatnonzero(new_block)
    rows = np.diff(np.append(first, len(out)))
    start, sm = _deal(elapsed[first + rows] - elapsed[first], out["kernel"][first], count)
    shift = np.repeat(start - elapsed[first], rows)
    out["t0"], out["t1"] = elapsed[:-1] + shift, elapsed[1:] + shift
    out["sm"] = np.repeat(sm, rows)
    # The shift can differ in the last bit: what ends here begins there.
    inside = ~new_block[1:]
    out["t0"][1:][inside] = out["t1"][:-1][inside]
    return out


def _deal(
    duration: NDArray[np.float64], kernel: NDArray[np.uint8], sms: int
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Start time and SM of every block, in block order."""
    start, chosen = np.empty(len(duration)), np.empty(len(duration), np.int64)
    barrier = 0.0
    for k in np.unique(kernel):
        free = [(barrier, sm) for sm in range(sms)]
        for block in np.flatnonzero(kernel == k):
            start[block], chosen[block] = free[0]
            end = start[block] + duration[block]
            heapq.heapreplace(free, (end, free[0][1]))
            barrier = max(barrier, end)
    return start, chosen
