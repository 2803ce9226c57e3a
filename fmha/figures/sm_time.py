"""Small charts about the time of SMs: how many are at work, waves, what binds, how settings compare."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import plotly.graph_objects as go

from fmha.dispatch import Floats, Ints
from fmha.events import PHASES
from fmha.figures import theme
from fmha.figures.gantt import HATCH, role_of, role_words, time_unit
from fmha.figures.sketch import Sketch
from fmha.spans import Blocks
from fmha.units import format_time_us

HEIGHT = 230
_WORKS = "rgba(128,136,150,0.45)"
_MOST_WAVES = 12
_NAMED, _NUMBERED = 15.0, 7.0  # percent: shorter pieces have no name in them, or no number either


def working(moments: Floats, sms_at_work: Ints, blocks: Blocks, starving: float) -> go.Figure:
    """SMs with a block against time; what is missing to all of them is hatched.

    Args:
        moments, sms_at_work: when the number changes, and what it is from then on. starving: when the tail begins.
    """
    scale, unit = time_unit(blocks.span)
    fig = Sketch("", HEIGHT)
    x = np.concatenate([[blocks.begin], moments, [blocks.end]]) - blocks.begin
    y = np.concatenate([[0], sms_at_work, [sms_at_work[-1]]])
    fig.add_scatter(
        x=x * scale, y=y, mode="lines", line={"shape": "hv", "width": 2, "color": theme.NEUTRAL}, fill="tozeroy",
        fillcolor=_WORKS, name="at work", hovertemplate=f"%{{y}} SMs at work at %{{x:,.4~g}} {unit}<extra></extra>",
    )  # fmt: skip
    fig.add_scatter(
        x=x * scale, y=np.full(len(x), blocks.sms), mode="lines", line={"width": 0, "color": theme.NEUTRAL},
        fill="tonexty", fillcolor="rgba(128,136,150,0.04)", name="idle", hoverinfo="skip",
        fillpattern=HATCH,
    )  # fmt: skip
    if blocks.begin < starving < blocks.end:
        fig.add_vline((starving - blocks.begin) * scale, {"color": theme.color("warn"), "width": 2, "dash": "dash"})
    fig.xaxis(title=f"time, {unit}", range=[0, blocks.span * scale], showgrid=False, zeroline=False, tickformat=",")
    fig.yaxis(title="SMs", range=[0, blocks.sms * 1.04], zeroline=False)
    fig.update(margin={"t": 34})
    return fig.figure()


def wave_bars(sizes: Sequence[int], places: int) -> go.Figure:
    """Blocks in each wave of a kernel, the last `_MOST_WAVES` of them; what is missing to a full wave is hatched."""
    first = max(0, len(sizes) - _MOST_WAVES)
    shown = list(sizes)[first:]
    names = [f"{first + k + 1:,}" for k in range(len(shown))]
    fig = Sketch("", HEIGHT)
    place = list(range(len(shown)))
    fig.add_bar(
        x=place, y=shown, name="blocks", marker={"color": _WORKS, "line": {"width": 1, "color": theme.NEUTRAL}},
        hovertemplate="%{y:,} blocks<extra></extra>",
    )  # fmt: skip
    for x, size in zip(place, shown, strict=True):  # not text of the bars, whose colour takes no notice of the ground
        fig.add_label(x, size / 2, f"{size:,}", font={"size": 13})
    fig.add_bar(
        x=place, y=[places - size for size in shown], name="empty places", hovertemplate="%{y:,} empty<extra></extra>",
        marker={"color": "rgba(0,0,0,0)", "pattern": HATCH, "line": {"width": 1, "color": theme.NEUTRAL}},
    )  # fmt: skip
    title = "wave" if not first else f"wave (the first {first:,} are full)"
    fig.xaxis(title=title, tickvals=place, ticktext=names, showgrid=False, zeroline=False)
    fig.yaxis(title="blocks", range=[0, places * 1.04], zeroline=False)
    fig.update(barmode="stack", bargap=0.25, margin={"t": 34})
    return fig.figure()


def phase_shares(blocks: Blocks) -> go.Figure:
    """What places do with their time: loads in one bar, the rest in another, each from 0 to 100 %."""
    total = blocks.by_phase.sum(axis=0) / (blocks.span * blocks.places or 1.0) * 100
    fig = Sketch("", HEIGHT)
    lines = ("loads", "computes, stores")
    words, seen = role_words(blocks.phases), set[str]()
    for row, line in enumerate(lines):
        phases = [p for p in blocks.phases if PHASES[p].is_load == (row == 0)]
        for role in dict.fromkeys(role_of(p) for p in phases):
            mine = [p for p in phases if role_of(p) == role]
            share, word = float(sum(total[p] for p in mine)), words[role]
            fig.add_bar(
                orientation="h", y=[line], x=[share], name=word, showlegend=word not in seen, legendgroup=word,
                text=[_written(word, share)], textposition="inside", textangle=0,
                insidetextanchor="middle", insidetextfont={"size": 13}, constraintext="none",
                marker={"color": theme.color(role), "line": {"width": 0}},
                hovertemplate=f"{word}: %{{x:.1f}} %<extra></extra>",
            )  # fmt: skip
            seen.add(word)
    fig.xaxis(title=f"% of {'SMs' if blocks.lanes == 1 else 'places'} x time", range=[0, 100])
    fig.yaxis(autorange="reversed", showgrid=False)
    fig.update(barmode="stack", bargap=0.25, showlegend=False, margin={"t": 10})
    return fig.figure()


def _written(word: str, share: float) -> str:
    """What stands in a piece of so many percent."""
    return f"{word}<br>{share:.0f} %" if share >= _NAMED else f"{share:.0f} %" if share >= _NUMBERED else ""


def total_bars(times_us: Mapping[str, float], chosen: str, order: str) -> go.Figure:
    """A bar a setting, as long as the run takes; the chosen one is strong. order: the loop order, for its colour."""
    fig = Sketch("", 70 + 42 * max(2, len(times_us)))
    scale, unit = time_unit(max(times_us.values()))
    fig.add_bar(
        orientation="h", y=list(times_us), x=[t * scale for t in times_us.values()], showlegend=False,
        text=[format_time_us(t) for t in times_us.values()], textposition="outside", cliponaxis=False,
        marker={"color": [theme.color(order, 1.0 if k == chosen else 0.45) for k in times_us], "line": {"width": 0}},
        hovertemplate="%{y}: %{text}<extra></extra>",
    )  # fmt: skip
    longest = max(times_us.values()) * scale
    fig.xaxis(title=f"time, {unit}", range=[0, 1.3 * longest or 1.0], zeroline=False, tickformat=",", nticks=5)
    fig.yaxis(autorange="reversed", showgrid=False)
    fig.update(bargap=0.3, margin={"t": 10})
    return fig.figure()


def resource_bars(by_resource: Mapping[str, int], limited_by: str) -> go.Figure:
    """Blocks that an SM could hold by each resource alone; the scarcest one decides."""
    fig = Sketch("", 70 + 34 * len(by_resource))
    fig.add_bar(
        orientation="h", y=list(by_resource), x=list(by_resource.values()), showlegend=False,
        text=[f"{n:,}{' (decides)' if name == limited_by else ''}" for name, n in by_resource.items()],
        textposition="outside", cliponaxis=False,
        marker={
            "color": [theme.color("warn") if name == limited_by else _WORKS for name in by_resource],
            "line": {"width": 1, "color": theme.NEUTRAL},
        },
        hovertemplate="%{y}: %{x:,}<extra></extra>",
    )  # fmt: skip
    fig.xaxis(title="blocks an SM could hold", range=[0, 1.35 * max(1, *by_resource.values())], zeroline=False)
    fig.yaxis(autorange="reversed", showgrid=False)
    fig.update(bargap=0.3, margin={"t": 10})
    return fig.figure()


class Compared(NamedTuple):
    """One time: what it is, microseconds, and whether it was measured."""

    name: str
    time_us: float
    measured: bool = False


def compared(rows: Sequence[Compared], order: str) -> go.Figure:
    """Times on one logarithmic axis, each with its number: an open mark is computed, a filled one measured."""
    fig = Sketch("", 90 + 44 * len(rows))
    logs = [math.log10(row.time_us) for row in rows]
    low, high = min(logs), max(logs)
    pad = max(0.35, 0.3 * (high - low))
    fig.add_scatter(
        x=[row.time_us for row in rows], y=[row.name for row in rows], mode="markers+text", showlegend=False,
        text=[f"  {format_time_us(row.time_us)}" for row in rows], textposition="middle right", cliponaxis=False,
        marker={
            "size": 15, "symbol": ["diamond" if row.measured else "circle-open" for row in rows],
            "color": theme.color(order), "line": {"width": 3, "color": theme.color(order)},
        },
        hovertemplate="%{y}: %{text}<extra></extra>",
    )  # fmt: skip
    leads = (1, 2, 5) if high - low < 1 else (1,)
    scale = [lead * 10.0**e for e in range(math.floor(low - pad), math.ceil(high + pad) + 1) for lead in leads]
    fig.xaxis(
        title="time (logarithmic)", type="log", range=[low - pad / 3, high + pad], tickvals=scale,
        ticktext=[format_time_us(t).replace(".00", "").replace(".0", "") for t in scale],
    )  # fmt: skip
    fig.yaxis(autorange="reversed", showgrid=False)
    fig.update(margin={"t": 10})
    return fig.figure()
