"""How many blocks an SM holds at once, and what keeps it from holding more."""

from __future__ import annotations

from dataclasses import dataclass

from fmha.hardware import KIB, Gpu
from fmha.units import ceil_div

_REGISTER_UNIT = {32: 256, 64: 512}  # registers are given to a warp of so many lanes in such steps
_PARTITIONS = 4  # of an SM; each has its share of the registers


@dataclass(frozen=True)
class Occupancy:
    """Blocks that one SM holds at once.

    blocks: by the scarcest resource, `limited_by`: "shared memory", "registers", "threads" or "blocks".
    by_resource: what each resource alone would allow. warps and max_warps: resident, and the most an SM can hold.
    """

    blocks: int
    limited_by: str
    by_resource: dict[str, int]
    warps: int
    max_warps: int

    @property
    def fraction(self) -> float:
        """Resident warps of the most that an SM can hold."""
        return self.warps / self.max_warps


def occupancy(gpu: Gpu, *, threads: int, smem_bytes: int, registers: int | None = None) -> Occupancy:
    """Blocks of `threads` threads and `smem_bytes` (static and dynamic) of shared memory that an SM of `gpu` holds.

    registers: of a thread, as the compiler reports them; None leaves them out.
    Source: the rules of NVIDIA's cuda_occupancy.h; since compute capability 8.0 the system keeps 1 KiB a block.
    On an AMD GPU a block is a work group in wavefronts of 64 lanes; LDS comes in 512 bytes, registers in steps of 8.
    """
    limits = gpu.limits
    if not gpu.is_cuda:
        unit, reserved = 512, 0
    else:
        unit, reserved = (128, KIB) if float(gpu.compute) >= 8.0 else (256, 0)
    warps = ceil_div(threads, gpu.warp)
    smem = ceil_div(smem_bytes + reserved, unit) * unit
    allowed = {
        "shared memory": limits.smem_per_sm // smem if smem else limits.blocks_per_sm,
        "threads": limits.threads_per_sm // (warps * gpu.warp),
        "blocks": limits.blocks_per_sm,
    }
    if registers is not None:
        per_warp = ceil_div(max(registers, 1) * gpu.warp, _REGISTER_UNIT[gpu.warp]) * _REGISTER_UNIT[gpu.warp]
        allowed["registers"] = limits.registers_per_sm // _PARTITIONS // per_warp * _PARTITIONS // warps
    limited_by = min(allowed, key=lambda resource: allowed[resource])
    blocks = allowed[limited_by]
    return Occupancy(blocks, limited_by, allowed, blocks * warps, limits.threads_per_sm // gpu.warp)
