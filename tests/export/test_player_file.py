"""The player's file: its size, its policy, what is in it and what it says of what is not."""

from __future__ import annotations

import base64
import hashlib
import re
import tomllib
import zlib
from typing import Any

import numpy as np
import pytest

from fmha import Problem, Tiling, export, load, simulate
from fmha.errors import FmhaError
from fmha.export.animated import animated
from fmha.export.player_file import COLOURS, MOST_BYTES
from fmha.player.packing import unpack
from tests.export.support import ROOT, made


def payload(page: str) -> tuple[dict[str, Any], dict[str, Any]]:
    packed = re.search(r'id="payload">([^<]*)</script>', page)
    assert packed
    return unpack(zlib.decompress(base64.b64decode(packed[1])))


def test_the_numbers_in_the_file_are_the_runs() -> None:
    run = made(causal=True, sms=3)
    meta, a = payload(export.html(run))
    now = animated(run)
    assert len(meta["exact"]) == 6 and meta["alone"] is True
    for x, (h, i) in enumerate(meta["exact"]):
        assert now.run.tiles is not None
        np.testing.assert_array_equal(a["xS"][x], now.run.tiles.S[0, h, i])
        rows = run.m[0, h, 8 * i : 8 * i + 8]
        np.testing.assert_allclose(a["xm"][x], rows.T.astype(np.float32))
    np.testing.assert_array_equal(a["f_phase"], now.run.events["phase"])


def test_the_file_says_where_its_times_are_from() -> None:
    usual, recorded = (export.html(made(), **more) for more in ({}, {"times": "By a clock in <Paris>."}))
    assert "Times follow a simple cost" in usual and "no measurement" in usual
    assert "By a clock in &lt;Paris&gt;." in recorded and "simple cost" not in recorded


@pytest.mark.parametrize(
    ("problem", "tiling", "all_of_them"),
    [
        ({"N": 128, "d": 64}, Tiling(8, 8), True),
        ({"N": 512, "d": 128, "causal": True}, Tiling(32, 32), True),
        ({"N": 768, "d": 64}, Tiling(48, 48), False),
    ],
)
def test_sixteen_by_sixteen_tiles_fit_into_two_megabytes(problem: Any, tiling: Tiling, all_of_them: bool) -> None:
    page = export.html(made(tiling, sms=16, **problem), race=True)
    have = len(payload(page)[0]["exact"])
    assert len(page.encode()) <= 2_000_000 and len(page) <= MOST_BYTES
    assert (have == 16) == all_of_them
    assert ("for every Q tile" in page) == all_of_them
    assert (f"for {have} of 16 Q tiles; of the others this file has pictures only" in page) != all_of_them
    if not all_of_them:
        assert len(page) > MOST_BYTES - 600_000  # the room is used: one more tile would take 500 KB


def test_at_least_one_tile_has_its_numbers_whatever_the_room() -> None:
    assert len(payload(export.html(made(), most_bytes=1))[0]["exact"]) == 1


def test_nothing_but_its_own_scripts_may_run_and_nothing_may_be_loaded() -> None:
    page = export.html(made(), title='<b>&"x')
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)
    scripts = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    assert policy and len(scripts) == 1
    digest = base64.b64encode(hashlib.sha256(scripts[0].encode()).digest()).decode()
    assert f"default-src 'none'; script-src 'sha256-{digest}';" in policy[1] and "connect-src" not in policy[1]
    assert not re.search(r"(src|href)=|url\(|@import", re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL))
    assert "<b>" not in page.split("</header>")[0] and "&lt;b&gt;&amp;" in page


def test_the_page_has_the_colours_of_the_app() -> None:
    theme = tomllib.loads((ROOT / ".streamlit" / "config.toml").read_text())["theme"]
    for mode, colours in COLOURS.items():
        for name, value in colours.items():
            first, *rest = name.split("-")
            assert theme[mode][first + "".join(word.title() for word in rest)] == value


def test_of_a_batch_with_shared_heads_a_part_is_shown_as_it_was_computed() -> None:
    problem = Problem(B=2, H=6, Hk=2, N=40, d=8, lens_k=(30, 40))
    inputs = load("random", problem)
    run = simulate(problem, Tiling(2, 2), inputs.Q, inputs.K, inputs.V, sms=8)
    shown = animated(run).run  # 20 x 20 tiles: six heads fit
    assert (shown.problem.B, shown.problem.H, shown.problem.Hk, shown.problem.lens_k) == (1, 6, 2, (30,))
    np.testing.assert_allclose(shown.O, run.O[:1])


def test_a_run_that_has_all_is_taken_as_it_is() -> None:
    problem = Problem(N=48, d=8)
    inputs = load("random", problem)
    run = simulate(problem, Tiling(8, 8), inputs.Q, inputs.K, inputs.V, sms=4, record_columns=16)
    assert animated(run).run is run and animated(run, sms=4).run is run
    assert animated(run, sms=2).run is not run


@pytest.mark.parametrize(
    ("run", "look", "words"),
    [
        ({"order": "naive"}, {}, "naive attention has no player of its own"),
        ({"N": 1000, "tiling": Tiling(4, 4)}, {}, "250 x 250 tiles are too many to animate: use at most 4,096"),
        ({}, {"sms": 65}, "sms=65 is out of range"),
        ({}, {"event": 10**6}, "event=1000000 is out of range"),
    ],
)
def test_what_cannot_be_shown_is_said_in_one_sentence(run: Any, look: Any, words: str) -> None:
    with pytest.raises(FmhaError) as caught:
        export.html(made(**run), **look)
    assert words in str(caught.value) and str(caught.value).count(". ") == 0
