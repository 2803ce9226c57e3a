"""Warm start: what the server does before its first visitor, so that nobody waits for an import.

All of it happens before: a visitor who moves controls while modules are still being imported would feel it.
"""

from __future__ import annotations

import gc
import importlib
import pkgutil
import threading
from contextlib import suppress

import fmha

# Not for pages: command-line programs, and parts that need a GPU or torch.
_NOT_FOR_PAGES = ("fmha.__main__", "fmha.gpu", "fmha.recorded")
# Libraries that Plotly looks for among what is imported, and uses as soon as they are there, whole or not.
_LOOKED_FOR = ("pandas", "PIL.Image")

_libraries = threading.Lock()
_are_whole = threading.Event()


def page_modules() -> list[str]:
    """Names of all fmha modules that pages may import, found by listing the package."""
    names = (module.name for module in pkgutil.walk_packages(fmha.__path__, "fmha."))
    return sorted(name for name in names if not name.startswith(_NOT_FOR_PAGES))


def warm_up() -> None:
    """Import everything that pages use, the landing page first, and compute its first picture."""
    with suppress(Exception):  # what goes wrong there, the page says itself
        _landing_page()
    _everything()


def whole_libraries() -> None:
    """Wait until no library is half imported that a Plotly figure could meet: called before the first figure of a page.

    Streamlit imports pandas with its first table; a figure that is made for another visitor meanwhile would find half
    of it. So pandas is imported here alone, before any table and any figure.
    """
    if _are_whole.is_set():
        return
    with _libraries:
        if not _are_whole.is_set():
            for name in _LOOKED_FOR:
                importlib.import_module(name)
            _are_whole.set()


def _landing_page() -> None:
    """Import what the landing page needs, and compute what it shows first."""
    gc.disable()  # nothing that is imported is ever garbage
    try:
        from fmha.ui import live

        live.machine()  # looked at in the background meanwhile: pages show this machine's GPU first
        from fmha.ui import lecture_parts, lecture_style  # noqa: F401

        lecture_parts.rehearse()
    finally:
        gc.freeze()
        gc.enable()


def _everything() -> None:
    """Import everything that pages use.

    Streamlit collects garbage after every script run. With some 100,000 objects of imported libraries to look through
    that takes 0.1 s each time; frozen objects are not looked at.
    """
    whole_libraries()
    import plotly.graph_objects as go

    go.Figure(go.Scatter(x=[0, 1], y=[0, 1])).to_json()  # Plotly loads its validators on the first figure
    for name in page_modules():
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
