"""Bytes of a loop order at each memory level: what the papers count, and what caches make of it on a GPU.

"requested" is the two-level model of `fmha.traffic`. The other levels need a kernel that runs on a GPU, and the kernels
of this app compute in fp32: naive is kernel 01 (which reads Q, K and V once for each of its 64 x 64 tiles, more than
Algorithm 0 does), q-outer is kernel 02. kv-outer has no kernel here; its L2 and DRAM bytes are those of Algorithm 1.
"""

from __future__ import annotations

from typing import Literal

from fmha.bank_kernels import smem_use
from fmha.cache_kv_outer import kv_outer_levels
from fmha.caches import q_outer_levels
from fmha.edge import dram_doubt
from fmha.errors import LimitError
from fmha.forecast import MOST_VISITS, forecast
from fmha.hardware import KIB, Gpu
from fmha.kernels import KERNELS
from fmha.levels import Levels, caches_of
from fmha.memory import smem_bytes, smem_complaint
from fmha.problem import Problem, Tiling
from fmha.tilemap import blocks_per_sm
from fmha.traffic import closed_form

Level = Literal["requested", "L2", "DRAM", "SMEM"]
LEVELS: tuple[Level, ...] = ("requested", "L2", "DRAM", "SMEM")
WAVEFRONT = 128  # bytes that the banks of an SM deliver in one turn at most
_KERNEL_OF = {"naive": "01", "q-outer": "02"}


def order_bytes(
    order: str,
    problem: Problem,
    tiling: Tiling,
    gpu: Gpu,
    level: Level,
    *,
    write_lse: bool = False,
    most: int = MOST_VISITS,
) -> float | None:
    """Bytes of one forward pass at a level, read and written; None where nothing here can say it (`fmha.edge`).

    Args:
        problem: other levels than "requested" are those of the same problem in fp32.
        write_lse: counted in requested bytes only; elsewhere it is too little to see.
        most: as `fmha.forecast.forecast`.

    Raises:
        LimitError: tiles that do not fit into the shared memory of a block, or a GPU that runs no CUDA.
    """
    if level == "requested":
        return closed_form(problem, tiling, order, write_lse=write_lse).requested_bytes
    if not gpu.is_cuda:
        raise LimitError(f"kernels here are CUDA and the {gpu.name} does not run them: choose an NVIDIA GPU.")
    p = problem.replace(dtype="fp32")
    if level == "SMEM":
        number = _KERNEL_OF.get(order)
        if number is None or KERNELS[number].complaint(p, tiling, gpu) is not None:
            return None
        return float(WAVEFRONT * smem_use(KERNELS[number], p, tiling, gpu).wavefronts)
    if level == "DRAM" and doubt(order, p, tiling, gpu):
        return None
    levels = _levels(order, p, tiling, gpu, most)
    return levels.l2 if level == "L2" else levels.dram


def doubt(order: str, problem: Problem, tiling: Tiling, gpu: Gpu) -> str:
    """Why `order_bytes` has no DRAM bytes where it has those of L2, one sentence, or ""."""
    if order != "q-outer":
        return ""
    p = problem.replace(dtype="fp32")
    return dram_doubt(p, tiling, gpu, blocks_per_sm=blocks_per_sm(p, tiling, gpu))


def _levels(order: str, p: Problem, tiling: Tiling, gpu: Gpu, most: int) -> Levels:
    if order == "naive":
        return forecast(KERNELS["01"], p, tiling, gpu, most=most).levels
    if order == "q-outer" and KERNELS["02"].complaint(p, tiling, gpu) is None:
        return forecast(KERNELS["02"], p, tiling, gpu, most=most).levels
    if complaint := smem_complaint(tiling, p.d, gpu.smem_per_block_optin, p.itemsize):
        raise LimitError(complaint)
    # Kernel 02 would need more threads than a block may have: as if fewer did the same, and shared memory alone decided
    # how many blocks an SM holds.
    smem = smem_bytes(tiling, p.d, p.itemsize) + KIB
    blocks = max(1, min(gpu.smem_per_sm // smem, gpu.limits.blocks_per_sm))
    caches = caches_of(gpu, blocks * smem)
    if order == "kv-outer":
        return kv_outer_levels(p, tiling, caches, sms=gpu.sms, blocks_per_sm=blocks)
    return q_outer_levels(p, tiling, caches, sms=gpu.sms, blocks_per_sm=blocks, most=most)
