"""A traced run against what the app says of the same kernel: bank conflicts access by access, arithmetic by line."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fmha import Problem, Tiling
from fmha.bank_kernels import smem_use
from fmha.bank_sites import Site
from fmha.kernels import KERNELS, Launch
from fmha.mask import row_bounds
from fmha.trace import Trace
from fmha.units import ceil_div
from tests.trace.support import inputs, line_of, problems, traced, visits

NAIVE, FMHA101 = KERNELS["01"], KERNELS["02"]
TILES = ((4, 4), (5, 7), (16, 8), (32, 32))
Place = tuple[str, int, str, bool]  # function, line, array, whether it is a store
Numbers = tuple[int, int, int, int]  # requests, wavefronts, the fewest, bytes


def counted(run: Trace) -> dict[Place, Numbers]:
    """What the trace says of shared memory. Of two static arrays of one name the sum."""
    found = (
        ((c.function, c.line, c.array, c.is_write), (c.requests, c.wavefronts, c.ideal_wavefronts, c.nbytes))
        for c in run.counts
        if c.space == "shared"
    )
    return summed(found)


def modelled(sites: Iterable[Site]) -> dict[Place, Numbers]:
    """What the model of banks says, where it has any access."""
    found = (
        ((s.function, s.line, array_of(s.text), s.store), (s.requests, s.wavefronts, s.least, s.nbytes))
        for s in sites
        if s.requests
    )
    return summed(found)


def array_of(text: str) -> str:
    """Of the expression at a site, or of the helper that it calls."""
    if text.startswith("across_block"):
        return "warps"
    return text.removeprefix("load_chunk(").split("[")[0].split(",")[0]


def summed(found: Iterable[tuple[Place, Numbers]]) -> dict[Place, Numbers]:
    total: dict[Place, Numbers] = {}
    for place, numbers in found:
        a, b, c, d = total.get(place, (0, 0, 0, 0))
        total[place] = (a + numbers[0], b + numbers[1], c + numbers[2], d + numbers[3])
    return total


def test_shared_memory_of_fmha101(cache: Path) -> None:
    """Every expression needs the wavefronts that the model says, where the GPU's compiler keeps to the source. It does
    not for a row of Sij in the hands of one thread: there the source's own loop is counted here, lane by lane. What
    rows that see no key leave out at the end is counted here too, in another way than the model does."""

    @settings(max_examples=40)
    @given(problems(), st.sampled_from(TILES), st.booleans())
    @example(Problem(N=64, d=64), (32, 32), True)
    @example(Problem(Nq=20, Nk=33, d=33, lens_k=(29,), left_pad=(3,), causal="br"), (5, 7), False)
    def over_random_problems(p: Problem, sides: tuple[int, int], write_lse: bool) -> None:
        t = Tiling(*sides)
        run = traced(FMHA101, p, t, cache, write_lse=write_lse, flops=False, check=False)
        sites = smem_use(FMHA101, p, t, write_lse=write_lse).sites
        expected = modelled(site for site in sites if site.text != "Sij[s_row * Bc + c]")
        expected |= rows_of_scores(p, t)
        if any(low >= high for b in range(p.B) for low, high in zip(*row_bounds(p, b), strict=True)):
            ends = {place: numbers for place, numbers in ends_of_rows_that_see(p, t, write_lse).items() if numbers[0]}
            for place, numbers in ends.items():
                assert expected[place] == numbers
        assert counted(run) == {place: numbers for place, numbers in expected.items() if numbers[0]}

    over_random_problems()


def rows_of_scores(p: Problem, t: Tiling) -> dict[Place, Numbers]:
    """`Sij[s_row * Bc + c]` for c = 0 .. Bc - 1 by the threads with s_col = 0, three times a visit."""
    requests = turns = lanes = 0
    for warp in range(0, t.Br * t.Bc, 32):
        rows = [tid // t.Bc for tid in range(warp, min(warp + 32, t.Br * t.Bc)) if tid % t.Bc == 0]
        if rows:
            banks = Counter(row * t.Bc % 32 for row in rows)
            requests, turns, lanes = requests + 1, turns + max(banks.values()), lanes + len(rows)
    times = t.Bc * sum(1 for _ in visits(p, t))
    numbers = (requests * times, turns * times, requests * times, 4 * lanes * times)
    snippets = {"row_m = fmaxf(row_m, Sij": False, "p = expf(Sij": False, "Sij[s_row * Bc + c] = p": True}
    return {("fmha101", line_of(FMHA101, text), "Sij", store): numbers for text, store in snippets.items()}


def ends_of_rows_that_see(p: Problem, t: Tiling, write_lse: bool) -> dict[Place, Numbers]:
    """`Oi[e] / l` and `mi[tid] + logf(l)`: neighbouring words, one for each thread whose row sees a key."""
    threads = t.Br * t.Bc
    divided, logged = (0, 0), (0, 0)  # requests, lanes
    for b in range(p.B):
        low, high = row_bounds(p, b)
        for first in range(0, p.Nq, t.Br):
            sees = [bool(low[r] < high[r]) for r in range(first, min(first + t.Br, p.Nq))]
            for e in range(0, len(sees) * p.d, 1):
                if sees[e // p.d]:
                    warp = [k for k in range(e - e % threads % 32, e) if sees[k // p.d]]
                    divided = (divided[0] + (not warp), divided[1] + 1)
            for row in range(len(sees)):
                if sees[row]:
                    logged = (logged[0] + (not any(sees[row - row % 32 : row])), logged[1] + 1)
    found = {}
    for snippet, array, (requests, lanes), there in (
        ("Oi[e] / l", "Oi", divided, True),
        ("mi[tid] + logf(", "mi", logged, write_lse),
    ):
        n = requests * p.H * there
        found["fmha101", line_of(FMHA101, snippet), array, False] = (n, n, n, 4 * lanes * p.H)
    return found


def test_shared_memory_of_naive(cache: Path) -> None:
    """The same for the three functions of naive attention, as far as they are what the GPU's compiler makes of them:
    it joins reads of `warps`, and keeps the tiles' numbers for four multiply-adds each."""
    reduced = line_of(NAIVE, "across_block<true>(m)"), line_of(NAIVE, "across_block<false>(l)")
    inner = (line_of(NAIVE, "sum[r][c] += Qi"), line_of(NAIVE, "part[r][c] += Pij"))

    @settings(max_examples=15)
    @given(problems(), st.booleans())
    @example(Problem(N=64, d=64), True)
    def over_random_problems(p: Problem, write_lse: bool) -> None:
        t = Tiling(16, 16)
        run = traced(NAIVE, p, t, cache, write_lse=write_lse, flops=False, check=False)
        found, expected = counted(run), modelled(smem_use(NAIVE, p, t, write_lse=write_lse).sites)
        for (function, line, array, store), model in [*expected.items()]:
            if line in inner:  # each number is read for one multiply-add, or, if this compiler too keeps it, for four
                # (and then perhaps in a line of its own)
                places = [place for place in found if place[0] == function and place[2] == array and not place[3]]
                assert [found.pop(place) for place in places] in ([model], [tuple(4 * n for n in model)])
                del expected[function, line, array, store]
        n = 8 * 8 * p.B * p.H * p.Nq  # eight words, one after another, for eight warps of a block a row
        for line in reduced:  # each time one word for all lanes: one wavefront
            assert found.pop(("naive_softmax", line, "warps", False)) == (n, n, n, 128 * n)
            joined = expected.pop(("naive_softmax", line, "warps", False))
            assert joined[3] == 128 * n
        names = {("naive_softmax", "row"): "row_smem"}
        renamed = summed(
            ((function, line, names.get((function, array), array), store), numbers)
            for (function, line, array, store), numbers in found.items()
        )
        assert renamed == expected

    over_random_problems()


