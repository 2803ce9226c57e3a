"""Kernels broken on purpose: a source with one barrier or one bound taken out, found by reading it as text."""

from __future__ import annotations

import re
from dataclasses import dataclass

from fmha.problem import Problem, Tiling

_BARRIER = re.compile(r"^\s*(?:if \(.*\) )?(?P<taken>__syncthreads\(\);)\s*(?://\s*(?P<why>.*\S))?\s*$")

# What is taken out of a line, what stands there instead, and what the bound is good for.
_BOUNDS: tuple[tuple[re.Pattern[str], str, str], ...] = (
    (re.compile(r"\brows \* d(?=;.*\bQi\[e\] = Q\[)"), "Br * d", "the last Q tile may have fewer rows than Br"),
    (re.compile(r"\bc_end \* d\b"), "Bc * d", "the last K/V tile may have fewer keys than Bc"),
    (re.compile(r"\bs_row < rows && "), "", "rows behind the last query have no Q to multiply"),
    (re.compile(r" && s_col < row_end\b"), "", "keys behind the last one, and keys that the mask hides"),
    (re.compile(r"\bc < c_end(?=;.*\bVj\[)"), "c < Bc", "rows of Vj behind the last key were never filled"),
)
# A loop head whose body in the next line stores O: its bound keeps the stores inside the tensor.
_STORE_LOOP = re.compile(r"\brows \* d(?=;)")
_STORE = re.compile(r"^\s*O\[")


@dataclass(frozen=True)
class Change:
    """One thing that can be taken out.

    key: a name for links, such as "barrier-50"; kind: "barrier" or "bound"; line: where; taken, instead: text of that
    line and what replaces it; why: what it is there for (of a barrier, its own comment).
    """

    key: str
    kind: str
    line: int
    taken: str
    instead: str
    why: str

    def apply(self, text: str) -> str:
        """The broken source; lines keep their numbers.

        Raises:
            ValueError: the line does not hold what is to be taken out.
        """
        lines = text.split("\n")
        before = lines[self.line - 1]
        if self.taken not in before:
            raise ValueError(f"line {self.line} does not hold {self.taken!r}")
        lines[self.line - 1] = before.replace(self.taken, self.instead, 1)
        return "\n".join(lines)


def changes(text: str) -> tuple[Change, ...]:
    """What can be taken out of a source, in its order: every `__syncthreads()`, and the bounds known here."""
    lines = text.split("\n")
    found = []
    for number, line in enumerate(lines, 1):
        if barrier := _BARRIER.match(line):
            why = barrier["why"] or "no comment says"
            found.append(Change(f"barrier-{number}", "barrier", number, barrier["taken"], ";", why))
            continue
        for pattern, instead, why in _BOUNDS:
            if bound := pattern.search(line):
                found.append(Change(f"bound-{number}{_letter(found, number)}", "bound", number, bound[0], instead, why))
        if (bound := _STORE_LOOP.search(line)) and any(_STORE.match(after) for after in lines[number : number + 2]):
            why = "rows behind the last query are no rows of O"
            found.append(Change(f"bound-{number}", "bound", number, bound[0], "Br * d", why))
    return tuple(found)


def hard_case(tiling: Tiling) -> Problem:
    """A small problem in which every barrier and bound matters: ragged tiles, a causal mask, several tiles, and padded
    sequences, one of them without a key and one shorter than a tile."""
    short = 1 + 5 * tiling.Bc // 8
    N = max(2 * tiling.Bc + short, 41)
    N += N % tiling.Br == 0
    return Problem(B=3, N=N, d=40, causal="top-left", lens_k=(0, short, N))


def _letter(found: list[Change], line: int) -> str:
    """Tells bounds of one line apart: nothing for the first, then b, c, ..."""
    before = sum(change.line == line for change in found)
    return chr(ord("a") + before) if before else ""


__all__ = ["Change", "changes", "hard_case"]
