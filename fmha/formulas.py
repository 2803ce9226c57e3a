"""Formulas that show themselves with the current numbers.

A `Formula` has its symbols and the same with numbers put in, both LaTeX, and the value, which is worked out here from
the formula itself; tests hold it against the core, which counts in other ways (events, loops over tiles).
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from fmha.algorithms import fa1_tiles
from fmha.mask import key_tile_bounds, row_bounds
from fmha.problem import Problem, Tiling
from fmha.schedule import check_order
from fmha.units import ceil_div

PASSES = {"S": 2, "P": 2}  # written once and read once


@dataclass(frozen=True)
class Formula:
    """title: what it is. symbols, numbers: LaTeX, without the value. value: in `unit`. note: one sentence, or ""."""

    title: str
    symbols: str
    numbers: str
    value: float
    unit: str = ""
    note: str = ""

    @property
    def latex(self) -> str:
        """Symbols = numbers = value, in one line that may break at its signs of equality."""
        unit = rf"\ \text{{{self.unit}}}" if self.unit else ""
        return f"{self.symbols} = {self.numbers} = {number(self.value)}{unit}"


def number(x: float) -> str:
    """A number for LaTeX: whole ones in full, others with four decimals, infinities as signs."""
    if isinstance(x, (int, np.integer)):
        return f"{int(x):,}".replace(",", "{,}")
    if math.isinf(x):
        return r"\infty" if x > 0 else r"-\infty"
    if math.isnan(x):
        return r"\text{NaN}"
    return f"{x:.4f}" if abs(x) < 1e5 else f"{x:,.0f}".replace(",", "{,}")


def _bracket(x: float) -> str:
    return f"({number(x)})" if x < 0 else number(x)


def tile_counts(problem: Problem, tiling: Tiling) -> tuple[Formula, Formula]:
    """Tr and Tc."""
    made = []
    for name, length, size in (("r", problem.Nq, tiling.Br), ("c", problem.Nk, tiling.Bc)):
        n = "q" if name == "r" else "k"
        made.append(
            Formula(
                f"Number of {'Q' if name == 'r' else 'K/V'} tiles",
                rf"T_{name} = \left\lceil \frac{{N_{n}}}{{B_{name}}} \right\rceil",
                rf"\left\lceil \frac{{{number(length)}}}{{{number(size)}}} \right\rceil",
                ceil_div(length, size),
            )
        )
    return made[0], made[1]


def requested(problem: Problem, tiling: Tiling, order: str, *, write_lse: bool = False) -> Formula:
    """Requested bytes of one forward pass, for any loop order, mask and padding.

    Without a mask the sum over visits is a product, and is written so. Equal to `fmha.traffic.traffic`, to the byte.

    Raises:
        ProblemError: unknown order.
    """
    known = check_order(order)
    if known == "naive":
        return _naive(problem)
    if problem.causal is None and problem.lens_k is None and problem.left_pad is None:
        return _plain(problem, tiling, known, write_lse)
    return _masked(problem, tiling, known, write_lse)


def _naive(p: Problem) -> Formula:
    e, heads = p.itemsize, p.B * p.H
    value = e * heads * (2 * p.Nq * p.d + 2 * p.Nk * p.d + sum(PASSES.values()) * p.Nq * p.Nk)
    return Formula(
        "Requested bytes, naive",
        r"e\,B H\,(2 N_q d + 2 N_k d + 4 N_q N_k)",
        rf"{e} \cdot {number(p.B)} \cdot {number(p.H)}\,(2 \cdot {number(p.Nq)} \cdot {p.d} + "
        rf"2 \cdot {number(p.Nk)} \cdot {p.d} + 4 \cdot {number(p.Nq)} \cdot {number(p.Nk)})",
        value, "bytes",
        f"Q read and O written, K and V read, S and P written and read; e = {e} bytes an element. Masks save nothing.",
    )  # fmt: skip


def _plain(p: Problem, t: Tiling, order: str, write_lse: bool) -> Formula:
    e, heads, Tr, Tc = p.itemsize, p.B * p.H, t.Tr(p), t.Tc(p)
    front, Nq, Nk = rf"{number(p.B)} \cdot {number(p.H)}", number(p.Nq), number(p.Nk)
    if order == "q-outer":
        value = heads * (e * p.d * (2 * p.Nq + 2 * Tr * p.Nk) + (4 * p.Nq if write_lse else 0))
        lse = (r" + 4 N_q", rf" + 4 \cdot {number(p.Nq)}") if write_lse else ("", "")
        return Formula(
            "Requested bytes, flash (q-outer)",
            rf"B H\,(e\,d\,(2 N_q + 2\,T_r N_k){lse[0]})",
            rf"{front}\,({e} \cdot {p.d}\,(2 \cdot {Nq} + 2 \cdot {number(Tr)} \cdot {Nk}){lse[1]})",
            value, "bytes",
            f"Q read and O written once; K and V read once for each of the Tr Q tiles; e = {e} bytes an element"
            + ("; LSE takes 4 bytes a row." if write_lse else "."),
        )  # fmt: skip
    value = heads * (e * p.d * (2 * p.Nk + 3 * Tc * p.Nq) + 16 * Tc * p.Nq)
    return Formula(
        "Requested bytes, flash (kv-outer)",
        r"B H\,(e\,d\,(2 N_k + 3\,T_c N_q) + 16\,T_c N_q)",
        rf"{front}\,({e} \cdot {p.d}\,(2 \cdot {Nk} + 3 \cdot {number(Tc)} \cdot {Nq}) + "
        rf"16 \cdot {number(Tc)} \cdot {Nq})",
        value, "bytes",
        "K and V read once; for each of the Tc K/V tiles Q is read, O read and written, l and m (4 bytes each) read "
        f"and written; e = {e} bytes an element. The first writing of O, l, m is counted apart.",
    )  # fmt: skip


def visited(problem: Problem, tiling: Tiling) -> tuple[int, int, int, int]:
    """What the visits that a mask leaves come to, over all batch entries and heads, one Q tile after the other.

    Keys that Q tiles read; rows that K/V tiles meet; (row, key) pairs of visited tiles; keys of K/V tiles that anyone
    visits.
    """
    p = problem
    keys = rows = pairs = seen = 0
    alike = {p.key_range(b): b for b in range(p.B)}  # batch entries with the same padding see the same
    times = Counter(p.key_range(b) for b in range(p.B))
    for key_range, b in alike.items():
        n = times[key_range]
        start, stop = key_tile_bounds(p, tiling, b)  # of each K/V tile
        size = stop - start
        low, high = row_bounds(p, b)
        first = np.arange(0, p.Nq, tiling.Br)
        count = np.minimum(first + tiling.Br, p.Nq) - first
        # Rows that see no key ask for no tile; of the others the furthest decides.
        some = np.maximum.reduceat(np.where(high > low, high, -1), first)
        visits = np.where(some >= 0, np.searchsorted(start, np.maximum(some, 0), side="left"), 0)
        upto = np.concatenate([[0], np.cumsum(size)])
        real = np.concatenate([[0], np.cumsum(size > 0)])
        keys += n * int(upto[visits].sum())
        rows += n * int((count * real[visits]).sum())
        pairs += n * int((count * upto[visits]).sum())
        seen += n * int(upto[visits.max(initial=0)])
    return p.H * keys, p.H * rows, p.H * pairs, p.H * seen


def _masked(p: Problem, t: Tiling, order: str, write_lse: bool) -> Formula:
    e, all_rows = p.itemsize, p.B * p.H * p.Nq
    keys, rows, _, seen = visited(p, t)
    if order == "q-outer":
        value = e * p.d * (2 * all_rows + 2 * keys) + (4 * all_rows if write_lse else 0)
        lse = (r" + 4 B H N_q", rf" + 4 \cdot {number(all_rows)}") if write_lse else ("", "")
        return Formula(
            "Requested bytes, flash (q-outer), masked",
            rf"e\,d\,(2 B H N_q + 2 n_k){lse[0]}",
            rf"{e} \cdot {p.d}\,(2 \cdot {number(all_rows)} + 2 \cdot {number(keys)}){lse[1]}",
            value, "bytes",
            f"nk: keys in the K/V tiles that a Q tile visits, summed over all Q tiles; e = {e} bytes an element.",
        )  # fmt: skip
    value = e * p.d * (2 * seen + 3 * rows) + 16 * rows
    return Formula(
        "Requested bytes, flash (kv-outer), masked",
        r"e\,d\,(2 n_k + 3 n_q) + 16\,n_q",
        rf"{e} \cdot {p.d}\,(2 \cdot {number(seen)} + 3 \cdot {number(rows)}) + 16 \cdot {number(rows)}",
        value, "bytes",
        "nk: keys of the K/V tiles that anyone sees; nq: rows of the Q tiles that see a K/V tile, summed over all K/V "
        f"tiles; e = {e} bytes an element.",
    )  # fmt: skip


def compulsory(problem: Problem) -> Formula:
    """Bytes that nothing can avoid."""
    p, e = problem, problem.itemsize
    return Formula(
        "Compulsory bytes",
        r"e\,B\,d\,(2 H N_q + 2 H_k N_k)",
        rf"{e} \cdot {number(p.B)} \cdot {p.d}\,(2 \cdot {number(p.H)} \cdot {number(p.Nq)} + "
        rf"2 \cdot {number(p.Hk)} \cdot {number(p.Nk)})",
        e * p.B * p.d * (2 * p.H * p.Nq + 2 * p.Hk * p.Nk), "bytes",
        "Q, K, V read once, O written once.",
    )  # fmt: skip


def limit_ratio(problem: Problem, tiling: Tiling) -> Formula:
    """Where naive bytes / q-outer bytes tends to when N grows, without a mask."""
    whole, rest = divmod(2 * tiling.Br, problem.d)
    return Formula(
        "Naive bytes / q-outer bytes, for long N",
        r"\frac{4 N^2}{2 T_r N d} \to \frac{2 B_r}{d}",
        rf"\frac{{2 \cdot {number(tiling.Br)}}}{{{problem.d}}}",
        2 * tiling.Br / problem.d if rest else whole,
        note="The N x N matrices against K and V, read once for each Q tile.",
    )


def theorem2(problem: Problem, sram_bytes: int) -> Formula:
    """FlashAttention's Theorem 2 in bytes: the growth, not the constant. M is in elements."""
    p, M = problem, sram_bytes / problem.itemsize
    return Formula(
        "Theorem 2: growth of the bytes",
        r"e\,B H\,\frac{N_q N_k d^2}{M}",
        rf"{p.itemsize} \cdot {number(p.B)} \cdot {number(p.H)} \cdot \frac{{{number(p.Nq)} \cdot {number(p.Nk)} \cdot "
        rf"{p.d}^2}}{{{number(int(M))}}}",
        p.itemsize * p.B * p.H * p.Nq * p.Nk * p.d**2 / M, "bytes",
        f"M = {int(M):,} elements: {sram_bytes:,} bytes / {p.itemsize}.",
    )  # fmt: skip


