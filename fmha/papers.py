"""Claims of the attention papers as executable checks: the paper's number, ours, and a verdict with its reason.

Each check computes its number when it is run; nothing here is a stored result. `fmha.paper_ratios` has the claims about
speed, which are held against the recordings that come with the app.

Papers: FlashAttention (Dao et al. 2022), FlashAttention-2 (Dao 2023), FlashAttention-3 (Shah et al. 2024), Online
normalizer calculation for softmax (Milakov, Gimelshein 2018).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np

from fmha import softmax
from fmha.algorithms import (
    fa1_tiles,
    flash_backward,
    flash_forward,
    matmul_flops,
    standard_backward,
    standard_forward,
)
from fmha.hardware import GIB, GPUS, MIB

Verdict = Literal["reproduced", "shape only", "not reproduced", "not tested"]
FA1 = "FlashAttention (2022)"
SOFTMAX = "Online normalizer calculation for softmax (2018)"

# Fig. 2: GPT-2 medium, fp16, on an A100 whose SMs have 192 KB.
N, D, HEADS, FP16, SRAM_ELEMENTS = 1024, 64, 16 * 64, 2, 192 * 1024 // 2
# Table 21: batch 16, 8 heads, d = 64, fp16 on an A100 with 40 GB (appendix E.6); MB there are 2^20 bytes.
TABLE21_HEADS = 16 * 8
TABLE21_LENGTHS = (128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536)
TABLE21_FLASH = (22, 44, 104, 209, 418, 836, 1672, 3344, 6688, 13376)
TABLE21_STANDARD = (36, 104, 336, 1184, 4416, 17024)  # from 8192 on it runs out of memory


@dataclass(frozen=True)
class Finding:
    """What a check found.

    theirs, ours: in words with units; value, paper_value: the same as numbers, where both are one number. why: the
    reason for the verdict, what was counted, and what was not.
    """

    theirs: str
    ours: str
    verdict: Verdict
    why: str
    value: float | None = None
    paper_value: float | None = None


@dataclass(frozen=True)
class Claim:
    """A statement of a paper in our words. place: where it stands there. check: computes the finding."""

    id: str
    paper: str
    place: str
    text: str
    check: Callable[[], Finding]


def near(value: float, paper_value: float, tolerance: float) -> Verdict:
    """Whether a number is the paper's, within a relative tolerance."""
    return "reproduced" if abs(value / paper_value - 1) <= tolerance else "not reproduced"


def _flash_bytes() -> Finding:
    Bc = fa1_tiles(SRAM_ELEMENTS, D).Bc
    both = flash_forward(N, D, Bc) + flash_backward(N, D, Bc)
    gb, fp32_rows = both.nbytes(FP16, HEADS) / 1e9, both.nbytes(FP16, HEADS, vector_itemsize=4) / 1e9
    initial = (4 * N * D + 2 * N) * FP16 * HEADS / 1e9  # of O, dQ, dK, dV, l, m
    return Finding(
        "4.4 GB",
        f"{gb:.2f} GB",
        near(gb, 4.4, 0.08),
        f"Algorithms 1 and 4 counted line by line with Bc={Bc}: {100 * (gb / 4.4 - 1):+.1f} %. With l and m in fp32 it "
        f"is {fp32_rows:.2f} GB, and without the first values, written at the start, {gb - initial:.2f} GB.",
        gb,
        4.4,
    )


def _standard_bytes() -> Finding:
    both = standard_forward(N, D) + standard_backward(N, D)
    gb = both.nbytes(FP16, HEADS) / 1e9
    one_pass = N * N * FP16 * HEADS / 1e9  # once over all N x N matrices
    guess = gb + 7 * one_pass
    return Finding(
        "40.3 GB",
        f"{gb:.1f} GB",
        near(gb, 40.3, 0.08),
        f"Algorithms 0 and 3 as stated make 11 passes over N x N matrices. The paper's number needs "
        f"{(40.3 - gb) / one_pass:.1f} more. Masking (2 passes) and dropout, forward and backward, with a mask of one "
        f"byte (2.5 + 2.5) would be 7 and give {guess:.1f} GB; but the paper does not say so, this is our guess.",
        gb,
        40.3,
    )


