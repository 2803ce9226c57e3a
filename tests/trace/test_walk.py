"""A warp followed lane by lane: what it is seen to do adds up to what was counted, and lies where it should."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from fmha import Problem, Tiling
from fmha.hardware import DEFAULT_GPU, GPUS
from fmha.kernels import KERNELS, Kernel
from fmha.trace import Detail, Trace
from fmha.trace.lines import MEASURES, by_line
from fmha.trace.walk import Stop, visits, walk
from fmha.units import ceil_div
from fmha.visit_costs import LONGEST_FIRST
from tests.trace.support import line_of, traced

RAGGED = Problem(N=50, d=33, H=2, causal="br")
SMALL = Problem(N=20, d=33, causal="br")


def fitting(kernel: Kernel, p: Problem, t: Tiling) -> tuple[Problem, Tiling]:
    """These, or the nearest that a kernel takes which reads several numbers at a time, or has tiles of its own."""
    tiles = [t, Tiling(16, 16), Tiling(32, 32), *(Tiling(*pair) for pair in kernel.tiles)]
    asked = p.replace(dtype=kernel.dtypes[0])
    tries = ((asked.replace(d=d), one) for one in tiles for d in (p.d, 36, 64))
    return next((q, one) for q, one in tries if kernel.complaint(q, one, GPUS[DEFAULT_GPU]) is None)


def steps(kernel: Kernel, p: Problem, t: Tiling, cache: Path, launch: int, block: int, warp: int) -> tuple[Stop, ...]:
    """All stops of one warp."""
    run = traced(
        kernel, p, t, cache, flops=False, check=False, blocks=[block], detail=Detail(block, warp, 0, 10_000, launch)
    )
    return walk(run, launch, 0, 10_000)


@pytest.mark.parametrize("number", KERNELS)
def test_the_warps_of_a_block_add_up_to_its_counts(number: str, cache: Path) -> None:
    kernel, block = KERNELS[number], 0
    small, tiling = fitting(kernel, SMALL, Tiling(8, 16))
    counted = traced(kernel, small, tiling, cache, flops=False, blocks=[block])
    for launch, plan in enumerate(counted.plan.launches):
        seen: Counter[tuple[int, str, bool, str]] = Counter()
        for warp in range(ceil_div(plan.block, 32)):
            for stop in steps(kernel, small, tiling, cache, launch, block, warp):
                for request in stop.requests:
                    key = (request.line, request.array, request.is_write)
                    is_shared = request.space == "shared"
                    seen[*key, "requests"] += 1
                    seen[*key, "lanes"] += request.lanes
                    seen[*key, "wavefronts" if is_shared else "sectors"] += request.cost
                    seen[*key, "ideal_wavefronts" if is_shared else "ideal_sectors"] += request.least
                    assert all((request.element(k) is None) == (request.offsets[k] is None) for k in range(32))
        expected: Counter[tuple[int, str, bool, str]] = Counter()
        names = ("requests", "lanes", "wavefronts", "sectors", "ideal_wavefronts", "ideal_sectors")
        for count in counted.counts:
            if count.function == plan.function:
                for name in names:
                    expected[count.line, count.array, count.is_write, name] += getattr(count, name)
        assert +seen == +expected


def test_the_conflict_of_the_tutorials_kernel(cache: Path) -> None:
    kernel, p = KERNELS["02"], Problem(N=64, d=64)
    found = steps(kernel, p, Tiling(32, 32), cache, 0, 1, 3)
    scores = next(s for s in found if s.phase and s.phase.maths == "S = QK^T")
    worst = scores.requests[scores.worst]
    assert (worst.line, worst.array, worst.cost, worst.least) == (line_of(kernel, "score += Qi["), "Kj", 32, 1)
    assert [worst.element(lane) for lane in range(32)] == [(lane, 0) for lane in range(32)]
    assert scores.barrier == line_of(kernel, "a row of Sij was filled")
    softmax = next(s for s in found if s.phase and s.phase.names[0] == "m_new")
    assert {r.lanes for r in softmax.requests} == {1}, "a thread owns a row"
    loads = next(s for s in found if s.phase and s.phase.names[0] == "Qi")
    assert loads.requests[0].element(5) == (0, 0, 32 + 96 // 64, 96 % 64 + 5), "block 1, warp 3: thread 101"


@pytest.mark.parametrize(
    ("number", "tiles", "itemsize"), [("05", (32, 32), 4), ("07", (32, 32), 4), ("09", (64, 32), 2)]
)
def test_a_lane_that_asks_for_16_bytes_asks_for_several_elements(
    cache: Path, number: str, tiles: tuple[int, int], itemsize: int
) -> None:
    kernel = KERNELS[number]
    p = Problem(N=64, d=64, dtype=kernel.dtypes[0])
    found = [r for stop in steps(kernel, p, Tiling(*tiles), cache, 0, 0, 0) for r in stop.requests if r.nbytes == 16]
    loads = [r for r in found if r.array == "Q" and not r.is_write]
    assert loads and {r.itemsize for r in found} == {itemsize}
    across = 16 // itemsize
    first = loads[0].element(0)
    assert first is not None and first[:2] == (0, 0) and first[3] == 0
    for lane in (1, 9):
        row, column = divmod(across * lane, p.d)
        assert loads[0].element(lane) == (0, 0, first[2] + row, column)


@pytest.mark.parametrize("number", ["02", "06", "07", "09", "10", "12", "13"])
def test_visits_are_those_of_the_tiles_that_the_mask_leaves(number: str, cache: Path) -> None:
    kernel = KERNELS[number]
    p, t = fitting(kernel, Problem(N=150, d=33, H=2, causal="br"), Tiling(16, 8))
    run = traced(kernel, p, t, cache, flops=False)
    intervals, blocks = run.raw.intervals, t.Tr(p)
    for block in range(run.plan.launches[0].grid):
        turns = visits(run, 0, block)
        i = block % blocks if number not in LONGEST_FIRST else blocks - 1 - block % blocks
        last_row = min(t.Br * (i + 1), p.Nq) - 1
        assert [turn.tile for turn in turns] == list(range(last_row // t.Bc + 1))
        covered = [i for turn in turns for i in range(turn.first, turn.last + 1)]
        assert covered == list(range(int((intervals["block"] == block).sum())))


@pytest.mark.parametrize("number", ["02", "07", "10", "13"])
def test_a_visit_has_all_of_its_tiles_phases(number: str, cache: Path) -> None:
    """Also where the next tile is asked for meanwhile: S, P and O of a tile stand in one visit."""
    kernel = KERNELS[number]
    p, t = fitting(kernel, Problem(N=100, d=33), Tiling(16, 8))
    run = traced(kernel, p, t, cache, flops=False, blocks=[0], detail=Detail(0, 0, 0, 10_000))
    turns = visits(run, 0, 0)
    assert len(turns) == t.Tc(p)
    for turn in turns:
        codes = [stop.phase.code for stop in walk(run, 0, turn.first, turn.last) if stop.phase and stop.requests]
        inside = [code for code in dict.fromkeys(codes) if code in ("S", "O")]
        assert inside == ["S", "O"], (turn, codes)


def test_a_warp_that_only_waits_is_told(cache: Path) -> None:
    """With 64 keys a tile, odd warps hold no first column: they have no part in the softmax."""
    found = steps(KERNELS["02"], Problem(N=64, d=8), Tiling(2, 64), cache, 0, 0, 1)
    waiting = [s for s in found if not s.requests]
    barriers = [s.barrier for s in waiting]
    assert line_of(KERNELS["02"], "P, alpha, beta were written") in barriers
    assert line_of(KERNELS["02"], "a row of Sij was filled") not in barriers
    assert all(s.phase is None and s.worst == 0 for s in waiting)


@pytest.mark.parametrize("number", KERNELS)
def test_lines_add_up_to_the_run(number: str, cache: Path) -> None:
    ragged, tiling = fitting(KERNELS[number], RAGGED, Tiling(16, 8))
    run: Trace = traced(KERNELS[number], ragged, tiling, cache)
    used = by_line(run)
    whole = {measure: sum(use.value(measure) for use in used.values()) for measure in MEASURES}
    assert whole == {
        "wavefronts": sum(c.wavefronts for c in run.counts),
        "conflicts": sum(c.wavefronts - c.ideal_wavefronts for c in run.counts),
        "global": run.requested_bytes,
        "wasted": sum(c.sectors - c.ideal_sectors for c in run.counts),
        "flops": int(run.flops_raw["count"].sum()),
    }
    assert whole["global"] and (whole["wasted"] or ragged.d % 4 == 0) and whole["flops"]
    with pytest.raises(KeyError):
        next(iter(used.values())).value("time")
