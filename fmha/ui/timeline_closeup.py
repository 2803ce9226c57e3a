"""The Gantt chart of a timeline with its close-up: where it begins, how far it zooms, and a click that moves it."""

from __future__ import annotations

import streamlit as st

from fmha.figures import gantt
from fmha.gantt_map import View, gantt_map
from fmha.spans import first_load_us
from fmha.ui import charts, controls, timeline_words
from fmha.ui.timeline_run import Table
from fmha.units import format_time_us

KEY = "timeline"
VISITS = 5  # of a block, in a close-up that nobody has moved
LINES = 24
MOST_ZOOM = 1 << 12
SPANS = (1, 2, 4, 8, 16, 32, 64)


def _steps(zoom: int) -> float:
    """Percent of the time between two places where a close-up can begin: an eighth of what it shows."""
    return 12.5 / zoom


def picked(table: Table, zoom: int, span: int) -> None:
    """The picture was clicked: the close-up goes there."""
    place, blocks = charts.pick(KEY), table.blocks
    if place is None:
        return
    scale, _ = gantt.time_unit(blocks.span)
    middle = 100 * place[0] / scale / (blocks.span or 1.0)
    at = min(max(0.0, middle - 50 / zoom), 100 - 100 / zoom)
    first = min(max(0, place[1] - span // 2), blocks.sms - span)
    controls.assign(at=round(at / _steps(zoom)) * _steps(zoom), firstsm=first)


def _keep(name: str, most: int | float, step: int | float) -> None:
    """A place that was chosen in another close-up becomes the nearest that this one has, without a word."""
    now = controls.shown(name)
    if name in st.query_params and isinstance(now, int | float):
        near = min(max(0, round(now / step)) * step, most)
        if near != now:
            controls.assign(**{name: near})


def _window(table: Table) -> tuple[View, int]:
    """The controls of the close-up: what it shows, and how often its stretch of time goes into the whole."""
    blocks = table.blocks
    visit = float((blocks.t1 - blocks.t0).sum()) / float(blocks.visits.sum())
    zooms = [2**e for e in range(MOST_ZOOM.bit_length()) if e == 0 or blocks.span / 2**e >= 2 * visit]
    usual = max(z for z in zooms if z == 1 or blocks.span / z >= VISITS * visit)
    spans = sorted({*(n for n in SPANS if n < blocks.sms), blocks.sms})
    few = max(n for n in spans if n == 1 or (n <= 8 and n * blocks.lanes * blocks.tracks <= LINES))
    start = 100 * (first_load_us(table.events, blocks) - blocks.begin) / (blocks.span or 1.0)
    columns = st.columns(4)
    with columns[0]:
        zoom = controls.slider(
            "zoom", "Zoom into time", options=zooms, default=usual, format=lambda z: f"{z:,}x" if z > 1 else "all"
        )
    with columns[1]:
        last, step = 100 - 100 / zoom, _steps(zoom)
        _keep("at", last, step)
        at = controls.slider("at", "from, % of the time", lo=0.0, hi=last, step=step, default=start)
    with columns[2]:
        span = controls.slider("smspan", "SMs shown", options=spans, default=few)
    with columns[3]:
        _keep("firstsm", blocks.sms - span, 1)
        first = controls.slider("firstsm", "from SM", lo=0, hi=blocks.sms - span, default=0)
    begin = blocks.begin + blocks.span * at / 100
    return View(first, span, begin, begin + blocks.span / zoom), zoom


def picture(table: Table) -> None:
    """All SMs over the whole time, and below a close-up of some of them. Knows nothing but the event table."""
    above = st.container()
    view, zoom = close_up(table)
    with above:
        charts.show(
            gantt.gantt(table.picture, table.blocks, table.areas, table.waves, view), key=KEY,
            on_pick=lambda: picked(table, zoom, view.sms),
            alt=f"SMs by time. {timeline_words.headline(table)}",
        )  # fmt: skip
        st.caption(timeline_words.how_drawn(table.picture, table.blocks))


def close_up(table: Table) -> tuple[View, int]:
    """Some SMs over a stretch of time, with the controls for it: what it shows, and how often that goes into all."""
    blocks = table.blocks
    st.markdown("**Close-up**, framed above: move it with the sliders, or click where to look.")
    view, zoom = _window(table)
    near = gantt.bars(table.events, blocks, view, table.areas, table.waves)
    note = "Each bar is one event; the grey frame behind is its block. Point at a bar for its numbers."
    if near is None:
        close = gantt_map(table.events, blocks, view)
        near = gantt.gantt(close, blocks, table.areas, table.waves, height=min(440, max(160, 24 * view.sms)))
        note = f"More than {gantt.MOST_BARS:,} events: painted. " + timeline_words.how_drawn(close, blocks)
    begin, end = (format_time_us(t - blocks.begin) if t > blocks.begin else "0" for t in (view.begin, view.end))
    where = f"SM {view.first_sm}" if view.sms == 1 else f"SMs {view.first_sm} to {view.first_sm + view.sms - 1}"
    charts.show(near, key="close-up", alt=f"{where} from {begin} to {end}, phase by phase.")
    st.caption(note)
    return view, zoom


__all__ = ["KEY", "close_up", "picked", "picture"]
