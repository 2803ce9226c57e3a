"""The frame of a page: its title and one idea, the configuration beside a result, errors, and "Try this"."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import streamlit as st

from fmha.errors import FmhaError
from fmha.ui import assets, words_marks
from fmha.ui.warm import whole_libraries

# Less air above the title, and on a phone less at the sides.
_STYLE = (
    """<style>
[data-testid="stMainBlockContainer"] { padding: 3.5rem 2rem 4rem; }
h2 { font-size: 1.5rem !important; }
@media (max-width: 640px) {
  [data-testid="stMainBlockContainer"] { padding-left: 1rem; padding-right: 1rem; }
  h1 { font-size: 1.8rem !important; }
}
.katex-display > .katex { white-space: normal !important; }  /* a long formula breaks at its signs */
/* On a phone the menu, while it is folded away, is out of the Tab order too. */
[data-testid="stApp"]:has([data-testid="stExpandSidebarButton"]) [data-testid="stSidebar"] { visibility: hidden; }
.st-key-fmha-scrollers { position: absolute; }
@media (prefers-reduced-motion: reduce) {
  *, *::before, *::after { transition-duration: 0s !important; animation-duration: 0.01ms !important; }
}
.katex-display > .katex > .katex-html > .base { margin-block: 0.15em; }
"""
    + words_marks.STYLE
    + "</style>"
)


def page(title: str, idea: str, *, begins_with: Literal["figure", "player", "words"] = "figure") -> None:
    """Begin a page: the window's title, the heading, and the page's one idea in one or two sentences (Markdown).

    begins_with: what is seen first. Before a figure the browser is told at once to load what draws it, while the page
        is still being made; beside a player that would be in its way. A page of words calls `warm.whole_libraries`
        itself if a figure follows after all.
    """
    if begins_with != "words":
        whole_libraries()
    st.set_page_config(page_title=f"{title} - FMHA Lab", page_icon="🧮", layout="wide")
    st.html(_STYLE)
    st.title(title, anchor=False)
    prose(idea)
    mount = assets.component(
        "scrollers", Path(__file__).resolve().parent / "frontend", html="<i hidden></i>", js="scrollers.mjs",
        isolate_styles=False,
    )  # fmt: skip
    mount(key="fmha-scrollers", data={"ahead": assets.plotly_url() if begins_with == "figure" else ""})


def prose(text: str) -> None:
    """Markdown in which `[[word]]` or `[[shown words|entry]]` explains itself from the glossary.

    By pointer, by keyboard and to a screen reader. All else that looks like HTML is shown as it is written.
    """
    text, holds_html = words_marks.marked(text)
    st.markdown(text, unsafe_allow_html=holds_html)


def configuration(**settings: object) -> None:
    """The settings that the picture below was computed for, in one line: a result never stands without them.

    configuration(N=8192, d=64, dtype="fp32") reads N = 8,192 · d = 64 · dtype = fp32
    """
    st.caption(" · ".join(f"{name} = {_written(name, value)}" for name, value in settings.items()))


def _written(name: str, value: object) -> str:
    """A setting's value: thousands apart, as everywhere, but for a seed, which is copied."""
    is_number = isinstance(value, int) and not isinstance(value, bool) and name != "seed"
    return f"{value:,}" if is_number else str(value)


def try_this(tasks: Sequence[str]) -> None:
    """End a page: things to try, one sentence each (Markdown), with the values to set and what will be seen."""
    with st.container(border=True):
        st.header("Try this", anchor=False)
        st.markdown("\n".join(f"{i}. {task}" for i, task in enumerate(tasks, 1)))


@contextmanager
def explained_errors() -> Iterator[None]:
    """What the user's settings make impossible is said in one sentence, in place of the result and of all below.

    with explained_errors():
        run = simulate(problem, tiling, Q, K, V)
    """
    try:
        yield
    except FmhaError as error:
        text = str(error)
        st.error(plain(text[:1].upper() + text[1:]))
        st.stop()


def plain(text: str) -> str:
    """`text` with Markdown's special characters escaped: it is shown letter by letter."""
    return "".join("\\" + c if c in "\\`*_{}[]()#+-!|<>~$:" else c for c in text)
