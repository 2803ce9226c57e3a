"""Real GPUs: sizes, speeds and limits, each with the document it was read from.

Sizes are bytes, bandwidths GB/s and peaks TFLOP/s, both decimal (10^9, 10^12), as vendors print them. Two
values are derived, and pages must say so: the shared-memory bandwidth (bytes a clock and SM x SMs x boost
clock) and the device memory in bytes. Datasheets print device memory in "GB" and mean 2^30: an H200 sold as
141 GB reports 143,771 MiB. So `hbm_bytes` is the printed number x 2^30; the driver keeps back a few percent
of it.

Limits by compute capability are from the table "Technical Specifications per Compute Capability" of the
CUDA C++ Programming Guide; a block gets 48 KiB of shared memory unless it opts in.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

KIB = 1024
MIB = 1024**2
GIB = 1024**3


@dataclass(frozen=True, slots=True)
class SmLimits:
    """What one SM of a compute capability offers (CUDA C++ Programming Guide)."""

    smem_per_sm: int  # bytes
    smem_per_block_optin: int  # bytes, with the opt-in attribute
    threads_per_sm: int
    blocks_per_sm: int
    smem_bytes_per_clock: int  # bytes an SM can read from shared memory in one clock
    registers_per_sm: int = 65536  # 32-bit registers
    registers_per_thread: int = 255


LIMITS: dict[str, SmLimits] = {
    "7.0": SmLimits(96 * KIB, 96 * KIB, 2048, 32, 128),
    "7.5": SmLimits(64 * KIB, 64 * KIB, 1024, 16, 64),
    "8.0": SmLimits(164 * KIB, 163 * KIB, 2048, 32, 128),
    "8.6": SmLimits(100 * KIB, 99 * KIB, 1536, 16, 128),
    "8.9": SmLimits(100 * KIB, 99 * KIB, 1536, 24, 128),
    "9.0": SmLimits(228 * KIB, 227 * KIB, 2048, 32, 128),
    "10.0": SmLimits(228 * KIB, 227 * KIB, 2048, 32, 128),
}


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU model. `fp16_tflops` is the dense tensor-core peak for fp16 (and bf16 where the GPU has it),
    with fp32 accumulation; `fp32_tflops` is the peak without tensor cores."""

    key: str
    name: str
    compute: str  # compute capability
    memory: str  # kind of device memory
    sms: int
    boost_ghz: float
    l2_bytes: int
    hbm_gb: int  # as printed on the datasheet
    hbm_gbps: float
    fp32_tflops: float
    fp16_tflops: float
    bf16: bool
    source: str
    note: str = ""
    smem_per_block_default: int = 48 * KIB
    threads_per_block: int = 1024
    sm: SmLimits | None = None  # as the driver reports it; None: what the compute capability offers

    @property
    def limits(self) -> SmLimits:
        """What one SM offers."""
        return self.sm or LIMITS[self.compute]

    @property
    def smem_per_sm(self) -> int:
        """Shared memory of one SM, bytes."""
        return self.limits.smem_per_sm

    @property
    def smem_per_block_optin(self) -> int:
        """Largest shared memory of one block after the opt-in, bytes."""
        return self.limits.smem_per_block_optin

    @property
    def registers_per_sm(self) -> int:
        """32-bit registers of one SM."""
        return self.limits.registers_per_sm

    @property
    def threads_per_sm(self) -> int:
        """Threads that can be resident on one SM."""
        return self.limits.threads_per_sm

    @property
    def hbm_bytes(self) -> int:
        """Device memory in bytes: the printed gigabytes x 2^30."""
        return self.hbm_gb * GIB

    @property
    def smem_bytes(self) -> int:
        """Shared memory of all SMs together, bytes."""
        return self.smem_per_sm * self.sms

    @property
    def register_bytes(self) -> int:
        """Register files of all SMs together, bytes."""
        return 4 * self.registers_per_sm * self.sms

    @property
    def smem_gbps(self) -> float:
        """Shared-memory bandwidth of all SMs together, GB/s. Derived: bytes a clock and SM x SMs x boost
        clock."""
        return self.limits.smem_bytes_per_clock * self.sms * self.boost_ghz

    @property
    def fp32_flops_per_byte(self) -> float:
        """FLOPs the fp32 units do in the time that HBM delivers one byte."""
        return self.fp32_tflops * 1e3 / self.hbm_gbps

    @property
    def fp16_flops_per_byte(self) -> float:
        """FLOPs the tensor cores do in the time that HBM delivers one byte."""
        return self.fp16_tflops * 1e3 / self.hbm_gbps


