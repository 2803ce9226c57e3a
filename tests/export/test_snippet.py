"""A view as Python and as a command: run here, they give the numbers of the page."""

from __future__ import annotations

import contextlib
import io
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fmha import Problem, Tiling, export, traffic
from fmha.cli import main
from fmha.errors import TraceError
from fmha.export.notebook import Shown
from fmha.hardware import GPUS
from fmha.player import scene
from fmha.trace import follow
from fmha.trace.compilers import compiler
from fmha.ui.export_box import Parcel, command, file_stem
from tests.export.test_player_file import payload
from tests.tools import need

VIEWS: list[dict[str, Any]] = [
    {"problem": Problem(N=48, d=8, H=2, dtype="bf16", causal="top-left"), "tiling": Tiling(8, 16), "order": "kv-outer"},
    {"problem": Problem(N=16, d=32, H=3), "tiling": Tiling(4, 4), "input_name": "sentence", "layer": 5, "head": 2},
    {"problem": Problem(N=64, d=4), "tiling": Tiling(16, 8), "seed": 7, "gpu": "A100-40", "sms": 2, "race": True},
    {"problem": Problem(N=4, d=4), "tiling": Tiling(2, 2), "input_name": "worked", "event": 5, "row": 1, "col": 1},
    {"problem": Problem(N=32, d=8, H=2), "tiling": Tiling(8, 8), "kernel": "02"},
]


def parcel(view: dict[str, Any]) -> Parcel:
    usual = {
        "order": "q-outer", "input_name": "random", "sms": 16, "seed": 0, "layer": 3, "head": 0, "gpu": "H200",
        "kernel": None, "l2_bytes": 4096, "race": False, "event": 3, "row": 0, "col": 0,
    }  # fmt: skip
    return Parcel(**{**usual, **view})


def played(p: Parcel) -> scene.Played:
    """What the page shows for these settings."""
    gpu = GPUS[p.gpu]
    traced = follow.Follower(follow.KERNELS_SHOWN[p.kernel], p.tiling, gpu, p.sms, 16) if p.kernel else None
    return scene.prepare(
        p.problem, p.tiling, p.order, p.input_name,
        sms=p.sms, seed=p.seed, layer=p.layer, head=p.head, gpu=gpu, run_by=traced,
    )  # fmt: skip


def page_of(p: Parcel) -> str:
    return export.html(played(p), l2_bytes=p.l2_bytes, race=p.race, event=p.event, row=p.row, col=p.col)


@pytest.mark.parametrize(
    "view", VIEWS, ids=lambda v: v.get("kernel") or v.get("input_name") or v.get("order", "random")
)
def test_the_snippet_gives_the_same_numbers_and_the_same_picture(view: dict[str, Any]) -> None:
    p = parcel(view)
    if p.kernel:
        try:
            need("cxx", compiler().command[0])
        except TraceError:
            need("cxx", None)
    names = (
        "order",
        "input_name",
        "seed",
        "layer",
        "head",
        "gpu",
        "sms",
        "kernel",
        "l2_bytes",
        "race",
        "event",
        "row",
        "col",
    )
    text = export.snippet(p.problem, p.tiling, **{name: getattr(p, name) for name in names})
    *lines, last = text.rstrip().splitlines()
    assert last.startswith("show(") and max(map(len, lines)) <= 100
    there: dict[str, Any] = {}
    with contextlib.redirect_stdout(io.StringIO()) as said:
        exec("\n".join([*lines, f"shown = {last}"]), there)
    assert said.getvalue() == f"{traffic(p.problem, p.tiling, p.order).requested_bytes} bytes requested\n"
    np.testing.assert_array_equal(there["run"].O, played(p).run.O)
    np.testing.assert_array_equal(there["run"].events, played(p).run.events)
    assert isinstance(there["shown"], Shown) and there["shown"].page == page_of(p)


@pytest.mark.parametrize("view", VIEWS[:4], ids=["kv-outer", "sentence", "race", "worked"])
def test_the_command_writes_the_same_player(
    view: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    p, out = parcel(view), tmp_path / "a player.html"
    words = shlex.split(command(p, p.problem, str(out)))
    assert words[:3] == ["python", "-m", "fmha"] and main(words[3:]) == 0
    assert "written" in capsys.readouterr().out
    wanted, got = (payload(text) for text in (page_of(p), out.read_text(encoding="utf-8")))
    assert wanted[0]["schedule"] == got[0]["schedule"] and wanted[0]["l2"] == got[0]["l2"]
    assert wanted[0]["tokens"] == got[0]["tokens"] and wanted[0]["start"][0] == got[0]["start"][0]
    np.testing.assert_array_equal(wanted[1]["xS"], got[1]["xS"])


def test_a_file_name_says_what_was_run() -> None:
    assert file_stem(parcel(VIEWS[0])) == "fmha-kv-outer-N48-d8-Br8-Bc16-causal"
