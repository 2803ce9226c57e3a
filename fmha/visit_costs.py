"""What one visit of a K/V tile asks of an SM, by a block of kernels 03 to 13: counted from their sources.

Instructions are those of warps. Beside the terms that scale with the tiles, machine code has a few for addresses and
loops; their numbers here are nvcc 13.0's for sm_90, read from the loop over K/V tiles (cuobjdump -sass).
"""

from __future__ import annotations

from typing import NamedTuple

from fmha.plan import Plan
from fmha.units import ceil_div

ON_TENSOR_CORES = ("08", "09", "10", "11", "12", "13")
ONE_SCORE = ("03", "04", "05")  # one thread for each score of a tile
COSTED = (*ONE_SCORE, "06", "07", *ON_TENSOR_CORES)
LONGEST_FIRST = ("07", "11", "12", "13")  # they take a head's Q tiles from the last to the first
_LANES, _SIDE = 32, 16
_WAVEFRONTS_OF_16_BYTES = 4  # of a warp whose lanes take 16 bytes each, or that loads four 8 x 8 matrices
_STRAIGHT_EXP = 16.3  # instructions a score: scale, mask, maximum, expf, sum, conversion
_FUSED_EXP = 4.5  # maximum, multiply-add, exp2, sum, half a conversion
_MASK = 3.3  # more, where a tile has keys that some row does not see


class VisitCost(NamedTuple):
    """Of one block. products: FLOPs on tensor cores (three products in tf32 count three times; 0: on FMA units).

    wavefronts: turns of the shared-memory banks. instructions: of warps, without matrix products and matrix loads where
    tensor cores are used. masked: more of them if the tile is masked. rounds: loads from device memory that the block
    waits for one after the other, before it goes on.
    """

    products: float
    wavefronts: float
    instructions: float
    masked: float
    rounds: int
    warps: int


def visit_cost(number: str, plan: Plan) -> VisitCost:
    """Of kernel `number`, one of `COSTED`, with the tiles of a plan of it."""
    (launch,) = plan.launches
    Br, Bc, wide = plan.tiling.Br, plan.tiling.Bc, plan.defines.get("HEAD_DIM", plan.problem.d)
    if number in ONE_SCORE:
        return _one_score(number, Br, Bc, wide, launch.block)
    if number in ("06", "07"):
        return _on_fma_units(number, Br, Bc, wide, launch.block)
    return _split(Br, Bc, wide) if number == "13" else _sixteen_bits(number, Br, Bc, wide)


def _one_score(number: str, Br: int, Bc: int, d: int, threads: int) -> VisitCost:
    """Kernels 03 to 05: a thread for each score, and the same threads over the elements of O."""
    wide = 4 if number == "05" else 1  # numbers of an access
    warps = ceil_div(threads, _LANES)
    outputs, copies = Br * d / wide / _LANES, 2 * Bc * d / wide / _LANES  # of warps
    of_s = warps * ((7.5 if wide == 4 else 4.45) * d / wide + 65)
    of_o = outputs * ((8.25 if wide == 4 else 4.3) * Bc + 85)
    softmax = min(Br, warps) * (60 + 15 * Bc) if number == "03" else Br * ceil_div(Bc, _LANES) * 170
    turns = 6 if wide == 4 else 2  # of the two loads for a product: 16 bytes from one address take 2, from many 4
    wavefronts = (warps * d / wide + outputs * Bc) * turns
    wavefronts += (copies + 2 * outputs) * (_WAVEFRONTS_OF_16_BYTES if wide == 4 else 1) + 2 * outputs
    wavefronts += min(Br, warps) * 72 if number == "03" else Br * 10
    rounds = ceil_div(int(copies), 8 * warps)
    return VisitCost(0.0, wavefronts, of_s + of_o + softmax + copies * 20, 0.0, rounds, warps)


