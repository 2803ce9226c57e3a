"""The one list of kernels: number, name, what changed, source file, limits, and the plan of a run.

A *plan* says everything about a run before it happens: launches with grid, block, shared memory and arguments, device
memory, and the bytes that the launches will request. The GPU runs plans; pages and the command line show them.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from fmha.errors import LimitError, ProblemError
from fmha.hardware import DEFAULT_GPU, GPUS, Gpu
from fmha.memory import Slot, smem_bytes, smem_complaint, smem_layout
from fmha.problem import Problem, Tiling
from fmha.schedule import Order
from fmha.traffic import Traffic, closed_form
from fmha.units import ceil_div, format_bytes

SOURCES = Path(__file__).resolve().parent.parent / "cuda_src"
MAX_BLOCKS = 2**31 - 1  # of a one-dimensional grid, on every GPU since compute capability 3.0
SECTOR = 32  # bytes: what L1 asks of L2 at least
_FLOATS = SECTOR // 4

Argument = str | int | float
Defines = dict[str, int]


@dataclass(frozen=True)
class Launch:
    """One launch of a `__global__` function on a one-dimensional grid.

    smem_bytes is the dynamic shared memory, static_smem_bytes what the function declares with a size. Arguments in
    order: a string names a buffer (LSE and key_range may be null), an int is passed as int32, a float as float32.
    """

    function: str
    grid: int
    block: int
    smem_bytes: int
    arguments: tuple[Argument, ...]
    smem: tuple[Slot, ...]
    static_smem_bytes: int = 0


@dataclass(frozen=True)
class Plan:
    """A run of a kernel, decided before anything is launched.

    scratch: further device buffers by name, in bytes. requested: bytes and FLOPs that the launches ask for.
    whole_sectors: whether every warp asks for whole 32-byte sectors; then the hardware counts exactly these bytes, and
    otherwise more, because it moves sectors (padding given by lens_k or left_pad adds the reading of the lengths).
    """

    problem: Problem
    tiling: Tiling
    defines: Defines
    launches: tuple[Launch, ...]
    requested: Traffic
    whole_sectors: bool
    scratch: dict[str, int] = field(default_factory=dict)

    @property
    def device_bytes(self) -> int:
        """Device memory that must be free: Q, K, V, O, LSE and what the kernel keeps beside them."""
        p = self.problem
        tensors = (2 * p.B * p.H * p.Nq + 2 * p.B * p.Hk * p.Nk) * p.d * p.itemsize
        return tensors + p.B * p.H * p.Nq * 4 + 8 * p.B + sum(self.scratch.values())

    def memory_complaint(self, free_bytes: int) -> str | None:
        """Why the run does not fit into `free_bytes` of device memory; None when it fits."""
        if self.device_bytes <= free_bytes:
            return None
        held = ", ".join(f"{name} {format_bytes(size)}" for name, size in self.scratch.items())
        return (
            f"device memory: this run needs {format_bytes(self.device_bytes)}"
            f"{f' ({held})' if held else ''} and {format_bytes(free_bytes)} are free: use a smaller N, fewer heads "
            "or a smaller batch."
        )


Planner = Callable[["Kernel", Problem, Tiling, Gpu, bool], Plan]


@dataclass(frozen=True)
class Kernel:
    """One rung of the ladder.

    tiled: whether Br and Bc are chosen by the person who runs it; otherwise `tile` says what it uses.
    """

    number: str
    name: str
    title: str
    changed: str
    file: str
    order: Order
    planner: Planner
    dtypes: tuple[str, ...] = ("fp32",)
    max_d: int = 256
    tiled: bool = True
    tile: str = ""

    @property
    def path(self) -> Path:
        """The source file."""
        return SOURCES / self.file

    def plan(self, problem: Problem, tiling: Tiling, gpu: Gpu = GPUS[DEFAULT_GPU], *, write_lse: bool = False) -> Plan:
        """What a run of this kernel on `gpu` is made of.

        Raises:
            ProblemError: the kernel has no such dtype or head dimension. LimitError: more threads, shared memory or
            blocks than the GPU allows.
        """
        if problem.dtype not in self.dtypes:
            raise ProblemError(
                f"kernel {self.number} ({self.name}) computes in {' or '.join(self.dtypes)}, not in {problem.dtype}: "
                f"choose dtype {self.dtypes[0]}."
            )
        if problem.d > self.max_d:
            raise ProblemError(
                f"kernel {self.number} ({self.name}) takes head dimensions d up to {self.max_d}, not {problem.d}: "
                f"choose d={self.max_d} or less."
            )
        plan = self.planner(self, problem, tiling, gpu, write_lse)
        for launch in plan.launches:
            if launch.grid > MAX_BLOCKS:
                raise LimitError(
                    f"{launch.function} needs {launch.grid:,} blocks, and a grid has at most {MAX_BLOCKS:,}: "
                    "use a smaller N, fewer heads or a smaller batch."
                )
        return plan

    def complaint(self, problem: Problem, tiling: Tiling, gpu: Gpu) -> str | None:
        """Why this kernel cannot run this problem with these tiles on `gpu`; None when it can."""
        try:
            self.plan(problem, tiling, gpu)
        except (ProblemError, LimitError) as error:
            return str(error)
        return None

    def source(self) -> str:
        """The text of the source file."""
        return self.path.read_text(encoding="utf-8")

    def source_hash(self) -> str:
        """Twelve hexadecimal digits that change when the source or a header of ours that it includes does."""
        digest = hashlib.sha256()
        for path in included(self.path):
            digest.update(path.name.encode() + b"\0" + path.read_bytes().replace(b"\r\n", b"\n") + b"\0")
        return digest.hexdigest()[:12]


def included(path: Path) -> tuple[Path, ...]:
    """`path` and the headers that it includes by a name in quotation marks, and theirs, each once."""
    found: dict[Path, None] = {path: None}
    todo = [path]
    while todo:
        here = todo.pop()
        for name in re.findall(r'^\s*#\s*include\s+"([^"]+)"', here.read_text(encoding="utf-8"), re.MULTILINE):
            header = here.parent / name
            if header.is_file() and header not in found:
                found[header] = None
                todo.append(header)
    return tuple(found)


def causal_offset(problem: Problem) -> int:
    """Kernels let row i see keys up to i + causal_offset; Nk when there is no causal mask."""
    return problem.Nk if problem.causal_offset is None else problem.causal_offset


def _threads(tiling: Tiling, d: int, gpu: Gpu) -> int:
    """One thread for each element of Sij, or a LimitError that names tiles which fit in every way."""
    threads = tiling.Br * tiling.Bc
    if threads > gpu.threads_per_block:
        Br, Bc = tiling.Br, tiling.Bc
        while Br * Bc > 1 and (
            Br * Bc > gpu.threads_per_block or smem_bytes(Tiling(Br, Bc), d) > gpu.smem_per_block_optin
        ):
            Br, Bc = (Br, ceil_div(Bc, 2)) if Bc >= Br else (ceil_div(Br, 2), Bc)
        raise LimitError(
            f"threads: Br={tiling.Br}, Bc={tiling.Bc} needs {threads:,} threads, one for each element of Sij, and a "
            f"block has at most {gpu.threads_per_block:,}; try Br={Br}, Bc={Bc}."
        )
    return threads


def _fmha101(kernel: Kernel, problem: Problem, tiling: Tiling, gpu: Gpu, write_lse: bool) -> Plan:
    p = problem
    threads = _threads(tiling, p.d, gpu)
    if complaint := smem_complaint(tiling, p.d, gpu.smem_per_block_optin):
        raise LimitError(complaint)
    slots = smem_layout(tiling, p.d)
    launch = Launch(
        "fmha101",
        grid=tiling.Tr(p) * p.B * p.H,
        block=threads,
        smem_bytes=slots[-1].offset + slots[-1].nbytes,
        arguments=(
            "Q", "K", "V", "O", "LSE", "key_range", p.H, p.Hk, p.Nq, p.Nk, p.d, float(p.scale), causal_offset(p),
        ),
        smem=slots,
    )  # fmt: skip
    requested = closed_form(p, tiling, "q-outer", write_lse=write_lse)
    whole = p.d % _FLOATS == 0 and threads % _FLOATS == 0 and not write_lse and not _padded(p)
    return Plan(p, tiling, {"BR": tiling.Br, "BC": tiling.Bc}, (launch,), requested, whole)


# Of 01_naive.cu.
_TILE, _CHUNK, _GEMM_THREADS, _ROW_THREADS = 64, 32, 256, 256


def _naive(kernel: Kernel, problem: Problem, tiling: Tiling, gpu: Gpu, write_lse: bool) -> Plan:
    p = problem
    heads = p.B * p.H
    pitch = ceil_div(p.Nk, _FLOATS) * _FLOATS  # rows of S and P begin at a sector
    Tr, Tc, Td = ceil_div(p.Nq, _TILE), ceil_div(pitch, _TILE), ceil_div(p.d, _TILE)
    warps = 4 * _ROW_THREADS // 32
    held = min(pitch, (gpu.smem_per_block_optin - 2 * warps) // 4)
    rows = _slots(("Qi", (_TILE, _CHUNK + 1)), ("Kj", (_TILE, _CHUNK + 1)))
    output = _slots(("Pij", (_TILE, _CHUNK + 1)), ("Vj", (_CHUNK, _TILE)))
    # Largest and sum across the block are two functions, so `warps` is there twice.
    softmax = _slots(("warps of max", (_ROW_THREADS // 32,)), ("warps of sum", (_ROW_THREADS // 32,)), ("row", (held,)))
    launches = (
        Launch(
            "naive_scores", heads * Tr * Tc, _GEMM_THREADS, 0,
            ("Q", "K", "S", "key_range", p.H, p.Hk, p.Nq, p.Nk, p.d, pitch, float(p.scale), causal_offset(p)),
            rows, _size(rows),
        ),
        Launch(
            "naive_softmax", heads * p.Nq, _ROW_THREADS, 4 * held, ("S", "P", "LSE", pitch, held), softmax, 2 * warps
        ),
        Launch(
            "naive_output", heads * Tr * Td, _GEMM_THREADS, 0,
            ("P", "V", "O", p.H, p.Hk, p.Nq, p.Nk, p.d, pitch), output, _size(output),
        ),
    )  # fmt: skip
    matrix = 4 * heads * p.Nq * pitch
    again = 4 * heads * p.Nq * (pitch - held)  # of rows too long for SMEM, in each of two more passes
    queries, keys = 4 * heads * p.Nq * p.d, 4 * heads * p.Nk * p.d
    moved = {
        "Q": (Tc * queries, 0),
        "K": (Tr * keys, 0),
        "V": (Tr * keys, 0),
        "S": (matrix + 2 * again, matrix),
        "P": (Td * matrix, matrix),
        "O": (0, queries),
    }
    if write_lse:
        moved["LSE"] = (0, 4 * heads * p.Nq)
    requested = Traffic("naive", "plan of the kernel", moved, 0, 4 * heads * p.Nq * p.Nk * p.d)
    whole = p.d % _FLOATS == 0 and not write_lse and not _padded(p)
    return Plan(p, tiling, {}, launches, requested, whole, {"S": matrix, "P": matrix})


def _padded(problem: Problem) -> bool:
    """Whether the kernels are given key ranges."""
    return problem.lens_k is not None or problem.left_pad is not None


def _slots(*shapes: tuple[str, tuple[int, ...]]) -> tuple[Slot, ...]:
    """Arrays of floats one after the other."""
    slots, offset = [], 0
    for name, shape in shapes:
        nbytes = 4
        for extent in shape:
            nbytes *= extent
        slots.append(Slot(name, shape, offset, nbytes))
        offset += nbytes
    return tuple(slots)


def _size(slots: tuple[Slot, ...]) -> int:
    return slots[-1].offset + slots[-1].nbytes


KERNELS: dict[str, Kernel] = {
    kernel.number: kernel
    for kernel in (
        Kernel(
            "01",
            "naive",
            "Naive attention",
            "Three kernels; S and P go through HBM.",
            "01_naive.cu",
            "naive",
            _naive,
            max_d=4096,
            tiled=False,
            tile="tiles of 64 x 64, whatever Br and Bc are",
        ),
        Kernel(
            "02",
            "fmha101",
            "The tutorial's kernel",
            "One kernel; K and V come in tiles, S and P stay in the SM (online softmax).",
            "02_fmha101.cu",
            "q-outer",
            _fmha101,
        ),
    )
}


def kernel(name: str) -> Kernel:
    """A kernel by number ("02", "2") or name ("fmha101").

    Raises:
        ProblemError: there is none of that name; the text lists them.
    """
    text = str(name).strip().lower()
    for number, found in KERNELS.items():
        if text in (number, number.lstrip("0"), found.name):
            return found
    known = ", ".join(f"{k.number} ({k.name})" for k in KERNELS.values())
    raise ProblemError(f"kernel={str(name)[:40]!r} is not known: use {known}.")


def previous(kernel: Kernel) -> Kernel | None:
    """The kernel one rung below; None for the first."""
    numbers = list(KERNELS)
    index = numbers.index(kernel.number)
    return KERNELS[numbers[index - 1]] if index else None


__all__ = [
    "KERNELS",
    "MAX_BLOCKS",
    "SECTOR",
    "Argument",
    "Kernel",
    "Launch",
    "Plan",
    "causal_offset",
    "included",
    "kernel",
    "previous",
]
