"""`python -m fmha export`: what it writes, and what it refuses in one line."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from fmha import Problem, Tiling
from fmha.cli import main
from fmha.events import emit
from fmha.export import filming
from fmha.traffic import closed_form


def run(*words: str) -> int:
    try:
        return main(["export", *words])
    except SystemExit as stop:
        return int(stop.code or 0)


SMALL = ("--N", "40", "--d", "8", "--Br", "8", "--Bc", "8", "--sms", "4")


@pytest.mark.parametrize("order", ["q-outer", "naive"])
def test_tables(order: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for ending in ("npz", "parquet", "json"):
        assert run(*SMALL, "--order", order, "--out", str(tmp_path / f"run.{ending}")) == 0
    told = capsys.readouterr().out
    assert told.count("written") == 3 and "(" not in told  # what a format needs is for the help
    assert all(how in told for how in ("numpy.load reads it", "pandas.read_parquet reads it", "ui.perfetto.dev"))
    assert told.count("5 x 5 tiles") == (3 if order == "q-outer" else 0)  # naive attention has none
    problem, tiling = Problem(N=40, d=8), Tiling(8, 8)
    events = emit(problem, tiling, order)
    with np.load(tmp_path / "run.npz", allow_pickle=False) as file:
        np.testing.assert_array_equal(file["events"]["nbytes"], events["nbytes"])
        assert file["events"]["sm"].max() == 3
    assert pq.read_table(io.BytesIO((tmp_path / "run.parquet").read_bytes())).num_rows == len(events)
    trace = json.loads((tmp_path / "run.json").read_text())["traceEvents"]
    meter = [e["args"]["bytes"] for e in trace if e["name"] == "requested bytes"]
    assert meter[-1] == closed_form(problem, tiling, order).requested_bytes


def test_the_format_decides_and_the_name_is_made_up_where_none_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(*SMALL, "--format", "html", "--theme", "dark", "--race") == 0
    assert run(*SMALL, "--format", "perfetto") == 0
    assert sorted(p.name for p in tmp_path.iterdir()) == ["fmha-run.html", "fmha-run.json"]
    assert '<html lang="en" class="dark">' in (tmp_path / "fmha-run.html").read_text()


def test_names_that_a_player_may_have(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("run", "RUN.HTM", "a.b.html"):
        assert run(*SMALL, "--format", "html", "--out", str(tmp_path / name)) == 0
        assert (tmp_path / name).read_text().startswith("<!DOCTYPE html>")
        told = capsys.readouterr().out
        assert re.fullmatch(
            rf"written   .*{name}: 5 x 5 tiles, [\d,]+ events, [\d.]+ KiB; open it in a browser\n", told
        )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "no format was given: use --format with one of html, gif"),
        (("--format", "doc"), "--format 'doc' is not known: use --format with one of html, gif"),
        (("--out", "run.doc"), "no format was given, and none ends in .doc: use --format with one of html, gif"),
        (("--format", "html", "--order", "naive"), "has no player of its own: leave out --order naive, and add --race"),
        (("--format", "html", "--N", "5000", "--Br", "8"), "625 x 157 tiles are too many to animate"),
        (("--format", "gif", "--width", "5"), "width=5 is out of range: use 320 to 3,840"),
        (("--format", "gif", "--seconds", "0"), "seconds=0 is out of range: use 1 to 120"),
        (("--format", "npz", "--gpu", "Z80"), "gpu='Z80' is not known"),
        (("--format", "html", "--l2-kib", "-1"), "--l2-kib -1 was given: it must be 0 or more"),
        (("--format", "html", "--event", "100000"), "event=100000 is out of range"),
        (("--format", "npz", "--out", "/no/such/folder/x.npz"), "/no/such/folder does not exist: make that folder"),
        (("--format", "html", "--input", "dream"), "input='dream' is not known"),
        (
            ("--format", "png", "--out", "a.gif"),
            "writes the moment at which the player opens, and a.gif ends as gif does",
        ),
        (
            ("--format", "html", "--out", "run.v2"),
            "run.v2 ends in .v2, and a .html or .htm file is written: name one, such as --out run.html.",
        ),
        (("--format", "perfetto", "--out", "a.npz"), "a.npz ends as npz does: name a .json file"),
        (("--out", ""), "no format was given, and --out has no ending that names one"),
        (("--out", "run"), "no format was given, and --out has no ending that names one"),
        (("--format", "html", "--out", ""), "--out is empty: name a file, such as --out fmha-run.html"),
        (("--out", "run.html/"), "run.html/ is a folder: name a file in it, such as --out run.html/fmha-run.html"),
        (("--format", "html", "--out", "/"), "/ is a folder: name a file in it, such as --out /fmha-run.html"),
    ],
)
def test_refusals_are_one_line(words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*words) == 2
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1 and "Traceback" not in error


def test_without_a_browser_a_film_is_refused_with_what_to_do(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("FMHA_CHROMIUM", raising=False)
    monkeypatch.setattr(filming, "_PLACES", ())
    assert run(*SMALL, "--format", "gif") == 2
    assert "no Chromium or Chrome was found: install one, name it in FMHA_CHROMIUM" in capsys.readouterr().err


def test_a_browser_that_ends_at_once_is_no_endless_wait(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FMHA_CHROMIUM", "true")
    assert run(*SMALL, "--format", "gif") == 2
    assert "the browser ended before the film was made" in capsys.readouterr().err
