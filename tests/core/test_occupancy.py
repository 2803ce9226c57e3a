"""Blocks an SM holds: hand-worked cases from the limits of the programming guide."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fmha.hardware import GPUS
from fmha.occupancy import occupancy


@pytest.mark.parametrize(
    ("gpu", "threads", "smem", "registers", "blocks", "limited_by"),
    [
        ("H200", 1024, 37376, 58, 1, "registers"),  # 58 x 32 -> 2048 a warp; 32 warps take all 65,536
        ("H200", 1024, 37376, 32, 2, "threads"),
        ("H200", 256, 16896, 64, 4, "registers"),
        ("H200", 256, 65600, 31, 3, "shared memory"),  # 233,472 / (65,600 + 1,024 -> 66,688)
        ("H200", 32, 0, 16, 32, "blocks"),
        ("H200", 512, 114688, 40, 2, "shared memory"),
        ("T4", 256, 32768, 32, 2, "shared memory"),  # no reserve before compute capability 8.0
        ("RTX4090", 256, 49152, 32, 2, "shared memory"),  # 102,400 / 50,176
        ("A100-80", 128, 0, 255, 2, "registers"),
        ("MI300X", 256, 16384, 32, 4, "shared memory"),
        ("MI300X", 1024, 16384, 128, 1, "registers"),  # 512 / 128 = 4 wavefronts on each of 4 SIMDs: 16 of 64 lanes
    ],
)
def test_hand_worked(gpu: str, threads: int, smem: int, registers: int, blocks: int, limited_by: str) -> None:
    found = occupancy(GPUS[gpu], threads=threads, smem_bytes=smem, registers=registers)
    assert (found.blocks, found.limited_by) == (blocks, limited_by)
    assert found.warps == blocks * -(-threads // GPUS[gpu].warp) and found.fraction == found.warps / found.max_warps


@given(st.sampled_from(sorted(GPUS)), st.integers(1, 1024), st.integers(0, 48 * 1024), st.integers(1, 64))
def test_more_of_anything_never_helps(gpu: str, threads: int, smem: int, registers: int) -> None:
    here = occupancy(GPUS[gpu], threads=threads, smem_bytes=smem, registers=registers)
    assert here.blocks >= 1 and here.warps <= here.max_warps
    for more in ({"threads": min(1024, threads + 32)}, {"smem_bytes": smem + 1024}, {"registers": registers + 8}):
        wanted = {"threads": threads, "smem_bytes": smem, "registers": registers, **more}
        assert occupancy(GPUS[gpu], **wanted).blocks <= here.blocks
    assert "registers" not in occupancy(GPUS[gpu], threads=threads, smem_bytes=smem).by_resource
