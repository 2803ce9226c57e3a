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
_FLUSH_BYTES = 512 << 20
Work = Callable[[], Any]


def time_in_turns(
    device: GpuDevice,
    candidates: Sequence[Work],
    repeats: int,
    told: Callable[[int, int], None] = lambda done, of: None,
) -> list[Timing | None]:
    """Times of each candidate. In every round each of them runs once, so that a drift of the clocks meets all. One that
    runs out of device memory beside the others while it warms up is left out: None.

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
        fit = [_warmed_up(work) for work in candidates]
        device.synchronize()
        times = np.full((len(candidates), repeats), np.nan)
        for round_number in range(repeats):
            pairs = {}
            for index in (index for index, fits in enumerate(fit) if fits):
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
    return [_timing(row) if fits else None for fits, row in zip(fit, times, strict=True)]


def _warmed_up(work: Work) -> bool:
    """Run it a few times; False where torch finds no memory for it."""
    try:
        for _ in range(WARMUPS):
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


def _timing(times_us: Any) -> Timing:
    p10, median, p90 = (float(x) for x in np.percentile(times_us, (10, 50, 90)))
    return Timing(median, p10, p90, float(times_us.min()), len(times_us), WARMUPS)
