"""Where the model's DRAM bytes of kernel 02 are worth nothing, and why, in one sentence.

Under a causal mask the blocks of a head start at different times and so go over K and V at different places. All of K
and V is then in use at once. A cache that throws out what was used longest ago holds all of it or, once it is a little
too large, loses each tile just before it is needed again: between the two the prediction jumps by a factor of hundreds
with the least change, even of how many visits the model follows. Real caches replace lines less strictly, and no
counters have been read there, so nothing is said.
"""

from __future__ import annotations

from fmha.hardware import Gpu
from fmha.levels import caches_of
from fmha.problem import Problem, Tiling
from fmha.units import ceil_div, format_bytes

EDGE = 0.75  # of L2; the rest is for Q, O and K/V of heads that begin and end


def in_use_bytes(
    problem: Problem, tiling: Tiling, gpu: Gpu, order: str = "head-major", blocks_per_sm: int = 1
) -> tuple[int, int]:
    """Bytes of K and V, and their copies in L2, of the heads whose blocks run at once; and how many heads these are.

    Args:
        order: of the blocks, one of `fmha.dispatch.BLOCK_ORDERS`.
        blocks_per_sm: blocks that an SM holds at once.
    """
    p = problem
    slots = gpu.sms * max(1, blocks_per_sm)
    running = p.B * p.H if order == "tile-major" else ceil_div(slots, max(1, tiling.Tr(p)))
    heads = min(p.B * p.Hk, max(1, ceil_div(running, p.group)))
    return heads * caches_of(gpu, 0).copies * 2 * p.Nk * p.d * p.itemsize, heads


def dram_doubt(
    problem: Problem,
    tiling: Tiling,
    gpu: Gpu,
    order: str = "head-major",
    *,
    blocks_per_sm: int = 1,
    l2_bytes: int | None = None,
) -> str:
    """Why DRAM bytes of kernel 02 cannot be predicted here, one sentence; "" where they can.

    Args:
        order, blocks_per_sm: as `in_use_bytes`.
        l2_bytes: another size of L2 than the GPU's; with 0 nothing is held and nothing in doubt.
    """
    room = gpu.l2_bytes if l2_bytes is None else l2_bytes
    used, heads = in_use_bytes(problem, tiling, gpu, order, blocks_per_sm)
    if problem.causal_offset is None or not room or used <= EDGE * room:
        return ""
    copies = caches_of(gpu, 0).copies
    whose = "a head" if heads == 1 else f"{heads} heads"
    twice = f", {copies} copies" if copies > 1 else ""
    return (
        f"DRAM bytes cannot be predicted here: under the causal mask all of K and V of {whose} is in use at once "
        f"({format_bytes(used)}{twice}), which is near or beyond the {format_bytes(room)} of L2, and there the model "
        "jumps between all and nothing; use a smaller N, or no mask."
    )
