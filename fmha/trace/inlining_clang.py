"""The functions that were inlined, from what clang writes into `.debug_info` of an assembly text.

Newer clangs name the calls behind each `.loc`; those up to 19, and Apple's, only describe them there, in DWARF 5.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

_DIE = re.compile(r"Abbrev \[\d+\] \w+:\w+ DW_TAG_(\w+)")
_VALUE = re.compile(r"^\s*\.\w+\s+(\w+)\s+\S+ DW_AT_(call_file|call_line|ranges)\b")
_EXTENT = re.compile(r"\s(\.?L\w+)-(\.?L\w+)\s+\S+ DW_AT_high_pc\b")
_LISTED = re.compile(r"\s(\.?Ldebug_ranges\d+)-\.?Lrnglists_table_base")
_LIST = re.compile(r"^(\.?Ldebug_ranges\d+):")
_BOUND = re.compile(r"\s(\.?L\w+)-(\.?L\w+)\s+\S+\s+(starting offset|ending offset|length)\b")
Piece = tuple[str, str]  # the labels before and behind a piece of code


@dataclass(eq=False)
class Inlined:
    """A function that was inlined: the number of the file and the line of its call, the pieces of code it became, and
    which of the lists of pieces has further ones (-1: none)."""

    file: str = ""
    line: int = 0
    pieces: list[Piece] = field(default_factory=list)
    listed: int = -1


def inlined(rows: Sequence[str]) -> Iterator[Inlined]:
    """All inlined functions that `.debug_info` has, each before those that were inlined into it."""
    lists = _lists(rows)
    order = [found[1] for row in rows if (found := _LISTED.search(row))]
    for one in _described(rows):
        if 0 <= one.listed < len(order):
            one.pieces += lists.get(order[one.listed], ())
        yield one


def _described(rows: Sequence[str]) -> list[Inlined]:
    made: list[Inlined] = []
    now: Inlined | None = None
    for row in rows:
        if die := _DIE.search(row):
            now = Inlined() if die[1] == "inlined_subroutine" else None
            made += [now] if now else []
        elif now is None or "DW_AT_" not in row:
            continue
        elif extent := _EXTENT.search(row):
            now.pieces.append((extent[2], extent[1]))
        elif value := _VALUE.match(row):
            if value[2] == "call_file":
                now.file = value[1]
            elif value[2] == "call_line":
                now.line = int(value[1], 0)
            else:
                now.listed = int(value[1], 0)
    return made


def _lists(rows: Sequence[str]) -> Mapping[str, list[Piece]]:
    """The pieces of each list: two offsets from the same place, or a length."""
    lists: dict[str, list[Piece]] = {}
    here: list[Piece] = []
    first = ""
    for row in rows:
        if listed := _LIST.match(row):
            here = lists[listed[1]] = []
        elif lists and (bound := _BOUND.search(row)):
            if bound[3] == "starting offset":
                first = bound[1]
            else:
                here.append((first if bound[3] == "ending offset" else bound[2], bound[1]))
    return lists


__all__ = ["Inlined", "Piece", "inlined"]
