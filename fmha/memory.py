"""What must lie where at once: shared memory of a block, device memory of a forward pass."""

from __future__ import annotations

from dataclasses import dataclass

from fmha.problem import Problem, Tiling
from fmha.schedule import check_order


@dataclass(frozen=True)
class Slot:
    """A named piece of a block's shared memory, at `offset` bytes from its start."""

    name: str
    shape: tuple[int, ...]
    offset: int
    nbytes: int


def smem_layout(tiling: Tiling, d: int, itemsize: int = 4) -> tuple[Slot, ...]:
    """Dynamic shared memory of the tutorial's kernel, in its order.

    Qi [Br, d], Kj [Bc, d], Vj [Bc, d], Sij [Br, Bc], Oi [Br, d], li [Br], mi [Br], alpha [Br], beta [Br]. Q, K, V tiles
    take `itemsize` bytes an element; scores, accumulator and statistics are always fp32. `cuda_src/02_fmha101.cu` lays
    its memory out like this; alpha and beta rescale what came before a tile and the tile itself.
    """
    Br, Bc = tiling.Br, tiling.Bc
    shapes = (
        ("Qi", (Br, d), itemsize), ("Kj", (Bc, d), itemsize), ("Vj", (Bc, d), itemsize), ("Sij", (Br, Bc), 4),
        ("Oi", (Br, d), 4), ("li", (Br,), 4), ("mi", (Br,), 4), ("alpha", (Br,), 4), ("beta", (Br,), 4),
    )  # fmt: skip
    slots, offset = [], 0
    for name, shape, size in shapes:
        nbytes = size
        for extent in shape:
            nbytes *= extent
        slots.append(Slot(name, shape, offset, nbytes))
        offset += nbytes
    return tuple(slots)


def smem_bytes(tiling: Tiling, d: int, itemsize: int = 4) -> int:
    """Bytes of shared memory one block of the tutorial's kernel asks for."""
    last = smem_layout(tiling, d, itemsize)[-1]
    return last.offset + last.nbytes


def smem_complaint(tiling: Tiling, d: int, limit_bytes: int, itemsize: int = 4) -> str | None:
    """Why these tiles cannot run where a block may use `limit_bytes`, and what fits; None when they fit."""
    need = smem_bytes(tiling, d, itemsize)
    if need <= limit_bytes:
        return None
    said = (
        f"shared memory: Br={tiling.Br}, Bc={tiling.Bc}, d={d} needs {need / 1024:.1f} KiB; "
        f"this GPU allows {limit_bytes / 1024:.0f} KiB a block"
    )
    Br, Bc = tiling.Br, tiling.Bc
    while Br * Bc > 1 and smem_bytes(Tiling(Br, Bc), d, itemsize) > limit_bytes:
        Br, Bc = (Br, (Bc + 1) // 2) if Bc >= Br else ((Br + 1) // 2, Bc)
    fits = smem_bytes(Tiling(Br, Bc), d, itemsize) <= limit_bytes
    return f"{said}; try Br={Br}, Bc={Bc}." if fits else f"{said}; try a smaller d."


def hbm_held(problem: Problem, order: str) -> dict[str, int]:
    """Bytes that lie in device memory at once, by tensor, for one forward pass.

    Naive keeps S and P, both [B, H, Nq, Nk] in the problem's dtype; flash keeps two fp32 numbers a row at most:
    LSE (q-outer), or l and m (kv-outer).
    """
    rows = problem.B * problem.H * problem.Nq
    keys = problem.B * problem.Hk * problem.Nk
    item = problem.itemsize
    held = {
        "Q": rows * problem.d * item,
        "K": keys * problem.d * item,
        "V": keys * problem.d * item,
        "O": rows * problem.d * item,
    }
    extra = {
        "naive": {"S": rows * problem.Nk * item, "P": rows * problem.Nk * item},
        "q-outer": {"LSE": rows * 4},
        "kv-outer": {"l": rows * 4, "m": rows * 4},
    }
    return held | extra[check_order(order)]
