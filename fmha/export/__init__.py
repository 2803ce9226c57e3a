"""Take it home: a run as a file or in a notebook, a figure as numbers, a view as Python.

    from fmha import export

    Path("run.html").write_text(export.html(run), encoding="utf-8")    # plays in any browser, needs nothing else
    Path("run.gif").write_bytes(export.film(run, "gif"))               # also webm, mp4, png; drawn by a browser
    Path("run.npz").write_bytes(export.npz(run))                       # results and event table
    Path("run.parquet").write_bytes(export.parquet(run))               # the event table
    Path("run.json").write_text(export.perfetto(run))                  # opens in ui.perfetto.dev
    export.figure_csv(fig), export.snippet(problem, tiling), export.show(run)

What a name needs is imported when it is used. (No module here is named like a function: it would hide it.)
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fmha.export.figure_table import figure_csv
    from fmha.export.filming import film
    from fmha.export.notebook import show
    from fmha.export.perfetto_trace import perfetto
    from fmha.export.player_file import html
    from fmha.export.snippets import snippet
    from fmha.export.tables import npz, parquet

_HOMES = {
    "figure_csv": "figure_table", "film": "filming", "html": "player_file", "npz": "tables", "parquet": "tables",
    "perfetto": "perfetto_trace", "show": "notebook", "snippet": "snippets",
}  # fmt: skip
__all__ = ["figure_csv", "film", "html", "npz", "parquet", "perfetto", "show", "snippet"]


def __getattr__(name: str) -> Any:
    """A public name, from the module it lives in."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(importlib.import_module(f"fmha.export.{_HOMES[name]}"), name)
    globals()[name] = found
    return found
