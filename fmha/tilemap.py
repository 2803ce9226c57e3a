"""Every pair of tile sizes for one design, problem and GPU: can it be, what does it move, how long does it take.

`tile_map` fills a grid of cells, Br down and Bc across. What a cell says:

- whether these tiles can be, or the first thing that forbids them (`fmha.tile_designs`);
- requested bytes, exact (`fmha.traffic.closed_form`, q-outer);
- blocks and warps that an SM holds (`fmha.occupancy`);
- the least time that the roofs allow, for FlashAttention's designs; for kernels of this app times and L2 bytes come
  from a model that the caller hands in;
- TFLOP/s as recorded on the same GPU for the same problem.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Literal, NamedTuple

from fmha.bank_kernels import smem_wavefronts
from fmha.caches import q_outer_l2
from fmha.dispatch import Waves
from fmha.errors import ProblemError
from fmha.forecast import pace_of
from fmha.hardware import KIB, Gpu
from fmha.kernels import KERNELS
from fmha.levels import caches_of
from fmha.measurement import Recording, read
from fmha.occupancy import Occupancy, occupancy
from fmha.problem import Problem, Tiling
from fmha.speeds import tflops
from fmha.tile_designs import DESIGNS, Design, Need
from fmha.traffic import Traffic, closed_form, compulsory_bytes
from fmha.units import ceil_div

Metric = Literal["requested", "l2", "time", "occupancy", "recorded"]
BASE_SIZES = (8, 16, 32, 64, 128, 256)
SWEEPS = Path(__file__).resolve().parent / "recorded" / "tiles"


@lru_cache(maxsize=1)
def sweeps() -> tuple[Recording, ...]:
    """Recordings of one kernel with many tiles that come with the app, by file name."""
    return tuple(read(path.read_bytes(), path.name) for path in sorted(SWEEPS.glob("*.json")))


class Predicted(NamedTuple):
    """What a model says of a run: bytes asked of L2, and microseconds; None: it was not asked."""

    l2_bytes: float | None = None
    time_us: float | None = None


Model = Callable[[Tiling], Predicted]


@dataclass(frozen=True)
class Cell:
    """One pair of tile sizes.

    requested_bytes, held, waves (blocks over the places for them): None where the tiles cannot be. l2_bytes, time_us:
    predicted; None: there is no model for it. tflops: recorded; None: not recorded.
    """

    tiling: Tiling
    need: Need
    requested_bytes: int | None = None
    held: Occupancy | None = None
    waves: Waves | None = None
    l2_bytes: float | None = None
    time_us: float | None = None
    tflops: float | None = None

    @property
    def runs(self) -> bool:
        """Whether these tiles can be."""
        return not self.need.why_not

    def value(self, metric: Metric) -> float | None:
        """The number of a metric: bytes, microseconds, share of warps, TFLOP/s; None where there is none."""
        values = {
            "requested": self.requested_bytes, "l2": self.l2_bytes, "time": self.time_us,
            "occupancy": self.held.fraction if self.held else None, "recorded": self.tflops,
        }  # fmt: skip
        return values[metric] if self.runs else None


@dataclass(frozen=True)
class TileMap:
    """The cells of a grid: `cells[i][j]` has Br = rows[i] and Bc = columns[j]."""

    design: Design
    problem: Problem
    gpu: Gpu
    rows: tuple[int, ...]
    columns: tuple[int, ...]
    cells: tuple[tuple[Cell, ...], ...]

    def at(self, Br: int, Bc: int) -> Cell:
        """The cell of a tile.

        Raises:
            ProblemError: the tile is not on the grid.
        """
        if Br not in self.rows or Bc not in self.columns:
            raise ProblemError(
                f"Br={Br}, Bc={Bc} is not on this map: choose Br of {self.rows} and Bc of {self.columns}."
            )
        return self.cells[self.rows.index(Br)][self.columns.index(Bc)]

    def best(self, metric: Metric) -> Cell | None:
        """The possible cell with the fewest bytes, the least time, or the most of the others; None without values.

        Of equals, the one with the least shared memory.
        """
        sign = -1 if metric in ("occupancy", "recorded") else 1
        known = [cell for row in self.cells for cell in row if cell.value(metric) is not None]
        return min(known, key=lambda c: (sign * (c.value(metric) or 0.0), c.need.smem_bytes), default=None)

    def refused(self) -> dict[str, int]:
        """How many cells each reason forbids."""
        counts: dict[str, int] = {}
        for cell in (cell for row in self.cells for cell in row if not cell.runs):
            counts[cell.need.why_not] = counts.get(cell.need.why_not, 0) + 1
        return counts


def tile_map(
    design: str,
    problem: Problem,
    gpu: Gpu,
    rows: Sequence[int] = BASE_SIZES,
    columns: Sequence[int] = BASE_SIZES,
    *,
    model: Model | None = None,
    recordings: Iterable[Recording] = (),
) -> TileMap:
    """The map of a design.

    Args:
        design: a key of `fmha.tile_designs.DESIGNS`.
        problem: in a dtype of the design.
        model: L2 bytes and time of the tiles that can be; without it kernels of this app have neither, and
            FlashAttention's designs have the least time that the roofs allow.
        recordings: where a kernel's speeds are looked up.

    Raises:
        ProblemError: unknown design, or one that does not compute in this dtype.
    """
    if design not in DESIGNS:
        raise ProblemError(f"design={str(design)[:40]!r} is not known: use {', '.join(DESIGNS)}.")
    chosen = DESIGNS[design]
    if problem.dtype not in chosen.dtypes:
        raise ProblemError(f"{chosen.title} computes in {' or '.join(chosen.dtypes)}, not in {problem.dtype}.")
    speeds = _recorded(design, problem, gpu, recordings) if design in KERNELS else {}

    def cell(tiling: Tiling) -> Cell:
        need = chosen.needs(problem, tiling, gpu)
        if need.why_not:
            return Cell(tiling, need)
        registers = need.allocated or need.registers
        held = occupancy(gpu, threads=need.threads, smem_bytes=need.smem_bytes, registers=registers)
        if not held.blocks:
            said = f"{need.threads:,} threads of {registers} registers are more than an SM has"
            return Cell(tiling, replace(need, why_not=held.limited_by, sentence=said))
        moved = closed_form(problem, tiling, "q-outer")
        waves = Waves(tiling.Tr(problem) * problem.B * problem.H, gpu.sms * held.blocks)
        l2 = time = None
        if model is not None:
            l2, time = model(tiling)
        elif design not in KERNELS:
            time = least_time_us(problem, tiling, gpu, moved)
        speed = speeds.get((tiling.Br, tiling.Bc))
        return Cell(tiling, need, moved.requested_bytes, held, waves, l2, time, speed)

    cells = tuple(tuple(cell(Tiling(Br, Bc)) for Bc in columns) for Br in rows)
    return TileMap(chosen, problem, gpu, tuple(rows), tuple(columns), cells)


def blocks_per_sm(problem: Problem, tiling: Tiling, gpu: Gpu) -> int:
    """Blocks of kernel 02 that an SM holds at once, at least 1."""
    need = DESIGNS["02"].needs(problem, tiling, gpu)
    held = occupancy(gpu, threads=need.threads, smem_bytes=need.smem_bytes, registers=need.allocated or need.registers)
    return max(1, held.blocks)


def asked_of_l2(problem: Problem, tiling: Tiling, gpu: Gpu, most: int) -> float:
    """Bytes that kernel 02 asks of L2 and stores to it: `fmha.forecast`'s, without DRAM and time.

    Args:
        most: visits that the model of the caches follows, see `fmha.caches.q_outer_l2`.

    Raises:
        LimitError: a problem with too many rows, see `fmha.lockstep.reach`.
    """
    need, blocks = DESIGNS["02"].needs(problem, tiling, gpu), blocks_per_sm(problem, tiling, gpu)
    caches = caches_of(gpu, blocks * (need.smem_bytes + KIB))
    kernel = KERNELS["02"]
    wavefronts = smem_wavefronts(kernel, problem, tiling, gpu)
    pace = pace_of(kernel, kernel.plan(problem, tiling, gpu), gpu, blocks, wavefronts)
    return q_outer_l2(problem, tiling, caches, sms=gpu.sms, blocks_per_sm=blocks, pace=pace, most=most)


def least_time_us(problem: Problem, tiling: Tiling, gpu: Gpu, moved: Traffic) -> float:
    """No kernel with these tiles can be faster, microseconds: arithmetic, L2 and device memory at their peaks.

    Arithmetic counts whole visited tiles, and SMs that have one block fewer than the busiest wait for it. L2 serves all
    requested bytes (only where its bandwidth is known), device memory the compulsory ones.
    """
    blocks = tiling.Tr(problem) * problem.B * problem.H
    uneven = ceil_div(blocks, gpu.sms) * gpu.sms / blocks
    peak = gpu.peak_tflops(problem.dtype)
    times = [compulsory_bytes(problem) / gpu.hbm_gbps / 1e3]
    if peak:
        times.append(moved.flops / peak / 1e6 * uneven)
    if gpu.l2_gbps:
        times.append(moved.requested_bytes / gpu.l2_gbps / 1e3)
    return max(times)


def _recorded(kernel: str, problem: Problem, gpu: Gpu, recordings: Iterable[Recording]) -> dict[tuple[int, int], float]:
    """Useful TFLOP/s of a kernel by (Br, Bc), recorded on `gpu` for this very problem and checked to be right."""
    speeds: dict[tuple[int, int], float] = {}
    for recording in recordings:
        if recording.device.gpu.key != gpu.key:
            continue
        for run in recording.runs:
            for entry in run.entries:
                if _alike(run.problem.replace(dtype=entry.dtype)) != _alike(problem):
                    continue
                right = entry.check is not None and entry.check.ok and not entry.stale
                if entry.name == kernel and entry.tiling and entry.time and right:
                    speeds[entry.tiling] = tflops(problem, entry.time.median_us)
    return speeds


def _alike(problem: Problem) -> Problem:
    """The same work: without padding and shared K and V it does not matter which heads are of one batch entry."""
    p = problem
    if p.Hk != p.H or p.lens_k is not None or p.left_pad is not None:
        return p
    return p.replace(B=1, H=p.B * p.H, Hk=p.B * p.H)
