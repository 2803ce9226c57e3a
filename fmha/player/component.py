"""Mount the player on a page. The only file of this package that knows Streamlit."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

from fmha.ui.assets import component

FRONTEND = Path(__file__).resolve().parent / "frontend"


@functools.cache
def _html() -> str:
    return (FRONTEND / "player.html").read_text(encoding="utf-8")


def player(blob: bytes, *, key: str) -> dict[str, Any]:
    """Show a payload (`fmha.player.payload.build`) and return what the person has chosen.

    The result is empty until something has been chosen, then ``{"event": row of the event table, "t": microseconds,
    "sm": SM in focus, "row": row within the Q tile, "schedule": digest of the run it was chosen in}``.
    The component keeps its place over new data, as long as `key` stays the same.
    """
    mount = component("player", FRONTEND, html=_html(), js="player.mjs", css="player.css")
    result = mount(key=key, data=blob, default={"at": {}}, on_at_change=lambda: None, height="content")
    at = result.at
    return dict(at) if at else {}
