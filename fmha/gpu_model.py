"""What a GPU is, for this app: sizes, speeds and limits of one SM and of the whole.

Sizes are bytes, bandwidths GB/s and peaks TFLOP/s, both decimal (10^9, 10^12), as vendors print them. Some values are
derived, and pages must say so: the shared-memory bandwidth (bytes a clock and SM x SMs x boost clock), the L2 bandwidth
(bytes a clock x boost clock) and the device memory in bytes. Datasheets print device memory in "GB" and mean 2^30: an
H200 sold as 141 GB reports 143,771 MiB. So `hbm_bytes` is the printed number x 2^30; the driver keeps back a few
percent of it.

Limits by compute capability are from the table "Technical Specifications per Compute Capability" of the CUDA C++
Programming Guide; a block gets 48 KiB of shared memory unless it opts in. The storage that L1 and shared memory divide
is from the tuning guides and architecture whitepapers; AMD's limits are from the CDNA 3 white paper and its guide to
the instruction set.
"""

from __future__ import annotations

from dataclasses import dataclass

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
    data_per_sm: int = 0  # bytes that L1 cache and shared memory divide between them; 0: not known


LIMITS: dict[str, SmLimits] = {
    "7.0": SmLimits(96 * KIB, 96 * KIB, 2048, 32, 128, data_per_sm=128 * KIB),
    "7.5": SmLimits(64 * KIB, 64 * KIB, 1024, 16, 64, data_per_sm=96 * KIB),
    "8.0": SmLimits(164 * KIB, 163 * KIB, 2048, 32, 128, data_per_sm=192 * KIB),
    "8.6": SmLimits(100 * KIB, 99 * KIB, 1536, 16, 128, data_per_sm=128 * KIB),
    "8.9": SmLimits(100 * KIB, 99 * KIB, 1536, 24, 128, data_per_sm=128 * KIB),
    "9.0": SmLimits(228 * KIB, 227 * KIB, 2048, 32, 128, data_per_sm=256 * KIB),
    "10.0": SmLimits(228 * KIB, 227 * KIB, 2048, 32, 128, data_per_sm=256 * KIB),
    "12.0": SmLimits(100 * KIB, 99 * KIB, 1536, 24, 128, data_per_sm=128 * KIB),
    # A compute unit of CDNA 3: 64 KiB of LDS and an L1 cache of 32 KiB that share nothing; registers for 64 lanes.
    "gfx942": SmLimits(
        64 * KIB, 64 * KIB, 2048, 32, 128, registers_per_sm=131072, registers_per_thread=512, data_per_sm=96 * KIB
    ),
}


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU model.

    Peaks of matrix units are dense, with fp32 accumulation: `fp16_tflops` (for bf16 too, where the GPU has it),
    `tf32_tflops` and `fp8_tflops` (0: it has none). `fp32_tflops` is the peak of the vector units.
    l2_bytes_per_clock: what L2 delivers to all SMs in one clock; None: no document says. last_level_bytes: a
    memory-side cache behind L2; 0: none. not_modelled: what of this GPU the app's model leaves out.
    """

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
    tf32_tflops: float = 0.0
    fp8_tflops: float = 0.0
    l2_bytes_per_clock: int | None = None
    l2_source: str = ""  # of l2_bytes_per_clock
    last_level_bytes: int = 0
    warp: int = 32  # lanes that run in step
    not_modelled: str = ""
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
    def is_cuda(self) -> bool:
        """Whether it runs the `.cu` files of this project."""
        return self.compute[0].isdigit()

    @property
    def data_per_sm(self) -> int:
        """Bytes of one SM that its L1 cache and its shared memory divide between them; 0: not known."""
        return self.limits.data_per_sm

    def l1_bytes(self, smem_bytes: int) -> int:
        """What is left of an SM's storage for its L1 cache when resident blocks take `smem_bytes` of shared memory.

        At most: the driver hands out shared memory in a few sizes only (the carve-out), and may hand out more.
        """
        return max(0, self.data_per_sm - (smem_bytes if self.is_cuda else self.smem_per_sm))

    @property
    def matrix_peaks(self) -> dict[str, float]:
        """Dense peaks of the matrix units by dtype, TFLOP/s; only those that it has."""
        peaks = {"tf32": self.tf32_tflops, "fp16": self.fp16_tflops, "bf16": self.fp16_tflops if self.bf16 else 0.0}
        return {dtype: peak for dtype, peak in (peaks | {"fp8": self.fp8_tflops}).items() if peak}

    def peak_tflops(self, dtype: str) -> float:
        """The peak for a dtype: of the vector units for fp32, otherwise of the matrix units; 0: it has none."""
        return self.fp32_tflops if dtype == "fp32" else self.matrix_peaks.get(dtype, 0.0)

    @property
    def l2_gbps(self) -> float | None:
        """L2 bandwidth, GB/s. Derived: bytes a clock x boost clock (L2 may run slower); None: not known."""
        return None if self.l2_bytes_per_clock is None else self.l2_bytes_per_clock * self.boost_ghz

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
