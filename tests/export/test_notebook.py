"""What a notebook shows of a run."""

from __future__ import annotations

import html
import re

import fmha
from fmha import Tiling, export
from tests.export.support import made


def test_show_wraps_the_players_file_into_a_frame() -> None:
    run = made()
    shown = fmha.show(run, height=500, race=True)
    page = re.search(r'srcdoc="([^"]*)"', shown._repr_html_())
    assert page and html.unescape(page[1]) == export.html(run, race=True) == shown.page
    assert "height: 500px" in shown.frame and "allow-same-origin" not in shown.frame
    assert "a notebook shows it" in repr(shown) and len(repr(shown)) < 100


def test_a_run_shows_its_numbers_and_the_player() -> None:
    shown = made(H=2)._repr_html_()
    assert "q-outer: B=1 H=2 Nq=48 Nk=48 d=8 fp32, Br=8 Bc=8" in shown and shown.count("<iframe") == 1


def test_a_run_without_a_player_says_why() -> None:
    for run, why in (
        (made(order="naive"), "Naive attention has no player"),
        (made(Tiling(1, 1), N=70), "70 x 70 tiles"),
    ):
        assert why in run._repr_html_() and "<iframe" not in run._repr_html_()
