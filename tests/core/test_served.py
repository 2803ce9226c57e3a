"""Who answers a load: against a cache that is played through step by step, by hand, and against the byte model."""

from __future__ import annotations

import math
from collections import OrderedDict
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from fmha import Problem, Tiling
from fmha.cache_kv_outer import kv_outer_levels
from fmha.caches import q_outer_levels
from fmha.errors import ProblemError
from fmha.events import PHASES, emit
from fmha.hardware import GPUS
from fmha.levels import Caches
from fmha.served import Served, serve, uses
from fmha.timeline import clock
from fmha.traffic import closed_form, compulsory_bytes

ORDERS = ("q-outer", "kv-outer", "naive")


def timed(problem: Problem, tiling: Tiling, order: str, sms: int = 4) -> NDArray[np.void]:
    return clock(emit(problem, tiling, order), GPUS["H200"], problem.dtype, sms)


def in_order(start: NDArray[np.float64]) -> list[int]:
    """Rows by start; those that differ by rounding only, by number."""
    groups: list[list[int]] = []
    span, last = float(start.max() - start.min()), -math.inf
    for row in np.argsort(start, kind="stable").tolist():
        if start[row] - last > 1e-9 * span:
            groups.append([])
        groups[-1].append(row)
        last = float(start[row])
    return [row for group in groups for row in sorted(group)]


def played_through(events: NDArray[np.void], problem: Problem, l2_bytes: float) -> tuple[NDArray[np.bool_], int, int]:
    """(from_hbm, written back, left dirty) of an LRU cache of tiles, event by event."""
    names: list[Any] = []
    for event in events:
        phase = PHASES[event["phase"]]
        head = int(event["h"]) // problem.group if phase.tensor in "KV" else int(event["h"])
        tile = {"K": (event["j"],), "V": (event["j"],), "S": (event["i"], event["j"]), "P": (event["i"], event["j"])}
        names.append((phase.tensor, int(event["b"]), head, *map(int, tile.get(phase.tensor, (event["i"],)))))
    size: dict[Any, int] = {}
    for name, event in zip(names, events, strict=True):
        size[name] = max(size.get(name, 0), int(event["nbytes"]))
    held: OrderedDict[Any, bool] = OrderedDict()  # name -> dirty; the one used last at the end
    from_hbm, written = np.zeros(len(events), np.bool_), 0
    for row in in_order(events["t0"]):
        phase, name = PHASES[events["phase"][row]], names[row]
        if not (phase.is_load or phase.is_store) or not events["nbytes"][row]:
            continue
        from_hbm[row] = phase.is_load and name not in held
        held[name] = held.pop(name, False) or phase.is_store
        while held and sum(size[n] for n in held) > l2_bytes:
            out, dirty = held.popitem(last=False)
            written += size[out] * dirty
    return from_hbm, written, sum(size[name] for name, dirty in held.items() if dirty)


@settings(deadline=None, max_examples=120)
@given(
    Nq=st.integers(1, 40), Nk=st.integers(1, 40), d=st.integers(1, 9), Br=st.integers(1, 17), Bc=st.integers(1, 17),
    heads=st.sampled_from([(1, 1), (2, 1), (3, 3), (4, 2)]), B=st.integers(1, 2), sms=st.integers(1, 5),
    order=st.sampled_from(ORDERS), causal=st.sampled_from([None, "bottom-right", "top-left"]),
    l2=st.one_of(st.sampled_from([0, 1]), st.integers(0, 6000)),
)  # fmt: skip
def test_hits_are_those_of_a_cache_that_is_played_through(
    Nq: int,
    Nk: int,
    d: int,
    Br: int,
    Bc: int,
    heads: tuple[int, int],
    B: int,
    sms: int,
    order: str,
    causal: Any,
    l2: int,
) -> None:
    problem = Problem(B=B, H=heads[0], Hk=heads[1], Nq=Nq, Nk=Nk, d=d, causal=causal)
    events = timed(problem, Tiling(Br, Bc), order, sms)
    found = serve(uses(events, problem), l2)
    from_hbm, written, left = played_through(events, problem, l2)
    np.testing.assert_array_equal(found.from_hbm, from_hbm)
    assert (found.hbm_written, found.left_dirty) == (written, left)
    assert found.hbm_read == int(events["nbytes"][from_hbm].sum())


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("causal", [None, "bottom-right"])
def test_without_l2_every_load_comes_from_hbm(order: str, causal: Any) -> None:
    problem, tiling = Problem(N=50, d=8, H=2, causal=causal), Tiling(8, 4)
    events = timed(problem, tiling, order)
    found, counted = serve(uses(events, problem), 0), closed_form(problem, tiling, order)
    loads = np.array([phase.is_load for phase in PHASES])[events["phase"]]
    np.testing.assert_array_equal(found.from_hbm, loads & (events["nbytes"] > 0))
    assert found.hbm_read == found.loaded == counted.requested_read_bytes
    assert found.hbm_written == found.stored == counted.requested_write_bytes + counted.init_write_bytes
    assert (found.left_dirty, found.l2_hits, found.hit_rate) == (0, 0, 0.0)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("l2", [1 << 30, math.inf])
def test_where_everything_fits_only_the_first_touch_misses(order: str, l2: float) -> None:
    problem, tiling = Problem(N=48, d=8, H=2), Tiling(8, 8)
    found = serve(uses(timed(problem, tiling, order), problem), l2)
    O = problem.H * problem.Nq * problem.d * 4
    assert found.hbm_read == compulsory_bytes(problem) - O  # Q, K and V once; S and P are found again
    assert found.hbm_written == 0 and found.left_dirty >= O


