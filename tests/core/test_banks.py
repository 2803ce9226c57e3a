"""Bank conflicts: accesses worked by hand, a slow second opinion, and the kernels' sites against counters."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fmha.bank_fmha101 import visit_kinds
from fmha.bank_kernels import smem_use, smem_wavefronts
from fmha.banks import BANKS, WARP, least_wavefronts, picture, wavefronts, ways
from fmha.errors import InputError, LimitError
from fmha.hardware import GPUS
from fmha.kernels import KERNELS
from fmha.mask import row_bounds
from fmha.measurement import shipped
from fmha.problem import Problem, Tiling

WAVEFRONTS = "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum"
CONFLICTS = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum"


@pytest.mark.parametrize(
    ("addresses", "nbytes", "turns"),
    [
        ([4 * lane for lane in range(32)], 4, 1),  # a row
        ([0] * 32, 4, 1),  # all lanes one word: broadcast
        ([4 * 64 * lane for lane in range(32)], 4, 32),  # a column of a tile of 64 floats a row
        ([4 * 65 * lane for lane in range(32)], 4, 1),  # the same, one float of padding a row
        ([4 * 2 * lane for lane in range(32)], 4, 2),  # every other word
        ([4 * 64 * (lane % 16) for lane in range(32)], 4, 16),  # two lanes share each of 16 words of bank 0
        ([4 * 33 * lane for lane in range(16)], 4, 1),  # 16 lanes
        ([], 4, 0),  # nobody
        ([8 * lane for lane in range(32)], 8, 2),  # 256 bytes: two turns at least
        ([16 * lane for lane in range(32)], 16, 4),
        ([16], 16, 1),  # one lane
        ([16] + [-1] * 15 + [128], 16, 2),  # two lanes of different half-warps
        ([64] * 32, 16, 2),  # all lanes one address: a turn for each half-warp
        ([64 + 16 * 17 * (lane // 16) for lane in range(32)], 16, 2),  # a half-warp each one address
        ([16 * (lane // 2) for lane in range(32)], 16, 2),  # neighbours want the same
        ([16 * (lane % 2) for lane in range(32)], 16, 2),  # lanes two apart want the same
        ([16 * (lane % 4) for lane in range(32)], 16, 4),  # lanes four apart: no pairs
        ([512 * (lane // 2) for lane in range(32)], 16, 16),  # pairs, all in the same four banks
        ([8 * (lane // 2) for lane in range(32)], 8, 1),
    ],
)
def test_by_hand(addresses: list[int], nbytes: int, turns: int) -> None:
    assert ways(addresses, nbytes) == turns


@st.composite
def accesses(draw: st.DrawFn) -> tuple[list[int], int]:
    nbytes = draw(st.sampled_from([4, 8, 16]))
    lane = st.one_of(st.just(-1), st.integers(0, 200).map(lambda n: n * nbytes))
    return draw(st.lists(lane, min_size=32, max_size=32)), nbytes


@given(accesses())
def test_the_picture_serves_every_lane_in_its_turn(access: tuple[list[int], int]) -> None:
    addresses, nbytes = access
    drawn = picture(addresses, nbytes)
    active = [lane for lane in range(WARP) if addresses[lane] >= 0]
    assert drawn.wavefronts == int(drawn.turn.max(initial=-1)) + 1
    assert drawn.least == int(least_wavefronts(np.array(addresses), nbytes)) <= drawn.wavefronts
    served: Counter[int] = Counter()
    for turn in range(drawn.wavefronts):
        for bank, lanes in drawn.lanes_in(turn).items():
            served.update(lanes)
            words = {
                int(w)
                for lane in lanes
                for w, t in zip(drawn.word[lane], drawn.turn[lane], strict=True)
                if t == turn and w % BANKS == bank
            }
            assert len(words) == 1  # a bank delivers one word in a turn
    assert served == Counter(dict.fromkeys(active, nbytes // 4))
    assert len({int(w) for w in drawn.word.ravel() if w >= 0}) == len(
        {a // 4 + k for a in addresses if a >= 0 for k in range(nbytes // 4)}
    )


@given(st.lists(st.lists(st.integers(-1, 90).map(lambda n: 4 * n), min_size=32, max_size=32), max_size=5))
def test_many_at_once_are_as_one_by_one(rows: list[list[int]]) -> None:
    together = wavefronts(np.array(rows, np.int64).reshape(len(rows), 32))
    slowly = []
    for row in rows:
        words = {a // 4 for a in row if a >= 0}
        slowly.append(max(Counter(word % 32 for word in words).values(), default=0))
    assert together.tolist() == slowly == [ways(row) for row in rows]


@pytest.mark.parametrize(
    ("addresses", "nbytes", "said"),
    [([0] * 33, 4, "32 or fewer"), ([2], 4, "multiples of 4"), ([8], 16, "multiples of 16"), ([0], 12, "4, 8 or 16")],
)
def test_what_is_no_access_is_refused(addresses: list[int], nbytes: int, said: str) -> None:
    with pytest.raises(InputError, match=said):
        ways(addresses, nbytes)


# --- the kernels ------------------------------------------------------------------------------------------------------


def test_kj_is_32_way_at_d_64_and_padding_cures_it() -> None:
    problem, tiling = Problem(B=1, H=16, N=4096, d=64), Tiling(32, 32)
    use = smem_use(KERNELS["02"], problem, tiling)
    (kj,) = (site for site in use.sites if site.text == "Kj[s_col * d + k]")
    visits = 16 * 128 * 128
    assert kj.ways == 32 and kj.wavefronts == visits * 32 * 64 * 32  # 32 warps, d = 64, 32 turns
    assert use.worst() == kj and ways(kj.example) == 32
    cured = smem_use(KERNELS["02"], problem, tiling, pad=1)
    assert all(site.ways <= 1 for site in cured.sites) and cured.conflicts == 0
    assert 6 < use.wavefronts / cured.wavefronts < 7


def test_a_tile_of_odd_width_needs_no_padding() -> None:
    use = smem_use(KERNELS["02"], Problem(N=256, d=33), Tiling(32, 32))
    (kj,) = (site for site in use.sites if site.text.startswith("Kj[s_col"))
    assert kj.conflicts == 0


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    Nq, Nk, B = draw(st.integers(1, 40)), draw(st.integers(1, 40)), draw(st.integers(1, 2))
    lengths = st.one_of(st.none(), st.lists(st.integers(0, Nk), min_size=B, max_size=B).map(tuple))
    causal = draw(st.sampled_from([None, "bottom-right", "top-left"]))
    return Problem(
        B=B, H=draw(st.integers(1, 2)), Nq=Nq, Nk=Nk, d=draw(st.sampled_from([1, 5, 8, 16])), causal=causal,
        lens_k=draw(lengths), left_pad=draw(lengths),
    )  # fmt: skip


@given(problems(), st.integers(1, 12), st.integers(1, 12))
def test_visits_are_those_of_the_kernel(p: Problem, Br: int, Bc: int) -> None:
    """Against the kernel's loop, written again one thread at a time: visits, and the multiply-adds of S = QK^T."""
    visits = looks = 0
    for b in range(p.B):
        low, high = row_bounds(p, b)
        first, _ = p.key_range(b)
        for row in range(0, p.Nq, Br):
            rows = range(row, min(row + Br, p.Nq))
            j, end = first // Bc, int(high[rows[-1]])
            while j * Bc < end and first < end:
                visits += 1
                looks += sum(low[r] <= c < high[r] for r in rows for c in range(j * Bc, (j + 1) * Bc))
                j += 1
    kinds = visit_kinds(p, Tiling(Br, Bc))
    assert sum(kinds.values()) == p.H * visits
    use = smem_use(KERNELS["02"], p, Tiling(Br, Bc))
    read = {site.text: site.nbytes for site in use.sites if not site.store}
    assert read["Qi[s_row * d + k]"] == read["Kj[s_col * d + k]"] == 4 * p.H * looks * p.d


