"""SMs x time: what each SM does when. Painted cell by cell for a whole run, bar by bar for a close-up."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from fmha.events import PHASES
from fmha.figures import theme
from fmha.figures.sketch import Sketch
from fmha.gantt_map import FIRST_PHASE, GanttMap, View, blocks_in, rows_in, track_of, whole
from fmha.spans import Area, Blocks
from fmha.units import format_bytes, format_time_us

MOST_BARS = 2000  # of a close-up that is drawn bar by bar: more take the browser too long
_ABOVE, _BELOW = 66, 54  # pixels: legend and names of waves; ticks and title
_CLEAR = "rgba(0,0,0,0)"
_WAITS = "rgba(128,136,150,0.3)"
_INK, _HALO = "#20242c", "rgba(255,255,255,0.85)"  # of lines over coloured cells, on any ground
HATCH = {"shape": "/", "fillmode": "overlay", "fgcolor": theme.NEUTRAL, "fgopacity": 0.6, "size": 8, "solidity": 0.18}
_LETTER, _TALL = 0.011, 16  # of the width, pixels: a name is drawn where it fits
_APART, _TOLD = 0.006, 0.07  # of the width: closer lines are left out, and closer words

Wave = tuple[float, int, int, int]


def role_of(phase: int) -> str:
    """The role of the theme whose colour a phase has: its tensor's, as in the player."""
    what = PHASES[phase]
    if what.code in ("m", "P", "softmax"):
        return "m" if what.code == "m" else "alpha"
    return {"P": "S", "LSE": "l"}.get(what.tensor, what.tensor)


def role_words(phases: Sequence[int]) -> dict[str, str]:
    """What the colours of these phases are called, in the order of the phases."""
    codes = [PHASES[p].code for p in phases]
    both = {"O": "O", "l": "l", "m": "max m", "alpha": "softmax" if "softmax" in codes else "exp, sum"}
    both["S"] = "S and P" if "store_S" in codes else "scores S"
    return {role: both.get(role, f"load {role}") for role in dict.fromkeys(role_of(p) for p in phases)}


def time_unit(span_us: float) -> tuple[float, str]:
    """(units in a microsecond, name): the largest unit of which a time axis has at least twenty."""
    for scale, name in ((1e-3, "ms"), (1.0, "\N{MICRO SIGN}s")):
        if span_us * scale >= 20:
            return scale, name
    return 1e3, "ns"


def _axes(fig: Sketch, blocks: Blocks, view: View, pixels: int) -> None:
    """Time to the right, SMs from above to below."""
    scale, unit = time_unit(view.end - view.begin)
    every = next(n for n in (1, 2, 4, 8, 16, 32, 64, 128, 4096) if pixels * n / view.sms >= 20)
    ticks = [sm for sm in range(view.first_sm, view.first_sm + view.sms) if sm % every == 0]
    span = [(t - blocks.begin) * scale for t in (view.begin, view.end)]
    fig.xaxis(title=f"time, {unit}", range=span, showgrid=False, zeroline=False, tickformat=",", automargin=False)
    fig.yaxis(
        title="SM", tickvals=ticks, range=[view.first_sm + view.sms - 0.5, view.first_sm - 0.5], showgrid=False,
        zeroline=False,
    )  # fmt: skip
    legend = {"itemclick": False, "itemdoubleclick": False, "y": 1 + 24 / pixels}
    margin = {"t": _ABOVE, "b": _BELOW, "r": 12}
    fig.update(barmode="overlay", margin=margin, showlegend=True, legend=legend)


def _waves(fig: Sketch, blocks: Blocks, view: View, waves: Sequence[Wave]) -> None:
    """A dashed line where a wave begins, a solid one where a kernel does, and their names where there is room."""
    scale, _ = time_unit(view.end - view.begin)
    several, span = any(kernel for _, kernel, *_ in waves), view.end - view.begin
    line_at = word_at = view.begin - span
    for t, kernel, wave, _ in waves:
        if not view.begin <= t < view.end:
            continue
        x = (t - blocks.begin) * scale
        if t > blocks.begin and (t - line_at >= _APART * span or (several and wave == 0)):
            line_at = t
            fig.add_vline(x, {"color": _HALO, "width": 4})
            fig.add_vline(x, {"color": _INK, "width": 1.6, "dash": "solid" if several and wave == 0 else "4px,3px"})
        if (t - word_at >= _TOLD * span or (several and wave == 0)) and not (several and wave):
            word_at = t
            fig.add_label(
                x, 1, f"kernel {kernel + 1}" if several else f"wave {wave + 1}", yref="y domain", yanchor="bottom",
                xanchor="left", font={"size": 13},
            )  # fmt: skip