def _gflops() -> Finding:
    standard = HEADS * matmul_flops(N, D, backward=True, recompute=False) / 1e9
    flash = HEADS * matmul_flops(N, D, backward=True, recompute=True) / 1e9
    return Finding(
        "66.6 and 75.2 GFLOP, ratio 1.13",
        f"{standard:,.0f} and {flash:,.0f} GFLOP, ratio {flash / standard:.2f}",
        near(standard, 66.6, 0.08),
        "Six (flash: seven) products of 2 N^2 d FLOPs for each of 1,024 heads are more than ten times the printed "
        f"numbers, which would do for {64 * 66.6 / standard:.2f} and {64 * 75.2 / flash:.2f} of the batch's 64 "
        "sequences. That flash computes more, because its backward pass makes S again, is right; the ratio is near.",
        standard,
        66.6,
    )


def block_size_bytes(block_sizes: tuple[int, ...] = (64, 128, 256, 512)) -> dict[int, int]:
    """Bytes of Algorithm 1 for the forward pass of Fig. 2 (middle), by Bc."""
    return {Bc: flash_forward(N, D, Bc).nbytes(FP16, HEADS) for Bc in block_sizes}


def _block_size() -> Finding:
    gb = {Bc: nbytes / 1e9 for Bc, nbytes in block_size_bytes().items()}
    values = list(gb.values())
    falls = all(a > b for a, b in pairwise(values))
    flattens = all(a / b < 2 for a, b in pairwise(values))
    return Finding(
        "a curve that falls from block size 64 to 512; no numbers are printed",
        ", ".join(f"{Bc}: {value:.2f} GB" for Bc, value in gb.items()),
        "shape only" if falls and flattens else "not reproduced",
        "Algorithm 1 makes ceil(N / Bc) passes over Q and O: each doubling of Bc nearly halves the bytes, and less so "
        "as K, V and the first O come to weigh more. The runtime, which in the paper follows up to Bc=256, is not "
        "tested: no kernel of this app has its loop order.",
    )


def fitted_slope(x: list[int], y: list[int]) -> float:
    """Exponent of a power law through the points, by least squares in logarithms."""
    slope, _ = np.polyfit(np.log(x), np.log(y), 1)
    return float(slope)


def theorem2_slopes() -> dict[str, float]:
    """Exponents of Algorithm 1's accesses in M, N and d, with its own tiles, d <= M <= N d; the theorem: -1, 2, 2."""
    sizes = [1 << k for k in range(13, 18)]

    def accesses(n: int, d: int, M: int) -> int:
        return flash_forward(n, d, fa1_tiles(M, d).Bc).elements

    return {
        "M": fitted_slope(sizes, [accesses(65536, 64, M) for M in sizes]),
        "N": fitted_slope(sizes, [accesses(n, 64, 32768) for n in sizes]),
        "d": fitted_slope([32, 64, 128, 256], [accesses(65536, d, 65536) for d in (32, 64, 128, 256)]),
    }


def _theorem2() -> Finding:
    slopes = theorem2_slopes()
    wanted = {"M": -1, "N": 2, "d": 2}
    right = all(abs(slopes[name] - wanted[name]) < 0.1 for name in wanted)
    return Finding(
        "exponents -1 in M, 2 in N, 2 in d",
        ", ".join(f"{slopes[name]:.2f} in {name}" for name in wanted),
        "reproduced" if right else "not reproduced",
        "Fitted to Algorithm 1's own count with its own tiles (N up to 131,072, M from 8,192 to 131,072 elements). "
        "What is missing to whole numbers are the terms that do not depend on M: K, V and the first writing of O.",
        slopes["M"],
        -1.0,
    )


def _theorem2_standard() -> Finding:
    lengths = [1 << k for k in range(12, 18)]
    slope = fitted_slope(lengths, [standard_forward(n, 64).elements for n in lengths])
    return Finding(
        "Nd + N^2: exponent 2 in N, whatever M is",
        f"{slope:.2f} in N",
        "reproduced" if abs(slope - 2) < 0.1 else "not reproduced",
        "Algorithm 0 makes 4 N^2 + 4 N d accesses; M does not occur in it.",
        slope,
        2.0,
    )


def flash_memory_mib(n: int) -> float:
    """Least memory of forward and backward: Q, K, V, O and their gradients in fp16, LSE and D in fp32, 2^20 bytes."""
    return TABLE21_HEADS * (8 * n * D * FP16 + 2 * n * 4) / MIB


def standard_memory_mib(n: int) -> float:
    """The same for standard attention: S, P, dP, dS beside Q, K, V, O and their gradients, all fp16, 2^20 bytes."""
    return TABLE21_HEADS * (8 * n * D + 4 * n * n) * FP16 / MIB


