"""Bytes of one launched function at each level of memory, and the sizes of the caches that they pass.

What a block loads beyond its registers and shared memory (*requested*) is found in the L1 cache of its SM, or fetched
by a request that serves several SMs at once (*merged*), or asked of L2; what L2 does not hold comes from DRAM. What a
block stores goes to L2, and from there to DRAM when its line is thrown out; some of it is still in L2 at the end.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from fmha.hardware import Gpu

MERGING_SMS = 4
WAYS = 16
READ_WAYS = 128
DIRTY_SHARE = 0.8
SCATTERED = 0.8  # of the bytes between two uses: what passes a half of L2 when blocks come one after the other
# GPUs whose L2 cache is two halves, each next to half of the SMs.
_TWO_HALVES = ("8.0", "9.0", "10.0")


@dataclass(frozen=True)
class Caches:
    """What the model knows of a GPU's caches.

    l1_bytes: of one SM, what shared memory leaves. l2_bytes: of the whole L2, which throws out what was used longest
    ago. copies: places that a line takes in L2 once it is written or used by several SMs; a line that one SM reads
    takes one. dirty_share, ways: written lines are held as in a smaller cache of sets of `ways` lines (None: one set).
    read_ways: the same for lines that were read: as if sets were larger, so what is held ends less gradually.
    merging_sms: SMs of a cluster whose requests for a line, made at once, become one, at most; 1: none do.
    """

    l1_bytes: float
    l2_bytes: float
    copies: int = 2
    merging_sms: int = MERGING_SMS
    dirty_share: float = DIRTY_SHARE
    ways: int | None = WAYS
    read_ways: int | None = READ_WAYS

    @property
    def dirty_room(self) -> float:
        """Bytes of L2 for lines that were written."""
        return self.l2_bytes * self.dirty_share


def caches_of(gpu: Gpu, smem_in_use: int) -> Caches:
    """The caches of `gpu` while the blocks on an SM take `smem_in_use` bytes of its shared memory."""
    halves = gpu.compute in _TWO_HALVES
    return Caches(
        l1_bytes=gpu.l1_bytes(smem_in_use),
        l2_bytes=gpu.l2_bytes,
        copies=2 if halves else 1,
        merging_sms=MERGING_SMS if halves else 1,
    )


@dataclass(frozen=True)
class TensorBytes:
    """Bytes of one tensor in one function. Expected values: they need not be whole.

    read = l1_hits + merged + l2_read, l2_read = l2_hits + dram_read, written = dram_written + left_dirty.
    """

    read: float = 0.0
    written: float = 0.0
    l1_hits: float = 0.0
    merged: float = 0.0
    l2_hits: float = 0.0
    dram_read: float = 0.0
    dram_written: float = 0.0

    @property
    def l2_read(self) -> float:
        """Bytes that SMs ask of L2."""
        return self.read - self.l1_hits - self.merged

    @property
    def left_dirty(self) -> float:
        """Written bytes that L2 still keeps from DRAM when the function ends."""
        return self.written - self.dram_written

    def __add__(self, other: TensorBytes) -> TensorBytes:
        return TensorBytes(
            self.read + other.read, self.written + other.written, self.l1_hits + other.l1_hits,
            self.merged + other.merged, self.l2_hits + other.l2_hits, self.dram_read + other.dram_read,
            self.dram_written + other.dram_written,
        )  # fmt: skip


@dataclass(frozen=True)
class Levels:
    """One function's bytes at every level, by tensor. spilled: bytes of registers that threads store because they have
    too few, which L1 passes on to L2; no byte of a tensor, and not among the requested ones."""

    function: str
    by_tensor: dict[str, TensorBytes]
    spilled: float = 0.0

    @property
    def all(self) -> TensorBytes:
        """All tensors together."""
        return sum(self.by_tensor.values(), TensorBytes())

    @property
    def requested(self) -> float:
        """Bytes that blocks load and store."""
        return self.all.read + self.all.written

    @property
    def l2(self) -> float:
        """Bytes between the SMs and L2, both ways: 32 x `lts__t_sectors_srcunit_tex.sum`."""
        return self.all.l2_read + self.all.written + self.spilled

    @property
    def dram(self) -> float:
        """Bytes between L2 and DRAM, both ways."""
        return self.all.dram_read + self.all.dram_written

    @property
    def l1_hit_rate(self) -> float:
        """Share of the loaded bytes that L1 holds."""
        return self.all.l1_hits / self.all.read if self.all.read else 0.0

    @property
    def l2_hit_rate(self) -> float:
        """Share of the bytes asked of L2 that it holds; stores always find room."""
        return 1 - self.all.dram_read / self.l2 if self.l2 else 0.0


def together(levels: Iterable[Levels], function: str = "all") -> Levels:
    """Several functions as one."""
    summed: dict[str, TensorBytes] = {}
    levels = tuple(levels)
    for one in levels:
        for name, part in one.by_tensor.items():
            summed[name] = summed.get(name, TensorBytes()) + part
    return Levels(function, summed, sum(one.spilled for one in levels))
