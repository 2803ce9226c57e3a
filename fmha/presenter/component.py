"""Mount the presenter on a page. The only file of this package that knows Streamlit."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fmha.ui.assets import component

FRONTEND = Path(__file__).resolve().parent / "frontend"


@functools.cache
def _html() -> str:
    return (FRONTEND / "presenter.html").read_text(encoding="utf-8")


def presenter(data: dict[str, Any], *, key: str, on_move: Callable[[], None]) -> None:
    """Show the bar of a lecture, or the speaker's window, and listen to the keys.

    data: step, count, revealed, questions (steps that ask), present, notes (True: this is the speaker's window), told
          (the number of the last message that came from the browser), session (names the visit), play (whether the
          player begins to move), and for the speaker title, said, next, answer.
    on_move: called before the next run when the browser asks for another place: it is in `st.session_state[key].at`.
    """
    mount = component("presenter", FRONTEND, html=_html(), js="presenter.mjs", css="presenter.css")
    blob = json.dumps(data).encode()
    mount(key=key, data=blob, default={"at": {}}, on_at_change=on_move, height="content")


def whole(value: Any, lo: int, hi: int) -> int | None:
    """`value` where it is a whole number from lo to hi; None for whatever else a browser may send."""
    fine = isinstance(value, int | float) and not isinstance(value, bool) and value == value and lo <= value <= hi
    return int(value) if fine else None


__all__ = ["presenter", "whole"]
