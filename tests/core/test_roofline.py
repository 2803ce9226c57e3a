"""The roofline: roofs by hand, what binds by hand, and the recorded kernels under their roofs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fmha.hardware import GPUS
from fmha.measurement import shipped
from fmha.problem import Problem, Tiling
from fmha.roofline import LEVELS, Point, bound, predicted, recorded, ridge, roofs

H200 = GPUS["H200"]
RECORDED = recorded(shipped())


def test_roofs_of_an_h200_by_hand() -> None:
    found = {roof.level: roof.rate for roof in roofs(H200, ("fp32", "tf32", "bf16", "fp8"))}
    assert found == {
        "SMEM": pytest.approx(128 * 132 * 1.98), "L2": pytest.approx(96 * 64 * 1.98), "HBM": 4800, "fp32": 67,
        "tf32": 494.5, "bf16": 989, "fp8": 1979,
    }  # fmt: skip
    by_level = {roof.level: roof for roof in roofs(H200)}
    assert ridge(by_level["HBM"], by_level["fp32"]) == pytest.approx(67e12 / 4.8e12)


def test_what_is_not_known_or_not_there_has_no_roof() -> None:
    assert [roof.level for roof in roofs(GPUS["T4"], ("fp32", "bf16", "fp16", "fp8"))] == [
        "SMEM",
        "HBM",
        "fp32",
        "fp16",
    ]
    assert all(roof.note for key in GPUS for roof in roofs(GPUS[key]) if roof.level in ("SMEM", "L2"))


def test_bound_by_hand() -> None:
    """10^12 FLOPs, 0.1 TB from HBM at 4.8 TB/s: 1/48 s. With 0.05 TB the fp32 units bind, at 67."""
    point = Point("x", "x", "fp32", 10**12, {"HBM": 1e11}, "by hand", time_us=25_000.0)
    found = bound(point, H200)
    assert found.binds.level == "HBM" and found.tflops == pytest.approx(48) and found.time_us == pytest.approx(1e6 / 48)
    assert point.tflops == pytest.approx(40) and found.reached == pytest.approx(40 / 48)
    assert (
        found.sentence() == "HBM bandwidth binds: at most 48 TFLOP/s; next is fp32 at 67, and it reaches 83 % of that."
    )
    less = bound(Point("x", "x", "fp32", 10**12, {"HBM": 5e10}, "by hand"), H200)
    assert less.binds.level == "fp32" and less.tflops == 67 and less.reached is None
    assert "arithmetic peak" in less.sentence()


@given(
    st.integers(1, 10**15), st.dictionaries(st.sampled_from(LEVELS), st.integers(1, 10**14)),
    st.sampled_from(sorted(GPUS)), st.sampled_from(["fp32", "fp16"]),
)  # fmt: skip
def test_the_bound_is_the_slowest_resource(flops: int, nbytes: dict[str, int], key: str, dtype: str) -> None:
    gpu = GPUS[key]
    found = bound(Point("x", "x", dtype, flops, nbytes, ""), gpu)
    rates = {roof.level: roof.rate for roof in roofs(gpu, (dtype,))}
    times = [flops / rates[dtype] / 1e6, *(n / rates[level] / 1e3 for level, n in nbytes.items() if level in rates)]
    assert found.time_us == pytest.approx(max(times), rel=1e-9)
    assert [limit for _, limit in found.limits] == sorted(limit for _, limit in found.limits)


def test_predicted_points_are_the_two_level_model() -> None:
    """B = H = 1, N = 1024, d = 64, fp32, 64 x 64: naive 4 N^2 + 4 N d elements, q-outer 2 N d + 32 N d."""
    problem = Problem(N=1024, d=64)
    naive, kv, q = predicted(problem, Tiling(64, 64), H200)
    assert (naive.name, kv.name, q.name) == ("naive", "kv-outer", "q-outer")
    assert naive.flops == kv.flops == q.flops == 4 * 1024**2 * 64
    assert naive.nbytes["HBM"] == 4 * (4 * 1024**2 + 4 * 1024 * 64) and q.nbytes["HBM"] == 4 * 34 * 1024 * 64
    assert "SMEM" not in kv.nbytes and "SMEM" in naive.nbytes
    assert "SMEM" not in q.nbytes  # 64 x 64 takes 4,096 threads: this app's kernel has no such block
    (*_, small) = predicted(problem, Tiling(32, 32), H200)
    assert bound(small, H200).binds.level == "SMEM"  # 32-way conflicts


def test_a_better_model_replaces_the_bytes() -> None:
    given_bytes = {"q-outer": {"HBM": 1e6, "L2": 2e6}}
    *_, q = predicted(Problem(N=1024, d=64), Tiling(32, 32), H200, given_bytes)
    assert q.nbytes["HBM"] == 1e6 and q.nbytes["L2"] == 2e6 and "cache model" in q.origin and "SMEM" in q.nbytes


def test_recorded_kernels_stay_under_their_roofs() -> None:
    """Nothing beats its bound; conflicts keep the tutorial's kernel at the shared-memory roof, 85 to 96 % of it."""
    assert len(RECORDED) >= 90 and {point.name for point, _ in RECORDED} == {"01", "02"}
    for point, gpu in RECORDED:
        found = bound(point, gpu)
        assert found.reached is not None and 0.3 < found.reached < 1, point.label
        if point.name == "02":
            assert found.binds.level == "SMEM", point.label
            if "causal" not in point.label:
                assert 0.84 < found.reached < 0.96, point.label
