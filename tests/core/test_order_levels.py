"""Bytes of the loop orders at each level: they are the parts' own numbers, and keep their order."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fmha import Problem, Tiling
from fmha.bank_kernels import smem_use
from fmha.errors import LimitError
from fmha.forecast import forecast
from fmha.hardware import GPUS
from fmha.kernels import KERNELS
from fmha.order_levels import Level, order_bytes
from fmha.traffic import closed_form, compulsory_bytes

H200 = GPUS["H200"]
P, TILES = Problem(N=2048, H=4, d=64), Tiling(32, 32)


@pytest.mark.parametrize("order", ["naive", "q-outer", "kv-outer"])
def test_requested_is_the_closed_form_in_the_dtype_at_hand(order: str) -> None:
    half = P.replace(dtype="fp16")
    assert order_bytes(order, half, TILES, H200, "requested") == closed_form(half, TILES, order).requested_bytes


@pytest.mark.parametrize(("order", "number"), [("naive", "01"), ("q-outer", "02")])
def test_other_levels_are_those_of_the_kernels_in_fp32(order: str, number: str) -> None:
    said = forecast(KERNELS[number], P, TILES, H200).levels
    half = P.replace(dtype="fp16")
    assert order_bytes(order, half, TILES, H200, "L2") == said.l2
    assert order_bytes(order, half, TILES, H200, "DRAM") == said.dram
    assert order_bytes(order, half, TILES, H200, "SMEM") == 128 * smem_use(KERNELS[number], P, TILES, H200).wavefronts


def test_tiles_with_too_many_threads_still_have_bytes_below_l1() -> None:
    wide = Tiling(64, 64)
    assert KERNELS["02"].complaint(P, wide, H200)
    requested = order_bytes("q-outer", P, wide, H200, "requested")
    l2, dram = (order_bytes("q-outer", P, wide, H200, level) for level in ("L2", "DRAM"))
    assert requested is not None and l2 is not None and dram is not None
    assert compulsory_bytes(P) * 0.5 <= dram <= l2 <= requested
    assert order_bytes("q-outer", P, wide, H200, "SMEM") is None
    assert order_bytes("kv-outer", P, TILES, H200, "SMEM") is None


@pytest.mark.parametrize("order", ["q-outer", "kv-outer"])
def test_tiles_that_do_not_fit_are_refused(order: str) -> None:
    with pytest.raises(LimitError, match="shared memory"):
        order_bytes(order, Problem(N=512, d=256), Tiling(256, 256), H200, "L2")


@pytest.mark.parametrize("level", ["L2", "DRAM", "SMEM"])
def test_a_gpu_without_cuda_is_refused(level: Level) -> None:
    with pytest.raises(LimitError, match="CUDA"):
        order_bytes("naive", P, TILES, GPUS["MI300X"], level)


@settings(max_examples=25)
@given(
    n=st.integers(1, 2000),
    heads=st.integers(1, 5),
    d=st.sampled_from([16, 64, 128]),
    tiles=st.sampled_from([(8, 8), (32, 32), (64, 16), (64, 64)]),
    causal=st.sampled_from([None, "br", "tl"]),
)
def test_each_level_sees_no_more_than_the_one_before(
    n: int, heads: int, d: int, tiles: tuple[int, int], causal: str | None
) -> None:
    p, t = Problem(N=n, H=heads, d=d, causal=causal), Tiling(*tiles)  # type: ignore[arg-type]
    for order in ("q-outer", "kv-outer"):
        requested, l2, dram = (order_bytes(order, p, t, H200, level) for level in ("requested", "L2", "DRAM"))
        assert requested is not None and l2 is not None and dram is not None
        assert 0 < dram <= l2 * (1 + 1e-9) and l2 <= requested * (1 + 1e-9)
