"""Who asks for the same tile at the same moment: small cases worked by hand, and what must hold for any of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fmha import in_step as module
from fmha.dispatch import BLOCK_ORDERS
from fmha.in_step import InStep, clusters, in_step
from fmha.levels import Caches
from fmha.pace import Pace, pace
from fmha.problem import Problem, Tiling

PLENTY = Caches(l1_bytes=0, l2_bytes=10**15, copies=1, merging_sms=4, read_ways=None)
T = Tiling(8, 8)


def asked(p: Problem, pace: Pace, caches: Caches = PLENTY, sms: int = 16, blocks: int = 1, **more: object) -> float:
    return in_step(p, T, pace, caches, sms=sms, blocks_per_sm=blocks, **more).asked  # type: ignore[arg-type]


@pytest.fixture
def exact(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU whose SMs are all alike, and whose visits all last equally long."""
    for name in ("SM_US", "CLUSTER", "FIRST_US"):
        monkeypatch.setattr(module, name, 0.0)


def test_clusters() -> None:
    assert clusters(132) == [18, 18, 16, 16, 16, 16, 16, 16]  # of an H200, as its blocks are handed out
    assert clusters(1) == [1] and clusters(19) == [10, 9]
    for sms in range(1, 200):
        assert sum(clusters(sms)) == sms and max(clusters(sms)) <= 19


@pytest.mark.parametrize(("blocks", "requests"), [(1, 1), (2, 1), (4, 1), (5, 2), (8, 2), (15, 4)])
def test_four_requests_become_one(exact: None, blocks: int, requests: int) -> None:
    """Blocks of one head, each on its SM, all of one cluster."""
    assert asked(Problem(N=8 * blocks, d=8), Pace()) == pytest.approx(requests / blocks)


def test_clusters_do_not_merge_with_one_another(exact: None) -> None:
    """34 SMs are clusters of 18 and 16: five requests and four."""
    assert asked(Problem(N=8 * 34, d=8), Pace(), sms=34) == pytest.approx(9 / 34)
    assert asked(Problem(N=8 * 34, d=8), Pace(), replace(PLENTY, merging_sms=1), sms=34) == 1


def test_other_heads_have_other_tiles(exact: None) -> None:
    assert asked(Problem(N=8, H=4, d=8), Pace()) == 1
    assert asked(Problem(N=8, H=4, Hk=1, d=8), Pace()) == 0.25


def test_the_one_behind_catches_up_by_what_the_first_waits(exact: None) -> None:
    """Two SMs, heads of three blocks of 24 visits. Blocks 0 and 1 go in step. Then 2 of the same head, whose tiles L2
    holds, and 3 of the next, whose tiles it does not: 3 waits at each visit, ends later, and of its head 4 begins
    before 5 does. When 5 follows in time to gain on 4, the two share some requests."""
    p = Problem(N=24, Nk=24 * 8, H=2, d=8)
    together = in_step(p, T, Pace(20, 0), PLENTY, sms=2, blocks_per_sm=1)
    assert together.asked == pytest.approx((1 + 2 + 1) / 6)  # who waits for nothing keeps in step by itself
    waiting = in_step(p, T, Pace(20, 8), PLENTY, sms=2, blocks_per_sm=1)
    assert together.asked < waiting.asked < 1


