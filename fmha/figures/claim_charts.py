"""Small charts for the papers' claims: a curve with its fitted power, memory against tokens, ratios in a band, SRAM."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import plotly.graph_objects as go

from fmha.figures import theme
from fmha.figures.axes import token_axis
from fmha.figures.sketch import Sketch
from fmha.problem import Tiling
from fmha.units import format_count

_MARKS = ("circle", "square", "diamond", "triangle-up")


def block_sizes(sizes: Sequence[int], gigabytes: Sequence[float], shown: Sequence[int], height: int = 320) -> go.Figure:
    """GB that Algorithm 1's forward pass moves against Bc. shown: the sizes that the paper's figure has, marked."""
    fig = Sketch("Algorithm 1, forward pass", height)
    fig.add_scatter(
        x=list(sizes), y=list(gigabytes), name="counted", mode="lines",
        line={"color": theme.color("kv-outer"), "width": 4, "shape": "hv"},
        hovertemplate="Bc = %{x}: %{y:.2f} GB<extra></extra>",
    )  # fmt: skip
    marked = [(x, y) for x, y in zip(sizes, gigabytes, strict=True) if x in shown]
    fig.add_scatter(
        x=[x for x, _ in marked], y=[y for _, y in marked], name="block sizes of the paper's figure",
        mode="markers+text", text=[f"{y:.2f}" for _, y in marked], textposition="top right",
        marker={"symbol": theme.SYMBOLS["kv-outer"], "size": 12, "color": theme.color("kv-outer")},
        hovertemplate="Bc = %{x}: %{y:.2f} GB<extra></extra>",
    )  # fmt: skip
    ticks = [x for x in sizes if x in shown]
    low, high = math.log10(min(sizes)), math.log10(max(sizes))
    fig.xaxis(
        title="Bc, keys in a K/V tile", type="log", tickvals=ticks, ticktext=[str(x) for x in ticks],
        range=[low - 0.03, high + 0.03],
    )  # fmt: skip
    fig.yaxis(title="GB", rangemode="tozero", range=[0, 1.15 * max(gigabytes)])
    fig.update(margin={"t": 84})
    return fig.figure()


def power_law(
    x: Sequence[int], y: Sequence[float], slope: float, wanted: float, names: tuple[str, str], height: int = 320
) -> go.Figure:
    """Counted points, logarithmic both ways, the fitted power law through them, and the theorem's slope beside it.

    names: of the two axes.
    """
    fig = Sketch("Counted and fitted", height)
    middle = sum(math.log(v) for v in x) / len(x), sum(math.log(v) for v in y) / len(y)

    def line(power: float) -> list[float]:
        return [math.exp(middle[1] + power * (math.log(v) - middle[0])) for v in x]

    fig.add_scatter(
        x=list(x), y=line(wanted), name=f"exponent {wanted:g} (theorem)", mode="lines",
        line={"color": theme.NEUTRAL, "width": 7, "dash": "dot"}, hoverinfo="skip",
    )  # fmt: skip
    fig.add_scatter(
        x=list(x), y=line(slope), name=f"exponent {slope:.3f} (fitted)", mode="lines",
        line={"color": theme.color("kv-outer"), "width": 3}, hoverinfo="skip",
    )  # fmt: skip
    fig.add_scatter(
        x=list(x), y=list(y), name="counted", mode="markers",
        marker={"symbol": theme.SYMBOLS["kv-outer"], "size": 12, "color": theme.color("kv-outer")},
        hovertemplate="%{x:,}: %{y:.4s}<extra></extra>",
    )  # fmt: skip
    fig.xaxis(title=names[0], type="log", tickvals=list(x), ticktext=[f"{v:,}" for v in x])
    fig.yaxis(title=names[1], type="log", tickvals=list(y), ticktext=[format_count(v) for v in y])
    fig.update(margin={"t": 84})
    return fig.figure()


def memory_tokens(
    lengths: Sequence[int],
    ours: Mapping[str, Sequence[float]],
    theirs: Mapping[str, Sequence[float]],
    ceiling: float,
    height: int = 380,
) -> go.Figure:
    """MB against tokens, logarithmic: lines are ours, markers the paper's. Keys "naive" and "kv-outer".

    theirs may be shorter than lengths: beyond it the paper ran out of memory. ceiling: MB of the card.
    """
    fig = Sketch("Memory of forward and backward", height)
    names = {"naive": "standard", "kv-outer": "FlashAttention"}
    for order, values in ours.items():
        fig.add_scatter(
            x=list(lengths), y=list(values), name=f"{names[order]}, ours", mode="lines",
            line={"color": theme.color(order), "width": 4, "dash": theme.DASHES[order]},
            hovertemplate="%{x:,} tokens: %{y:,.0f} MB<extra></extra>",
        )  # fmt: skip
        known = theirs[order]
        fig.add_scatter(
            x=list(lengths)[: len(known)], y=list(known), name=f"{names[order]}, paper", mode="markers",
            marker={"symbol": theme.SYMBOLS[order], "size": 11, "color": theme.color(order)},
            hovertemplate="%{x:,} tokens: %{y:,.0f} MB in the paper<extra></extra>",
        )  # fmt: skip
    fig.add_hline(y=ceiling, line={"color": theme.color("HBM"), "width": 3})
    fig.add_label(
        0.01, math.log10(ceiling), f"<b>the card: {ceiling:,.0f} MB</b>", xref="x domain", xanchor="left",
        yanchor="bottom",
    )  # fmt: skip
    fig.xaxis(**token_axis(lengths, "tokens"))
    top = max(max(v) for v in ours.values())
    exponents = range(1, math.ceil(math.log10(top)) + 1)
    fig.yaxis(title="MB (2^20 bytes)", type="log", tickvals=[10.0**e for e in exponents],
              ticktext=[f"{10**e:,}" for e in exponents])  # fmt: skip
    fig.update(margin={"t": 108})
    return fig.figure()


class Ratio(NamedTuple):
    """A recorded quotient. group: what the legend calls its kind."""

    n: int
    group: str
    value: float


def ratios_band(points: Sequence[Ratio], low: float, high: float, title: str, height: int = 360) -> go.Figure:
    """Quotients against N over the range that a paper names, [low, high]."""
    fig = Sketch(title, height)
    lengths = sorted({p.n for p in points})
    fig.add_shape(
        type="rect", xref="x domain", x0=0, x1=1, y0=low, y1=high, line={"width": 0},
        fillcolor=theme.color("ok", 0.18), layer="below",
    )  # fmt: skip
    fig.add_label(
        0.01, high, f"the paper's range, {low:g}x to {high:g}x", xref="x domain", xanchor="left", yanchor="bottom"
    )
    roles = ("Q", "K", "V", "S")
    for i, group in enumerate(dict.fromkeys(p.group for p in points)):
        here = sorted((p for p in points if p.group == group), key=lambda p: p.n)
        style: dict[str, Any] = {"symbol": _MARKS[i % 4], "size": 11, "color": theme.color(roles[i % 4])}
        fig.add_scatter(
            x=[p.n for p in here], y=[p.value for p in here], name=group, mode="markers", marker=style,
            hovertemplate="N = %{x:,}: %{y:.2f}x<extra>" + group + "</extra>",
        )  # fmt: skip
    fig.xaxis(**token_axis(lengths or [1]))
    fig.yaxis(title="times as fast", range=[0, 1.15 * max([high, *(p.value for p in points)])])
    fig.update(margin={"t": 96})
    return fig.figure()


class Fill(NamedTuple):
    """A choice of tiles as a row of the picture. title: its name."""

    title: str
    tiling: Tiling


def blocks(tiling: Tiling, d: int) -> dict[str, int]:
    """Elements of the blocks that Algorithm 1 works on: Kj, Vj of Bc rows, Qi, Oi of Br rows, Sij of Br x Bc."""
    Br, Bc = tiling.Br, tiling.Bc
    return {"K": Bc * d, "V": Bc * d, "Q": Br * d, "O": Br * d, "S": Br * Bc}


def sram_blocks(fills: Sequence[Fill], d: int, M: int, height: int = 300) -> go.Figure:
    """Blocks as shares of M, one bar for each choice of tiles; the line is where the SRAM is full."""
    fig = Sketch("Blocks in SRAM, as shares of M", height)
    names = {"K": "Kj", "V": "Vj", "Q": "Qi", "O": "Oi", "S": "Sij"}
    parts = [blocks(fill.tiling, d) for fill in fills]
    widest = max(sum(part.values()) for part in parts) / M
    for role, name in names.items():
        shares = [part[role] / M for part in parts]
        fig.add_bar(
            y=[fill.title for fill in fills], x=shares, name=name, orientation="h",
            marker={"color": theme.color(role), "pattern": theme.hatch(theme.PATTERNS.get(role, ""))},
            text=[f"{name} {100 * s:.0f} %" if s > 0.09 * widest else "" for s in shares],
            textposition="inside", insidetextanchor="middle", textangle=0, textfont={"color": "#ffffff"},
            hovertemplate=f"{name}: %{{x:.1%}} of M<extra></extra>",
        )  # fmt: skip
    fig.add_vline(x=1.0, line={"color": theme.color("warn"), "width": 4, "dash": "dash"})
    fig.add_annotation(
        x=1.0, y=1.0, yref="y domain", text="<b>SRAM is full</b>", showarrow=False, yanchor="bottom", xanchor="center",
        font={"color": theme.color("warn")},
    )  # fmt: skip
    fig.xaxis(tickformat=".0%", range=[0, max(1.2, 1.08 * widest)])
    fig.yaxis(categoryorder="array", categoryarray=[fill.title for fill in fills][::-1], showgrid=False)
    fig.update(barmode="stack", bargap=0.3, margin={"t": 108}, legend={"traceorder": "normal", "y": 1.1})
    return fig.figure()


__all__ = [
    "Fill", "Ratio", "block_sizes", "blocks", "memory_tokens", "power_law", "ratios_band",
    "sram_blocks",
]  # fmt: skip
