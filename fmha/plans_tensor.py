"""How kernels on tensor cores are launched: Q, K, V, O in bf16 or fp16, 16 bytes an access, d padded to 64 columns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fmha.errors import LimitError
from fmha.hardware import Gpu
from fmha.memory import Slot
from fmha.plan import SECTOR, STRIDES, Launch, Plan, causal_offset, padded, slots, slots_bytes
from fmha.problem import Problem, Tiling
from fmha.traffic import closed_form
from fmha.units import ceil_div

CHUNK = 8  # 16-bit numbers in one access of 16 bytes, of which d is a multiple
_COLUMNS = 64  # d is rounded up to a multiple: rows of 128 bytes, all 32 banks
_KEYS = 16  # Bc is a multiple: what one product of P and V takes
_WARP = 32


@dataclass(frozen=True)
class Shape:
    """What tells the plans of these kernels apart.

    rows: of a Q tile that one warp owns, so a block has 32 Br / rows threads. held: tiles in shared memory, from
    (tiling, columns of a row without padding). defines: further ones that the source is compiled with, from
    (problem, tiling). strided: whether it takes strides.
    """

    function: str
    rows: int
    held: Callable[[Tiling, int], tuple[Slot, ...]]
    defines: Callable[[Problem, Tiling], dict[str, int]] = lambda _problem, _tiling: {}
    strided: bool = False

    def __call__(self, problem: Problem, tiling: Tiling, gpu: Gpu, write_lse: bool) -> Plan:
        """The plan of a run.

        Raises:
            LimitError: tiles that warps cannot share, or that do not fit.
        """
        p = problem
        most = gpu.threads_per_block // _WARP * self.rows
        _check_multiple("Br", tiling.Br, self.rows, most, f"a warp owns {self.rows} rows")
        _check_multiple("Bc", tiling.Bc, _KEYS, 256, f"tensor cores take {_KEYS} keys at a time")
        wide = _COLUMNS * ceil_div(p.d, _COLUMNS)
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
            block=_WARP * (tiling.Br // self.rows),
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


def tiles(tiling: Tiling, wide: int, *, stages: int = 1, pad: int = 0) -> tuple[Slot, ...]:
    """Qi, Kj, Vj of 16-bit numbers; `stages` of Kj and Vj, `pad` more numbers from row to row."""
    Br, Bc, pitch = tiling.Br, tiling.Bc, wide + pad
    keys = (Bc, pitch) if stages == 1 else (stages, Bc, pitch)
    return slots(("Qi", (Br, pitch)), ("Kj", keys), ("Vj", keys), itemsize=2)


def _check_multiple(name: str, size: int, step: int, most: int, why: str) -> None:
    if size % step or size > most:
        near = min(most // step * step, max(step, round(size / step) * step))
        raise LimitError(
            f"warps: {name}={size} cannot be shared out: {why}, so {name} is a multiple of {step} up to "
            f"{most // step * step} here; try {name}={near}."
        )


tensor = Shape("tensor", rows=32, held=tiles)

__all__ = ["CHUNK", "Shape", "tensor", "tiles"]