def flops(problem: Problem, tiling: Tiling, order: str = "q-outer") -> Formula:
    """FLOPs of the two matrix products, on the tiles that are visited."""
    p = problem
    front = rf"{number(p.B)} \cdot {number(p.H)}"
    if check_order(order) == "naive" or (p.causal is None and p.lens_k is None and p.left_pad is None):
        return Formula(
            "FLOPs",
            r"4\,B H N_q N_k d",
            rf"4 \cdot {front} \cdot {number(p.Nq)} \cdot {number(p.Nk)} \cdot {p.d}",
            4 * p.B * p.H * p.Nq * p.Nk * p.d, "FLOP", "S = Q Kᵀ and O = P V, a multiply-add counted as two.",
        )  # fmt: skip
    pairs = visited(p, tiling)[2]
    return Formula(
        "FLOPs, on visited tiles",
        r"4\,n\,d",
        rf"4 \cdot {number(pairs)} \cdot {p.d}",
        4 * pairs * p.d, "FLOP", "n: pairs of query and key in the tiles that are visited, over all heads.",
    )  # fmt: skip


def matrix_bytes(problem: Problem) -> Formula:
    """Bytes of S, and as many of P."""
    p = problem
    return Formula(
        "Bytes of S, and as many of P",
        r"e\,B H N_q N_k",
        rf"{p.itemsize} \cdot {number(p.B)} \cdot {number(p.H)} \cdot {number(p.Nq)} \cdot {number(p.Nk)}",
        p.itemsize * p.B * p.H * p.Nq * p.Nk, "bytes",
    )  # fmt: skip


