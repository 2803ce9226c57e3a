"""Event tables as files, read back by NumPy, pyarrow and as a trace."""

from __future__ import annotations

import io
import json
from collections import defaultdict
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from fmha import Run, export
from fmha.errors import FmhaError
from fmha.events import EVENT, PHASES
from fmha.export import perfetto_trace
from fmha.export.tables import COLUMNS
from fmha.traffic import count
from tests.export.support import made

ORDERS = ("q-outer", "kv-outer", "naive")


def test_npz_is_read_by_numpy_without_pickles() -> None:
    run = made(causal=True)
    with np.load(io.BytesIO(export.npz(run, "made up")), allow_pickle=False) as file:
        assert set(file.files) == {"O", "LSE", "m", "l", "alpha", "events", "about", "phases", "tensors", "memories"}
        np.testing.assert_array_equal(file["O"], run.O)
        np.testing.assert_array_equal(file["events"], run.events)
        assert file["phases"][run.events["phase"][3]] == PHASES[run.events["phase"][3]].code
        about = json.loads(str(file["about"]))
    assert (
        "no measurement" in about["times"]
        and about["input"] == "made up"
        and about["problem"]["causal"] == "bottom-right"
        and about["tiling"]["Tc"] == 6
    )


@pytest.mark.parametrize("order", ORDERS)
def test_parquet_is_read_by_pyarrow(order: str) -> None:
    run = made(order=order)
    table = pq.read_table(io.BytesIO(export.parquet(run)))
    assert tuple(table.column_names) == EVENT.names == tuple(COLUMNS)
    for name in EVENT.names:
        values = table[name].to_pylist()
        wanted = [PHASES[code].code for code in run.events["phase"]] if name == "phase" else run.events[name].tolist()
        if name not in ("tensor", "src", "dst"):
            assert values == wanted
        assert table.schema.field(name).metadata[b"about"]
    assert set(table["tensor"].to_pylist()) <= {"Q", "K", "V", "S", "P", "O", "m", "l"}
    assert json.loads(table.schema.metadata[b"about"])["order"] == order


def trace(run: Run, l2_bytes: float | None = None) -> list[dict[str, Any]]:
    """The trace's events, each checked against the format: what a viewer needs of it."""
    whole = json.loads(export.perfetto(run, l2_bytes))
    assert set(whole) == {"traceEvents", "displayTimeUnit", "otherData"} and whole["displayTimeUnit"] in ("ms", "ns")
    for event in whole["traceEvents"]:
        assert event["ph"] in ("M", "X", "C") and isinstance(event["name"], str) and isinstance(event["args"], dict)
        assert type(event["pid"]) is int and type(event["tid"]) is int
        if event["ph"] == "X":
            assert event["ts"] >= 0 and event["dur"] >= 0 and isinstance(event["cat"], str)
        elif event["ph"] == "C":
            assert event["ts"] >= 0 and all(type(value) is int for value in event["args"].values())
        else:
            assert event["name"] in ("process_name", "process_sort_index", "thread_name", "thread_sort_index")
    return list(whole["traceEvents"])


@pytest.mark.parametrize("order", ORDERS)
def test_slices_nest_on_their_sm_and_hold_all_events(order: str) -> None:
    run = made(order=order, N=60, H=2)
    events = trace(run)
    named = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    tracks: dict[int, list[Any]] = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            tracks[event["tid"]].append(event)
    assert {named[tid] for tid in tracks} == {f"SM {sm}" for sm in set(run.events["sm"].tolist())}
    ns = lambda t: round(t * 1000)  # noqa: E731
    for slices in tracks.values():
        slices.sort(key=lambda e: e["ts"])  # as viewers do: stable, so that a block comes before its first phase
        stack: list[int] = []
        for event in slices:
            begin, end = ns(event["ts"]), ns(event["ts"]) + ns(event["dur"])
            while stack and stack[-1] <= begin and (event["cat"] == "worker" or len(stack) > 1):
                stack.pop()
            assert not stack or end <= stack[-1]
            assert (len(stack) == 0) == (event["cat"] == "worker")
            stack.append(end)
    phases = [e for e in events if e["ph"] == "X" and e["cat"] != "worker"]
    assert sum(e["args"]["nbytes"] for e in phases) == run.events["nbytes"].sum()
    assert sum(e["args"]["flops"] for e in phases) == run.events["flops"].sum()
    assert {e["name"] for e in phases} == {PHASES[code].maths for code in run.events["phase"]}


@pytest.mark.parametrize("order", ORDERS)
def test_counters_rise_to_what_was_moved(order: str) -> None:
    run = made(order=order)
    moved = count(run.events, run.order)
    points: dict[str, list[tuple[float, int]]] = defaultdict(list)
    for event in trace(run, l2_bytes=2048):
        if event["ph"] == "C":
            points[event["name"]].append((event["ts"], event["args"]["bytes"]))
    for line in points.values():
        assert line == sorted(line) and line[0] == (0, 0) and len({t for t, _ in line}) == len(line)
    ends = {name: line[-1][1] for name, line in points.items()}
    assert ends["requested bytes"] == moved.requested_bytes
    assert ends["loaded bytes"] == moved.requested_read_bytes
    assert ends["stored bytes"] == moved.requested_write_bytes
    assert 0 < ends["loaded from HBM, bytes"] <= ends["loaded bytes"]


def test_who_answered_is_said_where_l2_is_known() -> None:
    run = made()
    answers = {e["args"].get("answer") for e in trace(run, l2_bytes=1 << 20) if e["ph"] == "X" and "load" in e["cat"]}
    assert answers == {"L2", "HBM"}
    assert not [e for e in trace(run) if "answer" in e["args"]]


def test_a_trace_that_no_viewer_opens_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(perfetto_trace, "MAX_SLICES", 100)
    with pytest.raises(FmhaError, match="are too many for a trace that a browser opens: use at most 100; try larger"):
        export.perfetto(made())
