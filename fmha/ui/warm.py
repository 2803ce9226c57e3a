"""Warm start: what the server does before and beside its first visitor, so that nobody waits for an import.

A visitor comes to the landing page first, and his browser spends half a second on Streamlit's own code before it asks
for anything. In that half second a thread imports what the landing page needs and computes its first picture; the rest
follows once that picture is out, or when nobody came. A page that is asked for sooner imports what it needs itself:
Python's locks let nobody see half a module.
"""

from __future__ import annotations

import gc
import importlib
import pkgutil
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import fmha

# Not for pages: command-line programs, and parts that need a GPU or torch.
_NOT_FOR_PAGES = ("fmha.__main__", "fmha.gpu", "fmha.recorded")
# Libraries that Plotly looks for among what is imported, and uses as soon as they are there, whole or not.
_LOOKED_FOR = ("pandas", "PIL.Image")
_NOBODY_CAME_S = 3.0  # after the start
_SETTLE_S = 1.5  # for the first visitor's browser to draw what it was sent
_TURN_S = 0.0005  # how long the importing thread keeps others from running: they hand out files

_libraries = threading.Lock()
_are_whole = threading.Event()
_is_shown = threading.Event()


def page_modules() -> list[str]:
    """Names of all fmha modules that pages may import, found by listing the package."""
    names = (module.name for module in pkgutil.walk_packages(fmha.__path__, "fmha."))
    return sorted(name for name in names if not name.startswith(_NOT_FOR_PAGES))


def warm_up() -> None:
    """Import everything that pages use: the landing page first, the rest when the first visitor has his picture."""
    try:
        with _short_turns():
            _landing_page()
    finally:  # what went wrong there, the page says itself
        if _is_shown.wait(_NOBODY_CAME_S):
            time.sleep(_SETTLE_S)
        with _short_turns():
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


def picture_is_out() -> None:
    """The first visitor's page has been sent."""
    _is_shown.set()


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


@contextmanager
def _short_turns() -> Iterator[None]:
    """Let other threads run more often meanwhile."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(_TURN_S)
    try:
        yield
    finally:
        sys.setswitchinterval(usual)