def test_by_hand() -> None:
    """Two Q tiles and two K/V tiles on one SM; each tile is 16 bytes. Order: Q0 K0 V0 K1 V1 O0 Q1 K0 V0 K1 V1 O1."""
    problem = Problem(N=4, d=2)
    events = timed(problem, Tiling(2, 2), "q-outer", sms=1)
    used = uses(events, problem)
    # Q0 K0 V0 K1 V1 O0 Q1 are new, and so is O1; K0 is met again after V0 K1 V1 O0 Q1: six tiles with itself.
    assert used.needs.tolist() == [math.inf] * 7 + [96.0] * 4 + [math.inf]

    def hits(l2_bytes: int) -> int:
        found = serve(used, l2_bytes)
        return int(used.is_load.sum() - found.from_hbm.sum())

    assert [hits(n) for n in (0, 80, 95, 96, 1000)] == [0, 0, 0, 4, 4]


def test_sms_that_load_a_tile_together_fetch_it_once() -> None:
    problem, tiling = Problem(N=64, d=8), Tiling(8, 8)
    events = timed(problem, tiling, "q-outer", sms=8)
    found = serve(uses(events, problem), 2 * 8 * 8 * 4)  # room for one K and one V tile
    of_k = np.array([phase.code == "load_K" for phase in PHASES])[events["phase"]]
    for j in range(8):
        fetched = np.flatnonzero(found.from_hbm & of_k & (events["j"] == j))
        assert events["sm"][fetched].tolist() == [0]


@settings(deadline=None, max_examples=40)
@given(
    N=st.integers(1, 60), d=st.integers(1, 8), Br=st.integers(1, 16), Bc=st.integers(1, 16),
    order=st.sampled_from(ORDERS), sizes=st.lists(st.integers(0, 20_000), min_size=2, max_size=6),
)  # fmt: skip
def test_more_l2_never_means_more_from_hbm_and_bytes_are_conserved(
    N: int, d: int, Br: int, Bc: int, order: str, sizes: list[int]
) -> None:
    problem, tiling = Problem(N=N, d=d), Tiling(Br, Bc)
    used, counted = uses(timed(problem, tiling, order), problem), closed_form(problem, tiling, order)
    found = [serve(used, size) for size in sorted(sizes)]
    for one in found:
        assert one.l2_hits + one.hbm_read == one.loaded == counted.requested_read_bytes
        assert one.stored == counted.requested_write_bytes + counted.init_write_bytes
        assert one.hbm_written + one.left_dirty <= one.stored
        assert 0 <= one.hit_rate <= 1
    for less, more in pairwise(found):
        assert not (more.from_hbm & ~less.from_hbm).any()
        assert more.hbm_written <= less.hbm_written


def plain(l2_bytes: float) -> Caches:
    """The byte model without what this one leaves out."""
    return Caches(l1_bytes=0, l2_bytes=l2_bytes, copies=1, merging_sms=1, dirty_share=1.0, ways=None)


@pytest.mark.parametrize("causal", [None, "bottom-right"])
@pytest.mark.parametrize("sms", [1, 8])
@pytest.mark.parametrize("room", [0.0, 0.6, 4.0])  # of the bytes of one head's K and V
def test_agrees_with_the_byte_model_of_q_outer(causal: Any, sms: int, room: float) -> None:
    problem, tiling = Problem(N=128, d=16, H=2, causal=causal), Tiling(16, 16)
    l2 = room * 2 * problem.Nk * problem.d * 4
    found = serve(uses(timed(problem, tiling, "q-outer", sms), problem), l2)
    levels = q_outer_levels(problem, tiling, plain(l2), sms=sms, blocks_per_sm=1)
    assert levels.all.l2_read == pytest.approx(found.loaded)
    # Blocks of one wave go over K and V in step here and nearly so there; the first tile of K is met before Q passes.
    assert levels.all.dram_read == pytest.approx(found.hbm_read, rel=0.15 if 0 < room < 1 else 1e-9)


@pytest.mark.parametrize("room", [0.0, 8.0])
def test_agrees_with_the_byte_model_of_kv_outer(room: float) -> None:
    problem, tiling = Problem(N=64, d=16, H=2), Tiling(16, 16)
    l2 = room * problem.H * problem.Nq * problem.d * 4
    found = serve(uses(timed(problem, tiling, "kv-outer", 2), problem), l2)
    levels = kv_outer_levels(problem, tiling, plain(l2), sms=2)
    assert levels.all.dram_read == pytest.approx(found.hbm_read)
    if not room:
        zeroed = closed_form(problem, tiling, "kv-outer").init_write_bytes  # left out there
        assert levels.all.dram_written == pytest.approx(found.hbm_written - zeroed)


@pytest.mark.parametrize("l2", [-1, math.nan, "much"])
def test_a_capacity_that_is_none_is_refused_by_a_sentence(l2: Any) -> None:
    used = uses(timed(Problem(N=4, d=2), Tiling(2, 2), "q-outer"), Problem(N=4, d=2))
    with pytest.raises(ProblemError, match="capacity must be 0 or more"):
        serve(used, l2)


def test_nothing_moves_in_an_empty_table() -> None:
    problem = Problem(N=4, d=2)
    found = serve(uses(timed(problem, Tiling(2, 2), "q-outer")[:0], problem), 0)
    assert found == Served(0.0, found.from_hbm, 0, 0, 0, 0, 0) and len(found.from_hbm) == 0