@given(problems(), st.integers(1, 12), st.integers(1, 12), st.integers(0, 2))
def test_bytes_and_least_wavefronts_do_not_depend_on_padding(p: Problem, Br: int, Bc: int, pad: int) -> None:
    plain, padded = (smem_use(KERNELS["02"], p, Tiling(Br, Bc), pad=n, write_lse=True) for n in (0, pad))
    alone = smem_use(KERNELS["02"], p, Tiling(Br, Bc), GPUS["H200"])
    assert smem_wavefronts(KERNELS["02"], p, Tiling(Br, Bc), GPUS["H200"]) == alone.wavefronts
    assert plain.nbytes == padded.nbytes
    for site in (*plain.sites, *padded.sites):
        assert site.requests <= site.least <= site.wavefronts or site.width > 4
        assert 0 <= site.conflicts <= 31 * site.least and site.nbytes <= 128 * site.wavefronts * WARP


@pytest.mark.parametrize("number", ["01", "02"])
def test_sites_stand_where_they_say(number: str) -> None:
    kernel = KERNELS[number]
    lines = kernel.source().splitlines()
    use = smem_use(kernel, Problem(N=100, d=40, causal=True), Tiling(32, 16), write_lse=True)
    functions = {launch.function for launch in kernel.plan(Problem(N=100, d=40), Tiling(32, 16)).launches}
    assert len(use.sites) > 10 and {s.function for s in use.sites} == functions
    for site in use.sites:
        assert site.text in lines[site.line - 1], (site.line, site.text)


