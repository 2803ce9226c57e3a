"""A kernel's source on a page: syntax colours, phases in the margin, a heat strip, faults, and what one line does."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import streamlit as st

from fmha.figures import theme
from fmha.phases import Phase, phase_at
from fmha.source_view.highlight import Piece, highlight
from fmha.trace.breaking import Change
from fmha.trace.lines import MEASURES, LineUse
from fmha.ui import assets, controls
from fmha.ui.trace_words import HEAT_ROLES, phase_name, role_of, strip_value

_FOLDER = Path(__file__).resolve().parent.parent / "source_view" / "frontend"
_HTML = '<div class="fmha-source"><div class="phases"></div><div class="list" role="listbox"></div></div>'
KEY = "source"
STRIP = {
    "wavefronts": "wavefronts", "conflicts": "bank conflicts", "global": "global bytes", "wasted": "extra sectors",
    "flops": "FLOPs",
}  # fmt: skip
HINT = "click a line, or use the arrow keys"


def listing(
    text: str,
    phases: Sequence[Phase],
    used: Mapping[int, LineUse],
    *,
    measure: str | None,
    chosen: int | None,
    now: int | None,
    change: Change | None,
    alt: str,
) -> None:
    """The whole source. used: what is known of its lines; measure: what the strip shows (None: there is none)."""
    message = {
        "rows": rows(text, phases, used, measure, change),
        "phases": [
            {"name": phase_name(p), "role": role_of(p.names[0]), "first": p.first, "last": p.last} for p in phases
        ],
        "strip": {"title": STRIP[measure], "role": HEAT_ROLES[measure], "hint": HINT} if measure else None,
        "chosen": chosen, "now": now, "picks": bool(used), "alt": alt, "height": 620,
    }  # fmt: skip
    _show(KEY, message, on_line_change=_picked)


def excerpt(
    text: str, phases: Sequence[Phase], line: int, *, around: int, key: str, change: Change | None = None
) -> None:
    """The lines around one, without a strip."""
    near = range(line - around, line + around + 1)
    every = rows(text, phases, {}, None, change)
    numbers = itertools.accumulate((row.get("no", 0) for row in every), max)  # what replaces a line belongs to it
    all_rows = [row for row, number in zip(every, numbers, strict=True) if number in near]
    message = {
        "rows": all_rows, "phases": [], "strip": None, "chosen": None, "now": line, "picks": False, "height": 0,
        "alt": f"The source around line {line}.",
    }  # fmt: skip
    _show(key, message)


def _show(key: str, message: Mapping[str, Any], **events: Any) -> None:
    renderer = assets.component("source", _FOLDER, html=_HTML, js="source.mjs", css="source.css")
    palette = {"light": theme.palette("light"), "dark": theme.palette("dark")}
    renderer(key=key, data=json.dumps({**message, "palette": palette}).encode(), height="content", **events)


def _picked() -> None:
    """A line was clicked."""
    line: Any = getattr(st.session_state.get(KEY), "line", None)
    if isinstance(line, int):
        controls.assign(line=str(line))


def rows(
    text: str, phases: Sequence[Phase], used: Mapping[int, LineUse], measure: str | None, change: Change | None
) -> list[dict[str, Any]]:
    """The listing's rows, as the browser takes them. Of a changed line, what is taken out is struck out; what stands
    there instead follows."""
    values = {line: use.value(measure) for line, use in used.items()} if measure else {}
    most = max(values.values(), default=0)
    faults: dict[int, list[str]] = {}
    for line, use in used.items():
        for finding in use.findings:
            faults.setdefault(line, []).append(finding.text)
    made: list[dict[str, Any]] = []
    for number, pieces in enumerate(highlight(text.rstrip("\n")), 1):
        phase = phase_at(tuple(phases), number)
        row: dict[str, Any] = {"no": number, "code": pieces}
        if phase is not None:
            row |= {"role": role_of(phase.names[0]), "head": phase.first == number}
        if values.get(number):
            assert measure is not None
            row |= {"share": round(values[number] / most, 4), "value": strip_value(measure, values[number])}
        if number in used:
            row["used"] = True
        if number in faults:
            row |= {"bad": True, "title": "\n".join(faults[number])}
        made.append(row)
        if change is not None and change.line == number:
            row["code"] = struck(pieces, change.taken)
            if change.kind != "barrier":
                instead = change.apply(text).split("\n")[number - 1]
                made.append({"code": [("", instead)], "role": row.get("role")})
    return made


def struck(pieces: Sequence[Piece], taken: str) -> list[Piece]:
    """The same pieces, those of `taken` in the class `struck` as well."""
    line = "".join(text for _, text in pieces)
    first = line.index(taken)
    last = first + len(taken)
    made: list[Piece] = []
    at = 0
    for name, text in pieces:
        for part, is_taken in (
            (text[: max(0, first - at)], False),
            (text[max(0, first - at) : max(0, last - at)], True),
            (text[max(0, first - at, last - at) :], False),
        ):
            if part:
                made.append((f"{name} struck".strip() if is_taken else name, part))
        at += len(text)
    return made


def hottest(used: Mapping[int, LineUse], measure: str) -> list[tuple[int, int]]:
    """(line, value) of the lines with a value, from the largest."""
    found = [(line, use.value(measure)) for line, use in used.items()]
    return sorted((pair for pair in found if pair[1]), key=lambda pair: (-pair[1], pair[0]))


def choose_measure() -> str:
    """What the strip shows."""
    return controls.choice("heat", "The strip shows", MEASURES, default="wavefronts")


__all__ = ["choose_measure", "excerpt", "hottest", "listing", "rows", "struck"]