def test_what_l2_has_lost_is_awaited_again(exact: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """SMs drift apart while L2 holds a head, and wait for one another as long as it does not."""
    monkeypatch.setattr(module, "SM_US", 0.05)
    p = Problem(N=1024, d=8)  # two tiles of 8 x 8 floats each visit
    held = asked(p, Pace(5, 1), PLENTY)
    lost = asked(p, Pace(5, 1), replace(PLENTY, l2_bytes=1024))
    assert lost == pytest.approx(0.25, abs=0.01) and held > 2 * lost


def test_blocks_that_share_an_sm_find_the_neighbours_tile_in_l1(exact: None) -> None:
    """Two blocks of one head on one SM, in step: one loads, the other finds it; two heads: none does."""
    caches = replace(PLENTY, l1_bytes=4096)
    assert in_step(Problem(N=16, d=8), T, Pace(), caches, sms=1, blocks_per_sm=2) == InStep(0.5, 1.0)
    assert in_step(Problem(N=8, H=2, d=8), T, Pace(), caches, sms=1, blocks_per_sm=2) == InStep(0.0, 1.0)
    assert in_step(Problem(N=16, d=8), T, Pace(), PLENTY, sms=1, blocks_per_sm=2).neighbour == 0
    ahead = in_step(Problem(N=16, d=8), T, Pace(20, 0), caches, sms=1, blocks_per_sm=2)  # copies go past L1
    assert ahead == InStep(0.0, 0.5)


@pytest.mark.parametrize("number", ["02", "05", "06", "07", "08", "12"])
def test_sharing_an_sm_brings_blocks_out_of_step(number: str) -> None:
    p = Problem(N=2048, H=4, d=8)
    rounds = 0 if number in ("07", "12") else 1
    one, two = (asked(p, pace(number, 20, rounds, blocks), sms=64, blocks=blocks) for blocks in (1, 2))
    assert one < two


def test_one_block_that_is_a_little_faster_breaks_the_step_of_all(exact: None) -> None:
    """The last block of a head has fewer rows, so it waits for DRAM at each tile, alone, and the others find it in L2:
    nobody waits together, and small differences add up."""
    whole, ragged = Problem(N=256, Nk=1024, d=8), Problem(N=255, Nk=1024, d=8)
    fast = Pace(20, 2, 0.02)
    assert asked(whole, fast, sms=32) < 0.3 and asked(ragged, fast, sms=32) > 0.45
    assert asked(ragged, fast._replace(shrinks=False), sms=32) < 0.3  # where rows that are not there take as long


problems = st.builds(
    lambda B, group, Hk, Nq, Nk, causal, pad: Problem(
        B=B, H=group * Hk, Hk=Hk, Nq=Nq, Nk=Nk, d=8, causal=causal,
        lens_k=tuple(max(0, Nk - pad * (b + 1)) for b in range(B)) if pad else None,
    ),
    st.integers(1, 2), st.integers(1, 3), st.integers(1, 2), st.integers(1, 200), st.integers(1, 200),
    st.sampled_from([None, "bottom-right", "top-left"]), st.sampled_from([0, 0, 60]),
)  # fmt: skip


@settings(deadline=None)
@given(
    problems,
    st.builds(Tiling, st.integers(1, 33), st.integers(1, 33)),
    st.builds(
        Pace,
        st.sampled_from([0.0, 2.0, 40.0]),
        st.sampled_from([0, 1, 4]),
        st.sampled_from([0.0, 0.02, 3.0]),
        st.sampled_from([0.0, 0.1]),
        st.sampled_from([0.0, 0.01]),
        st.booleans(),
        st.sampled_from([0.5, 1, 2]),
        st.sampled_from([None, Pace(), Pace(0.0), Pace(30.0, 0, 0.5)]),
    ),
    st.builds(
        Caches, st.sampled_from([0, 5000, 10**6]), st.sampled_from([0, 9000, 10**9]), merging_sms=st.integers(1, 4)
    ),
    st.integers(1, 40),
    st.integers(1, 3),
    st.sampled_from(BLOCK_ORDERS),
    st.sampled_from([20, 1_000]),
)
def test_shares(
    p: Problem, t: Tiling, fast: Pace, caches: Caches, sms: int, blocks: int, order: str, most: int
) -> None:
    found = in_step(p, t, fast, caches, sms=sms, blocks_per_sm=blocks, order=order, most=most)
    assert 0 <= found.neighbour <= 1 and 1 / caches.merging_sms - 1e-9 <= found.asked <= 1
    assert found == in_step(p, t, fast, caches, sms=sms, blocks_per_sm=blocks, order=order, most=most)
    if blocks == 1:
        assert found.neighbour == 0


def one_by_one(group: np.ndarray, at: np.ndarray, window: np.ndarray, most: int) -> list[int]:
    """The same as `fmha.in_step._requests`, as the docstring has it."""
    made: list[int] = []
    request = [0] * len(at)
    open_ones: dict[int, tuple[float, int, int]] = {}  # by group: until when, how many, its number
    for n in sorted(range(len(at)), key=lambda n: (group[n], at[n])):
        until, many, number = open_ones.get(int(group[n]), (-np.inf, 0, -1))
        if at[n] > until or many == most:
            made.append(n)
            until, many, number = at[n] + window[n], 0, len(made) - 1
        open_ones[int(group[n])] = until, many + 1, number
        request[n] = number
    return request


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 3), st.floats(0, 1), st.sampled_from([0.05, 0.3])), max_size=40),
    st.integers(1, 5),
)
def test_requests(drawn: list[tuple[int, float, float]], most: int) -> None:
    group, at, window = (np.array(part) for part in zip(*drawn, strict=True)) if drawn else (np.zeros(0),) * 3
    found = module._requests(group.astype(np.int64), at, window, most) if drawn else np.zeros(0)
    assert found.tolist() == one_by_one(group, at, window, most)


def test_requests_by_hand() -> None:
    """Within the window of the one that opened it, four at most; another group starts anew."""
    group = np.array([0, 0, 0, 0, 0, 0, 1])
    at = np.array([0.0, 0.1, 0.2, 0.9, 1.0, 1.1, 1.1])
    assert module._requests(group, at, np.full(7, 1.0), 4).tolist() == [0, 0, 0, 0, 1, 1, 2]
    assert module._requests(group, at, np.full(7, 0.15), 4).tolist() == [0, 0, 1, 2, 2, 3, 4]