def test_too_large_tiles_are_refused_as_the_kernel_refuses_them() -> None:
    with pytest.raises(LimitError, match="threads"):
        smem_use(KERNELS["02"], Problem(N=128, d=64), Tiling(64, 64))
    with pytest.raises(LimitError, match="shared memory"):
        smem_use(KERNELS["02"], Problem(N=128, d=256), Tiling(32, 32), GPUS["T4"])


RECORDED = [(recording, run, entry) for recording in shipped() for run in recording.runs for entry in run.entries]
COUNTED = [case for case in RECORDED if case[2].counter(WAVEFRONTS)]


def test_enough_was_recorded() -> None:
    assert len([e for _, _, e in COUNTED if e.name == "02"]) >= 12 and any(e.name == "01" for _, _, e in COUNTED)


def test_wavefronts_and_conflicts_of_02_are_the_hardware_s() -> None:
    """Within 1 %, where 2 % were aimed at; on every recorded setting, without a fitted number."""
    for recording, run, entry in COUNTED:
        if entry.name == "02" and entry.tiling and not entry.stale:
            use = smem_use(KERNELS["02"], run.problem, Tiling(*entry.tiling), recording.device.gpu)
            assert use.wavefronts == pytest.approx(entry.counter(WAVEFRONTS), rel=0.01), (run.problem, entry.tiling)
            assert use.conflicts == pytest.approx(entry.counter(CONFLICTS), rel=0.01), (run.problem, entry.tiling)


def test_wavefronts_of_01_and_what_is_not_explained() -> None:
    """The two products within 2 %. The counter also counts shuffles, a wavefront each, and the softmax has more of them
    than half of its other accesses; by line it is equal (`tests/core/test_line_counts.py`)."""
    for recording, run, entry in COUNTED:
        if entry.name == "01" and not entry.stale:
            use = smem_use(KERNELS["01"], run.problem, Tiling(64, 64), recording.device.gpu)
            for function, tolerance in (("naive_scores", 0.02), ("naive_output", 0.02), ("naive_softmax", 0.55)):
                counted = entry.counters[function][WAVEFRONTS]
                assert use.of(function).wavefronts == pytest.approx(counted, rel=tolerance), (function, run.problem)
            assert use.wavefronts == pytest.approx(entry.counter(WAVEFRONTS), rel=0.11)
            assert use.conflicts == 0 and (entry.counter(CONFLICTS) or 0) < 0.01 * (entry.counter(WAVEFRONTS) or 0)
