"""How kernels on tensor cores are launched: Q, K, V, O in bf16 or fp16, 16 bytes an access, d rounded up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fmha.errors import LimitError
from fmha.hardware import Gpu
from fmha.memory import Slot
from fmha.plan import SECTOR, STRIDES, Launch, Plan, causal_offset, padded, slots, slots_bytes
from fmha.problem import Problem, Tiling
from fmha.traffic import closed_form

CHUNK = 8  # 16-bit numbers in one access of 16 bytes, of which d is a multiple
_COLUMNS = (64, 128, 256)  # d is rounded up to one: rows of whole 128 bytes, whose pieces 128 threads share out evenly
_KEYS = 16  # Bc is a multiple: what one product of P and V takes
_ROWS = 16  # of a product
_WARP = 32


@dataclass(frozen=True)
class Shape:
    """What tells the plans of these kernels apart.

    warps: of a block; they share the rows of a Q tile, 16 or a multiple each. held: tiles in shared memory, from
    (tiling, columns of a row without padding). defines: further ones that the source is compiled with, from
    (problem, tiling). strided: whether it takes strides.
    """

    function: str
    held: Callable[[Tiling, int], tuple[Slot, ...]]
    warps: int = 4
    defines: Callable[[Problem, Tiling], dict[str, int]] = lambda _problem, _tiling: {}
    strided: bool = True

    def __call__(self, problem: Problem, tiling: Tiling, gpu: Gpu, write_lse: bool) -> Plan:
        """The plan of a run.

        Raises:
            LimitError: tiles that warps cannot share, or that do not fit.
        """
        p = problem
        step = _ROWS * self.warps
        _check_multiple("Br", tiling.Br, step, 4 * step, f"each of {self.warps} warps owns {_ROWS} rows or a multiple")
        _check_multiple("Bc", tiling.Bc, _KEYS, 256, f"tensor cores take {_KEYS} keys at a time")
        wide = next(columns for columns in _COLUMNS if columns >= p.d)
        held = self.held(tiling, wide)
        need = slots_bytes(held)
        if need > gpu.smem_per_block_optin:
            raise LimitError(
                f"shared memory: Br={tiling.Br}, Bc={tiling.Bc}, d={p.d} needs {need / 1024:.1f} KiB; this GPU allows "
                f"{gpu.smem_per_block_optin / 1024:.0f} KiB a block; try smaller tiles or a smaller d."
            )
        launch = Launch(
            self.function,
            grid=tiling.Tr(p) * p.B * p.H,
            block=_WARP * self.warps,
            smem_bytes=need,
            arguments=(
                "Q", "K", "V", "O", "LSE", "key_range", p.H, p.Hk, p.Nq, p.Nk, p.d, float(p.scale), causal_offset(p),
                *((STRIDES,) if self.strided else ()),
            ),
            smem=held,
        )  # fmt: skip
        defines = {"BR": tiling.Br, "BC": tiling.Bc, "HEAD_DIM": wide, "HALF": int(p.dtype == "fp16")}
        requested = closed_form(p, tiling, "q-outer", write_lse=write_lse)
        whole = p.d * p.itemsize % SECTOR == 0 and not write_lse and not padded(p)
        return Plan(p, tiling, {**defines, **self.defines(p, tiling)}, (launch,), requested, whole)


def tiles(tiling: Tiling, wide: int) -> tuple[Slot, ...]:
    """Qi, Kj, Vj of 16-bit numbers."""
    Br, Bc = tiling.Br, tiling.Bc
    return slots(("Qi", (Br, wide)), ("Kj", (Bc, wide)), ("Vj", (Bc, wide)), itemsize=2)


def tiles_twice(tiling: Tiling, wide: int) -> tuple[Slot, ...]:
    """The same with two places for Kj and Vj."""
    Br, Bc = tiling.Br, tiling.Bc
    return slots(("Qi", (Br, wide)), ("Kj", (2, Bc, wide)), ("Vj", (2, Bc, wide)), itemsize=2)


def _check_multiple(name: str, size: int, step: int, most: int, why: str) -> None:
    if size % step or size > most:
        near = min(most // step * step, max(step, round(size / step) * step))
        raise LimitError(
            f"warps: {name}={size} cannot be shared out: {why}, so {name} is a multiple of {step} up to "
            f"{most // step * step} here; try {name}={near}."
        )


mma_sync = Shape("mma_sync", tiles)
swizzle = Shape("swizzle", tiles)
async2 = Shape("async2", tiles_twice)
flash2 = Shape("flash2", tiles_twice)
lag = Shape("lag", tiles_twice)

__all__ = ["CHUNK", "Shape", "async2", "flash2", "lag", "mma_sync", "swizzle", "tiles", "tiles_twice"]
