"""Where the model's DRAM bytes of a q-outer kernel are worth nothing, and why, in one sentence.

Under a causal mask the blocks of a head start at different times and so go over K and V at different places. All of K
and V is then in use at once. A cache that throws out what was used longest ago holds all of it or, once it is a little
too large, loses each tile just before it is needed again: between the two the prediction jumps by a factor of hundreds
with the least change, even of how many visits the model follows. Real caches replace lines less strictly: an H200 moved
331 MB for a head whose K and V take 67 MB (kernel 06, N=65,536, d=128), where the model says ten times that.

An L2 of two halves holds half again as much before it comes to that, because each use by either half keeps a line
(`fmha.caches`): up to there, 35 MB of K and V on an H200, the prediction was within 15 % with blocks in their own
order, and up to 20 % too low where the longest go first.
"""

from __future__ import annotations

from fmha.hardware import Gpu
from fmha.levels import caches_of
from fmha.problem import Problem, Tiling
from fmha.units import ceil_div, format_bytes

EDGE = 0.75  # of L2; the rest is for Q, O and K/V of heads that begin and end
TWO_HALVES = 1.5  # as much where L2 has two halves


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
    """Why DRAM bytes of a q-outer kernel cannot be predicted here, one sentence; "" where they can.

    Args:
        order, blocks_per_sm: as `in_use_bytes`.
        l2_bytes: another size of L2 than the GPU's; with 0 nothing is held and nothing in doubt.
    """
    room = gpu.l2_bytes if l2_bytes is None else l2_bytes
    used, heads = in_use_bytes(problem, tiling, gpu, order, blocks_per_sm)
    copies = caches_of(gpu, 0).copies
    if problem.causal_offset is None or not room or used <= EDGE * room * (TWO_HALVES if copies > 1 else 1):
        return ""
    whose = "a head" if heads == 1 else f"{heads} heads"
    twice = f", {copies} copies" if copies > 1 else ""
    return (
        f"DRAM bytes cannot be predicted here: under the causal mask all of K and V of {whose} is in use at once "
        f"({format_bytes(used)}{twice}), which is too much for the {format_bytes(room)} of L2, and there the model "
        "jumps between all and nothing; use a smaller N, or no mask."
    )
