"""The controls of a page in AppTest."""

from __future__ import annotations

import re
from typing import Any

from streamlit.testing.v1 import AppTest

KINDS = ("slider", "select_slider", "number_input", "selectbox", "segmented_control", "toggle", "text_input")


def control(at: AppTest, name: str) -> Any:
    """The widget of the control `name`, whichever it is: one that has taken another's place has a number in its key."""
    found = [w for kind in KINDS for w in at.get(kind) if re.fullmatch(rf"{re.escape(name)}(-\d+)?", w.key or "")]
    assert len(found) == 1, f"{len(found)} widgets for {name}"
    return found[0]
