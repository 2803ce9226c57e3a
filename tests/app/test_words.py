"""Glossary, references, Python API and the boxes of formulas, as pages show them."""

from __future__ import annotations

from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

import fmha
from fmha import Problem, Tiling, glossary
from fmha.formulas import number
from fmha.traffic import closed_form
from fmha.ui.words_formulas import TITLE

ROOT = Path(__file__).resolve().parent.parent.parent


def opened(file: str, **query: str) -> AppTest:
    at = AppTest.from_file(ROOT / "pages" / file, default_timeout=60)
    for name, text in query.items():
        at.query_params[name] = text
    at.run()
    assert not at.exception, [e.value for e in at.exception]
    return at


def text_of(at: AppTest) -> str:
    return "\n".join(m.value for m in [*at.markdown, *at.latex])


def test_the_glossary_lists_everything_and_a_link_opens_one_word() -> None:
    everything = text_of(opened("learn/glossary.py")).replace("\\", "")
    for term in glossary.TERMS:
        assert f"**{term.name}**" in everything, term.name
    one = text_of(opened("learn/glossary.py", find="LSE", subject="Running values"))
    assert "**LSE**" in one and "**alpha**" not in one


def test_a_word_that_is_not_there_is_said() -> None:
    at = opened("learn/glossary.py", find="<b>zzz</b>")
    assert len(at.info) == 1 and "\\<b\\>zzz" in at.info[0].value


def test_every_control_carries_its_meaning() -> None:
    at = opened("lab/hbm_traffic.py")
    helps = {slider.key: slider.help for slider in at.select_slider}
    assert "Rows of a Q tile" in helps["Br"] and "Head dimension" in helps["d"]
    assert at.toggle[0].help and at.selectbox[0].help


@pytest.mark.parametrize("causal", ["none", "br"])
def test_formulas_follow_the_controls(causal: str) -> None:
    at = opened("lab/hbm_traffic.py", N="1000", H="3", d="32", Br="64", Bc="16", dtype="fp32", causal=causal)
    box = next(e for e in at.expander if e.label == TITLE).markdown[0].value
    problem = Problem(N=1000, H=3, d=32, causal=causal)
    for order in ("naive", "q-outer", "kv-outer"):
        nbytes = closed_form(problem, Tiling(64, 16), order).requested_bytes
        assert rf"= {number(nbytes)}\ \text{{bytes}}" in box, order


def test_online_softmax_shows_its_numbers() -> None:
    at = opened("learn/online_softmax.py", input="own", scores="0, 2", Bc="1", tile="2")
    shown = "\n".join(m.value for m in at.latex)
    assert r"m_{new} = \max(m,\ \text{rowmax}\ S) = \max(0.0000,\ 2.0000) = 2.0000" in shown
    assert "0.1353" in shown and "1.1353" in shown


@pytest.mark.parametrize("file", ["learn/memory_wall.py", "lab/tile_map.py", "lab/hbm_traffic.py"])
def test_pages_with_formulas_have_the_box(file: str) -> None:
    assert any(e.label == TITLE for e in opened(file).expander)


def test_the_api_page_shows_every_public_name() -> None:
    at = opened("lab/api.py")
    assert {s.value for s in at.subheader} == set(fmha.__all__)
    assert any("simulate(" in code.value for code in at.code)


def test_the_api_page_finds_and_says_when_it_does_not() -> None:
    at = opened("lab/api.py", find="closed_form")
    assert at.subheader[0].value == "fmha.traffic.closed_form"
    assert opened("lab/api.py", find="<i>zzz</i>").info
    assert "Occupancy" in {s.value for s in opened("lab/api.py", module="fmha.occupancy").subheader}


def test_references_show_what_is_computed_here() -> None:
    at = opened("learn/references.py")
    assert {h.value for h in at.header} >= {"Papers", "Manuals and data", "GPUs"}
    assert any("FlashAttention" in e.label and "computed here" in e.label for e in at.expander)
    assert "Theorem 2" in text_of(at)