def _table21_flash() -> Finding:
    rows = dict(zip(TABLE21_LENGTHS, TABLE21_FLASH, strict=True))
    linear = all(abs(rows[2 * n] / rows[n] - 2) < 0.02 for n in TABLE21_LENGTHS[2:-1])
    ours, tensor = flash_memory_mib(1024), TABLE21_HEADS * 1024 * D * FP16 / MIB
    return Finding(
        "209 MB for 1,024 tokens, twice as much for twice as many",
        f"{ours:.0f} MB for 1,024 tokens, twice as much for twice as many",
        near(ours, 209, 0.05) if not linear else "shape only",
        f"Linear in both (in the paper from 512 tokens on). Eight tensors of {tensor:.0f} MB and two vectors are the "
        f"least; the paper's number is {(209 - 1) / tensor:.0f} tensors and two vectors to the megabyte. Copies of "
        "Q, K, V and a dQ kept in fp32 would be the missing five, which is our guess.",
        ours,
        209.0,
    )


def _table21_standard() -> Finding:
    ours = [standard_memory_mib(n) for n in TABLE21_LENGTHS[: len(TABLE21_STANDARD)]]
    worst = max(abs(a / b - 1) for a, b in zip(ours[3:], TABLE21_STANDARD[3:], strict=True))
    beyond = standard_memory_mib(8192) * MIB / GIB
    fits = standard_memory_mib(4096) * MIB < GPUS["A100-40"].hbm_bytes < standard_memory_mib(8192) * MIB
    return Finding(
        "1,184, 4,416, 17,024 MB for 1,024, 2,048, 4,096 tokens; out of memory at 8,192",
        f"{ours[3]:,.0f}, {ours[4]:,.0f}, {ours[5]:,.0f} MB; {beyond:.0f} GiB at 8,192",
        "reproduced" if worst <= 0.05 and fits else "not reproduced",
        f"S, P, dP and dS, all kept, and eight N x d tensors: within {100 * worst:.1f} % from 1,024 tokens on, and "
        "more than the 40 GB of that A100 at 8,192. The paper's numbers are four N x N matrices and ten N x d tensors "
        "exactly.",
        ours[3],
        1184.0,
    )


def _online() -> Finding:
    row = np.random.default_rng(0).normal(size=1024)
    counted = [run(row).per_element for run in (softmax.naive, softmax.safe, softmax.online)]
    return Finding(
        "3, 4 and 3 accesses an element",
        ", ".join(f"{value:g}" for value in counted),
        "reproduced" if counted == [3.0, 4.0, 3.0] else "not reproduced",
        "Counted in the loops themselves (naive, safe, online) on a row of 1,024 random numbers: each reading and each "
        "writing of an element adds one.",
        counted[2],
        3.0,
    )


CLAIMS: tuple[Claim, ...] = (
    Claim(
        "fa1-flash-bytes", FA1, "Fig. 2, left",
        "Forward and backward of GPT-2 medium's attention (N=1024, d=64, 16 heads, batch 64) move 4.4 GB with "
        "FlashAttention.", _flash_bytes,
    ),
    Claim(
        "fa1-standard-bytes", FA1, "Fig. 2, left", "Standard attention moves 40.3 GB for the same.", _standard_bytes,
    ),
    Claim("fa1-gflops", FA1, "Fig. 2, left", "Flash does more arithmetic: 75.2 against 66.6 GFLOP.", _gflops),
    Claim(
        "fa1-block-size", FA1, "Fig. 2, middle",
        "Larger K/V tiles mean fewer accesses, and a shorter forward pass up to Bc=256.", _block_size,
    ),
    Claim(
        "fa1-theorem2", FA1, "Theorem 2", "FlashAttention makes of the order of N^2 d^2 / M accesses.", _theorem2,
    ),
    Claim(
        "fa1-theorem2-standard", FA1, "Theorem 2", "Standard attention makes of the order of N d + N^2 accesses.",
        _theorem2_standard,
    ),
    Claim(
        "fa1-memory", FA1, "Table 21", "FlashAttention's memory grows linearly: 209 MB for each 1,024 tokens.",
        _table21_flash,
    ),
    Claim(
        "fa1-standard-memory", FA1, "Table 21",
        "Standard attention's memory grows with the square of the length until 40 GB are full.", _table21_standard,
    ),
    Claim(
        "online-accesses", SOFTMAX, "sections 2 and 3",
        "The online softmax is as stable as the safe one and needs one memory access an element less.", _online,
    ),
)  # fmt: skip
