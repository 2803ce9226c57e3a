"""Warm start: what the server does once, before its first visitor."""

from __future__ import annotations

import gc
import importlib
import pkgutil

import fmha

# Not for pages: command-line programs, and parts that need a GPU or torch.
_NOT_FOR_PAGES = ("fmha.__main__", "fmha.gpu", "fmha.recorded")


def page_modules() -> list[str]:
    """Names of all fmha modules that pages may import, found by listing the package."""
    names = (module.name for module in pkgutil.walk_packages(fmha.__path__, "fmha."))
    return sorted(name for name in names if not name.startswith(_NOT_FOR_PAGES))


def warm_up() -> None:
    """Import everything that pages use, then take it out of the garbage collector's sight.

    Streamlit collects garbage after every script run. With some 100,000 objects of imported libraries to look
    through that takes 0.1 s each time; frozen objects are not looked at, and nothing imported is ever garbage.
    """
    _declare_own_menu()
    from fmha.ui import live

    live.machine()  # looked at in the background meanwhile: pages show this machine's GPU first
    import plotly.graph_objects as go

    go.Figure(go.Scatter(x=[0, 1], y=[0, 1])).to_json()  # Plotly loads its validators on the first figure
    # Streamlit imports pandas with the first table; a chart that another visitor draws meanwhile would find half of it.
    importlib.import_module("pandas")
    for name in page_modules():
        importlib.import_module(name)
    gc.collect()
    gc.freeze()


def _declare_own_menu() -> None:
    """Tell Streamlit at once that the menu is `st.navigation`'s.

    It believes otherwise wherever a folder is called `pages`, until `st.navigation` has run for the first time;
    the very first visitor, if he came by a deep link, would be told that his page does not exist.
    """
    from streamlit.runtime.pages_manager import PagesManager

    PagesManager.uses_pages_directory = False
