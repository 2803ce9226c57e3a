"""When each event happens: a simple, stated cost, blocks dealt out to SMs, loads under computation.

The cost of an event is what it moves and computes over *one SM's share* of the GPU:

    time = nbytes / (bandwidth / SMs) + flops / (matrix peak / SMs) + vector_flops / (fp32 peak / SMs)

where the bandwidth is that of the level which serves the bytes: HBM, or in part L2 when it is known what L2 holds.
There is no latency. Blocks start in block order (`fmha.dispatch`), each where room is first (the lowest number on a
tie); the kernels of naive attention wait for one another. With one stage a block loads, computes, loads again; with
more, the next tiles are loaded while it computes, as far ahead as there are buffers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmha.dispatch import Floats, Ints, blocks_in_order, check_block_order, deal
from fmha.errors import ProblemError
from fmha.events import CODE, PHASES, TENSORS
from fmha.hardware import Gpu
from fmha.problem import check_whole
from fmha.units import ceil_div

MAX_SMS = 4096
MAX_BLOCKS_PER_SM = 32
MAX_STAGES = 8

_IS_LOAD = np.array([phase.is_load for phase in PHASES])
_BEFORE_VISITS, _AFTER_VISITS = (CODE["load_Q"],), (CODE["normalize"], CODE["store_O"], CODE["store_LSE"])


def event_cost_us(
    events: NDArray[np.void], gpu: Gpu, dtype: str, from_dram: Mapping[str, float] | None = None
) -> Floats:
    """Duration of each event in microseconds: [E]. The matrix peak is that of `dtype` on `gpu`.

    Args:
        from_dram: by tensor, the share of its bytes that come from or go to DRAM; L2 serves the rest, at the bandwidth
            of its slices, where a document tells it (`Gpu.l2_gbps`). None, or a tensor that is missing: all of them.
    """
    matrix_tflops = gpu.fp32_tflops if dtype == "fp32" else gpu.fp16_tflops
    per_us = 1e-6 / gpu.sms
    moving = events["nbytes"] / (gpu.hbm_gbps * 1e9 * per_us)
    if from_dram is not None and gpu.l2_gbps:
        share = np.array([min(max(from_dram.get(name, 1.0), 0.0), 1.0) for name in TENSORS])[events["tensor"]]
        moving = share * moving + (1 - share) * events["nbytes"] / (gpu.l2_gbps * 1e9 * per_us)
    return np.asarray(
        moving
        + events["flops"] / (matrix_tflops * 1e12 * per_us)
        + events["vector_flops"] / (gpu.fp32_tflops * 1e12 * per_us)
    )


def clock(
    events: NDArray[np.void],
    gpu: Gpu,
    dtype: str,
    sms: int | None = None,
    *,
    block_order: str = "head-major",
    blocks_per_sm: int = 1,
    stages: int = 1,
    from_dram: Mapping[str, float] | None = None,
    copy: bool = True,
) -> NDArray[np.void]:
    """The same events with `t0`, `t1` (microseconds) and `sm` filled in, on `sms` SMs (all of the GPU's if None).

    With one stage a worker's events follow one another without a gap. With more, its loads run ahead of the rest.

    Args:
        block_order: one of `fmha.dispatch.BLOCK_ORDERS`. "reversed K/V" changes the order of rows, too: every other
            worker of q-outer visits its K/V tiles from the last to the first.
        blocks_per_sm: blocks that an SM holds at once; they share its speed, so each takes as many times longer.
        stages: buffers for K/V tiles. The load of a visit waits for the visit that used its buffer before.
        from_dram: as for `event_cost_us`.
        copy: False: `events` are given away, and a table of a hundred megabytes is not held twice.

    Raises:
        ProblemError: an unknown block order, or `sms`, `blocks_per_sm`, `stages` is not a whole number from 1 to
            `MAX_SMS`, `MAX_BLOCKS_PER_SM`, `MAX_STAGES`.
    """
    count = gpu.sms if sms is None else check_whole("sms", sms, 1, MAX_SMS, ProblemError)
    resident = check_whole("blocks_per_sm", blocks_per_sm, 1, MAX_BLOCKS_PER_SM, ProblemError)
    ahead = check_whole("stages", stages, 1, MAX_STAGES, ProblemError)
    order = check_block_order(block_order)
    out = _reversed(events) if order == "reversed K/V" else events.copy() if copy else events
    if not len(out):
        return out
    new_block = _changes(out, "worker", "kernel")
    first = np.flatnonzero(new_block)
    rows = np.diff(np.append(first, len(out)))
    shared = _sharing(out["kernel"][first], count, resident)
    cost = event_cost_us(out, gpu, dtype, from_dram) * np.repeat(shared, rows)
    begin, end = _one_after_another(cost, first, rows) if ahead == 1 else _overlapped(out, cost, first, rows, ahead)
    lasts = np.maximum.reduceat(end, first)
    start, slot = _deal(out, first, lasts, order, count * resident)
    shift = np.repeat(start, rows)
    out["t0"], out["t1"] = begin + shift, end + shift
    out["sm"] = np.repeat(slot % count, rows)
    if ahead == 1:  # the sums can differ in the last bit: what ends here begins there
        inside = ~new_block[1:]
        out["t0"][1:][inside] = out["t1"][:-1][inside]
    return out


def covered_us(sm: NDArray[np.integer[Any]], t0: Floats, t1: Floats) -> float:
    """Microseconds in which an SM has at least one of these intervals, summed over SMs. All arrays [intervals]."""
    if not len(t0):
        return 0.0
    order = np.lexsort((t0, sm))
    sm, t0, t1 = sm[order], t0[order], t1[order]
    lane = (sm - sm.min()).astype(np.float64) * (float(t1.max() - t0.min()) + 1.0)
    until = np.maximum.accumulate(t1 + lane)
    before = np.concatenate([[-np.inf], until[:-1]])
    return float(np.maximum(0.0, t1 + lane - np.maximum(t0 + lane, before)).sum())


def busy_share(events: NDArray[np.void], sms: int) -> float:
    """Share of SMs x time in which an SM works, of clocked events: what waves that are not full leave.

    Where an SM holds several blocks, or loads run ahead of computation, it works while any event runs.
    """
    if not len(events):
        return 0.0
    span = float(events["t1"].max() - events["t0"].min())
    return covered_us(events["sm"], events["t0"], events["t1"]) / (span * sms) if span else 0.0


def _changes(events: NDArray[np.void], *columns: str) -> NDArray[np.bool_]:
    """Whether a row differs from the one before it in any of these columns; the first one does: [E]."""
    new = np.ones(len(events), np.bool_)
    new[1:] = np.logical_or.reduce([events[name][1:] != events[name][:-1] for name in columns])
    return new


def _sharing(kernel: NDArray[np.uint8], sms: int, resident: int) -> Floats:
    """How many blocks share an SM, for each block: no more than there are."""
    blocks = np.bincount(kernel)
    return np.array([float(min(resident, ceil_div(int(n), sms))) for n in blocks])[kernel]


def _one_after_another(cost: Floats, first: Ints, rows: Ints) -> tuple[Floats, Floats]:
    """Begin and end of every event since the start of its block, without gaps: two arrays [E]."""
    elapsed = np.concatenate([[0.0], np.cumsum(cost)])
    since = np.repeat(elapsed[first], rows)
    return elapsed[:-1] - since, elapsed[1:] - since


def _overlapped(events: NDArray[np.void], cost: Floats, first: Ints, rows: Ints, stages: int) -> tuple[Floats, Floats]:
    """The same when loads run ahead. A visit is a run of rows with one (worker, kernel, i, j)."""
    visit = np.cumsum(_changes(events, "worker", "kernel", "i", "j")) - 1
    block_of_row = np.repeat(np.arange(len(first)), rows)
    begins = np.flatnonzero(np.concatenate([[True], np.diff(visit) != 0]))
    block = block_of_row[begins]
    place = np.arange(len(begins)) - np.flatnonzero(np.concatenate([[True], np.diff(block) != 0]))[block]
    is_load = _IS_LOAD[events["phase"]]
    load = np.bincount(visit, np.where(is_load, cost, 0.0))
    work = np.bincount(visit, np.where(is_load, 0.0, cost))

    blocks, longest = len(first), int(place.max()) + 1
    grid = np.full((longest, blocks), -1, np.int64)
    grid[place, block] = np.arange(len(begins))
    load_start, work_start = np.zeros(len(begins)), np.zeros(len(begins))
    loaded, worked = np.zeros(blocks), np.zeros((stages, blocks))  # worked: ends of the last `stages` visits
    for k in range(longest):
        there = grid[k] >= 0
        v = grid[k][there]
        load_start[v] = np.maximum(loaded[there], worked[k % stages][there])
        loaded[there] = load_start[v] + load[v]
        work_start[v] = np.maximum(loaded[there], worked[(k - 1) % stages][there])
        worked[k % stages, there] = work_start[v] + work[v]

    begin = np.empty(len(events))
    for kind, starts in ((is_load, load_start), (~is_load, work_start)):
        part = np.where(kind, cost, 0.0)
        before = np.cumsum(part) - part
        begin[kind] = (starts[visit] + before - before[begins][visit])[kind]
    return begin, begin + cost


def _deal(events: NDArray[np.void], first: Ints, lasts: Floats, order: str, slots: int) -> tuple[Floats, Ints]:
    """Start and slot of every block; kernel after kernel."""
    start, slot = np.empty(len(first)), np.empty(len(first), np.int64)
    at = 0.0
    for kernel in np.unique(events["kernel"][first]):
        blocks = np.flatnonzero(events["kernel"][first] == kernel)
        blocks = blocks[_in_order(events[first[blocks]], events, order)]
        start[blocks], slot[blocks] = deal(evened(lasts[blocks]), slots, at)
        at = float((start[blocks] + lasts[blocks]).max())
    return start, slot


def evened(lasts: Floats) -> Floats:
    """Durations rounded up to twelve digits of the longest: blocks of equal work end together, whatever the last bits
    of their sums are, and the SM with the lowest number gets the next block."""
    unit = float(lasts.max()) * 1e-12
    return np.ceil(lasts / unit - 1e-3) * unit if unit > 0 else lasts


def _in_order(heads: NDArray[np.void], events: NDArray[np.void], order: str) -> Ints:
    """The order in which blocks are handed out, given the first row of each. A kv-outer worker has all Q tiles."""
    workers, tiles = int(events["worker"].max()) + 1, int(events["i"].max()) + 1
    if order in ("head-major", "reversed K/V") or tiles < 2 or workers % tiles or not _owns_tile(events, tiles):
        return np.arange(len(heads))
    rank = np.empty(workers, np.int64)
    rank[blocks_in_order(order, workers // tiles, tiles)] = np.arange(workers)
    return np.argsort(rank[heads["worker"]], kind="stable")


def _owns_tile(events: NDArray[np.void], tiles: int) -> bool:
    """Whether a worker is a Q tile of a head (q-outer, naive) rather than a head (kv-outer)."""
    return bool((events["worker"] % tiles == events["i"]).all())


def _reversed(events: NDArray[np.void]) -> NDArray[np.void]:
    """Rows in another order: every other Q tile of q-outer goes over its K/V tiles from the last to the first."""
    tiles = int(events["i"].max(initial=0)) + 1
    if not np.isin(CODE["normalize"], events["phase"]) or not _owns_tile(events, tiles):
        return events.copy()
    backward = events["i"] % 2 == 1
    key = np.where(backward, -events["j"], events["j"]).astype(np.int64)
    far = np.int64(1) << 40
    key[np.isin(events["phase"], _BEFORE_VISITS)] = -far
    key[np.isin(events["phase"], _AFTER_VISITS)] = far
    return events[np.lexsort((np.arange(len(events)), key, events["worker"]))]
