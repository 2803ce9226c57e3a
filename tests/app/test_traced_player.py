"""Tiles in motion, played by a kernel's traced run: what it says, and where it cannot be."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from fmha import Problem, Tiling
from fmha.errors import TraceError
from fmha.events import emit
from fmha.trace import follow
from fmha.trace.compilers import compiler
from tests.tools import need

PAGE = Path(__file__).resolve().parent.parent.parent / "pages" / "lab" / "tiles_in_motion.py"


@pytest.fixture(scope="module", autouse=True)
def a_compiler() -> None:
    try:
        found = compiler().command[0]
    except TraceError:
        found = None
    need("cxx", found)


def opened(**url: str) -> AppTest:
    at = AppTest.from_file(PAGE, default_timeout=60)
    for name, text in {"N": "64", "d": "8", "Br": "8", "Bc": "16", **url}.items():
        at.query_params[name] = text
    at.run()
    assert not at.exception, [e.value for e in at.exception]
    return at


def bare(text: str) -> str:
    """Markdown without its escapes."""
    return re.sub(r"\\(.)", r"\1", text)


def test_a_traced_run_says_so_and_how_it_compares() -> None:
    at = opened(by="02", H="2", causal="br")
    (said,) = [bare(c.value) for c in at.caption if "As traced from 02" in bare(c.value)]
    events = len(emit(Problem(N=64, d=8, H=2, causal="br"), Tiling(8, 16)))
    assert f"{events:,} events agree with it in {events:,}" in said
    off = re.search(r"differ by ([\d.e-]+) at most", said)
    assert off and float(off[1]) < 1e-4
    assert not at.error and not at.info


def test_the_simulator_says_nothing_of_a_trace() -> None:
    assert not [c for c in opened().caption if "As traced" in c.value]


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ({"order": "kv-outer"}, "works in the loop order q-outer"),
        ({"dtype": "bf16"}, "computes in fp32, not in bf16"),
        ({"N": "1024", "d": "128", "Br": "32", "Bc": "32"}, "use a smaller N or d"),
        ({"N": "64", "Br": "64", "Bc": "64"}, "a block has at most 1,024"),
    ],
)
def test_where_it_cannot_be_followed_the_simulator_plays_and_a_sentence_says_why(url: dict[str, str], why: str) -> None:
    at = opened(by="02", **url)
    assert len(at.info) == 1 and why in bare(at.info[0].value) and "The simulator is shown" in at.info[0].value
    assert not [c for c in at.caption if "As traced" in c.value] and not at.error


def test_without_a_compiler_the_simulator_plays(monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> None:
        raise TraceError("no C++ compiler was found: install g++.")

    monkeypatch.setattr(follow, "compiler", none)
    at = opened(by="02")
    assert "No C++ compiler was found: install g++." in bare(at.info[0].value) and not at.error
