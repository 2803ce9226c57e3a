"""A run as a trace that ui.perfetto.dev and chrome://tracing open: SMs as tracks, phases as slices, meters as counters.

The format is the Trace Event Format (JSON): complete events ("X") on one thread for each SM, nested in a slice for each
thread block; counter events ("C") for bytes that have arrived; metadata ("M") for names. Its times are microseconds;
they are written in whole nanoseconds, so that neighbours touch and never overlap.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmha.errors import LimitError, ProblemError
from fmha.events import PHASES
from fmha.export.tables import about
from fmha.served import serve, uses
from fmha.simulation import Run

MAX_SLICES = 400_000
SMS, METERS = 1, 2  # process ids: one group of tracks each


def perfetto(run: Run, l2_bytes: float | None = None, title: str = "", times: str = "") -> str:
    """The text of a trace file.

    Args:
        l2_bytes: with it, loads say who answered (L2 or HBM), and a counter adds up what came from HBM.
        times: where they are from, if not from the simple cost.

    Raises:
        LimitError: more than `MAX_SLICES` events; viewers do not get along with such files.
        ProblemError: events without times.
    """
    events = run.events
    if len(events) > MAX_SLICES:
        raise LimitError(
            f"{len(events):,} events are too many for a trace that a browser opens: use at most {MAX_SLICES:,}; "
            "try larger tiles, a smaller N or fewer heads, or take Parquet."
        )
    if len(events) and events["sm"].min() < 0:
        raise ProblemError("these events have no times yet: put them through fmha.timeline.clock.")
    t0, t1 = (np.round(events[name] * 1000).astype(np.int64) for name in ("t0", "t1"))
    from_hbm = None if l2_bytes is None else serve(uses(events, run.problem), l2_bytes).from_hbm
    trace = (
        _names(events) + _blocks(events, t0, t1) + _phases(events, t0, t1, from_hbm) + _counters(events, t1, from_hbm)
    )
    other = about(run, title, times)
    return json.dumps({"traceEvents": trace, "displayTimeUnit": "ns", "otherData": other}, separators=(",", ":"))


def _us(nanoseconds: int) -> float:
    return nanoseconds / 1000


def _names(events: NDArray[np.void]) -> list[dict[str, Any]]:
    def named(what: str, pid: int, tid: int, **value: Any) -> dict[str, Any]:
        return {"ph": "M", "name": what, "pid": pid, "tid": tid, "args": value}

    out = [named("process_name", SMS, 0, name="SMs"), named("process_sort_index", SMS, 0, sort_index=2)]
    out += [named("process_name", METERS, 0, name="Byte meters"), named("process_sort_index", METERS, 0, sort_index=1)]
    for sm in np.unique(events["sm"]).tolist():
        out.append(named("thread_name", SMS, sm + 1, name=f"SM {sm}"))
        out.append(named("thread_sort_index", SMS, sm + 1, sort_index=sm))
    return out


def _blocks(events: NDArray[np.void], t0: NDArray[np.int64], t1: NDArray[np.int64]) -> list[dict[str, Any]]:
    """A slice for each thread block: a run of events of one worker in one kernel."""
    new = np.ones(len(events), np.bool_)
    new[1:] = (np.diff(events["worker"]) != 0) | (np.diff(events["kernel"].astype(np.int64)) != 0)
    first = np.flatnonzero(new)
    begins = np.minimum.reduceat(t0, first) if len(first) else t0
    ends = np.maximum.reduceat(t1, first) if len(first) else t1
    out = []
    for row, begin, end in zip(first.tolist(), begins.tolist(), ends.tolist(), strict=True):
        what = events[row]
        args = {"worker": int(what["worker"]), "kernel": int(what["kernel"]), "b": int(what["b"]), "h": int(what["h"])}
        out.append(_slice(f"worker {what['worker']}", "worker", int(what["sm"]), begin, end, args))
    return out


def _phases(
    events: NDArray[np.void], t0: NDArray[np.int64], t1: NDArray[np.int64], from_hbm: NDArray[np.bool_] | None
) -> list[dict[str, Any]]:
    columns = {name: events[name].tolist() for name in ("sm", "phase", "h", "i", "j", "nbytes", "flops")}
    out = []
    for row, (begin, end) in enumerate(zip(t0.tolist(), t1.tolist(), strict=True)):
        phase = PHASES[columns["phase"][row]]
        args = {name: columns[name][row] for name in ("h", "i", "j", "nbytes", "flops")}
        if from_hbm is not None and phase.is_load:
            args["answer"] = "HBM" if from_hbm[row] else "L2"
        out.append(_slice(phase.maths, phase.code, columns["sm"][row], begin, end, args))
    return out


def _slice(name: str, category: str, sm: int, begin: int, end: int, args: dict[str, Any]) -> dict[str, Any]:
    return {
        "ph": "X", "name": name, "cat": category, "pid": SMS, "tid": sm + 1,
        "ts": _us(begin), "dur": _us(end - begin), "args": args,
    }  # fmt: skip


def _counters(
    events: NDArray[np.void], t1: NDArray[np.int64], from_hbm: NDArray[np.bool_] | None
) -> list[dict[str, Any]]:
    """Bytes that have arrived by the end of each load and store: requested as the meters count, loaded, stored."""
    load = np.array([p.is_load for p in PHASES])[events["phase"]]
    store = np.array([p.is_store for p in PHASES])[events["phase"]]
    init = np.array([p.code.startswith("init_") for p in PHASES])[events["phase"]]
    counted = {"requested bytes": (load | store) & ~init, "loaded bytes": load, "stored bytes": store & ~init}
    if from_hbm is not None:
        counted["loaded from HBM, bytes"] = from_hbm
    out: list[dict[str, Any]] = []
    for name, rows in counted.items():
        moments, where = np.unique(t1[rows], return_inverse=True)
        sums = np.cumsum(np.bincount(where, events["nbytes"][rows], len(moments))).astype(np.int64)
        points = [(0, 0), *zip(moments.tolist(), sums.tolist(), strict=True)]
        out += [
            {"ph": "C", "name": name, "pid": METERS, "tid": 0, "ts": _us(t), "args": {"bytes": n}} for t, n in points
        ]
    return out


__all__ = ["MAX_SLICES", "perfetto"]