def _idle(fig: Sketch, blocks: Blocks, view: View, areas: Sequence[Area], lanes: int) -> None:
    """Places without a block, hatched; `lanes` of an SM's places are drawn."""
    scale, _ = time_unit(view.end - view.begin)
    low, high = view.first_sm * lanes, (view.first_sm + view.sms) * lanes - 1
    least = (view.end - view.begin) / 1000
    boxes = []
    for area in areas:
        begin, end = max(area.begin, view.begin), min(area.end, view.end)
        (sm, lane), (last_sm, last_lane) = divmod(area.first, blocks.lanes), divmod(area.last, blocks.lanes)
        first = max(low, sm * lanes + min(lane, lanes))
        last = min(high, last_sm * lanes + min(last_lane, lanes - 1))
        if end - begin > least and first <= last:
            boxes.append((begin, end, first, last))
    fig.add_bar(  # not to be pointed at: a click is for the cell below, which knows its moment
        orientation="h", name="idle", hoverinfo="skip",
        base=[(b - blocks.begin) * scale for b, *_ in boxes] or [None],
        x=[(e - b) * scale for b, e, *_ in boxes] or [None],
        y=[(first + last + 1) / 2 / lanes - 0.5 for *_, first, last in boxes] or [None],
        width=[(last - first + 1) / lanes for *_, first, last in boxes] or None,
        marker={"color": _CLEAR, "pattern": HATCH, "line": {"width": 0}},
    )  # fmt: skip


def _legend(fig: Sketch, words: Iterable[tuple[str, str]]) -> None:
    """Squares with a colour and a name."""
    for name, color in words:
        marker = {"symbol": "square", "size": 12, "color": color}
        fig.add_scatter(x=[None], y=[None], mode="markers", name=name, marker=marker, hoverinfo="skip")


def gantt(
    drawn: GanttMap,
    blocks: Blocks,
    areas: Sequence[Area],
    waves: Sequence[Wave],
    frame: View | None = None,
    height: int | None = None,
) -> go.Figure:
    """The cells of `drawn`, with waves marked and idle places hatched.

    Args:
        blocks, areas, waves: of the same events (`fmha.spans`). frame: what a close-up shows, framed here.
        height: of the cells together, in pixels; None: by their number.
    """
    view = View(drawn.first_sm, drawn.sms, drawn.begin, drawn.end)
    rows, columns = drawn.cells.shape
    fine = 2 if 560 // 2 < rows <= 320 else max(1, min(28, 560 // rows))
    pixels = fine * rows if height is None else height  # whole pixels for a row, or rows would blend
    fig = Sketch("", pixels + _ABOVE + _BELOW)
    scale, unit = time_unit(view.end - view.begin)
    step, high = (view.end - view.begin) * scale / columns, drawn.sms / rows
    colors = [_CLEAR, _WAITS, *(theme.color(role_of(p)) for p in range(len(PHASES)))]
    fig.add_heatmap(
        z=drawn.cells, x0=(view.begin - blocks.begin) * scale + step / 2, dx=step,
        y0=view.first_sm - 0.5 + high / 2, dy=high,
        zmin=-0.5, zmax=len(colors) - 0.5, showscale=False, ygap=1 if pixels >= 7 * rows else 0,
        colorscale=[[e, c] for i, c in enumerate(colors) for e in (i / len(colors), (i + 1) / len(colors))],
        hovertemplate=f"SM %{{y:.0f}} at %{{x:,.4~g}} {unit}<extra></extra>",
    )  # fmt: skip
    fig.layout["meta"] = {"z": ["idle", "waits", *(phase.maths for phase in PHASES)]}  # for its numbers as CSV
    present = set(np.flatnonzero(np.bincount(drawn.cells.ravel(), minlength=len(colors))).tolist())
    words = role_words([p for p in blocks.phases if FIRST_PHASE + p in present])
    _legend(fig, [(word, theme.color(role)) for role, word in words.items()])
    if 1 in present:
        _legend(fig, [("waits", _WAITS)])
    _idle(fig, blocks, view, areas, drawn.lanes)
    _waves(fig, blocks, view, waves)
    _axes(fig, blocks, view, pixels)
    if frame is not None and frame != whole(blocks):
        x0, x1 = ((t - blocks.begin) * scale for t in (frame.begin, frame.end))
        y0, y1 = frame.first_sm - 0.5, frame.first_sm + frame.sms - 0.5
        for color, width in ((_HALO, 6), (_INK, 2.5)):
            fig.add_shape(type="rect", x0=x0, x1=x1, y0=y0, y1=y1, line={"color": color, "width": width})
    return fig.figure()