def moving_us(nbytes: int, gbps: float) -> Formula:
    """Time to move bytes at a memory's full speed. gbps: 10^9 bytes a second."""
    return Formula(
        "Moving the bytes, at best",
        r"\frac{\text{bytes}}{\text{speed}}",
        rf"\frac{{{number(nbytes)}}}{{{number(float(gbps * 1e3))}\ \text{{bytes/µs}}}}",
        nbytes / (gbps * 1e3),
        "µs",
    )


def multiplying_us(work: int, tflops: float) -> Formula:
    """Time of arithmetic at a unit's peak."""
    return Formula(
        "Multiplying, at best",
        r"\frac{\text{FLOP}}{\text{peak}}",
        rf"\frac{{{number(work)}}}{{{number(float(tflops * 1e6))}\ \text{{FLOP/µs}}}}",
        work / (tflops * 1e6),
        "µs",
    )


def smem(tiling: Tiling, d: int, itemsize: int = 4) -> Formula:
    """Shared memory of one block of the tutorial's kernel."""
    Br, Bc = tiling.Br, tiling.Bc
    return Formula(
        "Shared memory of a block",
        r"e\,d\,(B_r + 2 B_c) + 4\,(B_r B_c + B_r d + 4 B_r)",
        rf"{itemsize} \cdot {d}\,({Br} + 2 \cdot {Bc}) + 4\,({Br} \cdot {Bc} + {Br} \cdot {d} + 4 \cdot {Br})",
        itemsize * d * (Br + 2 * Bc) + 4 * (Br * Bc + Br * d + 4 * Br),
        "bytes",
        f"Qi, Kj, Vj with e = {itemsize} bytes an element; Sij, Oi, and l, m, alpha, beta in fp32.",
    )


