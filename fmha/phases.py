"""Phases of a kernel, from the comments in its source: a whole-line comment such as `// S = QK^T` begins one.

Left of the `=` stand names of what is computed or filled; the phase lasts to the next such comment, or to the end of
the function. A comment above a function holds for the function until one inside it says more.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_COMMENT = re.compile(r"^\s*//\s*(?P<maths>(?P<left>[A-Za-z_]\w*(?:, [A-Za-z_]\w*)*) = .+)$")


@dataclass(frozen=True)
class Phase:
    """maths: the comment's words; names: what stands left of `=`; first, last: its source lines, from 1."""

    maths: str
    names: tuple[str, ...]
    first: int
    last: int

    @property
    def code(self) -> str | None:
        """The phase of the event table (`fmha.events.PHASES`) that it is; None where it only loads or stores."""
        first, right = self.names[0], self.maths.split(" = ", 1)[1]
        if first == "O" and len(self.names) == 1:
            return "normalize" if re.match(r"O\s*/", right) else "O" if "alpha" in right else "PV"
        if first == "P" and "softmax" in right:
            return "softmax"
        return {"S": "S", "m": "m", "m_new": "m", "P": "P", "l": "P", "l_new": "P"}.get(first)


def phases(text: str) -> tuple[Phase, ...]:
    """The phases of a source file, in its order."""
    lines = text.splitlines()
    starts: list[tuple[int, tuple[str, ...], str]] = []
    ends: list[int] = []
    depth = 0
    for number, line in enumerate(lines, 1):
        if found := _COMMENT.match(line):
            starts.append((number, tuple(found["left"].split(", ")), found["maths"]))
        code = line.split("//", 1)[0]
        depth += code.count("{") - code.count("}")
        if depth == 0 and "}" in code:
            ends.append(number)
    made = []
    for index, (first, names, maths) in enumerate(starts):
        end = next((e for e in ends if e >= first), len(lines))
        following = starts[index + 1][0] - 1 if index + 1 < len(starts) else end
        made.append(Phase(maths, names, first, min(end, following)))
    return tuple(made)


def groups(found: tuple[Phase, ...]) -> tuple[int, ...]:
    """The number of the event table's phase that each belongs to: neighbours of one code, P and l_new, share it."""
    made: list[int] = []
    before: str | None = None
    for phase in found:
        made.append(made[-1] if made and phase.code is not None and phase.code == before else len(set(made)))
        before = phase.code
    return tuple(made)


def phase_at(found: tuple[Phase, ...], line: int) -> Phase | None:
    """The phase that a source line lies in."""
    return next((phase for phase in found if phase.first <= line <= phase.last), None)


__all__ = ["Phase", "groups", "phase_at", "phases"]
