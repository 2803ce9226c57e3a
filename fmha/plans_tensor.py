"""How kernels on tensor cores are launched: four warps, 16 bytes an access, d rounded up, tensors with strides."""

from __future__ import annotations

from dataclasses import dataclass

from fmha.errors import TilesError
from fmha.hardware import Gpu
from fmha.memory import Slot
from fmha.plan import SECTOR, STRIDES, Launch, Plan, causal_offset, check_smem, padded, slots, slots_bytes
from fmha.problem import Problem, Tiling
from fmha.traffic import closed_form

CHUNK = 8  # 16-bit numbers in one access of 16 bytes, of which d is a multiple
_COLUMNS = (64, 128, 256)  # d is rounded up to one: rows of whole 128 bytes, whose pieces 128 threads share out evenly
_WARPS, _WARP, _ROWS = 4, 32, 16  # warps of a block, lanes of a warp, rows of a product
_MOST_KEYS = {64: 128, 128: 64, 256: 64}  # Bc, by columns: S beside O in registers


@dataclass(frozen=True)
class Shape:
    """What tells the plans of these kernels apart.

    stages: places for K and V tiles in shared memory. itemsize: bytes of a number there. keys: of which Bc is a
    multiple, what one product of P and V takes.
    """

    function: str
    stages: int = 1
    itemsize: int = 2
    keys: int = 16

    def __call__(self, problem: Problem, tiling: Tiling, gpu: Gpu, write_lse: bool) -> Plan:
        """The plan of a run.

        Raises:
            TilesError: tiles that warps cannot share, that registers do not hold, or shared memory does not.
        """
        p, step = problem, _ROWS * _WARPS
        wide = next(columns for columns in _COLUMNS if columns >= p.d)
        why = f"each of {_WARPS} warps owns {_ROWS} rows or twice as many"
        _check_multiple("Br", tiling.Br, step, step if wide > 128 else 2 * step, f"{why}, if d is 128 at most")
        why = f"tensor cores take {self.keys} keys at a time, and S must fit into registers beside O"
        _check_multiple("Bc", tiling.Bc, self.keys, _MOST_KEYS[wide], why)
        held = self._held(tiling, wide)
        check_smem(held, tiling, p.d, gpu)
        launch = Launch(
            self.function,
            grid=tiling.Tr(p) * p.B * p.H,
            block=_WARPS * _WARP,
            smem_bytes=slots_bytes(held),
            arguments=(
                "Q", "K", "V", "O", "LSE", "key_range", p.H, p.Hk, p.Nq, p.Nk, p.d, float(p.scale), causal_offset(p),
                STRIDES,
            ),
            smem=held,
        )  # fmt: skip
        defines = {"BR": tiling.Br, "BC": tiling.Bc, "HEAD_DIM": wide}
        if self.itemsize == 2:
            defines["HALF"] = int(p.dtype == "fp16")
        requested = closed_form(p, tiling, "q-outer", write_lse=write_lse)
        whole = p.d * p.itemsize % SECTOR == 0 and not write_lse and not padded(p)
        return Plan(p, tiling, defines, (launch,), requested, whole)

    def _held(self, tiling: Tiling, wide: int) -> tuple[Slot, ...]:
        """Qi, and each place of Kj and of Vj."""
        keys = (tiling.Bc, wide) if self.stages == 1 else (self.stages, tiling.Bc, wide)
        return slots(("Qi", (tiling.Br, wide)), ("Kj", keys), ("Vj", keys), itemsize=self.itemsize)


def _check_multiple(name: str, size: int, step: int, most: int, why: str) -> None:
    if size % step or size > most:
        raise TilesError(
            f"warps: {name}={size} cannot be shared out: {why}; so {name} is a multiple of {step} up to "
            f"{most // step * step} here"
        )


mma_sync = Shape("mma_sync")
swizzle = Shape("swizzle")
async2 = Shape("async2", stages=2)
flash2 = Shape("flash2", stages=2)
lag = Shape("lag", stages=2)
tf32x3 = Shape("tf32x3", itemsize=4, keys=8)

__all__ = ["CHUNK", "Shape", "async2", "flash2", "lag", "mma_sync", "swizzle", "tf32x3"]
