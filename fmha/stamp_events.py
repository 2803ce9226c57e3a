"""What time stamps say, as an event table: the simulator's rows with the times and the SMs of a GPU."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fmha.errors import InputError
from fmha.events import CODE, PHASES, emit
from fmha.phases import Phase, groups, phases
from fmha.stamps import Stamps

_OTHER = "the time stamps do not fit the kernel's source: they were recorded with another one."
_IS_LOAD = np.array([phase.is_load for phase in PHASES])
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def stamped_events(stamps: Stamps, source: str | None = None) -> NDArray[np.void]:
    """The event table of a time-stamped run: the simulator's rows with the measured `t0`, `t1` (µs) and `sm`.

    source: whose comments name the phases; None: their names are in the facts.

    A phase that the table splits (K and V are loaded in one) is divided by bytes. One that a visit comes back to, row
    by row, is told once, as long as all its turns together. Where the source asks for K while it computes, a tile is on
    its way from where it is asked for to where the next one is: there the kernel has waited for it. SMs are numbered
    from 0 in the order of their own numbers, without those that had nothing to do.

    Raises:
        InputError: the phases do not follow one another as the simulator's events do.
    """
    table = emit(stamps.problem, stamps.tiling)
    spans, codes, is_ahead = _spans_of(stamps, source)
    if not is_ahead:
        _fill(table, np.arange(len(table)), spans, codes)
    else:
        loads = np.array([any(name.startswith("load_") for name in each) for each in codes])[spans.phase]
        _fill(table, np.flatnonzero(~_IS_LOAD[table["phase"]]), spans.some(~loads), codes)
        _fill_loads(table, spans.some(loads), codes)
    table["sm"] = np.searchsorted(np.unique(stamps.sm), stamps.sm)[table["worker"]]
    return table


def told_once(stamps: Stamps) -> Stamps:
    """The same run with one stamp for each phase of a visit: what `stamped_events` makes of both is the same, and where
    rows take turns this is a small part of the stamps.

    Raises:
        InputError: a phase that the facts do not name.
    """
    spans, _, _ = _spans_of(stamps, None)
    first = np.searchsorted(spans.worker, np.arange(len(stamps.first)))
    return replace(stamps, first=first.astype(np.int64), at_us=spans.start, phase=spans.phase)


def _spans_of(stamps: Stamps, source: str | None) -> tuple[_Spans, list[tuple[str, ...]], bool]:
    """The spans, what each phase is in the event table, and whether K is asked for after S."""
    found = phases("\n".join(f"// {maths}" for maths in stamps.facts["phases"]) if source is None else source)
    if len(stamps.phase) and int(stamps.phase.max()) >= len(found):
        raise InputError(_OTHER)
    codes = [_codes(phase) for phase in found]
    names = [code for each in codes for code in each]
    is_ahead = "S" in names and "load_K" in names and names.index("load_K") > names.index("S")
    return _spans(stamps, found, codes, "load_V" if is_ahead else "load_K"), codes, is_ahead


class _Spans(NamedTuple):
    """Phases of the source, in the order in which workers came to them: who, which, when (µs), how long (µs)."""

    worker: Ints
    phase: NDArray[np.uint8]
    start: Floats
    length: Floats

    def some(self, which: NDArray[np.bool_]) -> _Spans:
        """Only those."""
        return _Spans(self.worker[which], self.phase[which], self.start[which], self.length[which])


def _spans(stamps: Stamps, found: tuple[Phase, ...], codes: list[tuple[str, ...]], opener: str) -> _Spans:
    """Stamps as spans of time, each phase once a visit. opener: the load that a visit begins with."""
    # What the table knows no phase for (LSE) belongs to what was before it.
    kept = np.flatnonzero(np.array([bool(code) for code in codes])[stamps.phase])
    worker = np.searchsorted(stamps.first, kept, side="right") - 1
    until = np.append(stamps.at_us[kept][1:], 0.0)
    is_last = np.append(worker[1:] != worker[:-1], True)
    until[is_last] = stamps.end_us[worker[is_last]]
    opens_visit = np.array([opener in code for code in codes])[stamps.phase[kept]]
    part = np.array(groups(found))[stamps.phase[kept]]
    turn = np.stack([worker, np.cumsum(opens_visit), part], 1)
    _, first, same = np.unique(turn, axis=0, return_index=True, return_inverse=True)
    length = np.bincount(same.ravel(), until - stamps.at_us[kept], len(first)).astype(np.float64)
    order = np.argsort(first)
    first, length = first[order], length[order]
    ahead = np.cumsum(length) - length
    opening = np.searchsorted(worker[first], worker[first])  # of each worker
    start = stamps.at_us[kept][first[opening]] + ahead - ahead[opening]
    return _Spans(worker[first], stamps.phase[kept][first], start, length)


def _fill(table: NDArray[np.void], rows: Ints, spans: _Spans, codes: list[tuple[str, ...]]) -> None:
    """Give the rows the times of the spans, one after another."""
    span_of = np.repeat(np.arange(len(spans.phase)), [len(codes[p]) for p in spans.phase])
    wanted = np.array([CODE[code] for p in spans.phase for code in codes[p]], np.uint8)
    if (
        len(wanted) != len(rows)
        or (wanted != table["phase"][rows]).any()
        or (spans.worker[span_of] != table["worker"][rows]).any()
    ):
        raise InputError(_OTHER)
    weight = np.maximum(table["nbytes"][rows].astype(np.float64), 1.0)
    total = np.bincount(span_of, weight, len(spans.phase))
    before = np.cumsum(weight) - weight
    offset = before - before[np.searchsorted(span_of, span_of)]
    table["t0"][rows] = spans.start[span_of] + spans.length[span_of] * offset / total[span_of]
    table["t1"][rows] = table["t0"][rows] + spans.length[span_of] * weight / total[span_of]


def _fill_loads(table: NDArray[np.void], spans: _Spans, codes: list[tuple[str, ...]]) -> None:
    """Give loads that are asked for while a worker computes the time up to the next one. The first K comes with Q, and
    the last turn asks for none."""
    is_last = np.append(spans.worker[1:] != spans.worker[:-1], True)
    until = np.append(spans.start[1:], 0.0)
    until[is_last] = (spans.start + spans.length)[is_last]
    which = {name: np.array([name in each for each in codes])[spans.phase] for name in ("load_Q", "load_K", "load_V")}
    which["load_K"] = (which["load_K"] | which["load_Q"]) & ~is_last
    for name, mine in which.items():
        rows = np.flatnonzero(table["phase"] == CODE[name])
        if len(rows) != mine.sum() or (spans.worker[mine] != table["worker"][rows]).any():
            raise InputError(_OTHER)
        table["t0"][rows], table["t1"][rows] = spans.start[mine], until[mine]


def _codes(phase: Phase) -> tuple[str, ...]:
    """The phases of the event table that one of the source's stands for."""
    if phase.code == "normalize":
        return ("normalize", "store_O")
    if phase.code is not None:
        return (phase.code,)
    loads = {"Qi": "load_Q", "Kj": "load_K", "Vj": "load_V"}
    return tuple(loads[name] for name in phase.names if name in loads)


__all__ = ["stamped_events", "told_once"]
