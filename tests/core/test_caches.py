"""The cache model: tiny cases worked by hand, its limits, and what must hold for any problem."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fmha.cache_kv_outer import kv_outer_levels
from fmha.cache_naive import naive_levels
from fmha.caches import q_outer_l2, q_outer_levels
from fmha.dispatch import BLOCK_ORDERS
from fmha.errors import LimitError, ProblemError
from fmha.hardware import GPUS
from fmha.in_step import Pace
from fmha.kernels import KERNELS
from fmha.levels import Caches, Levels, TensorBytes, caches_of, together
from fmha.lockstep import fronts, reach, walk
from fmha.merging import coherence, in_step_visits
from fmha.problem import Problem, Tiling
from fmha.traffic import closed_form, compulsory_bytes

HUGE = 10**15
ALONE = Caches(
    l1_bytes=0, l2_bytes=HUGE, copies=1, merging_sms=1, read_ways=None
)  # no L1, no merging, everything fits into L2
TINY = Problem(N=4, d=8)  # tiles of 2 x 8 floats: 64 bytes each
TWO = Tiling(2, 2)


def q_outer(problem: Problem, tiling: Tiling, caches: Caches, sms: int = 1, blocks: int = 1, **more: object) -> Levels:
    return q_outer_levels(problem, tiling, caches, sms=sms, blocks_per_sm=blocks, **more)  # type: ignore[arg-type]


# --- by hand ----------------------------------------------------------------------------------------------------------


def test_one_sm_without_l1_asks_l2_for_everything() -> None:
    """Two blocks, one after the other: Q 128, O 128; K and V 128 each, twice."""
    levels = q_outer(TINY, TWO, ALONE)
    assert levels.requested == levels.l2 == 128 + 128 + 2 * 256
    assert levels.all.dram_read == 3 * 128  # each of Q, K, V once
    assert levels.by_tensor["K"] == TensorBytes(read=256, l2_hits=128, dram_read=128)


@pytest.mark.parametrize(("l2_bytes", "kv_read"), [(383, 512), (384, 256)])
def test_lru_to_the_byte(l2_bytes: int, kv_read: int) -> None:
    """Between two uses of a pair of K and V tiles (128) pass the other pair (128), an O tile (64) and a Q tile (64)."""
    levels = q_outer(TINY, TWO, replace(ALONE, l2_bytes=l2_bytes))
    assert levels.by_tensor["K"].dram_read + levels.by_tensor["V"].dram_read == kv_read


@pytest.mark.parametrize(("l1_bytes", "hits"), [(127, 0), (128, 128), (255, 128), (256, 256)])
def test_reversed_k_and_v_find_the_last_tiles_in_l1(l1_bytes: int, hits: int) -> None:
    """The second block begins with the pair of tiles (128 bytes) that the first ended with."""
    caches = replace(ALONE, l1_bytes=l1_bytes)
    assert q_outer(TINY, TWO, caches, order="reversed K/V").all.l1_hits == hits
    forward = 256 if l1_bytes >= 256 else 0  # going the same way twice, LRU keeps all or nothing
    assert q_outer(TINY, TWO, caches).all.l1_hits == forward


def test_two_sms_in_step_need_one_request() -> None:
    """All tiles come from DRAM, so the two wait for one another: of the 512 bytes of K and V one half is asked for."""
    levels = q_outer(TINY, TWO, replace(ALONE, merging_sms=2), sms=2)
    assert levels.all.merged == 2 * 128
    assert levels.all.dram_read == 3 * 128
    apart = q_outer(TINY, TWO, replace(ALONE, merging_sms=2), sms=1)  # one after the other
    assert apart.all.merged == 0


def test_blocks_of_other_heads_merge_nothing() -> None:
    assert q_outer(Problem(N=2, H=4, d=8), TWO, replace(ALONE, merging_sms=4), sms=4).all.merged == 0
    shared = q_outer(Problem(N=2, H=4, Hk=1, d=8), TWO, replace(ALONE, merging_sms=4), sms=4)
    assert shared.all.merged > 0  # they read one K/V head
    assert shared.all.dram_read == 4 * 64 + 2 * 64


def test_written_lines_stay_when_l2_is_large() -> None:
    levels = q_outer(TINY, TWO, ALONE)
    assert levels.all.dram_written == pytest.approx(0) and levels.all.left_dirty == pytest.approx(128)
    assert q_outer(TINY, TWO, replace(ALONE, l2_bytes=0)).all.dram_written == 128


def test_coherence() -> None:
    assert coherence(0, 5) == 1
    assert coherence(5, 5) == 0.5
    assert in_step_visits(2, 1) == in_step_visits(1, 1) / 2
    assert in_step_visits(1, 3) == pytest.approx(in_step_visits(1, 1) / 9)


def test_causal_blocks_start_when_shorter_ones_end() -> None:
    p, t = Problem(N=4, d=8, causal="bottom-right"), Tiling(1, 1)
    seen = reach(p, t)
    assert (seen.end - seen.first).tolist() == [[1, 2, 3, 4]]
    walked = walk(p, t, slots=2)
    assert walked.slot.tolist() == [0, 1, 0, 1]
    assert walked.start.tolist() == [0, 0, 1, 2]
    gathered = fronts(walked)
    # Tile 0 at time 0 by two blocks; then at 1 (block 2, while block 1 is at tile 1), and at 2 (block 3).
    assert sorted(zip(gathered.moment // 64, gathered.strip, strict=True))[:4] == [(0, 0), (1, 0), (1, 1), (2, 0)]


def test_a_ragged_last_tile_takes_less_time() -> None:
    seen = reach(Problem(N=5, d=8), Tiling(4, 4))
    assert seen.duration[0, 1] < seen.duration[0, 0] == 2


# --- limits -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("causal", [None, "bottom-right"])
@pytest.mark.parametrize("order", BLOCK_ORDERS)
def test_everything_fits(causal: str | None, order: str) -> None:
    p = Problem(B=2, H=4, Hk=2, N=96, d=16, causal=causal)  # type: ignore[arg-type]
    levels = q_outer(p, Tiling(16, 8), Caches(HUGE, HUGE), sms=4, order=order)
    written = 4 * p.B * p.H * p.Nq * p.d
    assert levels.all.dram_read == pytest.approx(compulsory_bytes(p) - written)
    assert levels.dram == pytest.approx(compulsory_bytes(p) - written)  # O is still in L2


@pytest.mark.parametrize("causal", [None, "bottom-right"])
def test_without_l2_all_that_leaves_the_sms_comes_from_dram(causal: str | None) -> None:
    p = Problem(H=3, N=64, d=8, causal=causal)  # type: ignore[arg-type]
    levels = q_outer(p, Tiling(8, 8), Caches(4096, 0), sms=4)
    assert levels.dram == pytest.approx(levels.l2)
    assert levels.all.l2_hits == pytest.approx(0)


def test_without_l1_and_merging_l2_is_asked_for_all() -> None:
    p = Problem(H=3, N=64, d=8)
    assert q_outer(p, Tiling(8, 8), Caches(0, HUGE, merging_sms=1), sms=4).l2 == pytest.approx(
        closed_form(p, Tiling(8, 8), "q-outer").requested_bytes
    )


def test_naive_limits() -> None:
    p = Problem(H=2, N=256, d=64)
    plan = KERNELS["01"].plan(p, Tiling(32, 32))
    functions = [launch.function for launch in plan.launches]
    per_sm = dict.fromkeys(functions, 4)

    def run(caches: Caches) -> tuple[Levels, ...]:
        return naive_levels(p, plan.requested, dict.fromkeys(functions, caches), sms=132, blocks_per_sm=per_sm)

    vector, matrix = 4 * 2 * 256 * 64, 4 * 2 * 256 * 256
    fits = run(Caches(HUGE, HUGE))
    assert [level.all.dram_read for level in fits] == [2 * vector, matrix, matrix + vector]
    assert together(fits).all.dram_written == pytest.approx(0)
    for level in run(Caches(0, 0)):
        assert level.dram == pytest.approx(level.l2)
    bare = run(Caches(0, HUGE, merging_sms=1))
    assert together(bare).l2 == pytest.approx(plan.requested.requested_bytes)
    assert {name: part.read for name, part in together(bare).by_tensor.items()} == {
        name: float(read) for name, (read, _) in plan.requested.by_tensor.items()
    }


def test_kv_outer_by_hand() -> None:
    """One head: Q, O of 128 bytes, l, m of 16 each; two K/V tiles, so everything of a row is read and written twice."""
    levels = kv_outer_levels(TINY, TWO, ALONE, sms=1)
    assert levels.requested == closed_form(TINY, TWO, "kv-outer").requested_bytes
    assert levels.by_tensor["Q"] == TensorBytes(read=256, l2_hits=128, dram_read=128)
    assert levels.by_tensor["O"].dram_read == 0  # it was just initialised
    sweep = 128 + 128 + 32
    small = kv_outer_levels(TINY, TWO, replace(ALONE, l2_bytes=sweep - 1), sms=1)
    assert small.by_tensor["Q"].dram_read == 256 and small.by_tensor["O"].dram_read == 256
    assert kv_outer_levels(TINY, TWO, replace(ALONE, l1_bytes=4096), sms=1).by_tensor["Q"].l1_hits == 128
    empty = kv_outer_levels(TINY, TWO, replace(ALONE, l2_bytes=0), sms=1)
    assert empty.dram == pytest.approx(empty.l2)


# --- any problem ------------------------------------------------------------------------------------------------------

problems = st.builds(
    lambda B, group, Hk, Nq, Nk, d, causal, pad: Problem(
        B=B, H=group * Hk, Hk=Hk, Nq=Nq, Nk=Nk, d=8 * d, causal=causal,
        lens_k=tuple(max(0, Nk - pad * (b + 1)) for b in range(B)) if pad else None,
    ),
    st.integers(1, 2), st.integers(1, 3), st.integers(1, 2), st.integers(1, 90), st.integers(1, 90), st.integers(1, 4),
    st.sampled_from([None, "bottom-right", "top-left"]), st.sampled_from([0, 0, 3]),
)  # fmt: skip
tilings = st.builds(Tiling, st.integers(1, 33), st.integers(1, 33))
machines = st.fixed_dictionaries({"sms": st.integers(1, 9), "blocks_per_sm": st.integers(1, 4)})
caches_drawn = st.builds(
    Caches, st.sampled_from([0, 300, 5000, 10**6]), st.sampled_from([0, 700, 9000, 10**5, 10**9]),
    st.sampled_from([1, 2]), st.sampled_from([1, 2, 4]),
)  # fmt: skip


def check_conservation(levels: Levels) -> None:
    for name, part in levels.by_tensor.items():
        slack = 1e-6 * (part.read + part.written + 1)
        assert part.l2_read == pytest.approx(part.l2_hits + part.dram_read, abs=slack), name
        for field in ("l1_hits", "merged", "l2_hits", "dram_read", "dram_written", "left_dirty", "l2_read"):
            assert getattr(part, field) >= -slack, (name, field)


@settings(deadline=None)
@given(problems, tilings, machines, caches_drawn, st.sampled_from(BLOCK_ORDERS))
def test_q_outer_loses_no_byte(p: Problem, t: Tiling, machine: dict[str, int], caches: Caches, order: str) -> None:
    levels = q_outer_levels(p, t, caches, order=order, **machine)  # type: ignore[arg-type]
    check_conservation(levels)
    requested = closed_form(p, t, "q-outer").by_tensor
    for name, part in levels.by_tensor.items():
        assert (part.read, part.written) == requested.get(name, (0, 0)), name
    assert levels.dram <= levels.l2 * (1 + 1e-9) <= levels.requested * (1 + 2e-9)
    once = closed_form(p, t, "kv-outer").by_tensor.get("K", (0, 0))[0] / p.group
    assert levels.by_tensor["K"].dram_read >= once * (1 - 1e-9)


@settings(deadline=None)
@given(problems, tilings, machines, caches_drawn, st.sampled_from([20, 30_000]))
def test_bytes_asked_of_l2_alone(p: Problem, t: Tiling, machine: dict[str, int], caches: Caches, most: int) -> None:
    """Leaving out what only DRAM needs, where it cannot act, changes nothing."""
    levels = q_outer_levels(p, t, caches, pace=Pace(5, 2), most=most, **machine)  # type: ignore[arg-type]
    assert q_outer_l2(p, t, caches, pace=Pace(5, 2), most=most, **machine) == levels.l2


@settings(deadline=None)
@given(problems, tilings, machines, caches_drawn)
def test_kv_outer_loses_no_byte(p: Problem, t: Tiling, machine: dict[str, int], caches: Caches) -> None:
    levels = kv_outer_levels(p, t, caches, **machine)
    check_conservation(levels)
    assert levels.requested == closed_form(p, t, "kv-outer").requested_bytes
    larger = kv_outer_levels(p, t, replace(caches, l2_bytes=10 * caches.l2_bytes + 1000), **machine)
    assert larger.all.dram_read <= levels.all.dram_read * (1 + 1e-9)


@settings(deadline=None)
@given(problems, machines, caches_drawn)
def test_naive_loses_no_byte(p: Problem, machine: dict[str, int], caches: Caches) -> None:
    plan = KERNELS["01"].plan(p, Tiling(1, 1))
    names = [launch.function for launch in plan.launches]
    blocks = dict.fromkeys(names, machine["blocks_per_sm"])

    def run(c: Caches) -> Levels:
        parts = naive_levels(p, plan.requested, dict.fromkeys(names, c), sms=machine["sms"], blocks_per_sm=blocks)
        for part in parts:
            check_conservation(part)
        return together(parts)

    levels = run(caches)
    assert levels.requested == pytest.approx(plan.requested.requested_bytes)
    assert run(replace(caches, l2_bytes=10 * caches.l2_bytes + 1000)).dram <= levels.dram * (1 + 1e-9)
    assert run(replace(caches, l1_bytes=10 * caches.l1_bytes + 1000)).l2 <= levels.l2 * (1 + 1e-9)


@settings(deadline=None)
@given(problems, tilings, machines, caches_drawn, st.integers(2, 20))
def test_larger_caches_never_move_more(
    p: Problem, t: Tiling, machine: dict[str, int], caches: Caches, factor: int
) -> None:
    """L1 takes requests from L2, and L2 from DRAM. A larger L2 also lets blocks fall out of step, so DRAM is compared
    where a tile fits and L1 takes nothing, or nothing merges."""
    levels = q_outer_levels(p, t, caches, **machine)  # type: ignore[arg-type]
    more_l1 = replace(caches, l1_bytes=factor * caches.l1_bytes + 1000)
    assert q_outer_levels(p, t, more_l1, **machine).l2 <= levels.l2 * (1 + 1e-9)  # type: ignore[arg-type]
    tile = 2 * 4 * t.Bc * p.d * caches.copies
    for base in (replace(caches, merging_sms=1), replace(caches, l1_bytes=0, l2_bytes=caches.l2_bytes + tile)):
        small = q_outer_levels(p, t, base, **machine)  # type: ignore[arg-type]
        more_l2 = replace(base, l2_bytes=factor * base.l2_bytes + 1000)
        assert q_outer_levels(p, t, more_l2, **machine).dram <= small.dram * (1 + 1e-9)  # type: ignore[arg-type]


@pytest.mark.parametrize("causal", [None, "bottom-right"])
@pytest.mark.parametrize("N", [2048, 4096])
def test_following_fewer_visits_changes_little(N: int, causal: str | None) -> None:
    p = Problem(N=N, H=16, d=64, causal=causal)  # type: ignore[arg-type]
    caches = caches_of(GPUS["H200"], 40_000)
    full = q_outer(p, Tiling(32, 32), caches, sms=132, most=10**9)
    few = q_outer(p, Tiling(32, 32), caches, sms=132, most=8_000)
    assert few.requested == full.requested
    assert few.l2 == pytest.approx(full.l2, rel=0.06)
    assert few.dram == pytest.approx(full.dram, rel=0.02)


def test_the_caches_of_gpus() -> None:
    h200 = caches_of(GPUS["H200"], 100 * 1024)
    assert h200.l1_bytes == 156 * 1024 and h200.l2_bytes == GPUS["H200"].l2_bytes and h200.copies == 2
    assert caches_of(GPUS["RTX4090"], 0).copies == 1


def test_refusals() -> None:
    with pytest.raises(ProblemError, match="block order"):
        q_outer(TINY, TWO, ALONE, order="sideways")
    with pytest.raises(LimitError, match="query rows"):
        q_outer(Problem(N=1 << 23, d=8), Tiling(64, 64), ALONE)


def test_a_levels_rates() -> None:
    levels = Levels("f", {"K": TensorBytes(read=100, l1_hits=25, merged=25, l2_hits=40, dram_read=10)})
    assert levels.l1_hit_rate == 0.25 and levels.l2_hit_rate == pytest.approx(0.8) and levels.l2 == 50
    assert together([levels, levels]).requested == 200
    assert Levels("f", {}).l1_hit_rate == 0 == Levels("f", {}).l2_hit_rate
