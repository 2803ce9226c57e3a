"""Times work on the GPU: warm-up, the L2 cache flushed before every execution, candidates in turns, CUDA events."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fmha.errors import LimitError
from fmha.gpu.device import GpuDevice, release_torch_memory
from fmha.measurement import Timing
from fmha.units import format_bytes

WARMUPS = 3
LEAST_REPEATS = 20
FEWEST_REPEATS = 3  # of what is so slow that its limit of time wins
_FLUSH_BYTES = 512 << 20
Work = Callable[[], Any]


def time_in_turns(
    device: GpuDevice,
    candidates: Sequence[Work],
    repeats: int,
    told: Callable[[int, int], None] = lambda done, of: None,
    *,
    budget_s: float | None = None,
) -> list[Timing | None]:
    """Times of each candidate. In every round each of them runs once, so that a drift of the clocks meets all. One that
    runs out of device memory beside the others while it warms up is left out: None.

    budget_s: seconds that one candidate may take. What needs more for all rounds warms up once, if one execution takes
    a quarter of it, and runs in fewer of the rounds, evenly spread: `runs_within`.

    Flushing takes longer than the launches of a candidate take on the host, so the GPU does not wait between the two
    events. told(rounds done, rounds in all) is called after each round.

    Raises:
        LimitError: no memory to flush the cache with.
    """
    driver, repeats = device.driver, max(LEAST_REPEATS, repeats)
    size = _flush_bytes(device)
    try:
        flush = driver.mem_alloc(size)
    except driver.MemoryError:
        raise LimitError(
            f"device memory: timing needs {format_bytes(size)} more, to flush the L2 cache with, and they are not "
            "free: use a smaller N, fewer heads or a smaller batch."
        ) from None
    try:
        plans = [_planned(device, work, repeats, budget_s) for work in candidates]
        device.synchronize()
        times = np.full((len(candidates), repeats), np.nan)
        for round_number in range(repeats):
            pairs = {}
            for index, (_, runs) in enumerate(plans):
                if round_number * runs // repeats == (round_number + 1) * runs // repeats:
                    continue  # not its turn in this round
                start, stop = driver.Event(), driver.Event()
                driver.memset_d8_async(flush, round_number & 0x7F, size)
                start.record()
                candidates[index]()
                stop.record()
                pairs[index] = (start, stop)
            device.synchronize()
            for index, (start, stop) in pairs.items():
                times[index, round_number] = stop.time_since(start) * 1e3
            told(round_number + 1, repeats)
    finally:
        flush.free()
    return [_timing(row, warmups) if runs else None for (warmups, runs), row in zip(plans, times, strict=True)]


def _planned(device: GpuDevice, work: Work, repeats: int, budget_s: float | None) -> tuple[int, int]:
    """Warm it up: (executions before the timing, executions to be timed); none of the latter if it does not fit."""
    if budget_s is None:
        return WARMUPS, repeats * _warmed_up(work, WARMUPS)
    start, stop = device.driver.Event(), device.driver.Event()
    warmups, seconds = 0, 0.0
    while warmups < WARMUPS and 4 * seconds < budget_s:
        start.record()
        if not _warmed_up(work, 1):
            return 1, 0
        stop.record()
        stop.synchronize()
        warmups, seconds = warmups + 1, max(1e-6, stop.time_since(start) / 1e3)
    return warmups, runs_within(budget_s, seconds, repeats)


def runs_within(budget_s: float, seconds: float, repeats: int = LEAST_REPEATS) -> int:
    """How often something is timed that takes `seconds`: as often as its budget allows, `FEWEST_REPEATS` at least."""
    return max(FEWEST_REPEATS, min(repeats, int(budget_s / seconds)))


def _warmed_up(work: Work, times: int) -> bool:
    """Run it a few times; False where torch finds no memory for it."""
    try:
        for _ in range(times):
            work()
    except RuntimeError as error:
        if type(error).__name__ != "OutOfMemoryError":  # torch's; torch itself may not be installed
            raise
        release_torch_memory()
        return False
    return True


def _flush_bytes(device: GpuDevice) -> int:
    """A few times the L2 cache, and where memory allows it enough to hide the launches behind."""
    need = 4 * device.facts.l2_bytes
    return max(need, min(_FLUSH_BYTES, device.free_bytes() // 4))


def _timing(times_us: Any, warmups: int) -> Timing:
    measured = times_us[~np.isnan(times_us)]
    p10, median, p90 = (float(x) for x in np.percentile(measured, (10, 50, 90)))
    return Timing(median, p10, p90, float(measured.min()), len(measured), warmups)