def _sixteen_bits(number: str, Br: int, Bc: int, wide: int) -> VisitCost:
    """Kernels 08 to 12: four warps, each with Br / 64 times 16 rows."""
    warps, sets, scores = 4, Br / 64, Br * Bc / 128  # of a lane
    copies = 2 * Bc * wide / 8 / 128  # of 16 bytes, of a thread: K and V
    loads = 2 * (wide / 16) * (Bc / 16) * warps  # every warp reads all of K and V
    if number < "11" or wide > 64:
        loads += sets * wide / 16 * warps  # and its rows of Q again
    each = _WAVEFRONTS_OF_16_BYTES * (8 if number == "08" else 1)  # eight rows meet in the same banks
    wavefronts = loads * each + copies * _WAVEFRONTS_OF_16_BYTES * warps
    straight = number < "11"
    instructions = (_STRAIGHT_EXP if straight else _FUSED_EXP) * scores + 14 * sets + 50
    instructions += (27.5 if number < "10" else 5.0) * copies
    if number < "12":
        instructions += sets * wide / 2  # O is rescaled
    rounds = 2 * ceil_div(int(copies), 8) if number < "10" else 0  # four loads at once, K and then V
    masked = 0.0 if straight else _MASK * scores
    return VisitCost(4.0 * Br * Bc * wide, wavefronts, instructions * warps, masked * warps, rounds, warps)


def _split(Br: int, Bc: int, wide: int) -> VisitCost:
    """Kernel 13: three products for one, and the instructions that split numbers in two and add products up."""
    warps, sets, scores = 4, Br / 64, Br * Bc / 128
    copies = 2 * Bc * wide / 4 / 128
    of_s = wide / 8 * (4 * (4 * sets + Bc / 4) + sets * Bc / 2 + 12)
    values = Bc / 8 * wide / 4  # numbers of V that a lane splits
    of_o = 4.4 * values + scores * wide / 8 + 7 * scores
    instructions = of_s + of_o + 2.5 * scores + 14 * sets + 60 + 8 * copies
    wavefronts = wide / 8 * (sets + Bc / 16) * _WAVEFRONTS_OF_16_BYTES + values + copies * _WAVEFRONTS_OF_16_BYTES
    return VisitCost(12.0 * Br * Bc * wide, wavefronts * warps, instructions * warps, _MASK * scores * warps, 0, warps)


def _on_fma_units(number: str, Br: int, Bc: int, wide: int, threads: int) -> VisitCost:
    """Kernels 06 and 07: 16 neighbouring threads share rows of S and of O."""
    warps, apart = threads // _LANES, threads // _SIDE
    rows, columns, quads, inner = Br / apart, Bc / _SIDE, wide / 64, wide / 4
    scores, copies = rows * columns, 2 * Bc * wide / 4 / threads
    first = number == "06"
    of_s = inner * (4 * scores + rows + columns + 7)
    of_o = Bc / 4 * ((20 if first else 16) * rows * quads + rows + 4 * quads + 7) + 4 * rows * quads
    softmax = _STRAIGHT_EXP * scores + 36 * rows if first else 6 * scores + 11 * rows
    load = 60 + 10.75 * copies if first else 100 + 8 * copies
    # A load of 16 bytes: of two rows for a warp 2 turns, of sixteen 4; a store of a score meets its like once.
    wavefronts = inner * (2 * rows + 4 * columns) + Bc / 4 * (2 * rows + 16 * quads) + 2 * scores
    wavefronts += copies * _WAVEFRONTS_OF_16_BYTES
    rounds = ceil_div(int(copies), 4) if first else 0
    masked = 0.0 if first else _MASK * scores
    return VisitCost(0.0, wavefronts * warps, (of_s + of_o + softmax + load) * warps, masked * warps, rounds, warps)


__all__ = ["COSTED", "LONGEST_FIRST", "ONE_SCORE", "ON_TENSOR_CORES", "VisitCost", "visit_cost"]
