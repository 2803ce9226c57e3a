"""Step through a kernel: one warp of one block, phase by phase and request by request, lane by lane."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import streamlit as st

from fmha.banks import BANK_BYTES, INACTIVE, WARP, WIDTHS, BankPicture, picture
from fmha.figures.bank_picture import bank_picture
from fmha.figures.lanes import Lane, lanes
from fmha.figures.sector_picture import sector_picture, sectors
from fmha.figures.touched import touched
from fmha.trace import Trace
from fmha.trace.walk import Request, Stop, Visit, visits
from fmha.ui import charts, controls, traced
from fmha.ui import trace_kept as kept
from fmha.ui.page import plain
from fmha.ui.trace_source import excerpt
from fmha.ui.trace_words import cost, pattern, phase_name, place, role_of, sits_out, where
from fmha.ui.traced import Asked
from fmha.units import ceil_div

_FIRST = "S"  # the phase that a fresh page shows: S = QK^T


@dataclass(frozen=True)
class Worker:
    """A warp of a block of a launch, and the turns of its block's loop."""

    launch: int
    block: int
    warp: int
    visits: tuple[Visit, ...]


@dataclass(frozen=True)
class Here:
    """Where the step stands."""

    worker: Worker
    visit: int
    stops: tuple[Stop, ...]
    stop: int
    request: int

    @property
    def now(self) -> Request | None:
        """The request; None where the warp only waits."""
        found = self.stops[self.stop].requests if self.stops else ()
        return found[self.request] if found else None


def choose(asked: Asked, run: Trace) -> Here:
    """The controls of the step. Errors as `fmha.ui.traced.traced`."""
    state = kept.state()
    above = st.columns(3 if asked.kernel.tiled and asked.problem.H == 1 else 4)  # one for a head to be chosen
    launch = _launch(run, above[0])
    block = _block(asked, run, launch, above[0], above[-3])
    turns = visits(run, launch, block)
    context: tuple[Any, ...] = (asked, launch, block)
    with above[-2]:
        name = "Visit" if asked.kernel.tiled else "Round of barriers"
        visit = kept.slider("visit", name, max(len(turns), 1) - 1, 0, lambda v: _visit_name(turns, v))
    warps = ceil_div(run.plan.launches[launch].block, WARP)
    with above[-1]:
        warp = kept.slider("warp", "Warp", warps - 1, 0, lambda w: f"{w} of {warps}")
    worker = Worker(launch, block, warp, turns)
    if not turns:
        return Here(worker, 0, (), 0, 0)
    stops = traced.stops(asked, launch, block, warp, turns[visit].first, turns[visit].last)
    context = (*context, visit, warp)
    if state.get("context") not in (None, context):  # the same phase there, if it has it
        same = next((i for i, s in enumerate(stops) if _maths(s) == state.get("maths")), _opening(stops))
        kept.put("phase", state.pop("phase to", same) % len(stops))
    left, right = st.columns(2)
    with left:
        stop = kept.slider("phase", "Phase", len(stops) - 1, _opening(stops), lambda s: _stop_name(stops[s]))
    requests = stops[stop].requests
    if state.get("stop") not in (None, (context, stop)):
        kept.put("req", state.pop("req to", stops[stop].worst) % max(len(requests), 1))
    with right:
        request = kept.slider(
            "req", "Request of the warp", max(len(requests), 1) - 1, stops[stop].worst,
            lambda r: f"{r + 1} of {len(requests)}" if requests else "none",
        )  # fmt: skip
    state |= {"context": context, "maths": _maths(stops[stop]), "stop": (context, stop)}
    here = Here(worker, visit, stops, stop, request)
    _buttons(here)
    return here


def _launch(run: Trace, column: Any) -> int:
    names = [launch.function for launch in run.plan.launches]
    if len(names) == 1:
        return 0
    with column:
        return names.index(controls.choice("part", "Function", names, default=names[0]))


def _block(asked: Asked, run: Trace, launch: int, left: Any, right: Any) -> int:
    """The block: a head and a Q tile, where that is what a block is."""
    grid = run.plan.launches[launch].grid
    Tr, head = asked.tiling.Tr(asked.problem), 0
    if not asked.kernel.tiled or grid != Tr * asked.problem.H:
        with right:
            return kept.slider("block", "Block", grid - 1, 0, lambda b: f"{b} of {grid}")
    if asked.problem.H > 1:
        with left:
            head = controls.slider("show", "Head shown", lo=0, hi=asked.problem.H - 1, default=0)
    with right:
        return head * Tr + kept.slider("qtile", "Worker: Q tile", Tr - 1, 0, lambda i: f"{i} of {Tr}")


def _visit_name(turns: tuple[Visit, ...], visit: int) -> str:
    tile = turns[visit].tile
    return f"{visit + 1} of {len(turns)}" + (f": K/V tile {tile}" if tile is not None else "")


def _maths(stop: Stop) -> str:
    return stop.phase.maths if stop.phase else ""


def _stop_name(stop: Stop) -> str:
    return phase_name(stop.phase, [r.line for r in stop.requests])


def _opening(stops: tuple[Stop, ...]) -> int:
    """Where a fresh page stands: `S = QK^T`, else the phase with the most expensive request."""
    named = next((i for i, s in enumerate(stops) if s.phase and s.phase.names[0] == _FIRST and s.requests), None)
    if named is not None:
        return named
    ways = [s.requests[s.worst].ways if s.requests else 0.0 for s in stops]
    return ways.index(max(ways))


