"""The papers' algorithms counted a second time, tile by tile, and every claim's verdict."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fmha import ladder
from fmha.algorithms import (
    WHY_THESE_TILES,
    Accesses,
    fa1_tiles,
    flash_backward,
    flash_forward,
    matmul_flops,
    standard_backward,
    standard_forward,
)
from fmha.errors import ProblemError
from fmha.measurement import Recording, Timing, shipped
from fmha.paper_ratios import all_claims, ratios, speed_claims, speeds
from fmha.papers import CLAIMS, TABLE21_FLASH, TABLE21_LENGTHS, TABLE21_STANDARD, block_size_bytes, theorem2_slopes
from fmha.problem import Problem, Tiling
from fmha.traffic import closed_form
from tests.ladder_support import ladder_recording

# --- counts -----------------------------------------------------------------------------------------------------------


@given(st.integers(1, 60), st.integers(1, 8), st.integers(1, 20), st.integers(1, 20))
def test_algorithms_1_and_4_tile_by_tile(N: int, d: int, Br: int, Bc: int) -> None:
    """The paper's loops, adding up what each line loads and writes."""
    forward, backward = N * d + 2 * N, 3 * N * d  # O, l, m; dQ, dK, dV
    for j in range(0, N, Bc):
        cols = min(Bc, N - j)
        forward += 2 * cols * d
        backward += 2 * cols * d + 2 * cols * d  # Kj, Vj read; dKj, dVj written
        for i in range(0, N, Br):
            rows = min(Br, N - i)
            forward += (2 * rows * d + 2 * rows) + (rows * d + 2 * rows)
            backward += (4 * rows * d + 2 * rows) + rows * d
    assert flash_forward(N, d, Bc).elements == forward
    assert flash_backward(N, d, Bc).elements == backward


@given(st.integers(1, 300), st.sampled_from([1, 16, 64]), st.integers(1, 64))
def test_algorithm_1_is_the_app_s_kv_outer(N: int, d: int, Bc: int) -> None:
    counted = closed_form(Problem(N=N, d=d), Tiling(8, Bc), "kv-outer")
    assert flash_forward(N, d, Bc).nbytes(4) == counted.requested_bytes + counted.init_write_bytes
    assert standard_forward(N, d).nbytes(4) == closed_form(Problem(N=N, d=d), Tiling(8, Bc), "naive").requested_bytes


def test_standard_backward_by_hand() -> None:
    """N = 2, d = 3: matrices of 4 and of 6; five products, each with two inputs and an output, and dS = P, dP -> dS."""
    products = (4 + 6 + 6) + (6 + 6 + 4) + (4 + 4 + 4) + (4 + 6 + 6) + (4 + 6 + 6)
    assert standard_backward(2, 3).elements == products
    assert standard_forward(2, 3).elements == (6 + 6 + 4) + (4 + 4) + (4 + 6 + 6)


def test_accesses_add_up() -> None:
    both = Accesses({"Q": 3, "O": 1}, 2) + Accesses({"Q": 4, "dQ": 5}, 7)
    assert both == Accesses({"Q": 7, "O": 1, "dQ": 5}, 9) and both.elements == 22
    assert both.nbytes(2, heads=3) == 3 * 44 and both.nbytes(2, heads=3, vector_itemsize=4) == 3 * (26 + 36)


def test_flops_of_products() -> None:
    assert matmul_flops(8, 4, backward=False, recompute=False) == 4 * 64 * 4
    assert matmul_flops(8, 4, backward=True, recompute=True) * 4 == 14 * matmul_flops(
        8, 4, backward=False, recompute=True
    )


