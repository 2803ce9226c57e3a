"""Own components (Streamlit components v2) from folders of plain files: no build, no installation of the package.

Streamlit knows component folders from installed distributions. FMHA Lab runs from a checkout, so it registers its
folders itself, through the same manager. That call is internal to Streamlit, whose version is pinned; it is made in
this file only.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import streamlit as st

PROJECT = "fmha"
ASSET_PATH = "_stcore/bidi-components"  # where the server serves <project>.<component>/<file>

Renderer = Callable[..., Any]
_renderers: WeakKeyDictionary[Any, dict[str, Renderer]] = WeakKeyDictionary()
_lock = threading.Lock()  # each visitor runs in a thread of his own


def component(
    name: str,
    folder: Path,
    *,
    html: str,
    js: str,
    css: str | None = None,
    isolate_styles: bool = True,
) -> Renderer:
    """The renderer of component `fmha.<name>`, whose files lie in `folder`; registered on the first call.

    `js` and `css` are file names in `folder`; they may import and address their neighbours. Call this while a page
    runs, never at import: the manager belongs to the running server. The result is called as
    `renderer(key=..., data=..., height="content", on_<state>_change=...)`.
    """
    manager = _manager()
    with _lock:
        known = _renderers.setdefault(manager, {})
        if name not in known:
            register_folder(name, folder, manager)
            known[name] = st.components.v2.component(
                f"{PROJECT}.{name}", html=html, css=css, js=js, isolate_styles=isolate_styles
            )
        return known[name]


def register_folder(name: str, folder: Path, manager: Any = None) -> str:
    """Serve the files of `folder` and return their base URL. Also for files without a component of their own."""
    from streamlit.components.v2.manifest_scanner import ComponentConfig, ComponentManifest

    if manager is None:
        manager = _manager()
    if manager.get_component_asset_root(f"{PROJECT}.{name}") is None:
        manager.register_from_manifest(
            ComponentManifest(PROJECT, "0", [ComponentConfig(name, asset_dir=folder.name)]), folder.parent
        )
    base = str(st.get_option("server.baseUrlPath") or "").strip("/")
    return f"/{base}/{ASSET_PATH}/{PROJECT}.{name}" if base else f"/{ASSET_PATH}/{PROJECT}.{name}"


def plotly_url() -> str:
    """Where the server serves plotly.js: Plotly's own package brings the one that its figures are written for."""
    import plotly

    return register_folder("plotly", Path(plotly.__file__).resolve().parent / "package_data") + "/plotly.min.js"


def _manager() -> Any:
    from streamlit.components.v2.get_bidi_component_manager import get_bidi_component_manager

    return get_bidi_component_manager()