def bars(
    events: NDArray[np.void], blocks: Blocks, view: View, areas: Sequence[Area], waves: Sequence[Wave]
) -> go.Figure | None:
    """Every event in view as a bar with its name; None where there are more than `MOST_BARS`."""
    rows, block = rows_in(events, blocks, view)
    if len(rows) > MOST_BARS:
        return None
    lines = view.sms * blocks.lanes * blocks.tracks
    pixels = max(120, min(440, 36 * lines))
    fig = Sketch("", pixels + _ABOVE + _BELOW)
    _backs(fig, blocks, view)
    what, phase = events[rows], events["phase"][rows]
    line = blocks.lane[block] * blocks.tracks + track_of(blocks, phase)
    y = blocks.sm[block] - 0.5 + (line + 0.5) / (blocks.lanes * blocks.tracks)
    scale, _ = time_unit(view.end - view.begin)
    begin, end = np.maximum(what["t0"], view.begin), np.minimum(what["t1"], view.end)
    letters = (end - begin) / (_LETTER * (view.end - view.begin))  # that a bar is wide
    names = [_name(event) for event in what]
    tall = pixels >= _TALL * lines
    texts = [
        name if tall and len(name) + 0.5 <= room else "" for name, room in zip(names, letters.tolist(), strict=True)
    ]
    role = np.array([role_of(p) for p in range(len(PHASES))])[phase]
    for name, word in role_words([p for p in blocks.phases if p in set(phase.tolist())]).items():
        mine = np.flatnonzero(role == name)
        fig.add_bar(
            orientation="h", name=word, base=((begin[mine] - blocks.begin) * scale).tolist(),
            x=((end[mine] - begin[mine]) * scale).tolist(), y=y[mine].tolist(),
            width=0.82 / (blocks.lanes * blocks.tracks),
            marker={
                "color": theme.color(name), "line": {"width": (0.6 * (letters[mine] > 1)).tolist(), "color": _HALO}
            },
            text=[texts[k] for k in mine], textposition="inside", insidetextanchor="middle",
            textangle=0, insidetextfont={"size": 13}, cliponaxis=True,
            customdata=[_told(what[k]) for k in mine], hovertemplate="%{customdata}<extra></extra>",
        )  # fmt: skip
    _idle(fig, blocks, view, areas, blocks.lanes)
    _waves(fig, blocks, view, waves)
    _axes(fig, blocks, view, pixels)
    fig.update(uniformtext={"mode": "hide", "minsize": 10})  # on a narrow screen fewer names fit
    return fig.figure()


def _backs(fig: Sketch, blocks: Blocks, view: View) -> None:
    """Behind the events: each block from its first to its last, so that waiting is seen."""
    scale, _ = time_unit(view.end - view.begin)
    shown = blocks_in(blocks, view)
    begin, end = np.maximum(blocks.t0[shown], view.begin), np.minimum(blocks.t1[shown], view.end)
    y = blocks.sm[shown] - 0.5 + (blocks.lane[shown] + 0.5) / blocks.lanes
    fig.add_bar(
        orientation="h", name="a block", base=((begin - blocks.begin) * scale).tolist() or [None],
        x=((end - begin) * scale).tolist() or [None], y=y.tolist() or [None], width=0.94 / blocks.lanes,
        marker={"color": _WAITS, "line": {"width": 1, "color": theme.NEUTRAL}},
        customdata=[f"worker {w}" for w in blocks.worker[shown].tolist()], hovertemplate="%{customdata}<extra></extra>",
    )  # fmt: skip


def _name(event: np.void) -> str:
    """A short name: K3 for the load of K/V tile 3, else the letter of what is computed."""
    what = PHASES[event["phase"]]
    if what.is_load:
        return f"{what.tensor}{event['i'] if what.tensor in ('Q', 'O', 'l', 'm') else event['j']}"
    if what.is_store:
        return f"store{'' if what.tensor == 'O' else ' ' + what.tensor}"
    return {"softmax": "P", "O_norm": "O", "PV": "O", "normalize": "O / l"}.get(what.code, what.code)


def _told(event: np.void) -> str:
    """What an event is, for those who point at it."""
    what: Any = PHASES[event["phase"]]
    tile = f", K/V tile {event['j']}" if event["j"] >= 0 else ""
    amount = f", {format_bytes(event['nbytes'])}" if event["nbytes"] else ""
    return (
        f"<b>{what.maths}</b><br>SM {event['sm']}, worker {event['worker']}: "
        f"head {event['h']}, Q tile {event['i']}{tile}"
        f"<br>{format_time_us(float(event['t0']))} to {format_time_us(float(event['t1']))}{amount}"
    )
