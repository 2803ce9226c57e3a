"""Controls whose options depend on other controls: what is no longer there is left without a word.

Nobody asked for line 67 of a kernel that has none; a link that does is told so all the same, because it is the first to
ask.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import streamlit as st

from fmha.ui import controls

_STATE = "fmha.inside"


def state() -> dict[str, Any]:
    """What the last run of the page showed; one visitor's."""
    kept: dict[str, Any] = st.session_state.setdefault(_STATE, {})
    return kept


def put(name: str, value: int) -> None:
    """Set a slider that is not drawn yet in this run."""
    controls.assign(**{name: value})
    state()[name] = value


def slider(name: str, label: str, hi: int, default: int, format: Callable[[int], str]) -> int:
    """A slider over 0 to `hi`."""
    before = state().get(name)
    if before is not None and before > hi:
        put(name, hi)
    value = int(controls.slider(name, label, options=list(range(hi + 1)), default=default, format=format))
    state()[name] = value
    return value


def choice(name: str, label: str, options: Mapping[str, str], default: str) -> str:
    """One of `options`."""
    before = state().get(name)
    if before is not None and before not in options:
        controls.assign(**{name: default})
    value = controls.choice(name, label, options, default=default)
    state()[name] = value
    return value


__all__ = ["choice", "put", "slider", "state"]
