"""The hierarchical roofline: what each memory level and each arithmetic unit lets a kernel do at best.

A kernel that does F FLOPs and moves X bytes at a level of bandwidth W cannot do more than (F / X) W FLOPs a second;
F / X is its *arithmetic intensity* at that level. The least of these and of the arithmetic peak is its bound, and the
roof that gives the least is the one that binds.

Bytes at a level: HBM and L2 as in `fmha.traffic` or as counted by the hardware; SMEM is 128 bytes for each wavefront of
the banks, so that a bank conflict, which wastes a turn, counts as the bytes that the turn could have delivered.

Source of the idea: Williams, Waterman, Patterson, "Roofline", CACM 2009; one roof a level: Yang, Kurth, Williams 2020.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from fmha.bank_kernels import smem_wavefronts
from fmha.banks import BANK_BYTES, BANKS
from fmha.errors import FmhaError
from fmha.hardware import Gpu
from fmha.kernels import KERNELS
from fmha.measurement import Entry, Recording, Run
from fmha.problem import Problem, Tiling
from fmha.schedule import Order
from fmha.speeds import useful_flops
from fmha.traffic import closed_form
from fmha.units import format_number

LEVELS = ("SMEM", "L2", "HBM")
ORDERS: tuple[Order, ...] = ("naive", "kv-outer", "q-outer")
WAVEFRONT_BYTES = BANKS * BANK_BYTES
SECTOR_BYTES = 32
_KERNEL_OF = {"naive": "01", "q-outer": "02"}

SMEM_WAVEFRONTS = "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum"
L2_SECTORS = "lts__t_sectors_srcunit_tex.sum"
DRAM_READ, DRAM_WRITE = "dram__bytes_read.sum", "dram__bytes_write.sum"


@dataclass(frozen=True)
class Roof:
    """A limit of a GPU. level: "SMEM", "L2", "HBM" with `rate` in GB/s; or a dtype with `rate` in TFLOP/s.

    note: where the number is from, when it is derived.
    """

    level: str
    rate: float
    note: str = ""

    @property
    def is_memory(self) -> bool:
        """A bandwidth; otherwise an arithmetic peak."""
        return self.level in LEVELS

    def tflops(self, intensity: float) -> float:
        """What this roof allows at an arithmetic intensity (FLOPs a byte of its level), TFLOP/s."""
        return intensity * self.rate / 1e3 if self.is_memory else self.rate


def roofs(gpu: Gpu, dtypes: Iterable[str] = ("fp32",)) -> tuple[Roof, ...]:
    """Bandwidths of `gpu`, and its peaks for `dtypes`: "fp32" of the vector units, others of the matrix units.

    What is not known (an L2 bandwidth) or does not exist (fp8 on an A100) is left out.
    """
    found = [Roof("SMEM", gpu.smem_gbps, "derived: bytes a clock and SM, at the boost clock")]
    if gpu.l2_gbps is not None:
        found.append(Roof("L2", gpu.l2_gbps, f"derived, at the boost clock: {gpu.l2_source}"))
    found.append(Roof("HBM", gpu.hbm_gbps))
    found += [Roof(dtype, gpu.peak_tflops(dtype)) for dtype in dtypes if gpu.peak_tflops(dtype)]
    return tuple(found)


def ridge(memory: Roof, arithmetic: Roof) -> float:
    """The intensity at which the two roofs meet, FLOPs a byte: below it the memory binds."""
    return arithmetic.rate * 1e3 / memory.rate


@dataclass(frozen=True)
class Point:
    """One kernel on one problem.

    name: a loop order or a kernel's number. flops: useful ones. nbytes: by level; a level may be missing. dtype: which
    arithmetic peak it is held against. time_us: measured; None for a prediction. origin: where the bytes come from.
    """

    name: str
    label: str
    dtype: str
    flops: int
    nbytes: Mapping[str, float]
    origin: str
    time_us: float | None = None

    def intensity(self, level: str) -> float | None:
        """FLOPs a byte of a level; None where its bytes are not known or it moves none."""
        moved = self.nbytes.get(level)
        return self.flops / moved if moved else None

    @property
    def tflops(self) -> float | None:
        """Measured TFLOP/s; None for a prediction."""
        return None if self.time_us is None else self.flops / self.time_us / 1e6


@dataclass(frozen=True)
class Bound:
    """What the roofs allow a point. limits: TFLOP/s by roof, the least first."""

    point: Point
    limits: tuple[tuple[Roof, float], ...]

    @property
    def binds(self) -> Roof:
        """The roof that allows least."""
        return self.limits[0][0]

    @property
    def tflops(self) -> float:
        """The most that this kernel could do, TFLOP/s."""
        return self.limits[0][1]

    @property
    def time_us(self) -> float:
        """The least time that it could take, microseconds."""
        return self.point.flops / self.tflops / 1e6

    @property
    def reached(self) -> float | None:
        """Measured TFLOP/s as a share of the bound; None for a prediction."""
        return None if self.point.tflops is None else self.point.tflops / self.tflops

    def sentence(self) -> str:
        """Which roof binds, in words."""
        second = (
            f"; next is {self.limits[1][0].level} at {format_number(self.limits[1][1])}" if len(self.limits) > 1 else ""
        )
        what = "bandwidth" if self.binds.is_memory else "arithmetic peak"
        got = "" if self.reached is None else f", and it reaches {100 * self.reached:.0f} % of that"
        return f"{self.binds.level} {what} binds: at most {format_number(self.tflops)} TFLOP/s{second}{got}."


def bound(point: Point, gpu: Gpu) -> Bound:
    """The roofs over a point, the least first."""
    limits = []
    for roof in roofs(gpu, (point.dtype,)):
        intensity = point.intensity(roof.level) if roof.is_memory else 0.0
        if intensity is not None:
            limits.append((roof, roof.tflops(intensity)))
    return Bound(point, tuple(sorted(limits, key=lambda limit: limit[1])))


def predicted(
    problem: Problem, tiling: Tiling, gpu: Gpu, nbytes: Mapping[str, Mapping[str, float]] | None = None
) -> tuple[Point, ...]:
    """Points of naive attention, kv-outer and q-outer for a problem.

    Args:
        nbytes: order -> level -> bytes, from a better model. Without it L2 and HBM get the requested bytes, the
            papers' two-level model; caches only make them fewer. SMEM is that of this app's kernel of the order, where
            there is one that can run the problem.
    """
    points = []
    for order in ORDERS:
        moved = closed_form(problem, tiling, order)
        levels: dict[str, float] = {"L2": moved.requested_bytes, "HBM": moved.requested_bytes}
        wavefronts = _wavefronts(problem, tiling, order, gpu)
        if wavefronts is not None:
            levels["SMEM"] = WAVEFRONT_BYTES * wavefronts
        better = (nbytes or {}).get(order, {})
        origin = "predicted by the cache model" if better else "predicted: requested bytes (two-level model)"
        flops = useful_flops(problem)
        points.append(Point(order, order, problem.dtype, flops, {**levels, **better}, origin))
    return tuple(points)


def _wavefronts(problem: Problem, tiling: Tiling, order: Order, gpu: Gpu) -> int | None:
    """Of this app's kernel of a loop order; None where there is none or it cannot run the problem."""
    if order not in _KERNEL_OF:
        return None
    try:
        return smem_wavefronts(KERNELS[_KERNEL_OF[order]], problem, tiling, gpu)
    except FmhaError:
        return None


