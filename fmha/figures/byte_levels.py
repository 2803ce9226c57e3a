"""Bytes of one run at each memory level: predicted, and as Nsight Compute counted them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import plotly.graph_objects as go

from fmha.figures import theme
from fmha.figures.axes import byte_tick
from fmha.figures.sketch import Sketch
from fmha.kernels import SECTOR
from fmha.measurement import Entry
from fmha.problem import Problem
from fmha.traffic import compulsory_bytes
from fmha.units import format_bytes

LOADS = "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"
STORES = "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum"
L1_HITS = "l1tex__t_sectors_pipe_lsu_mem_global_op_ld_lookup_hit.sum"
L2 = "lts__t_bytes.sum"
L2_FROM_SMS = "lts__t_sectors_srcunit_tex.sum"
DRAM_READ, DRAM_WRITE = "dram__bytes_read.sum", "dram__bytes_write.sum"
WAVEFRONTS = "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum"
CONFLICTS = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum"
INSTRUCTIONS = "smsp__inst_executed.sum"
DURATION = "gpu__time_duration.sum"
WARPS = "sm__warps_active.avg.pct_of_peak_sustained_active"
WAVEFRONT = 128  # bytes that shared memory delivers at most in one wavefront


class Level(NamedTuple):
    """One level: bytes, or None where they were not read or cannot be predicted.

    role: its colour; source: where the number is from.
    """

    name: str
    nbytes: float | None
    role: str
    source: str
    predicted: bool = False


def requested_measured(entry: Entry) -> int | None:
    """Bytes of the sectors that global loads and stores asked of L1; None where they were not counted."""
    loads, stores = entry.counter(LOADS), entry.counter(STORES)
    return None if loads is None or stores is None else SECTOR * round(loads + stores)


def dram_measured(entry: Entry) -> float | None:
    """Bytes that went to and came from the memory chips; None where they were not counted."""
    read, written = entry.counter(DRAM_READ), entry.counter(DRAM_WRITE)
    return None if read is None or written is None else read + written


def levels(entry: Entry, problem: Problem) -> list[Level]:
    """From the SM outwards; what is predicted stands beside what was measured."""
    waves = entry.counter(WAVEFRONTS)
    measured, least = requested_measured(entry), compulsory_bytes(problem.replace(dtype=entry.dtype))
    return [
        Level(
            "shared memory, at most", None if waves is None else WAVEFRONT * waves, "SMEM",
            f"{WAVEFRONT} x {WAVEFRONTS}",
        ),
        Level("requested, predicted", entry.requested_bytes, "REG", "closed form", predicted=True),
        Level("requested, measured", measured, "REG", f"{SECTOR} x ({LOADS} + {STORES})"),
        Level("L2", entry.counter(L2), "L2", L2),
        Level("DRAM read", entry.counter(DRAM_READ), "HBM", DRAM_READ),
        Level("DRAM written", entry.counter(DRAM_WRITE), "HBM", DRAM_WRITE),
        Level("compulsory", least, "HBM", "Q, K, V read once, O written once", predicted=True),
    ]  # fmt: skip


def byte_levels(rows: Sequence[Level]) -> go.Figure:
    """A bar a level on a logarithmic axis; predicted ones are hatched, missing ones say so."""
    known = [level.nbytes for level in rows if level.nbytes]
    fig = Sketch("", 76 + 36 * len(rows))
    low = math.log10(min(known, default=1.0)) - 0.5
    high = math.log10(max(known, default=10.0))
    for level in rows:
        there = level.nbytes is not None
        fig.add_bar(
            y=[level.name],
            x=[level.nbytes if level.nbytes else None],
            orientation="h",
            showlegend=False,
            marker={
                "color": theme.color(level.role, 0.55 if level.predicted else 1.0),
                "line": {"color": theme.color(level.role), "width": 1},
                "pattern": theme.hatch("/" if level.predicted else ""),
            },
            hovertemplate=f"{level.name}: %{{customdata}}<br>{level.source}<extra></extra>",
            customdata=[
                f"{level.nbytes:,.0f} bytes"
                if level.nbytes is not None
                else "not predicted"
                if level.predicted
                else "not read"
            ],
        )
        fig.add_annotation(
            x=math.log10(level.nbytes) if level.nbytes else low,
            y=level.name,
            text=f" {format_bytes(level.nbytes)}"
            if there and level.nbytes is not None
            else (" not predicted" if level.predicted else " not read"),
            showarrow=False,
            xanchor="left",
        )
    step = max(1, math.ceil((high - low) / math.log10(2) / 5))
    first = math.ceil(low / math.log10(2))
    ticks = [2.0**e for e in range(first, math.floor(high / math.log10(2)) + 1, step)]
    fig.xaxis(
        type="log", title="bytes, logarithmic", range=[low, high + 0.25 * (high - low)],
        tickvals=ticks, ticktext=[byte_tick(t) for t in ticks],
    )  # fmt: skip
    fig.yaxis(categoryorder="array", categoryarray=[level.name for level in rows][::-1], showgrid=False)
    fig.update(bargap=0.3, margin={"t": 16})
    return fig.figure()
