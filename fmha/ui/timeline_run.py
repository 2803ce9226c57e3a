"""What the page *Timeline* shows: the clocked event table of the settings, and what the same clock says of others."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import streamlit as st

from fmha.dispatch import BLOCK_ORDERS
from fmha.errors import FmhaError, LimitError
from fmha.events import emit, most_events
from fmha.forecast import Forecast, forecast
from fmha.gantt_map import GanttMap, gantt_map, whole
from fmha.hardware import Gpu
from fmha.kernels import KERNELS
from fmha.makespan import dealt_us, durations_us
from fmha.measurement import Found, nearest, shipped
from fmha.memory import smem_bytes
from fmha.occupancy import Occupancy, occupancy
from fmha.problem import Problem, Tiling
from fmha.spans import Area, Blocks, Shares, blocks_of, idle_areas, shares_of, waves_of
from fmha.tile_designs import COMPILED
from fmha.timeline import MAX_BLOCKS_PER_SM, clock
from fmha.units import format_bytes, format_count

MOST_EVENTS = 1_600_000  # that are shown; N = 4,096 with 16 heads and tiles of 32 x 32 has as many
STAGES = (1, 2, 3)
KERNEL_OF = {"q-outer": "02", "naive": "01"}


@dataclass(frozen=True)
class Asked:
    """The settings. places: blocks that an SM holds at once. problem: all of it, also heads that are not shown."""

    problem: Problem
    tiling: Tiling
    order: str
    gpu: Gpu
    sms: int
    block_order: str = BLOCK_ORDERS[0]
    stages: int = 1
    places: int = 1

    def but(self, **changes: Any) -> Asked:
        """The same with other values."""
        return dataclasses.replace(self, **changes)

    @property
    def shown(self) -> Problem:
        """The first heads, as many as fit into `MOST_EVENTS`.

        Raises:
            LimitError: not even one fits.
        """
        p = self.problem
        one = most_events(p.replace(B=1, H=1, Hk=1), self.tiling, self.order)
        if one > MOST_EVENTS:
            visits = self.tiling.Tr(p) * self.tiling.Tc(p)
            raise LimitError(
                f"one head has {format_count(visits)} visits, which make up to {format_count(one)} events, and "
                f"{format_count(MOST_EVENTS)} are drawn: use larger tiles or a smaller N. The page Under the hood of "
                "HBM draws the blocks alone, for any size."
            )
        heads = MOST_EVENTS // one
        if heads >= p.B * p.H:
            return p
        return p.replace(B=heads // p.H, H=p.H, Hk=p.H) if heads >= p.H else p.replace(B=1, H=heads, Hk=heads)


@dataclass(frozen=True)
class Table:
    """A timed event table and what is read from it. All that the pictures of the page know."""

    events: Any
    blocks: Blocks
    areas: tuple[Area, ...]
    waves: tuple[tuple[float, int, int, int], ...]
    shares: Shares
    picture: GanttMap


def read_table(events: Any, sms: int) -> Table:
    """What is shown of a timed event table on `sms` SMs, whoever filled it in.

    Raises:
        InputError: times or SMs are missing.
    """
    blocks = blocks_of(events, sms)
    return Table(
        events, blocks, idle_areas(blocks), waves_of(blocks), shares_of(events, blocks),
        gantt_map(events, blocks, whole(blocks)),
    )  # fmt: skip


@st.cache_resource(max_entries=2, show_spinner=False)
def clocked(asked: Asked) -> Table:
    """The settings' event table by the clock that the player has, too.

    Raises:
        LimitError: too many events.
    """
    p = asked.shown
    events = clock(
        emit(p, asked.tiling, asked.order), asked.gpu, p.dtype, asked.sms, block_order=asked.block_order,
        blocks_per_sm=asked.places, stages=asked.stages, copy=False,
    )  # fmt: skip
    return read_table(events, asked.sms)


@st.cache_data(max_entries=64, show_spinner=False)
def lasts(one: Problem, tiling: Tiling, order: str, gpu: Gpu, block_order: str, stages: int) -> list[Any]:
    """How long each block of a head lasts, by kernel. `one`: a single head."""
    return durations_us(one, tiling, order, gpu, block_order, stages)


def takes(asked: Asked, heads: int | None = None) -> tuple[float, float]:
    """Microseconds, and share of SMs x time without a block: as `clocked`, without the events of all heads.

    heads: instead of as many as are shown.
    """
    p = asked.problem if heads else asked.shown
    alike = BLOCK_ORDERS[0] if asked.block_order != "reversed K/V" else asked.block_order
    durations = lasts(p.replace(B=1, H=1, Hk=1), asked.tiling, asked.order, asked.gpu, alike, asked.stages)
    return dealt_us(
        durations, heads or p.B * p.H, asked.sms, owns_tiles=asked.order != "kv-outer",
        block_order=asked.block_order, blocks_per_sm=asked.places,
    )  # fmt: skip


# --- what an SM holds -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Held:
    """Blocks of kernel 02's make that an SM holds, or in `why_not` why not even one; `smem`: bytes of a block."""

    found: Occupancy | None
    smem: int
    threads: int
    why_not: str = ""

    @property
    def places(self) -> int:
        """Blocks at once: at least one is drawn."""
        return max(1, min(self.found.blocks, MAX_BLOCKS_PER_SM)) if self.found else 1


def held(problem: Problem, tiling: Tiling, gpu: Gpu, stages: int) -> Held:
    """A block as kernel 02 builds it: a thread for each score; tiles in shared memory, K and V once for each stage."""
    threads = tiling.Br * tiling.Bc
    smem = smem_bytes(tiling, problem.d, problem.itemsize)
    smem += (stages - 1) * 2 * tiling.Bc * problem.d * problem.itemsize
    if threads > gpu.threads_per_block:
        return Held(None, smem, threads, f"{threads:,} threads, one for each score, where a block may have "
                    f"{gpu.threads_per_block:,}")  # fmt: skip
    if smem > gpu.smem_per_block_optin:
        return Held(None, smem, threads, f"{format_bytes(smem)} of shared memory, where a block may have "
                    f"{format_bytes(gpu.smem_per_block_optin)}")  # fmt: skip
    registers = COMPILED.get((tiling.Br, tiling.Bc)) or (60 if threads > 512 else 40)
    found = occupancy(gpu, threads=threads, smem_bytes=smem, registers=registers)
    return Held(found, smem, threads, "" if found.blocks else f"more {found.limited_by} than an SM has")


# --- the calibrated forecast, and what was measured -------------------------------------------------------------------


@st.cache_data(max_entries=64, show_spinner=False)
def foretold(number: str, problem: Problem, tiling: Tiling, gpu: Gpu, block_order: str) -> Forecast | str:
    """The forecast for a kernel, or why there is none."""
    try:
        return forecast(KERNELS[number], problem, tiling, gpu, order=block_order)
    except FmhaError as error:
        return str(error)


def recorded(asked: Asked) -> Found | None:
    """The shipped recording of exactly this problem on this GPU, by the kernel of this loop order."""
    number = KERNEL_OF.get(asked.order)
    if number is None or asked.block_order != BLOCK_ORDERS[0] or asked.problem.dtype not in KERNELS[number].dtypes:
        return None
    found = nearest(shipped(), KERNELS[number], asked.problem, asked.tiling)
    if found is None or found.differs or found.recording.device.gpu.key != asked.gpu.key:
        return None
    return found
