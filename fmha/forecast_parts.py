"""What a forecast says of a run, each function's bytes, blocks on an SM and time, and what all kernels share of it.

`fmha.forecast` fills it in.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from fmha.compiled import REGISTERS, registers_of
from fmha.dispatch import Waves
from fmha.hardware import KIB, Gpu
from fmha.kernels import Kernel, Launch, Plan
from fmha.levels import Caches, Levels, TensorBytes, caches_of, together
from fmha.model_facts import (
    BACKGROUND_READ,
    BACKGROUND_WRITE,
    DRAM_REACHED,
    L2_REACHED,
    LAUNCH_US,
    NAIVE_REGISTERS,
)
from fmha.occupancy import Occupancy, occupancy
from fmha.tile_designs import COMPILED
from fmha.units import ceil_div


@dataclass(frozen=True)
class FunctionForecast:
    """One launched function. Times in microseconds.

    resources: the least time that each resource needs. busy: share of SMs x time that works. launch_us: what every
    launch takes. together_us: what the resources of the SMs take as far as they do not overlap (kernels 03 to 13);
    0: the scarcest alone decides.
    """

    function: str
    levels: Levels
    held: Occupancy
    waves: Waves
    resources: dict[str, float]
    busy: float
    launch_us: float = LAUNCH_US
    together_us: float = 0.0

    @property
    def binds(self) -> str:
        """The resource that takes longest."""
        return max(self.resources, key=lambda name: self.resources[name])

    @property
    def time_us(self) -> float:
        """Time of the function."""
        return self.launch_us + max(self.resources[self.binds], self.together_us)


@dataclass(frozen=True)
class Forecast:
    """A run of a kernel: its functions one after the other, each with cold caches."""

    kernel: str
    functions: tuple[FunctionForecast, ...]

    @property
    def levels(self) -> Levels:
        """Bytes of all functions together, without the background."""
        return together((f.levels for f in self.functions), self.kernel)

    @property
    def time_us(self) -> float:
        """Time of the run."""
        return sum(f.time_us for f in self.functions)

    @property
    def longest(self) -> FunctionForecast:
        """The function that takes longest."""
        return max(self.functions, key=lambda f: f.time_us)

    @property
    def background(self) -> TensorBytes:
        """DRAM bytes that no block asks for, in proportion to the time: a profiler counts them too."""
        return TensorBytes(dram_read=BACKGROUND_READ * self.time_us, dram_written=BACKGROUND_WRITE * self.time_us)

    @property
    def dram_read(self) -> float:
        """What `dram__bytes_read.sum` will show."""
        return self.levels.all.dram_read + self.background.dram_read

    @property
    def dram_written(self) -> float:
        """What `dram__bytes_write.sum` will show."""
        return self.levels.all.dram_written + self.background.dram_written


def held(kernel: Kernel, launch: Launch, plan: Plan, gpu: Gpu, registers: Mapping[str, int]) -> Occupancy:
    """Blocks that an SM holds; at least 1, since the plan was accepted.

    Args:
        registers: of a thread, by function; what is missing is what nvcc 13.0 gave for sm_90.
    """
    known = registers.get(launch.function) or NAIVE_REGISTERS.get(launch.function)
    if known is None and kernel.number in REGISTERS:
        known = registers_of(kernel.number, plan.defines.get("HEAD_DIM", 0), plan.tiling.Br, plan.tiling.Bc)
    if known is None:
        known = COMPILED.get((plan.tiling.Br, plan.tiling.Bc)) or (60 if launch.block > 512 else 40)
    smem = launch.smem_bytes + launch.static_smem_bytes
    found = occupancy(gpu, threads=launch.block, smem_bytes=smem, registers=known)
    return found if found.blocks else replace(found, blocks=1, warps=ceil_div(launch.block, gpu.warp))


def caches_beside(gpu: Gpu, launch: Launch, blocks: int, l2_bytes: int | None) -> Caches:
    """Caches while a function runs; each block takes 1 KiB more than it asks for."""
    found = caches_of(gpu, blocks * (launch.smem_bytes + launch.static_smem_bytes + KIB))
    return found if l2_bytes is None else replace(found, l2_bytes=max(0, l2_bytes))


def memory_times(levels: Levels, gpu: Gpu) -> dict[str, float]:
    """Least time of L2 (where its bandwidth is known) and of device memory, microseconds."""
    found = {"DRAM": levels.dram / (gpu.hbm_gbps * 1e3 * DRAM_REACHED)}
    if gpu.l2_gbps:
        found["L2"] = levels.l2 / (gpu.l2_gbps * 1e3 * L2_REACHED)
    return found


__all__ = ["Forecast", "FunctionForecast", "caches_beside", "held", "memory_times"]
