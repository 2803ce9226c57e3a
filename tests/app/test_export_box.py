"""The box "Take it home" on Tiles in motion."""

from __future__ import annotations

from pathlib import Path

from streamlit.testing.v1 import AppTest

from fmha.ui.export_box import KEY

PAGE = Path(__file__).resolve().parent.parent.parent / "pages" / "lab" / "tiles_in_motion.py"


def opened(**url: str) -> AppTest:
    at = AppTest.from_file(PAGE, default_timeout=60)
    for name, text in url.items():
        at.query_params[name] = text
    at.session_state[KEY] = True
    at.run()
    assert not at.exception, [e.value for e in at.exception]
    return at


def test_the_open_box_has_the_view_as_python_and_as_a_command() -> None:
    at = opened(N="64", d="16", Br="8", Bc="16", causal="br", input="rising", sms="4", race="1", event="5", row="3")
    python, command = [code.value for code in at.code if "fmha" in code.value and "http" not in code.value]
    assert 'Problem(N=64, d=16, dtype="fp32", causal="bottom-right")' in python and "Tiling(Br=8, Bc=16)" in python
    assert 'load("rising", problem, seed=0)' in python and "race=True, event=5, row=3" in python
    assert "--N 64 --d 16" in command and "--causal bottom-right --Br 8 --Bc 16" in command and "--race" in command


def test_of_many_heads_those_that_are_shown_are_exported() -> None:
    at = opened(N="512", d="8", Br="8", Bc="8", H="8")  # 64 x 64 tiles: one head is animated
    (python,) = [code.value for code in at.code if "import" in code.value]
    assert "Problem(N=512, d=8" in python


def test_the_closed_box_makes_nothing() -> None:
    at = AppTest.from_file(PAGE, default_timeout=60).run()
    assert not at.exception and not at.code
