"""Shared memory of a block and device memory of a pass."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fmha import Problem, Tiling
from fmha.hardware import GPUS
from fmha.memory import hbm_held, smem_bytes, smem_complaint, smem_layout

sizes = st.integers(1, 256)


@given(sizes, sizes, sizes, st.sampled_from([2, 4]))
def test_layout_has_no_gap_and_no_overlap(Br: int, Bc: int, d: int, itemsize: int) -> None:
    slots = smem_layout(Tiling(Br, Bc), d, itemsize)
    assert [slot.name for slot in slots] == ["Qi", "Kj", "Vj", "Sij", "Oi", "li", "mi", "alpha", "beta"]
    end = 0
    for slot in slots:
        assert slot.offset == end
        end += slot.nbytes
    total = itemsize * (Br * d + 2 * Bc * d) + 4 * (Br * Bc + Br * d + 4 * Br)
    assert end == total == smem_bytes(Tiling(Br, Bc), d, itemsize)


def test_default_tiles_fit_without_opt_in() -> None:
    assert smem_bytes(Tiling(32, 32), 64) == 4 * (4 * 32 * 64 + 32 * 32 + 4 * 32) == 37376


@given(sizes, sizes, sizes, st.sampled_from([1024, 49152, 101376, 232448]))
def test_complaint_names_both_numbers_and_what_fits(Br: int, Bc: int, d: int, limit: int) -> None:
    text = smem_complaint(Tiling(Br, Bc), d, limit)
    need = smem_bytes(Tiling(Br, Bc), d)
    if need <= limit:
        assert text is None
        return
    assert text is not None and text.startswith(f"shared memory: Br={Br}, Bc={Bc}, d={d} needs {need / 1024:.1f} KiB")
    assert f"this GPU allows {limit / 1024:.0f} KiB a block" in text
    if "try a smaller d" in text:
        assert smem_bytes(Tiling(1, 1), d) > limit
    else:
        advice = dict(part.split("=") for part in text.rstrip(".").split("; try ")[1].split(", "))
        assert smem_bytes(Tiling(int(advice["Br"]), int(advice["Bc"])), d) <= limit


def test_complaint_on_a_real_gpu() -> None:
    limit = GPUS["RTX4090"].smem_per_block_optin
    assert smem_complaint(Tiling(32, 32), 64, limit) is None
    assert "99 KiB" in str(smem_complaint(Tiling(128, 64), 128, limit))


@pytest.mark.parametrize(
    ("order", "extra"), [("naive", 2 * 4 * 64 * 64 * 2), ("q-outer", 4 * 64 * 4), ("kv-outer", 4 * 64 * 8)]
)
def test_device_memory(order: str, extra: int) -> None:
    p = Problem(H=4, Hk=2, N=64, d=16, dtype="fp16")
    held = hbm_held(p, order)
    assert sum(held.values()) == (4 + 2 + 2 + 4) * 64 * 16 * 2 + extra
    assert held["Q"] == held["O"] == 2 * held["K"] == 2 * held["V"]


def test_naive_grows_with_the_square() -> None:
    small, large = (sum(hbm_held(Problem(N=N, d=1), "naive").values()) for N in (1 << 12, 1 << 13))
    assert 3.9 < large / small <= 4
    small, large = (sum(hbm_held(Problem(N=N, d=1), "q-outer").values()) for N in (1 << 12, 1 << 13))
    assert large == 2 * small
