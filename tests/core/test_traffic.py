"""Bytes and FLOPs: events, closed form and a count in plain loops agree to the byte; exact at any size."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fmha import Problem, Tiling, Traffic, traffic
from fmha.errors import LimitError, ProblemError
from fmha.events import emit
from fmha.schedule import ORDERS
from fmha.traffic import closed_form, compulsory_bytes, count, theorem2_bytes
from tests.core.yardstick import moved, problems, tilings

MILLION = 1 << 20


def as_counted(t: Traffic) -> dict[str, Any]:
    pairs = [((name, way), both[k]) for name, both in t.by_tensor.items() for k, way in enumerate(("read", "write"))]
    return {"nbytes": {key: n for key, n in pairs if n}, "init": t.init_write_bytes, "flops": t.flops}


@settings(max_examples=250)
@given(problems(), tilings(), st.sampled_from(ORDERS), st.booleans())
def test_three_counts_are_equal(p: Problem, t: Tiling, order: str, write_lse: bool) -> None:
    expected = moved(p, t, order, write_lse)
    events = count(emit(p, t, order, write_lse=write_lse), order)  # type: ignore[arg-type]
    closed = closed_form(p, t, order, write_lse=write_lse)
    assert as_counted(events) == as_counted(closed) == expected
    assert events.requested_read_bytes == sum(n for (_, way), n in expected["nbytes"].items() if way == "read")
    assert closed.requested_write_bytes == sum(n for (_, way), n in expected["nbytes"].items() if way == "write")
    assert closed.requested_bytes == closed.requested_read_bytes + closed.requested_write_bytes
    assert (events.method, closed.method) == ("events", "closed form")


@settings(max_examples=60)
@given(problems(40), tilings(), st.sampled_from(ORDERS))
def test_auto_is_either(p: Problem, t: Tiling, order: str) -> None:
    results = [traffic(p, t, order, method=method) for method in ("auto", "events", "closed")]
    assert as_counted(results[0]) == as_counted(results[1]) == as_counted(results[2])


@pytest.mark.parametrize("dtype", ["fp32", "fp16"])
def test_a_million_tokens_exactly(dtype: str) -> None:
    """The issue's formulas in Python integers; far beyond what 32-bit numbers hold."""
    N, d, H, Br, Bc = MILLION, 128, 32, 64, 128
    p, t = Problem(H=H, N=N, d=d, dtype=dtype), Tiling(Br, Bc)
    item, Tr, Tc = p.itemsize, N // Br, N // Bc
    tensor = N * d * item
    q = traffic(p, t, write_lse=True)
    assert q.requested_read_bytes == H * (tensor + 2 * Tr * tensor)
    assert q.requested_write_bytes == H * (tensor + 4 * N)
    kv = traffic(p, t, "kv-outer")
    assert kv.requested_read_bytes == H * (2 * tensor + Tc * (2 * tensor + 8 * N))
    assert kv.requested_write_bytes == H * Tc * (tensor + 8 * N) and kv.init_write_bytes == H * (tensor + 8 * N)
    naive = traffic(p, t, "naive")
    assert naive.requested_bytes == H * (4 * tensor + 4 * N * N * item)
    assert {x.flops for x in (q, kv, naive)} == {4 * H * N * N * d}
    assert all(type(x.flops) is int and x.method == "closed form" for x in (q, kv, naive))


