"""How the number of each claim comes about: the formula with its numbers, a table, a small chart. No Streamlit.

`derivation(claim)` is what the page of paper checks shows behind a claim; all of it is computed when it is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from fmha.algorithms import (
    Accesses,
    fa1_tiles,
    flash_backward,
    flash_forward,
    matmul_flops,
    standard_backward,
    standard_forward,
)
from fmha.figures import claim_charts
from fmha.hardware import GPUS, MIB
from fmha.measurement import Recording
from fmha.papers import (
    FP16,
    HEADS,
    SRAM_ELEMENTS,
    TABLE21_FLASH,
    TABLE21_HEADS,
    TABLE21_LENGTHS,
    TABLE21_STANDARD,
    D,
    N,
    block_size_bytes,
    fitted_slope,
    flash_memory_mib,
    standard_memory_mib,
    theorem2_slopes,
)
from fmha.softmax import naive, online, safe
from fmha.ui.derivations_speed import MEASURED, Derivation, whole
from fmha.units import ceil_div

if TYPE_CHECKING:
    pass

_EACH = "Elements a head, times bytes an element, times heads. "
_SQUARE = ("S", "P", "dS", "dP")  # N x N; the other matrices are N x d


def derivation(id: str, recordings: Iterable[Recording]) -> Derivation | None:
    """What stands behind the claim with this id; None for one that has nothing more to show."""
    known = tuple(recordings)
    computed, measured = _COMPUTED.get(id), MEASURED.get(id)
    return computed() if computed else measured(known) if measured else None


# --- bytes and FLOPs of FlashAttention's Fig. 2 -----------------------------------------------------------------------


def _passes(forward: Accesses, backward: Accesses) -> tuple[dict[str, Any], ...]:
    """Reads and writes by tensor, in units of the tensor itself."""
    rows = []
    for name in {**forward.matrices, **backward.matrices}:
        square = name in _SQUARE
        unit = N * N if square else N * D
        rows.append(
            {
                "tensor": name,
                "elements": "N x N" if square else "N x d",
                "times in the forward pass": f"{forward.matrices.get(name, 0) / unit:g}",
                "times in the backward pass": f"{backward.matrices.get(name, 0) / unit:g}",
            }
        )
    if forward.vectors or backward.vectors:
        rows.append(
            {
                "tensor": "l and m",
                "elements": "2 N",
                "times in the forward pass": f"{forward.vectors / (2 * N):g}",
                "times in the backward pass": f"{backward.vectors / (2 * N):g}",
            }
        )
    return tuple(rows)


def _sum(forward: Accesses, backward: Accesses) -> str:
    each = (forward + backward).elements
    gb = each * FP16 * HEADS / 1e9
    return rf"{whole(each)} \cdot {FP16} \cdot {whole(HEADS)}\ \text{{bytes}} = {gb:.2f}\ \text{{GB}}"


def _flash_bytes() -> Derivation:
    Bc = fa1_tiles(SRAM_ELEMENTS, D).Bc
    forward, backward = flash_forward(N, D, Bc), flash_backward(N, D, Bc)
    return Derivation(
        (
            rf"B_c = \left\lceil \frac{{M}}{{4d}} \right\rceil = \left\lceil "
            rf"\frac{{{whole(SRAM_ELEMENTS)}}}{{4 \cdot {D}}} \right\rceil = {Bc}",
            rf"T_c = \left\lceil \frac{{N}}{{B_c}} \right\rceil = "
            rf"\left\lceil \frac{{{N}}}{{{Bc}}} \right\rceil = {ceil_div(N, Bc)}",
            _sum(forward, backward),
        ),
        _EACH
        + "Each read and each write of an element counts once. What passes once for each K/V tile appears Tc times; O "
        "and dQ are read and written, and once more set to zero at the start:",
        _passes(forward, backward),
    )


def _standard_bytes() -> Derivation:
    forward, backward = standard_forward(N, D), standard_backward(N, D)
    return Derivation(
        (_sum(forward, backward),),
        _EACH + "Algorithms 0 and 3 write every N x N matrix to device memory and read it from there:",
        _passes(forward, backward),
    )


def _gflops() -> Derivation:
    one = 2 * N * N * D
    standard = matmul_flops(N, D, backward=True, recompute=False)
    flash = matmul_flops(N, D, backward=True, recompute=True)
    heads = 66.6e9 / standard
    return Derivation(
        (
            rf"2 N^2 d = {whole(one)}\ \text{{FLOPs}}",
            rf"{standard // one} \cdot 2N^2d \cdot {whole(HEADS)} = {HEADS * standard / 1e9:,.0f}"
            r"\ \text{GFLOP}",
            rf"{flash // one} \cdot 2N^2d \cdot {whole(HEADS)} = {HEADS * flash / 1e9:,.0f}"
            r"\ \text{GFLOP}",
        ),
        "First standard, then flash. "
        f"Forward: S = QKᵀ and O = PV. Backward: dV, dP, dQ, dK; flash also computes S again. The printed 66.6 GFLOP "
        f"would be {heads:.1f} heads of the {HEADS:,}; the printed ratio is {75.2 / 66.6:.2f}, ours "
        f"{flash / standard:.2f}.",
    )


def _block_size() -> Derivation:
    paper = block_size_bytes()
    sizes = sorted({*(ceil_div(N, Tc) for Tc in range(1, 33)), *paper})  # where Tc changes
    values = [nbytes / 1e9 for nbytes in block_size_bytes(tuple(sizes)).values()]
    return Derivation(
        (
            r"T_c = \lceil N / B_c \rceil",
            r"(2 + 3T_c + 1)\,N d + 2N(2T_c + 1)",
        ),
        "Elements a head: K and V pass once; "
        "for each of the Tc tiles Q is read, O read and written. The steps of the curve are those "
        f"of the rounding up of N / Bc at N = {N:,}.",
        chart=claim_charts.block_sizes(sizes, values, tuple(paper)),
        alt="GB against Bc: " + ", ".join(f"{Bc}: {nbytes / 1e9:.2f}" for Bc, nbytes in paper.items()) + ".",
    )


# --- Theorem 2 --------------------------------------------------------------------------------------------------------


def _theorem2() -> Derivation:
    sizes = [1 << k for k in range(13, 18)]
    counts = [flash_forward(65536, 64, fa1_tiles(M, 64).Bc).elements for M in sizes]
    slopes = theorem2_slopes()
    return Derivation(
        (
            r"\text{accesses} \propto N^2 d^2 M^{-1}",
            rf"\text{{fitted: }} N^{{{slopes['N']:.3f}}}\, "
            rf"d^{{{slopes['d']:.3f}}}\, M^{{{slopes['M']:.3f}}}",
        ),
        "Tc = N / Bc = 4 N d / M tiles, and for each of them about 3 N d elements of Q and O: 12 N² d² / M in all. The "
        "chart counts one head with N = 65,536 and d = 64 for five sizes of SRAM.",
        tuple(
            {"M, elements": f"{M:,}", "Bc": f"{fa1_tiles(M, 64).Bc}", "accesses counted": f"{count:,}",
             "12 N² d² / M": f"{12 * 65536**2 * 64**2 // M:,}"}
            for M, count in zip(sizes, counts, strict=True)
        ),
        claim_charts.power_law(sizes, counts, fitted_slope(sizes, counts), -1, ("M, elements of SRAM", "accesses")),
        f"Accesses fall with M as a power with exponent {slopes['M']:.3f}.",
    )  # fmt: skip


def _theorem2_standard() -> Derivation:
    return Derivation(
        (r"\text{accesses} = 4N^2 + 4Nd",),
        "S and P are each written once and read once; Q, K, V are read and O is written. The larger N is beside d, the "
        "less the second part counts:",
        tuple(
            {"N": f"{n:,}", "accesses": f"{standard_forward(n, 64).elements:,}", "4 N² alone": f"{4 * n * n:,}"}
            for n in (1024, 4096, 16384, 65536)
        ),
    )


# --- Table 21 ---------------------------------------------------------------------------------------------------------


def _memory(which: str) -> Derivation:
    lengths = list(TABLE21_LENGTHS)
    ours = {"naive": [standard_memory_mib(n) for n in lengths], "kv-outer": [flash_memory_mib(n) for n in lengths]}
    chart = claim_charts.memory_tokens(
        lengths, ours, {"naive": TABLE21_STANDARD, "kv-outer": TABLE21_FLASH}, GPUS["A100-40"].hbm_bytes / MIB
    )
    formula = (
        rf"{TABLE21_HEADS}\,(8 N d \cdot 2 + 2 N \cdot 4) = "
        rf"{whole(round(flash_memory_mib(1024)))}\ \text{{MB}}"
        if which == "flash"
        else rf"{TABLE21_HEADS}\,(8 N d + 4 N^2) \cdot 2 = "
        rf"{whole(round(standard_memory_mib(4096)))}\ \text{{MB}}"
    )
    return Derivation(
        (formula,),
        f"Bytes at N = {1024 if which == 'flash' else 4096:,}. "
        "Batch 16 x 8 heads, d = 64. Flash: Q, K, V, O and their gradients in fp16, two fp32 numbers a row. Standard: "
        "S, P, dP, dS of N x N as well. On logarithmic axes twice the length is one step: flash doubles, standard "
        "becomes four times as large.",
        chart=chart,
        alt=f"Flash grows linearly to {ours['kv-outer'][-1]:,.0f} MB at {lengths[-1]:,} tokens, standard with the "
        f"square: {ours['naive'][5]:,.0f} MB at {lengths[5]:,}.",
    )


# --- softmax ----------------------------------------------------------------------------------------------------------


def _online() -> Derivation:
    row = [((7 * k) % 11) / 4 for k in range(256)]
    return Derivation(
        text="One row of 256 numbers through the three loops of this app, every access counted. The page *Online "
        "softmax* runs them step by step.",
        rows=tuple(
            {
                "softmax": run.name,
                "what it does": run.what,
                "passes": f"{run.passes}",
                "accesses an element": f"{run.per_element:g}",
            }
            for run in (naive(row), safe(row), online(row))
        ),
    )


_COMPUTED: dict[str, Callable[[], Derivation]] = {
    "fa1-flash-bytes": _flash_bytes,
    "fa1-standard-bytes": _standard_bytes,
    "fa1-gflops": _gflops,
    "fa1-block-size": _block_size,
    "fa1-theorem2": _theorem2,
    "fa1-theorem2-standard": _theorem2_standard,
    "fa1-memory": lambda: _memory("flash"),
    "fa1-standard-memory": lambda: _memory("standard"),
    "online-accesses": _online,
}
