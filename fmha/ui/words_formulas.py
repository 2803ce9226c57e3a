"""Formulas that show themselves with the current numbers, in a box that opens."""

from __future__ import annotations

from collections.abc import Iterable

import streamlit as st

from fmha.formulas import Formula

TITLE = "The formulas with your numbers"


def formula_text(formulas: Iterable[Formula]) -> str:
    """Each formula as Markdown: title, symbols = numbers = value, note."""
    blocks = []
    for formula in formulas:
        note = f"\n\n:small[{formula.note}]" if formula.note else ""
        blocks.append(f"**{formula.title}**\n\n$$\n{formula.latex}\n$$" + note)
    return "\n\n".join(blocks)


def formula_box(formulas: Iterable[Formula], title: str = TITLE) -> None:
    """An expander with all of them."""
    with st.expander(title):
        st.markdown(formula_text(formulas))