def test_causal_million_with_square_tiles() -> None:
    """T (T + 1) / 2 tiles are visited."""
    N, d, B = MILLION, 64, 64
    p, t = Problem(N=N, d=d, causal=True), Tiling(B, B)
    visits = (N // B) * (N // B + 1) // 2
    assert traffic(p, t).requested_read_bytes == N * d * 4 + visits * 2 * B * d * 4
    assert traffic(p, t).flops == visits * 4 * B * B * d
    assert traffic(p, t, "kv-outer").by_tensor["Q"] == (visits * B * d * 4, 0)


@pytest.mark.parametrize("order", ORDERS)
def test_one_huge_tile_does_not_overflow(order: str) -> None:
    """2 x 2^24 x 2^24 x 2^12 FLOPs in one event; two heads make 2^63 and more."""
    p, t = Problem(H=3, N=1 << 24, d=1 << 12), Tiling(1 << 24, 1 << 24)
    by_events = traffic(p, t, order, method="events")
    assert by_events.flops == 4 * 3 * (1 << 60) > 1 << 63
    assert as_counted(by_events) == as_counted(closed_form(p, t, order))


@pytest.mark.parametrize("causal", ["br", "tl"])
def test_closed_form_in_portions(causal: str, monkeypatch: pytest.MonkeyPatch) -> None:
    p = Problem(B=4, H=2, Nq=301, Nk=217, d=3, causal=causal, lens_k=(217, 100, 100, 0), left_pad=(0, 9, 9, 0))
    whole = closed_form(p, Tiling(5, 7), "kv-outer")
    # fmha.traffic, as an attribute, is the function of that name
    monkeypatch.setattr(sys.modules["fmha.traffic"], "_TILES_AT_ONCE", 4)
    assert closed_form(p, Tiling(5, 7), "kv-outer") == whole
    assert as_counted(whole) == moved(p, Tiling(5, 7), "kv-outer")


def test_largest_problem_is_instant() -> None:
    p = Problem(B=1 << 16, H=1 << 16, N=1 << 24, d=1 << 12, causal=True)
    N, heads = 1 << 24, 1 << 32
    got = closed_form(p, Tiling(64, 64), "q-outer")
    T = N // 64
    assert got.flops == heads * (T * (T + 1) // 2) * 64 * 64 * 4 * (1 << 12)


def test_q_outer_depends_on_br_alone_without_a_mask() -> None:
    p = Problem(N=1024, d=64)
    assert len({traffic(p, Tiling(64, Bc)).requested_bytes for Bc in (8, 64, 256)}) == 1
    assert traffic(p, Tiling(32, 64)).requested_read_bytes > traffic(p, Tiling(64, 64)).requested_read_bytes


def test_grouped_heads_load_their_own_copies() -> None:
    full, grouped = Problem(H=8, N=64, d=16), Problem(H=8, Hk=2, N=64, d=16)
    for order in ORDERS:
        assert as_counted(traffic(full, Tiling(16, 16), order)) == as_counted(traffic(grouped, Tiling(16, 16), order))
    assert compulsory_bytes(grouped) == (2 * 8 + 2 * 2) * 64 * 16 * 4 < compulsory_bytes(full)


@settings(max_examples=50)
@given(problems(), tilings(), st.sampled_from(ORDERS))
def test_nothing_is_below_the_compulsory_bytes_without_a_mask(p: Problem, t: Tiling, order: str) -> None:
    plain = p.replace(causal=None, lens_k=None, left_pad=None)
    assert traffic(plain, t, order).requested_bytes >= compulsory_bytes(plain)


def test_theorem_2() -> None:
    """N^2 d^2 / M accesses with M in elements: 100 KiB of fp16 are 51200 elements."""
    p = Problem(H=2, N=4096, d=64, dtype="fp16")
    assert theorem2_bytes(p, 102400) == pytest.approx(2 * 4096**2 * 64**2 / 51200 * 2)
    assert theorem2_bytes(p.replace(N=8192), 102400) == pytest.approx(4 * theorem2_bytes(p, 102400))
    assert theorem2_bytes(p, 204800) == pytest.approx(theorem2_bytes(p, 102400) / 2)
    for wrong in (0, -1, 1.5, "x"):
        with pytest.raises(ProblemError, match="sram_bytes="):
            theorem2_bytes(p, wrong)  # type: ignore[arg-type]


def test_as_dict_is_json() -> None:
    out = json.loads(json.dumps(traffic(Problem(N=8, d=2), Tiling(4, 4), "kv-outer").as_dict()))
    assert out["requested_bytes"] == out["requested_read_bytes"] + out["requested_write_bytes"]
    assert out["requested_read_bytes"] == sum(both["read"] for both in out["by_tensor"].values())
    assert out["order"] == "kv-outer" and out["init_write_bytes"] == 8 * (2 * 4 + 8)


def test_refusals() -> None:
    p, t = Problem(N=1 << 20, d=2), Tiling(1, 1)
    with pytest.raises(LimitError, match="events"):
        traffic(p, t, method="events")
    with pytest.raises(ProblemError, match="use auto, events, closed"):
        traffic(p, t, method="guess")
    for method in ("auto", "closed"):
        with pytest.raises(ProblemError, match="use q-outer"):
            traffic(p, t, "flash", method=method)
