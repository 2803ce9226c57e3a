"""Glossary: every symbol and term, with unit and source."""

from __future__ import annotations

import streamlit as st

from fmha import Problem, Tiling
from fmha.formulas import compulsory, flops, requested, smem, tile_counts
from fmha.glossary import GROUPS, TERMS, Term, search
from fmha.ui import controls
from fmha.ui.page import page, plain, try_this
from fmha.ui.words_formulas import formula_text

EVERYTHING = "all"
EXAMPLE, EXAMPLE_TILES = Problem(H=16, N=4096, d=64), Tiling(32, 32)


def line(term: Term) -> str:
    """One entry in Markdown."""
    also = f" ({', '.join(plain(name) for name in term.also)})" if term.also else ""
    facts = [f"unit: {term.unit}"] if term.unit else []
    facts += [f"from {term.source}"] if term.source != "this app" else []
    small = f"  \n:small[{plain('; '.join(facts))}]" if facts else ""
    return f"**{plain(term.name)}**{also}: {plain(term.meaning)}{small}"


page(
    "Glossary",
    f"**{len(TERMS)} symbols and words, each used for one thing only.** The letters are those of the papers. A dotted "
    "word on any page, such as [[online softmax]], explains itself under the pointer or when the Tab key reaches it.",
    begins_with="words",
)
left, right = st.columns(2)
with left:
    wanted = controls.text("find", "Find a word or symbol", longest=40, help="In names, meanings and sources.")
with right:
    subject = controls.choice(
        "subject", "Subject", {EVERYTHING: "all", **{name: name for name in GROUPS}}, default=EVERYTHING
    )
controls.notices()
found = search(wanted, None if subject == EVERYTHING else subject)
if not found:
    st.info(f"Nothing is called “{plain(wanted)}” here. Try a shorter word, or choose all subjects.")
for name, terms in found.items():
    st.header(name, anchor=False)
    half = (len(terms) + 1) // 2
    for column, part in zip(st.columns(2, gap="large"), (terms[:half], terms[half:]), strict=True):
        with column:
            st.markdown("\n\n".join(line(term) for term in part))

with st.expander("The symbols at work: H = 16 heads, N = 4,096 tokens, d = 64, Br = Bc = 32, fp32"):
    st.markdown(
        formula_text(
            [
                *tile_counts(EXAMPLE, EXAMPLE_TILES),
                *(requested(EXAMPLE, EXAMPLE_TILES, order) for order in ("naive", "q-outer", "kv-outer")),
                compulsory(EXAMPLE),
                flops(EXAMPLE, EXAMPLE_TILES),
                smem(EXAMPLE_TILES, EXAMPLE.d),
            ]
        )
    )
try_this(
    [
        "Search for *m*, then for *M*. Which one is a number of elements?",
        "Search for *section 3.1*: entries also answer to the paper that they come from.",
        "On *HBM traffic*, point at a dotted word, or press Tab until it is framed.",
    ]
)