_ROWS = (
    Gpu(
        "T4", "Tesla T4", "7.5", "GDDR6", 40, 1.590, 4 * MIB, 16, 320, 8.1, 65, False,
        "NVIDIA Turing GPU Architecture whitepaper (Tesla T4) and T4 datasheet",
        "Turing reads 64 bytes of shared memory a clock and SM; the others 128",
    ),
    Gpu(
        "V100", "Tesla V100 SXM2 32 GB", "7.0", "HBM2", 80, 1.530, 6 * MIB, 32, 900, 15.7, 125, False,
        "NVIDIA Tesla V100 GPU Architecture whitepaper and V100 datasheet",
    ),
    Gpu(
        "A100-40", "A100 SXM4 40 GB", "8.0", "HBM2", 108, 1.410, 40 * MIB, 40, 1555, 19.5, 312, True,
        "NVIDIA A100 Tensor Core GPU Architecture whitepaper",
    ),
    Gpu(
        "A100-80", "A100 SXM4 80 GB", "8.0", "HBM2e", 108, 1.410, 40 * MIB, 80, 2039, 19.5, 312, True,
        "NVIDIA A100 Tensor Core GPU Architecture whitepaper; A100 80GB datasheet (memory)",
    ),
    Gpu(
        "RTX3090", "GeForce RTX 3090", "8.6", "GDDR6X", 82, 1.695, 6 * MIB, 24, 936, 35.6, 71, True,
        "NVIDIA Ampere GA102 GPU Architecture whitepaper",
    ),
    Gpu(
        "RTX4090", "GeForce RTX 4090", "8.9", "GDDR6X", 128, 2.520, 72 * MIB, 24, 1008, 82.6, 165.2, True,
        "NVIDIA Ada GPU Architecture whitepaper",
    ),
    Gpu(
        "L4", "L4", "8.9", "GDDR6", 58, 2.040, 48 * MIB, 24, 300, 30.3, 121, True,
        "NVIDIA Ada GPU Architecture whitepaper v2 (L4) and L4 datasheet",
    ),
    Gpu(
        "H100", "H100 SXM5 80 GB", "9.0", "HBM3", 132, 1.980, 50 * MIB, 80, 3350, 67, 989, True,
        "NVIDIA H100 Tensor Core GPU Architecture whitepaper and H100 datasheet",
        "tensor-core peaks on the datasheet are at 1.83 GHz; the sparse figures there are twice these",
    ),
    Gpu(
        "H200", "H200 SXM 141 GB", "9.0", "HBM3e", 132, 1.980, 60 * MIB, 141, 4800, 67, 989, True,
        "NVIDIA H200 datasheet (memory, peaks); H100 whitepaper (SMs); L2 as the CUDA driver reports it",
        "SMs, clock, L2, shared memory, registers: as an H200 reported them on 2026-11-29 (driver 580.159.04); "
        "the H100 whitepaper prints 50 MB of L2 for the 80 GB H100",
    ),
    Gpu(
        "B200", "B200 SXM 180 GB", "10.0", "HBM3e", 148, 1.980, 126 * MIB, 180, 8000, 75, 2250, True,
        "NVIDIA DGX B200 datasheet, an eighth of the system (memory, bandwidth); HGX B200 datasheet (peaks); "
        "NVIDIA Blackwell Tuning Guide (L2, shared memory)",
        "the clock is implied by the fp32 peak; an early Blackwell brief prints 192 GB and 80 TFLOP/s",
    ),
)  # fmt: skip

GPUS: dict[str, Gpu] = {gpu.key: gpu for gpu in _ROWS}
DEFAULT_GPU = "H200"

# 32-bit multiply-adds that an SM starts in a clock, for peaks of GPUs that are not in the table.
_FMA_PER_CLOCK = {"7.0": 64, "7.2": 64, "7.5": 64, "8.0": 64}
_FMA_PER_CLOCK_LATER = 128
_BUS_TRANSFERS_PER_CLOCK = 2


@dataclass(frozen=True, slots=True)
class DriverFacts:
    """What the CUDA driver reports of a GPU. Sizes are bytes, clocks kHz, the bus width bits."""

    name: str
    compute: str
    sms: int
    clock_khz: int
    memory_clock_khz: int
    memory_bus_bits: int
    l2_bytes: int
    memory_bytes: int
    smem_per_sm: int
    smem_per_block_optin: int
    threads_per_sm: int
    threads_per_block: int
    blocks_per_sm: int
    registers_per_sm: int


def from_driver(facts: DriverFacts) -> Gpu:
    """The GPU in this machine: limits as the driver reports them, peaks from the table where it has the model.

    For another model the bandwidth is bus width x 2 x memory clock, and the fp32 peak multiply-adds x SMs x clock;
    its tensor-core peak is not known and is 0.
    """
    sm = SmLimits(
        facts.smem_per_sm,
        facts.smem_per_block_optin,
        facts.threads_per_sm,
        facts.blocks_per_sm,
        LIMITS[facts.compute].smem_bytes_per_clock if facts.compute in LIMITS else 128,
        facts.registers_per_sm,
    )
    measured: dict[str, Any] = {
        "name": facts.name,
        "sms": facts.sms,
        "boost_ghz": facts.clock_khz / 1e6,
        "l2_bytes": facts.l2_bytes,
        "threads_per_block": facts.threads_per_block,
        "sm": sm,
    }
    known = _same_model(facts)
    if known is not None:
        return replace(known, **measured)
    fma = _FMA_PER_CLOCK.get(facts.compute, _FMA_PER_CLOCK_LATER)
    return Gpu(
        key="this",
        compute=facts.compute,
        memory="device memory",
        hbm_gb=round(facts.memory_bytes / GIB),
        hbm_gbps=_BUS_TRANSFERS_PER_CLOCK * facts.memory_clock_khz * facts.memory_bus_bits / 8 / 1e6,
        fp32_tflops=2 * fma * facts.sms * facts.clock_khz / 1e9,
        fp16_tflops=0.0,
        bf16=float(facts.compute) >= 8.0,
        source="the CUDA driver",
        note="peaks follow from clocks and bus width that the driver reports",
        **measured,
    )


def _same_model(facts: DriverFacts) -> Gpu | None:
    """The table's GPU of this compute capability, SM count and memory size, if it has one."""
    same = (
        gpu
        for gpu in _ROWS
        if gpu.compute == facts.compute and gpu.sms == facts.sms and 0.85 <= facts.memory_bytes / gpu.hbm_bytes <= 1.05
    )
    return next(same, None)