def _buttons(here: Here) -> None:
    """A phase, or a request, back and on; beyond the end of a visit comes the next one."""
    turns, stops, requests = here.worker.visits, here.stops, here.stops[here.stop].requests
    last_visit, last_stop = len(turns) - 1, len(stops) - 1
    back, on = here.stop > 0 or here.visit > 0, here.stop < last_stop or here.visit < last_visit
    moves = (
        ("◀ Phase", back, "phase", -1), ("Phase ▶", on, "phase", 1),
        ("◀ Request", back or here.request > 0, "req", -1),
        ("Request ▶", on or here.request < len(requests) - 1, "req", 1),
    )  # fmt: skip
    row = st.container(horizontal=True)
    for label, possible, what, by in moves:
        row.button(label, key=f"go{what}{by}", disabled=not possible, on_click=_go, args=(here, what, by))


def _go(here: Here, what: str, by: int) -> None:
    """One step on or back."""
    state = kept.state()
    requests = here.stops[here.stop].requests
    if what == "req" and 0 <= here.request + by < len(requests):
        controls.assign(req=here.request + by)
        return
    if what == "req":
        state["req to"] = 0 if by > 0 else -1
    if 0 <= here.stop + by < len(here.stops):
        controls.assign(phase=here.stop + by)
        return
    state["phase to"] = 0 if by > 0 else -1
    controls.assign(visit=here.visit + by)


# --- what is seen -----------------------------------------------------------------------------------------------------


def show(asked: Asked, run: Trace, here: Here) -> None:
    """The request in words and pictures."""
    if not here.stops:
        st.markdown("This block does nothing between barriers.")
        return
    stop, request = here.stops[here.stop], here.now
    until = f"the barrier in line {stop.barrier}" if stop.barrier else "the end of the kernel"
    if request is None:
        st.info(f"This warp touches no memory before {until}: it waits there for the others.")
        return
    plan = run.plan.launches[here.worker.launch]
    first = WARP * here.worker.warp
    threads = min(WARP, plan.block - first)
    verb = "writes" if request.is_write else "reads"
    st.markdown(
        f"**Line {request.line} {verb} {where(request)}.** {cost(request)}{sits_out(request, threads)} Barrier "
        f"interval {stop.interval} of block {here.worker.block}, up to {until}."
    )
    if request.file == asked.kernel.file:
        excerpt(asked.kernel.source(), run.phases, request.line, around=2, key="now", change=asked.change)
    else:
        st.caption(f"The line is in {plain(request.file)}.")
    role = role_of(request.array)
    if request.space == "shared":
        drawn = _banks(request)
        _lanes(request, first, threads, role, drawn)
        left, right = st.columns([3, 2], gap="medium")
        with left:
            st.markdown("**The 32 banks:** which lanes are served in which wavefront")
            charts.show(
                bank_picture(drawn, role=role), key="banks",
                alt=f"{drawn.wavefronts} wavefronts; {drawn.least} would do without conflicts.",
            )  # fmt: skip
    else:
        moved = sectors(request.offsets, request.nbytes)
        _lanes(request, first, threads, role, None)
        left, right = st.columns([3, 2], gap="medium")
        with left:
            st.markdown(f"**Sectors,** counted from the beginning of {where(request)}: who is in which")
            charts.show(
                sector_picture(moved, role), key="sectors",
                alt=f"{len(moved)} sectors of 32 bytes move: "
                + "; ".join(f"number {s.number}, {s.used} bytes wanted" for s in moved[:8]) + ".",
            )  # fmt: skip
    with right:
        _elements(request, role)
        if said := pattern(request):
            st.markdown(said)


def _banks(request: Request) -> BankPicture:
    """The request on the banks. Elements of less than a word count as their word."""
    at = [INACTIVE if offset is None else request.first + offset for offset in request.offsets]
    if request.nbytes in WIDTHS:
        return picture(at, request.nbytes)
    return picture([x if x < 0 else x // BANK_BYTES * BANK_BYTES for x in at])


def _lanes(request: Request, first: int, threads: int, role: str, drawn: BankPicture | None) -> None:
    """The lanes in a row."""
    row = []
    for lane in range(WARP):
        thread = first + lane if lane < threads else None
        offset = request.offsets[lane]
        if offset is None:
            row.append(Lane(thread, None))
            continue
        element = place(request.element(lane))
        if drawn is None:
            sector = offset // 32
            row.append(Lane(thread, (element, f"{sector:,}"), sector % 2 == 0))
        else:
            turn = int(drawn.turn[lane, 0])
            row.append(Lane(thread, (element, str(int(drawn.bank[lane, 0])), str(turn)), turn == 0))
    what = "row, column" if len(request.shape) > 1 else "element"
    names = (what, "sector") if drawn is None else (what, "bank", "wavefront")
    html = lanes(row, names, role, f"{WARP} lanes. {plain_cost(request)}")
    st.html(html)


def plain_cost(request: Request) -> str:
    """`cost` without marks."""
    return cost(request).replace("*", "")


def _elements(request: Request, role: str) -> None:
    """Which elements of the array are touched."""
    found = [element for element in map(request.element, range(WARP)) if element is not None]
    if not found:
        st.markdown("No lane is inside an array.")
        return
    rows, columns = (1, *request.shape)[-2:]
    many = max(1, request.nbytes // request.itemsize)
    cells = [
        (element[-2] if len(element) > 1 else 0, element[-1] + n)
        for element in found for n in range(many) if element[-1] + n < columns
    ]  # fmt: skip
    size = f"{rows:,} x {columns:,}" if len(request.shape) > 1 else f"{columns:,}"
    st.markdown(f"**Elements of {where(request)}** ({size})")
    charts.show(
        touched(cells, rows, columns, role), key="touched",
        alt=f"{len(set(cells))} elements, from row {cells[0][0]}, column {cells[0][1]} to row {cells[-1][0]}, column "
        f"{cells[-1][1]}.",
    )  # fmt: skip


__all__ = ["Here", "choose", "show"]
