"""A plan says everything about a run of a kernel before it happens: launches with grid, block, shared memory and
arguments, device memory, and the bytes that the launches will request."""

from __future__ import annotations

from dataclasses import dataclass, field

from fmha.errors import TilesError
from fmha.hardware import Gpu
from fmha.memory import Slot
from fmha.problem import Problem, Tiling
from fmha.traffic import Traffic
from fmha.units import format_bytes

MAX_BLOCKS = 2**31 - 1  # of a one-dimensional grid, on every GPU since compute capability 3.0
SECTOR = 32  # bytes: what L1 asks of L2 at least
FLOATS = SECTOR // 4

STRIDES = "strides"  # the buffer [4, 3] with those of Q, K, V, O, in elements

Argument = str | int | float
Defines = dict[str, int]


@dataclass(frozen=True)
class Launch:
    """One launch of a `__global__` function on a one-dimensional grid.

    smem_bytes is the dynamic shared memory, static_smem_bytes what the function declares with a size. Arguments in
    order: a string names a buffer (LSE, key_range and strides may be null), an int is passed as int32, a float as
    float32.
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
    def strided(self) -> bool:
        """Whether the kernel takes strides: then Q, K, V may lie in memory in another order than [B, H, N, d]."""
        return all(STRIDES in launch.arguments for launch in self.launches)

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


def causal_offset(problem: Problem) -> int:
    """Kernels let row i see keys up to i + causal_offset; Nk when there is no causal mask."""
    return problem.Nk if problem.causal_offset is None else problem.causal_offset


def padded(problem: Problem) -> bool:
    """Whether the kernels are given key ranges."""
    return problem.lens_k is not None or problem.left_pad is not None


def slots(*shapes: tuple[str, tuple[int, ...]], itemsize: int = 4) -> tuple[Slot, ...]:
    """Arrays of numbers of `itemsize` bytes one after the other."""
    made, offset = [], 0
    for name, shape in shapes:
        nbytes = itemsize
        for extent in shape:
            nbytes *= extent
        made.append(Slot(name, shape, offset, nbytes))
        offset += nbytes
    return tuple(made)


def slots_bytes(slots: tuple[Slot, ...]) -> int:
    """Bytes of all of them."""
    return slots[-1].offset + slots[-1].nbytes


def check_smem(held: tuple[Slot, ...], tiling: Tiling, d: int, gpu: Gpu) -> None:
    """Whether a block may have so much shared memory on this GPU.

    Raises:
        TilesError: it may not.
    """
    need = slots_bytes(held)
    if need > gpu.smem_per_block_optin:
        raise TilesError(
            f"shared memory: Br={tiling.Br}, Bc={tiling.Bc}, d={d} needs {need / 1024:.1f} KiB; this GPU allows "
            f"{gpu.smem_per_block_optin / 1024:.0f} KiB a block"
        )
