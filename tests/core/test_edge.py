"""Where DRAM bytes are not predicted: exactly where the model of the caches does not agree with itself."""

from __future__ import annotations

import pytest

from fmha import Problem, Tiling
from fmha.edge import EDGE, TWO_HALVES, dram_doubt, in_use_bytes
from fmha.forecast import forecast
from fmha.hardware import GPUS
from fmha.kernels import KERNELS
from fmha.order_levels import order_bytes

H200, TILES = GPUS["H200"], Tiling(32, 32)
MIB = 1 << 20


def test_bytes_in_use_by_hand() -> None:
    # One head of 65,536 keys: K and V of 16 MiB each, two copies in an L2 of two halves, one on a T4.
    long = Problem(N=65536, d=64, causal="bottom-right")
    assert in_use_bytes(long, TILES, H200) == (64 * MIB, 1)
    assert in_use_bytes(long, TILES, GPUS["T4"]) == (32 * MIB, 1)
    # 132 blocks at once, 16 Q tiles a head: nine heads, of 256 KiB and two copies each; tile-major: all 64 heads.
    short = Problem(N=512, H=64, d=64, causal="bottom-right")
    assert in_use_bytes(short, TILES, H200) == (9 * MIB // 2, 9)
    assert in_use_bytes(short, TILES, H200, "tile-major") == (32 * MIB, 64)
    # Eight query heads share one K/V head.
    assert in_use_bytes(short.replace(Hk=8), TILES, H200) == (MIB, 2)


@pytest.mark.parametrize("n", [73728, 131072])
def test_beyond_the_edge_nothing_is_said_of_dram(n: int) -> None:
    p = Problem(N=n, d=64, causal="bottom-right")
    doubt = dram_doubt(p, TILES, H200)
    assert "60.0 MiB of L2" in doubt and "smaller N" in doubt and doubt.count(".") <= 4
    assert order_bytes("q-outer", p, TILES, H200, "DRAM") is None
    assert order_bytes("q-outer", p, TILES, H200, "L2") is not None
    assert order_bytes("naive", p.replace(N=4096), TILES, H200, "DRAM") is not None


def test_without_a_mask_without_l2_or_with_a_large_one_nothing_is_in_doubt() -> None:
    p = Problem(N=65536, d=64, causal="bottom-right")
    assert not dram_doubt(p.replace(causal=None), TILES, H200)
    assert not dram_doubt(p, TILES, H200, l2_bytes=0)
    used = in_use_bytes(p, TILES, H200)[0]
    assert dram_doubt(p, TILES, H200, l2_bytes=int(used / EDGE / TWO_HALVES) - 1)
    assert not dram_doubt(p, TILES, H200, l2_bytes=int(used / EDGE / TWO_HALVES) + 1)
    one = in_use_bytes(p, TILES, GPUS["T4"])[0]  # whose L2 is one piece
    assert dram_doubt(p, TILES, GPUS["T4"], l2_bytes=int(one / EDGE) - 1)
    assert not dram_doubt(p, TILES, GPUS["T4"], l2_bytes=int(one / EDGE) + 1)


@pytest.mark.parametrize("gpu", ["H200", "T4", "RTX4090"])
@pytest.mark.parametrize("order", ["head-major", "tile-major", "heavy-first"])
def test_short_of_the_edge_more_followed_visits_say_the_same(gpu: str, order: str) -> None:
    compared = 0
    for n in (1024, 3000, 4096, 8192, 24576, 40000):
        for heads in (1, 16):
            p = Problem(N=n, H=heads, d=64, causal="bottom-right")
            few, many = (forecast(KERNELS["02"], p, TILES, GPUS[gpu], order=order, most=m) for m in (16_000, 30_000))
            if dram_doubt(p, TILES, GPUS[gpu], order, blocks_per_sm=few.functions[0].held.blocks):
                continue
            compared += 1
            assert few.levels.dram == pytest.approx(many.levels.dram, rel=0.15), (n, heads)
    assert compared >= 2