def arithmetic(run: Trace) -> dict[int, tuple[int, int, int, int, int]]:
    """Of each line: additions, multiplications, divisions, exp and log, max."""
    return {f.line: (f.add, f.mul, f.div, f.special, f.max) for f in run.flops}


def test_arithmetic_of_fmha101_line_by_line(cache: Path) -> None:
    @settings(max_examples=25)
    @given(problems(), st.sampled_from(TILES), st.booleans())
    @example(Problem(N=33, d=16, causal="br"), (16, 8), True)
    @example(Problem(B=2, Nq=9, Nk=12, d=3, lens_k=(0, 7)), (4, 4), True)
    def over_random_problems(p: Problem, sides: tuple[int, int], write_lse: bool) -> None:
        t = Tiling(*sides)
        if abs(p.scale) < 0.01:  # scores that underflow, and are equal then or not, say nothing
            p = p.replace(scale=None)
        run = traced(FMHA101, p, t, cache, write_lse=write_lse, check=False)
        expected = formulas(p, t, write_lse)
        assert arithmetic(run) == {line: counts for line, counts in expected.items() if any(counts)}
        of_tiles = arithmetic(run).get(line_of(FMHA101, "pv += "), (0, 0))
        assert 2 * (of_tiles[0] + of_tiles[1]) == run.plan.requested.flops
        blind = traced(FMHA101, p, t, cache, write_lse=write_lse, flops=False)
        assert blind.flops == ()

    over_random_problems()


