"""Real GPUs, each with the documents that its figures were read from, and the GPU that a driver describes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from fmha.gpu_model import GIB, KIB, LIMITS, MIB, Gpu, SmLimits

_SLICES = "64 bytes a clock and slice, as in A100 (its whitepaper: 5,120 from 80 slices), x {} slices"

_ROWS = (
    Gpu(
        "T4", "Tesla T4", "7.5", "GDDR6", 40, 1.590, 4 * MIB, 16, 320, 8.1, 65, False,
        "NVIDIA Turing GPU Architecture whitepaper (Tesla T4) and T4 datasheet",
        "Turing reads 64 bytes of shared memory a clock and SM; the others 128",
    ),
    Gpu(
        "V100", "Tesla V100 SXM2 32 GB", "7.0", "HBM2", 80, 1.530, 6 * MIB, 32, 900, 15.7, 125, False,
        "NVIDIA Tesla V100 GPU Architecture whitepaper and V100 datasheet",
        l2_bytes_per_clock=2048, l2_source="NVIDIA A100 whitepaper, where it compares the two",
    ),
    Gpu(
        "A100-40", "A100 SXM4 40 GB", "8.0", "HBM2", 108, 1.410, 40 * MIB, 40, 1555, 19.5, 312, True,
        "NVIDIA A100 Tensor Core GPU Architecture whitepaper",
        tf32_tflops=156, l2_bytes_per_clock=5120, l2_source="NVIDIA A100 whitepaper",
    ),
    Gpu(
        "A100-80", "A100 SXM4 80 GB", "8.0", "HBM2e", 108, 1.410, 40 * MIB, 80, 2039, 19.5, 312, True,
        "NVIDIA A100 Tensor Core GPU Architecture whitepaper; A100 80GB datasheet (memory)",
        tf32_tflops=156, l2_bytes_per_clock=5120, l2_source="NVIDIA A100 whitepaper",
    ),
    Gpu(
        "RTX3090", "GeForce RTX 3090", "8.6", "GDDR6X", 82, 1.695, 6 * MIB, 24, 936, 35.6, 71, True,
        "NVIDIA Ampere GA102 GPU Architecture whitepaper",
        "matrix peaks with fp32 accumulation; with fp16 accumulation fp16 has twice as much", tf32_tflops=35.6,
    ),
    Gpu(
        "RTX4090", "GeForce RTX 4090", "8.9", "GDDR6X", 128, 2.520, 72 * MIB, 24, 1008, 82.6, 165.2, True,
        "NVIDIA Ada GPU Architecture whitepaper",
        "matrix peaks with fp32 accumulation; with fp16 accumulation fp16 and fp8 have twice as much",
        tf32_tflops=82.6, fp8_tflops=330.3,
    ),
    Gpu(
        "RTX5090", "GeForce RTX 5090", "12.0", "GDDR7", 170, 2.407, 96 * MIB, 32, 1792, 104.8, 209.5, True,
        "NVIDIA RTX Blackwell GPU Architecture whitepaper",
        "matrix peaks with fp32 accumulation; the press's 838 TFLOP/s of fp16 are with fp16 accumulation and sparsity",
        tf32_tflops=104.8, fp8_tflops=419,
    ),
    Gpu(
        "L4", "L4", "8.9", "GDDR6", 58, 2.040, 48 * MIB, 24, 300, 30.3, 121, True,
        "NVIDIA Ada GPU Architecture whitepaper v2 (L4) and L4 datasheet",
        "the datasheet prints matrix peaks with sparsity: these are half of them", tf32_tflops=60, fp8_tflops=242.5,
    ),
    Gpu(
        "L40S", "L40S", "8.9", "GDDR6", 142, 2.520, 96 * MIB, 48, 864, 91.6, 362, True,
        "NVIDIA L40S datasheet (SMs by its RT cores, memory, peaks without sparsity); Ada whitepaper (L2 of the L40)",
        "some listings print 48 MB of L2", tf32_tflops=183, fp8_tflops=733,
    ),
    Gpu(
        "H100", "H100 SXM5 80 GB", "9.0", "HBM3", 132, 1.980, 50 * MIB, 80, 3350, 67, 989, True,
        "NVIDIA H100 Tensor Core GPU Architecture whitepaper and H100 datasheet",
        "tensor-core peaks on the datasheet are at 1.83 GHz; the sparse figures there are twice these",
        tf32_tflops=494.5, fp8_tflops=1979, l2_bytes_per_clock=5120, l2_source=_SLICES.format(80),
    ),
    Gpu(
        "H200", "H200 SXM 141 GB", "9.0", "HBM3e", 132, 1.980, 60 * MIB, 141, 4800, 67, 989, True,
        "NVIDIA H200 datasheet (memory, peaks); H100 whitepaper (SMs); L2 as the CUDA driver reports it",
        "SMs, clock, L2, shared memory, registers: as an H200 reported them on 2026-11-29 (driver 580.159.04); "
        "the H100 whitepaper prints 50 MB of L2 for the 80 GB H100",
        tf32_tflops=494.5, fp8_tflops=1979, l2_bytes_per_clock=6144, l2_source=_SLICES.format(96),
    ),
    Gpu(
        "B200", "B200 SXM 180 GB", "10.0", "HBM3e", 148, 1.980, 253 * MIB // 2, 180, 7672, 75, 2250, True,
        "HGX B200 datasheet (memory, peaks); CUDA driver of a B200 as quoted in pytorch/ao pull request 4002 (SMs, L2, "
        "bandwidth: 7,680 bits x 2 x 3,996 MHz); NVIDIA Blackwell Tuning Guide (shared memory)",
        "the clock is implied by the fp32 peak; the DGX B200 datasheet prints 8 TB/s, the tuning guide 126 MB of L2; "
        "an early Blackwell brief prints 192 GB and 80 TFLOP/s",
        tf32_tflops=1125, fp8_tflops=4500,
        not_modelled="the two dies with an L2 half each, and the tensor memory of its matrix units",
    ),
    Gpu(
        "MI300X", "Instinct MI300X", "gfx942", "HBM3", 304, 2.100, 8 * 4 * MIB, 192, 5300, 163.4, 1307.4, True,
        "AMD Instinct MI300X datasheet (compute units, clock, peaks, memory); AMD CDNA 3 white paper (caches, LDS)",
        "an SM here is a compute unit, shared memory its LDS; L2 is 4 MB for each of 8 dies",
        smem_per_block_default=64 * KIB,
        tf32_tflops=653.7, fp8_tflops=2614.9, l2_bytes_per_clock=8 * 2048, l2_source="AMD CDNA 3 white paper",
        last_level_bytes=256 * MIB, warp=64,
        not_modelled="the kernels of this app do not run on it; each of its 8 dies has an L2 of its own, which only "
        "its own compute units use; the 256 MB Infinity Cache (17.2 TB/s) before HBM; wavefronts of 64 lanes",
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
        data_per_sm=max(facts.smem_per_sm, LIMITS[facts.compute].data_per_sm if facts.compute in LIMITS else 0),
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


__all__ = ["DEFAULT_GPU", "GIB", "GPUS", "KIB", "LIMITS", "MIB", "DriverFacts", "Gpu", "SmLimits", "from_driver"]
