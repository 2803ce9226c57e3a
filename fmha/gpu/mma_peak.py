"""How fast tensor cores are fed by `mma.sync`, the instruction of kernels 08 to 13: products alone, from registers."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmha.errors import GpuError, LimitError
from fmha.gpu.bench import Report
from fmha.gpu.build import build
from fmha.gpu.device import GpuDevice
from fmha.gpu.launch import POISON
from fmha.gpu.timing import time_in_turns
from fmha.kernels import SOURCES
from fmha.measurement import MMA_DTYPES, MmaPeak

SOURCE = Path(__file__).with_name("mma_peak.cu")
FUNCTION = "mma_peak"
DEFINES = {"bf16": {"HALF": 0, "TF32": 0}, "fp16": {"HALF": 1, "TF32": 0}, "tf32": {"HALF": 0, "TF32": 1}}
WARPS, SUMS = 4, 16  # of a block; of a warp: as in the source
MOST = 4  # warps a scheduler
ROUNDS, REPEATS = 20_000, 20
_FIRST = (8, 0)  # compute capability that has these instructions


def depth(dtype: str) -> int:
    """Columns of A and rows of B in one product."""
    return 8 if dtype == "tf32" else 16


def operands(dtype: str, seed: int = 0) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """A [2, 16, depth] and B [2, depth, 8], each number -1, 0 or 1: every sum is a whole number, exact in fp32."""
    rng = np.random.default_rng(seed)
    A, B = (rng.integers(-1, 2, shape) for shape in ((2, 16, depth(dtype)), (2, depth(dtype), 8)))
    return A.astype(np.float32), B.astype(np.float32)


def expected(A: NDArray[np.float32], B: NDArray[np.float32], rounds: int) -> NDArray[np.float32]:
    """What each warp has to write: [sums, 16, 8]."""
    return np.stack([n + rounds * (A[n % 2] @ B[n // 2 % 2]) for n in range(SUMS)])


def flops(dtype: str, blocks: int, rounds: int) -> int:
    """FLOPs of one launch."""
    return blocks * WARPS * rounds * SUMS * 2 * 16 * 8 * depth(dtype)


def measure(device: GpuDevice, report: Report) -> MmaPeak:
    """Check and time the products in bf16, fp16 and tf32, with one to four warps a scheduler, all in turns.

    Raises:
        LimitError: a GPU without these instructions. GpuError: a wrong sum.
    """
    if tuple(map(int, device.facts.compute.split("."))) < _FIRST:
        raise LimitError(
            f"mma.sync with bf16 and tf32 needs compute capability 8.0, and {device.facts.name} has "
            f"{device.facts.compute}: measure it on a GPU of 2020 or later."
        )
    driver, sms = device.driver, device.facts.sms
    works, asked, memory = [], [], []
    try:
        sums = np.empty((sms * MOST * WARPS, SUMS, 16, 8), np.float32)
        C = driver.mem_alloc(sums.nbytes)
        memory.append(C)
        for dtype in MMA_DTYPES:
            report(f"mma.sync in {dtype}", None)
            launch, operand_memory, (A, B) = _loaded(device, dtype, C)
            memory += operand_memory
            driver.memset_d8(C, POISON, sums.nbytes)
            launch(sms * MOST)
            device.synchronize()
            driver.memcpy_dtoh(sums, C)
            wrong = int((sums != expected(A, B, ROUNDS)).sum())
            if wrong:
                raise GpuError(
                    f"{wrong:,} of {sums.size:,} sums of mma.sync in {dtype} are wrong, so nothing is recorded."
                )
            for warps in range(1, MOST + 1):
                works.append(lambda launch=launch, warps=warps: launch(sms * warps))
                asked.append((dtype, warps))
        report("timing mma.sync", None)
        times = time_in_turns(device, works, REPEATS)
        state = device.state()
    finally:
        for piece in memory:
            piece.free()
    found: dict[str, list[float]] = {dtype: [] for dtype in MMA_DTYPES}
    for (dtype, warps), time in zip(asked, times, strict=True):
        assert time is not None  # a launch takes no memory
        found[dtype].append(round(flops(dtype, sms * warps, ROUNDS) / time.median_us / 1e6, 2))
    made = datetime.now(UTC).isoformat(timespec="seconds")
    return MmaPeak({dtype: tuple(speeds) for dtype, speeds in found.items()}, made, state)


def _loaded(device: GpuDevice, dtype: str, C: Any) -> tuple[Any, list[Any], tuple[Any, Any]]:
    """A function that launches so many blocks, the device memory of its operands, and the operands."""
    binary = build(SOURCE, defines=DEFINES[dtype], arch=device.arch, options=(f"-I{SOURCES}",), driver=device.cuda)
    function = device.driver.module_from_buffer(binary.cubin).get_function(FUNCTION)
    function.prepare("PPPi")
    made = operands(dtype)
    memory = [device.driver.mem_alloc(array.nbytes) for array in made]
    for where, array in zip(memory, made, strict=True):
        device.driver.memcpy_htod(where, array)

    def launch(blocks: int) -> None:
        function.prepared_call((blocks, 1), (32 * WARPS, 1, 1), *memory, C, ROUNDS)

    return launch, memory, made


__all__ = ["DEFINES", "FUNCTION", "SOURCE", "expected", "flops", "measure", "operands"]