def paper_tiles(sram_elements: int, d: int) -> tuple[Formula, Formula]:
    """Bc and Br of FlashAttention's Algorithm 1, M in elements.

    Raises:
        ProblemError: M or d is not at least 1.
    """
    tiles = fa1_tiles(sram_elements, d)
    return (
        Formula(
            "Bc of Algorithm 1",
            r"B_c = \left\lceil \frac{M}{4d} \right\rceil",
            rf"\left\lceil \frac{{{number(sram_elements)}}}{{4 \cdot {d}}} \right\rceil",
            ceil_div(sram_elements, 4 * d),
        ),
        Formula(
            "Br of Algorithm 1",
            r"B_r = \min(B_c, d)",
            rf"\min({number(tiles.Bc)}, {d})",
            min(ceil_div(sram_elements, 4 * d), d),
        ),
    )


@dataclass(frozen=True)
class RowBefore:
    """A row before a tile: running maximum, running sum, unnormalised output (one of its d numbers)."""

    m: float = -math.inf
    l: float = 0.0
    O: float = 0.0


def row_step(before: RowBefore, scores: ArrayLike, values: ArrayLike) -> tuple[Formula, ...]:
    """The online softmax of one row over one tile: m_new, alpha, l, O, and what it would end with: O / l, LSE.

    Args:
        before: the row before the tile.
        scores: its scores in the tile, [keys]; -inf where masked.
        values: one column of the tile of V, [keys].
    """
    s, v = np.asarray(scores, np.float64), np.asarray(values, np.float64)
    top = float(s.max(initial=-math.inf))
    m = max(before.m, top)
    blind = math.isinf(m)  # no key seen: every weight is 0, and nothing is rescaled
    alpha = 1.0 if blind else math.exp(before.m - m)
    P = np.zeros_like(s) if blind else np.exp(s - m)
    added, moved = float(P.sum()), float(P @ v)
    l, O = alpha * before.l + added, alpha * before.O + moved
    final = O / l if l else 0.0
    lse = m + math.log(l) if l else -math.inf
    return (
        Formula(
            "Running max", r"m_{new} = \max(m,\ \text{rowmax}\ S)", rf"\max({number(before.m)},\ {number(top)})", m,
        ),
        Formula(
            "Rescale factor", r"\alpha = e^{m - m_{new}}", rf"e^{{{number(before.m)} - {_bracket(m)}}}", alpha,
            note="No key seen yet: alpha is set to 1." if blind else "",
        ),
        Formula(
            "Running sum", r"l = \alpha\, l_{old} + \sum_{j \in tile} e^{S_j - m_{new}}",
            rf"{number(alpha)} \cdot {number(before.l)} + {number(added)}", l,
        ),
        Formula(
            "Output, not yet divided", r"O = \alpha\, O_{old} + \sum_{j \in tile} e^{S_j - m_{new}}\, V_j",
            rf"{number(alpha)} \cdot {_bracket(before.O)} + {_bracket(moved)}", O,
        ),
        Formula("If the row ended here", r"\frac{O}{l}", rf"\frac{{{number(O)}}}{{{number(l)}}}", final),
        Formula(
            "Log-sum-exp", r"\text{LSE} = m + \ln l", rf"{number(m)} + \ln {number(l)}", lse,
            note="With LSE the backward pass makes P again: P = exp(S - LSE).",
        ),
    )  # fmt: skip


__all__ = [
    "Formula",
    "RowBefore",
    "compulsory",
    "flops",
    "limit_ratio",
    "matrix_bytes",
    "moving_us",
    "multiplying_us",
    "number",
    "paper_tiles",
    "requested",
    "row_step",
    "smem",
    "theorem2",
    "tile_counts",
    "visited",
]