def formulas(p: Problem, t: Tiling, write_lse: bool) -> dict[int, tuple[int, ...]]:
    """By hand, from the visits and the scores."""
    add, mul, div, special, largest = range(5)
    count: dict[int, Counter[int]] = defaultdict(Counter)

    def note(snippet: str, **counts: int) -> None:
        names = {"add": add, "mul": mul, "div": div, "special": special, "max": largest}
        count[line_of(FMHA101, snippet)].update({names[name]: n for name, n in counts.items()})

    Q, K, _ = inputs(p)
    m = np.full((p.B, p.H, p.Nq), -np.inf, np.float32)
    for visit in visits(p, t):
        rows, keys, all_rows, all_keys = len(visit.rows), len(visit.keys), t.Br, t.Bc
        note("score += ", add=visit.pairs * p.d, mul=visit.pairs * p.d)
        note("? score * scale", mul=visit.pairs)
        note("row_m = fmaxf(", max=all_rows * all_keys)
        note("mi_new = fmaxf(", max=all_rows)
        note("p = expf(", add=all_rows * all_keys, special=all_rows * all_keys)
        note("row_l += p", add=all_rows * all_keys)
        q, k = Q[visit.b, visit.h, list(visit.rows)], K[visit.b, visit.h // p.group, list(visit.keys)]
        S = np.zeros((rows, keys), np.float32)
        for column in range(p.d):  # in the kernel's own order, so that ties are ties
            S += q[:, column, None] * k[None, :, column]
        S *= np.float32(p.scale)
        offset = p.Nk if p.causal_offset is None else p.causal_offset
        S[np.array(visit.keys)[None, :] > np.array(visit.rows)[:, None] + offset] = -np.inf
        row_m, before = S.max(axis=1), m[visit.b, visit.h, list(visit.rows)]
        m_new = np.maximum(row_m, before)
        m[visit.b, visit.h, list(visit.rows)] = m_new
        rises, sees = int((m_new != before).sum()), int((row_m > -np.inf).sum())
        note("alpha[s_row] = mi[s_row]", add=rises, special=rises)
        note("beta[s_row] = row_m", add=sees, special=sees)
        note("li[s_row] = alpha[s_row]", add=all_rows, mul=2 * all_rows)
        note("pv += ", add=rows * keys * p.d, mul=rows * keys * p.d)
        note("Oi[e] = alpha[row]", add=rows * p.d, mul=2 * rows * p.d)
    seeing = int((m > -np.inf).sum())
    note("Oi[e] / l", div=seeing * p.d)
    if write_lse:
        note("mi[tid] + logf(", add=seeing, special=seeing)
    return {line: tuple(numbers[kind] for kind in range(5)) for line, numbers in count.items()}


def test_arithmetic_of_naive(cache: Path) -> None:
    @settings(max_examples=8)
    @given(problems())
    @example(Problem(Nq=65, Nk=40, d=33))
    def over_random_problems(p: Problem) -> None:
        run = traced(NAIVE, p, Tiling(16, 16), cache, check=False)
        scores, _, output = run.plan.launches
        chunk = 32 * 64 * 64  # multiply-adds of one chunk of a tile, ragged or not
        of_scores, of_output = (n * chunk for n in (scores.grid * ceil_div(p.d, 32), output.grid * chunks_of(output)))
        lines = arithmetic(run)
        assert lines[line_of(NAIVE, "sum[r][c] += Qi")] == (of_scores, of_scores, 0, 0, 0)
        assert lines[line_of(NAIVE, "part[r][c] += Pij")] == (of_output, of_output, 0, 0, 0)
        pitch = ceil_div(p.Nk, 8) * 8
        scores_held = p.B * p.H * p.Nq * pitch
        assert lines[line_of(NAIVE, "float e = expf(")] == (scores_held, 0, 0, scores_held, 0)

    over_random_problems()


def chunks_of(launch: Launch) -> int:
    """Chunks of 32 columns of a row of P."""
    return ceil_div(int(launch.arguments[-1]), 32)