def recorded(recordings: Iterable[Recording]) -> tuple[tuple[Point, Gpu], ...]:
    """Every recorded kernel that has a time and counters, with the GPU it ran on, in the order of the files."""
    found = []
    for recording in recordings:
        for run in recording.runs:
            for entry in run.entries:
                point = measured(run, entry)
                if point is not None:
                    found.append((point, recording.device.gpu))
    return tuple(found)


def measured(run: Run, entry: Entry) -> Point | None:
    """A recorded kernel's point; None without a time or without counters."""
    sectors, read, write = (entry.counter(name) for name in (L2_SECTORS, DRAM_READ, DRAM_WRITE))
    wavefronts = entry.counter(SMEM_WAVEFRONTS)
    if not entry.is_kernel or entry.time is None or sectors is None or read is None or write is None:
        return None
    nbytes = {"L2": SECTOR_BYTES * sectors, "HBM": read + write}
    if wavefronts is not None:
        nbytes["SMEM"] = WAVEFRONT_BYTES * wavefronts
    tiles = f", {entry.tiling[0]} x {entry.tiling[1]}" if entry.tiling else ""
    p = run.problem
    label = f"{entry.name} {entry.title}{tiles}: N={p.Nq}, d={p.d}{', causal' if p.causal else ''}"
    return Point(entry.name, label, entry.dtype, useful_flops(p), nbytes, "counters", entry.time.median_us)
