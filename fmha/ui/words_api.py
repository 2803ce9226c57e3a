"""How the reference of the Python API is shown: one name with signature and docstring."""

from __future__ import annotations

import streamlit as st

from fmha.apidoc import Item, Module, markdown
from fmha.ui.page import plain

KINDS = {"class": "class", "function": "function", "constant": "value"}


def show_item(item: Item, *, full: bool = False) -> None:
    """A name: where it is, its signature, its docstring, and for a class what it offers.

    full: with the dotted path, for a list of names from several modules.
    """
    with st.container(border=True):
        st.subheader(item.path if full else item.name, anchor=False)
        st.code(item.signature, language="python", wrap_lines=True)
        if item.doc:
            st.markdown(markdown(item.doc))
        for member in item.members:
            st.markdown(f"`{one_line(member.signature)}`  \n{markdown(member.doc)}")
        st.caption(f"{KINDS[item.kind]} · import from {plain(item.module)} · line {item.line}")


def one_line(signature: str) -> str:
    """A signature without its line breaks."""
    return " ".join(signature.split()).replace("( ", "(").replace(",)", ")").replace(", )", ")")


def summary(module: Module) -> str:
    """The first sentence of a module's docstring, for a list."""
    first = module.doc.split("\n\n")[0].replace("\n", " ")
    return first if len(first) <= 160 else first[:157] + "..."
