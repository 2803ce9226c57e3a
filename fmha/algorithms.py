"""Device-memory accesses of the FlashAttention paper's four algorithms, counted line by line, and its choice of tiles.

One head, N x d matrices; an access is one element read or written in HBM, as in the paper's two-level model. Algorithms
0 and 3 are standard attention forward and backward, 1 and 4 FlashAttention's.

Source: Dao, Fu, Ermon, Rudra, Re: FlashAttention, 2022, Algorithms 0, 1 (section 3.1), 3, 4 (appendix B).
"""

from __future__ import annotations

from dataclasses import dataclass

from fmha.errors import ProblemError
from fmha.problem import Tiling, check_whole
from fmha.units import ceil_div

WHY_THESE_TILES = (
    "M is the SRAM of an SM in elements, not bytes: 192 KB hold M = 98,304 numbers of 16 bits. While a worker handles "
    "one pair of tiles it keeps four blocks that are d wide: Kj and Vj with Bc rows, Qi and Oi with Br rows. A quarter "
    "of M for each gives Bc = M / 4d: that is what the 4 is for. Br could be as large, but Sij, of Br x Bc, must fit "
    "too; with Br at most d it takes at most d x M/4d = M/4, one more quarter, whatever d is: that is why "
    "Br = min(Bc, d). The quarters are a bound up to a constant and not a layout: with all five blocks full they need "
    "5/4 of M, and kernels choose smaller tiles."
)


@dataclass(frozen=True)
class Accesses:
    """Elements read and written in HBM, for one head.

    matrices: by tensor, of N x d and N x N matrices. vectors: of l and m, which have one element a row.
    """

    matrices: dict[str, int]
    vectors: int = 0

    @property
    def elements(self) -> int:
        """All of them."""
        return sum(self.matrices.values()) + self.vectors

    def nbytes(self, itemsize: int, heads: int = 1, vector_itemsize: int | None = None) -> int:
        """Bytes for `heads` heads; l and m take `vector_itemsize` bytes an element (`itemsize` when not given)."""
        vector = self.vectors * (itemsize if vector_itemsize is None else vector_itemsize)
        return heads * (sum(self.matrices.values()) * itemsize + vector)

    def __add__(self, other: Accesses) -> Accesses:
        names = {**self.matrices, **other.matrices}
        both = {name: self.matrices.get(name, 0) + other.matrices.get(name, 0) for name in names}
        return Accesses(both, self.vectors + other.vectors)


def fa1_tiles(sram_elements: int, d: int) -> Tiling:
    """FlashAttention-1's tiles: Bc = ceil(M / 4d), Br = min(Bc, d), with M = `sram_elements` in elements.

    `WHY_THESE_TILES` explains them. Source: Algorithm 1, line 1.

    Raises:
        ProblemError: M is not at least 1, or d is not.
    """
    M = check_whole("sram_elements", sram_elements, 1, 1 << 50, ProblemError)
    d = check_whole("d", d, 1, 1 << 20, ProblemError)
    Bc = ceil_div(M, 4 * d)
    return Tiling(min(Bc, d), Bc)


def standard_forward(N: int, d: int) -> Accesses:
    """Algorithm 0: S = QK^T is written, read for P = softmax(S), P written and read for O = PV."""
    return Accesses({"Q": N * d, "K": N * d, "S": 2 * N * N, "P": 2 * N * N, "V": N * d, "O": N * d})


def standard_backward(N: int, d: int) -> Accesses:
    """Algorithm 3: dV = P^T dO; dP = dO V^T; dS from P and dP; dQ = dS K; dK = dS^T Q. Each matrix goes through HBM."""
    return Accesses(
        {
            "P": 2 * N * N,  # for dV, for dS
            "dO": 2 * N * d,  # for dV, for dP
            "V": N * d,
            "dP": 2 * N * N,  # written, read
            "dS": 3 * N * N,  # written, read for dQ, read for dK
            "K": N * d,
            "Q": N * d,
            "dQ": N * d,
            "dK": N * d,
            "dV": N * d,
        }
    )


def flash_forward(N: int, d: int, Bc: int) -> Accesses:
    """Algorithm 1: K and V once; for each of the ceil(N / Bc) K/V tiles Q is read, O, l, m are read and written.

    O, l, m are written once more at the start. The height Br of a Q tile does not matter: all of Q passes each time.
    """
    Tc = ceil_div(N, Bc)
    matrices = {"K": N * d, "V": N * d, "Q": Tc * N * d, "O": (2 * Tc + 1) * N * d}
    return Accesses(matrices, 2 * N * (2 * Tc + 1))


def flash_backward(N: int, d: int, Bc: int) -> Accesses:
    """Algorithm 4: for each K/V tile Q, O, dO, l, m are read, dQ read and written; dK and dV written once.

    dQ, dK, dV are written once more at the start, as zeros.
    """
    Tc = ceil_div(N, Bc)
    once = {"K": N * d, "V": N * d, "dK": 2 * N * d, "dV": 2 * N * d}
    passes = {"Q": Tc * N * d, "O": Tc * N * d, "dO": Tc * N * d, "dQ": (2 * Tc + 1) * N * d}
    return Accesses(once | passes, 2 * N * Tc)


def matmul_flops(N: int, d: int, *, backward: bool, recompute: bool) -> int:
    """FLOPs of the matrix products for one head: 2 N^2 d each.

    Forward S and O; backward dV, dP, dQ, dK, and S again when it is recomputed.
    """
    products = 2 + (4 + recompute if backward else 0)
    return products * 2 * N * N * d
