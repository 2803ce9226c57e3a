"""The player's bytes against the run that they were made from."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fmha import Problem, Tiling
from fmha.errors import LimitError
from fmha.events import PHASES
from fmha.player.packing import pack, unpack
from fmha.player.payload import MAX_VISITS, Scene, build, heads_that_fit, schedule_digest
from fmha.player.scene import LENGTHS, Played, head_dims, lengths, prepare, tile_sizes
from fmha.traffic import closed_form


def played(problem: Problem, tiling: Tiling, order: str = "q-outer", sms: int = 3, name: str = "random") -> Played:
    return prepare(problem, tiling, order, name, sms=sms)


def unpacked(now: Played, l2: float | None = None, **look: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    return unpack(build(now.run, now.naive_events, now.served(l2), Scene(now.gpu, now.sms, **look)))


def test_packing_returns_what_was_packed_at_aligned_places() -> None:
    arrays = {
        "a": np.arange(5, dtype=np.uint8), "b": np.arange(6, dtype=np.float32).reshape(2, 3),
        "c": np.array([-1, 7], np.int16), "d": np.zeros(0), "e": np.arange(3, dtype=">u4"),
    }  # fmt: skip
    blob = pack({"word": "x", "n": [1, None]}, arrays)
    meta, back = unpack(blob)
    assert meta == {"word": "x", "n": [1, None]}
    for name, array in arrays.items():
        np.testing.assert_array_equal(back[name], array)
        assert back[name].shape == array.shape


def test_packing_refuses_what_a_browser_cannot_read() -> None:
    with pytest.raises(TypeError, match="int64"):
        pack({}, {"a": np.arange(3)})
    with pytest.raises(ValueError, match="JSON"):
        pack({"bad": float("nan")}, {})


@settings(deadline=None, max_examples=40)
@given(
    N=st.integers(1, 70), d=st.integers(1, 24), Br=st.integers(1, 17), Bc=st.integers(1, 17), H=st.integers(1, 3),
    order=st.sampled_from(["q-outer", "kv-outer"]), causal=st.sampled_from([None, "bottom-right", "top-left"]),
    sms=st.integers(1, 9), focus=st.integers(0, 8), race=st.booleans(),
)  # fmt: skip
def test_payload_agrees_with_its_run(
    N: int, d: int, Br: int, Bc: int, H: int, order: str, causal: Any, sms: int, focus: int, race: bool
) -> None:
    problem, tiling = Problem(N=N, d=d, H=H, causal=causal), Tiling(Br, Bc)
    if H * tiling.Tr(problem) * tiling.Tc(problem) > MAX_VISITS:
        return
    now = played(problem, tiling, order, sms)
    run = now.run
    meta, a = unpacked(now, focus_sm=min(focus, sms - 1), race=race)

    events = run.events
    np.testing.assert_array_equal(a["f_phase"], events["phase"])
    tick = meta["tick"]
    np.testing.assert_allclose(a["f_t0"] * tick, events["t0"], rtol=0, atol=tick)
    assert (np.diff(a["f_t0"].astype(np.int64))[np.diff(events["worker"]) == 0] > 0).all()  # no phase lost its length
    assert meta["end"]["flash"] == a["f_block_end"].max() == a["f_meter_t"].max()
    none = np.iinfo(a["f_j"].dtype).max
    np.testing.assert_array_equal(np.where(a["f_j"] == none, -1, a["f_j"].astype(int)), events["j"])
    np.testing.assert_array_equal(a["f_nbytes_table"][a["f_nbytes"]], events["nbytes"])
    assert a["f_meter_nbytes_table"][a["f_meter_nbytes"]].sum() == meta["total"]["flash"]
    assert meta["total"]["flash"] == closed_form(problem, tiling, order).requested_bytes
    assert meta["total"]["naive"] == closed_form(problem, tiling, "naive").requested_bytes
    assert (np.diff(a["f_meter_t"].astype(np.int64)) >= 0).all()
    assert race == ("n_t0" in a)

    assert run.tiles is not None
    for x, (h, i) in enumerate(meta["exact"]):
        rows = slice(i * Br, min((i + 1) * Br, N))
        here = rows.stop - rows.start
        for name, trace in (("xm", run.m), ("xl", run.l), ("xa", run.alpha)):
            np.testing.assert_allclose(a[name][x][:, :here], trace[0, h, rows].T, rtol=1e-6)
        columns = a["xF"].shape[-1]
        np.testing.assert_allclose(a["xF"][x][:here], run.O[0, h, rows, :columns], rtol=1e-5, atol=1e-7)
        visited = np.isfinite(a["xS"][x]).any(axis=(1, 2))
        for j in np.flatnonzero(visited):
            # The formulas' terms belong together: l_new = alpha l + rowsum P, m_new = max(m, rowmax S).
            m_old = a["xm"][x][j - 1, :here] if j else np.full(here, -np.inf)
            l_old = a["xl"][x][j - 1, :here] if j else np.zeros(here)
            np.testing.assert_allclose(np.maximum(m_old, a["x_rowmax"][x][j, :here]), a["xm"][x][j, :here], rtol=1e-6)
            l_new = a["xa"][x][j, :here] * l_old + a["x_rowsum"][x][j, :here]
            np.testing.assert_allclose(l_new, a["xl"][x][j, :here], rtol=1e-5, atol=1e-6)
    assert not any(np.isnan(a[name]).any() for name in ("xm", "xl", "xa", "xF", "x_rowsum", "x_pv", "x_rowmax"))


@pytest.mark.parametrize("order", ["q-outer", "kv-outer"])
@pytest.mark.parametrize("l2", [0, 4096, None])
def test_bits_say_who_answered(order: str, l2: int | None) -> None:
    now = played(Problem(N=48, d=8, H=2), Tiling(8, 8), order)
    meta, a = unpacked(now, l2, race=True)
    flash, naive = now.served(l2)
    assert meta["l2"]["holds"] == (now.gpu.l2_bytes if l2 is None else l2)
    for prefix, name, events, served in (
        ("f", "flash", now.run.events, flash),
        ("n", "naive", now.naive_events, naive),
    ):
        bits = np.unpackbits(a[f"{prefix}_hbm"], count=len(events)).astype(bool)
        np.testing.assert_array_equal(bits, served.from_hbm)
        nbytes = a[f"{prefix}_meter_nbytes_table"][a[f"{prefix}_meter_nbytes"]]
        hbm, load = (np.unpackbits(a[f"{prefix}_meter_{kind}"], count=len(nbytes)) for kind in ("hbm", "load"))
        assert nbytes[hbm == 1].sum() == served.hbm_read == meta["l2"]["read"][name]
        assert nbytes[load == 1].sum() == served.loaded
        assert not (hbm & ~load).any()


def test_who_answers_takes_less_than_a_byte_an_event() -> None:
    now = played(Problem(N=512, d=64), Tiling(8, 8))
    _, a = unpacked(now, race=True)
    bits = sum(a[name].nbytes for name in a if name.endswith(("_hbm", "_load")))
    assert bits < (len(now.run.events) + len(now.naive_events)) / 2


def test_waves_begin_when_their_first_block_does() -> None:
    now = played(Problem(N=64, d=8), Tiling(8, 8), sms=3)
    meta, _ = unpacked(now, race=True)
    events, tick = now.run.events, meta["tick"]
    flash, naive = meta["waves"]["flash"], meta["waves"]["naive"]
    starts = np.sort([events["t0"][events["worker"] == worker].min() for worker in range(8)])
    np.testing.assert_allclose([t * tick for t, _, _ in flash["begins"]], starts[[0, 3, 6]], atol=tick)
    assert [(kernel, wave) for _, kernel, wave in naive["begins"]] == [(k, w) for k in range(3) for w in range(3)]
    assert (flash["count"], flash["last"]) == (3, 2)
    busy = (events["t1"] - events["t0"]).sum() / (3 * events["t1"].max())
    assert flash["busy"] == pytest.approx(busy)


def test_pictures_mark_masked_cells_and_keep_the_order_of_scores() -> None:
    now = played(Problem(N=24, d=8, causal="bottom-right"), Tiling(8, 8))
    meta, a = unpacked(now)
    assert now.run.tiles is not None and not meta["reduced"]
    S, picture = now.run.tiles.S[0], a["S8"]
    seen = np.isfinite(S)
    np.testing.assert_array_equal(picture > 0, seen)
    back = meta["S_low"] + (picture.astype(float) - 1) / 254 * (meta["S_high"] - meta["S_low"])
    assert np.abs(back[seen] - S[seen]).max() <= (meta["S_high"] - meta["S_low"]) / 254


def test_large_tiles_are_drawn_reduced_and_the_header_says_so() -> None:
    meta, a = unpacked(played(Problem(N=100, d=8), Tiling(32, 20)))
    assert meta["reduced"] and meta["picture"] == [8, 8]
    assert a["S8"].shape[-2:] == (8, 8) and a["m8"].shape[-1] == 8


def test_a_focused_tile_far_down_the_list_gets_its_numbers() -> None:
    now = played(Problem(N=256, d=8), Tiling(16, 16), order="kv-outer", sms=1)
    first, _ = unpacked(now)
    later, _ = unpacked(now, focus_tile=(0, 15))
    assert [0, 15] not in first["exact"] and [0, 15] in later["exact"]


@pytest.mark.parametrize(
    ("problem", "tiling", "kib"),
    [
        (Problem(N=128, d=8), Tiling(8, 8), 150),
        (Problem(N=256, d=64), Tiling(16, 16), 150),
        (Problem(N=128, d=128, causal="bottom-right"), Tiling(8, 8), 150),
        (Problem(N=512, d=64), Tiling(8, 8), 1536),
        (Problem(N=1024, d=128), Tiling(16, 16), 1536),
    ],
)
@pytest.mark.parametrize("order", ["q-outer", "kv-outer"])
@pytest.mark.parametrize("race", [False, True])
def test_size(problem: Problem, tiling: Tiling, kib: int, order: str, race: bool) -> None:
    now = played(problem, tiling, order, 16)
    blob = build(now.run, now.naive_events, now.served(), Scene(now.gpu, now.sms, race=race))
    assert len(blob) <= kib * 1024


def test_too_many_visits_are_refused_by_a_sentence() -> None:
    now = played(Problem(N=65, d=4), Tiling(1, 1))
    with pytest.raises(LimitError, match=r"4096.*larger Br"):
        unpacked(now)
    assert heads_that_fit(8, 64, 64) == 1
    assert heads_that_fit(8, 16, 16) == 8


def test_only_heads_that_fit_are_simulated() -> None:
    assert played(Problem(N=64, d=4, H=8), Tiling(2, 2)).run.problem.H == 4


def test_a_schedule_has_one_name_whatever_the_numbers_are() -> None:
    tiling = Tiling(8, 8)
    first, again = (played(Problem(N=64, d=8), tiling, name=name).run for name in ("random", "rising"))
    assert schedule_digest(first) == schedule_digest(again)
    assert schedule_digest(first) != schedule_digest(played(Problem(N=64, d=8, causal="top-left"), tiling).run)


def test_every_offered_setting_can_be_shown() -> None:
    for N in LENGTHS:
        for size in tile_sizes(N):
            assert size <= N and -(-N // size) <= 64
    for name in ("random", "sentence", "passage", "worked"):
        N, d = lengths(name)[-1], head_dims(name)[-1]
        now = played(Problem(N=N, d=d), Tiling(tile_sizes(N)[0], tile_sizes(N)[-1]), name=name)
        meta, _ = unpacked(now)
        assert meta["Tr"] * meta["Tc"] <= MAX_VISITS


def test_phases_of_the_pseudocode_cover_every_phase_of_the_run() -> None:
    for order in ("q-outer", "kv-outer"):
        now = played(Problem(N=16, d=4), Tiling(8, 8), order)
        meta, _ = unpacked(now)
        named = {phase for line in meta["lines"] for phase in line["phases"]}
        assert {int(p) for p in np.unique(now.run.events["phase"])} <= named
        assert [p["maths"] for p in meta["phases"]] == [p.maths for p in PHASES]
