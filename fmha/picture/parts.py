"""What a picture is made of. Who shows it, the app or a page of the static site, decides how each part looks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fmha.measurement import Found
from fmha.problem import Problem
from fmha.ui.parameters import Value

if TYPE_CHECKING:
    import plotly.graph_objects as go


@dataclass(frozen=True)
class Words:
    """Markdown of ours. quiet: in the small letters of a caption."""

    text: str
    quiet: bool = False


@dataclass(frozen=True)
class Note:
    """A sentence in place of a picture that cannot be."""

    text: str


@dataclass(frozen=True)
class Maths:
    """A formula on a line of its own, LaTeX."""

    latex: str


@dataclass(frozen=True)
class Drawing:
    """HTML of ours: it comes from `fmha.figures`, never from a person."""

    html: str


@dataclass(frozen=True)
class Chart:
    """A Plotly figure. name: tells it from the other charts of the picture; alt: it in words."""

    figure: go.Figure
    name: str
    alt: str


@dataclass(frozen=True)
class Player:
    """The player with these settings, standing at the moment that they name."""

    settings: Mapping[str, Value]


@dataclass(frozen=True)
class Origin:
    """Where a recorded result was made."""

    found: Found


@dataclass(frozen=True)
class Beside:
    """Parts side by side, where there is room."""

    parts: tuple[Part, ...]


Part = Words | Note | Maths | Drawing | Chart | Player | Origin | Beside


def setting(problem: Problem, **more: object) -> Words:
    """The settings that the picture was computed for."""
    all_of_them = {
        "B": problem.B,
        "H": problem.H,
        "N": f"{problem.Nq:,}",
        "d": problem.d,
        "dtype": problem.dtype,
    } | more
    return Words(" · ".join(f"{name} = {value}" for name, value in all_of_them.items()), quiet=True)


__all__ = ["Beside", "Chart", "Drawing", "Maths", "Note", "Origin", "Part", "Player", "Words", "setting"]