# --- tiles ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kib", "itemsize", "d", "tiles"),
    [
        (192, 2, 64, (64, 384)),
        (192, 4, 64, (64, 192)),
        (228, 2, 128, (128, 228)),
        (48, 4, 128, (24, 24)),
        (4, 4, 64, (4, 4)),
    ],
)
def test_flashattention_1_chooses(kib: int, itemsize: int, d: int, tiles: tuple[int, int]) -> None:
    assert fa1_tiles(kib * 1024 // itemsize, d) == Tiling(*tiles)


@given(st.integers(1, 1 << 20), st.integers(1, 512))
def test_a_quarter_of_sram_for_each(M: int, d: int) -> None:
    """All but for the ceiling: Kj, Vj, Qi, Oi and Sij take a quarter each at most."""
    tiles = fa1_tiles(M, d)
    assert (tiles.Bc - 1) * d < M / 4 and tiles.Br <= tiles.Bc and tiles.Br <= d
    assert tiles.Br * (tiles.Bc - 1) < M / 4


def test_the_explanation_has_its_units_and_m_must_be_a_number() -> None:
    for word in ("elements, not bytes", "98,304", "Kj and Vj", "Qi and Oi", "Sij", "Br = min(Bc, d)"):
        assert word in WHY_THESE_TILES
    with pytest.raises(ProblemError, match="sram_elements"):
        fa1_tiles(0, 64)


# --- claims -----------------------------------------------------------------------------------------------------------

VERDICTS = {
    "fa1-flash-bytes": "reproduced", "fa1-standard-bytes": "not reproduced", "fa1-gflops": "not reproduced",
    "fa1-block-size": "shape only", "fa1-theorem2": "reproduced", "fa1-theorem2-standard": "reproduced",
    "fa1-memory": "shape only", "fa1-standard-memory": "reproduced", "online-accesses": "reproduced",
    "fa2-standard": "shape only", "fa2-fa1": "not tested", "fa2-hopper": "reproduced", "fa3-speedup": "shape only",
    "fa3-peak": "not tested",
}  # fmt: skip


def test_verdicts() -> None:
    found = {claim.id: claim.check() for claim in all_claims(shipped())}  # the sweeps alone: without FlashAttention-3
    assert {id: finding.verdict for id, finding in found.items()} == VERDICTS
    assert all(f.theirs and f.ours and f.why.endswith(".") for f in found.values())
    assert found["fa1-flash-bytes"].value == pytest.approx(4.605, abs=0.001)
    assert found["fa1-standard-bytes"].value == pytest.approx(25.233, abs=0.001)
    assert "7.0 more" in found["fa1-standard-bytes"].why and "our guess" in found["fa1-standard-bytes"].why


def test_every_claim_says_where_it_stands() -> None:
    ids = [claim.id for claim in all_claims()]
    assert len(set(ids)) == len(ids) and all(c.paper and c.place and c.text.endswith(".") for c in all_claims())


def test_theorem_2_and_the_shape_of_fig_2() -> None:
    slopes = theorem2_slopes()
    assert slopes == {
        "M": pytest.approx(-1, abs=0.02),
        "N": pytest.approx(2, abs=0.02),
        "d": pytest.approx(2, abs=0.05),
    }
    gb = block_size_bytes()
    assert gb[64] > gb[128] > gb[256] > gb[512] > gb[64] / 8


def test_table_21_is_a_polynomial() -> None:
    """Standard: 4 matrices N x N and 10 of N x d in fp16 for 128 heads, to the megabyte: the row was copied rightly."""
    for n, mib in zip(TABLE21_LENGTHS, TABLE21_STANDARD, strict=False):
        assert round(128 * 2 * (4 * n * n + 10 * n * 64) / 2**20) == mib
    assert [round(209 * n / 1024) for n in TABLE21_LENGTHS[2:]] == list(TABLE21_FLASH[2:])


# --- speed ------------------------------------------------------------------------------------------------------------


def with_times(factor: float, name: str) -> tuple[Recording, ...]:
    """The shipped recordings, where cuDNN is called `name` and takes 1 / factor of FlashAttention-2's time."""
    made = []
    for recording in shipped():
        runs = []
        for run in recording.runs:
            flash = {e.dtype: e for e in run.entries if e.name == "sdpa-flash" and e.time is not None}
            entries = []
            for entry in run.entries:
                if entry.name == "sdpa-cudnn" and entry.dtype in flash:
                    us = flash[entry.dtype].time.median_us / factor  # type: ignore[union-attr]
                    entry = dataclasses.replace(entry, name=name, time=Timing(us, us, us, us, 20, 3))
                entries.append(entry)
            runs.append(dataclasses.replace(run, entries=tuple(entries)))
        made.append(dataclasses.replace(recording, runs=tuple(runs)))
    return tuple(made)


@pytest.mark.parametrize(("factor", "verdict"), [(1.75, "reproduced"), (1.2, "not reproduced")])
def test_flashattention_3_would_be_judged(factor: float, verdict: str) -> None:
    recordings = with_times(factor, "fa3")
    (claim,) = (c for c in speed_claims(recordings) if c.id == "fa3-speedup")
    assert claim.check().verdict == verdict and f"{factor:.2f}x" in claim.check().ours
    assert ratios(recordings, "fa3", "sdpa-flash") == pytest.approx([factor] * len(speeds(recordings, "fa3")))


def test_the_ladder_s_recordings_count_too() -> None:
    """There FlashAttention-3 is a peer; both claims about it are then judged by its own times."""
    p = ladder.problem(4096, 64, None, "bf16")
    made = ladder_recording([p])
    found = {c.id: c.check() for c in all_claims((*shipped(), made)) if c.id.startswith("fa3")}
    assert found["fa3-speedup"].ours.startswith("1.60x to 1.60x") and found["fa3-speedup"].verdict == "reproduced"
    assert found["fa3-peak"].ours.startswith("FlashAttention-3: 480 TFLOP/s")
    known = {c.id: c.check().ours for c in all_claims()}
    assert known == {c.id: c.check().ours for c in all_claims((*shipped(), *ladder.shipped()))}


def test_without_recordings_nothing_is_claimed() -> None:
    assert all(claim.check().verdict == "not tested" for claim in speed_claims(()))
    assert len(all_claims(())) == len(CLAIMS) + 5
