"""Through which calls a row of an assembly text came to be where it is: the functions that were inlined there.

Newer clangs write them behind each `.loc`. g++ describes them in `.debug_info`, which `-dA` makes it put into words;
so do older clangs, in words of their own (inlining_clang.py).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath

from fmha.trace.inlining_clang import inlined

Place = tuple[str, int]  # a file's name, and a line of it
Span = tuple[int, int, int, Place]  # rows from, up to; how deep; the call
# clang gives no column where it made one instruction of two, as of both sides of an if.
_AT = re.compile(r"@\[ (?P<file>\S.*?):(?P<line>\d+)(?::\d+)?(?= @\[| \])")
_DIE = re.compile(r"\(DIE \((0x[0-9a-f]+)\) DW_TAG_(\w+)\)")
_END = re.compile(r"end of children of DIE (0x[0-9a-f]+)")
_FILE = re.compile(r"DW_AT_call_file \((?:[^,()]+, )?(?P<name>.+)\)")
_LINE = re.compile(r"(?:\.\w+\s+(?P<data>\w+)\s.*)?DW_AT_call_line(?: \((?P<said>\w+)\))?")
_BLOCK = re.compile(r"\.?LBB(\d+)\b")
_LISTED = re.compile(r"^(\.?L\w*LRL\d+):")
_RANGES = re.compile(r"(\.?L\w*LRL\d+)\s.*DW_AT_ranges")
_LABEL = re.compile(r"^(\.?L\w+):")
_FILE_ROW = re.compile(r'^\s*\.file\s+(\d+)\s+(?:"[^"]*"\s+)?"([^"]*)"')
_BOUND = re.compile(r"^\.?(LB[BE]\d+):")


def callers(loc: str) -> tuple[Place, ...]:
    """The calls that a `.loc` of clang names, from the innermost outwards."""
    return tuple((PurePath(found["file"]).name, int(found["line"])) for found in _AT.finditer(loc))


@dataclass(eq=False)
class _Inlined:
    """A function that was inlined: where it is called, how deep, and the numbers of the blocks of code it became."""

    depth: int
    call: Place = ("", 0)
    blocks: list[str] = field(default_factory=list)
    listed: str = ""


def described(rows: Sequence[str]) -> dict[int, tuple[Place, ...]]:
    """{row: the calls, from the innermost outwards}, from the row on up to the next one given; {} where nothing is
    described, or all is said behind `.loc`."""
    if not any("DW_TAG_inlined_subroutine" in row for row in rows):
        return {}
    if any(".loc" in row and _AT.search(row) for row in rows):
        return {}
    is_gcc = any("(DIE (" in row for row in rows)
    begin: dict[int, list[tuple[int, Place]]] = defaultdict(list)
    end: dict[int, list[tuple[int, Place]]] = defaultdict(list)
    for first, last, depth, call in _spans(rows) if is_gcc else _spans_of_clang(rows):
        begin[first].append((depth, call))
        end[last].append((depth, call))
    found: dict[int, tuple[Place, ...]] = {}
    open_now: list[tuple[int, Place]] = []
    for row in sorted({*begin, *end}):
        for one in end.get(row, ()):
            if one in open_now:
                open_now.remove(one)
        open_now += begin.get(row, ())
        found[row] = tuple(call for _, call in sorted(open_now, key=lambda one: -one[0]))
    return found


def _spans(rows: Sequence[str]) -> Iterator[Span]:
    """What g++ describes."""
    lists, bounds = _lists(rows)
    for one in _inlined(rows):
        for number in (*one.blocks, *lists.get(one.listed, ())):
            first, last = bounds.get(f"LBB{number}"), bounds.get(f"LBE{number}")
            if first is not None and last is not None:
                yield first, last, one.depth, one.call


def _spans_of_clang(rows: Sequence[str]) -> Iterator[Span]:
    """What clang describes: a function that was inlined into another comes behind it."""
    labels = {found[1]: number for number, row in enumerate(rows) if (found := _LABEL.match(row))}
    files = {found[1]: PurePath(found[2]).name for row in rows if (found := _FILE_ROW.match(row))}
    for depth, one in enumerate(inlined(rows)):
        for first, last in one.pieces:
            if first in labels and last in labels:
                yield labels[first], labels[last], depth, (files.get(one.file, ""), one.line)


def _lists(rows: Sequence[str]) -> tuple[dict[str, list[str]], dict[str, int]]:
    """The blocks that each list of ranges names, and the rows where blocks begin and end."""
    lists: dict[str, list[str]] = {}
    bounds: dict[str, int] = {}
    name = ""
    for number, row in enumerate(rows):
        if bound := _BOUND.match(row):
            bounds[bound[1]] = number
        elif listed := _LISTED.match(row):
            name = listed[1]
            lists[name] = []
        elif name and "DW_RLE_end_of_list" in row:
            name = ""
        elif name and "begin address" in row and (block := _BLOCK.search(row)):
            lists[name].append(block[1])
    return lists, bounds


def _inlined(rows: Sequence[str]) -> list[_Inlined]:
    """All inlined functions that `.debug_info` has."""
    parents = {found[1] for row in rows if (found := _END.search(row))}
    made: list[_Inlined] = []
    depth, now = 0, None
    for row in rows:
        if die := _DIE.search(row):
            now = _Inlined(depth) if die[2] == "inlined_subroutine" else None
            made += [now] if now else []
            depth += die[1] in parents
        elif _END.search(row):
            depth, now = depth - 1, None
        elif now is None or "DW_AT_" not in row:
            continue
        elif "DW_AT_low_pc" in row and (block := _BLOCK.search(row)):
            now.blocks.append(block[1])
        elif ranges := _RANGES.search(row):
            now.listed = ranges[1]
        elif file := _FILE.search(row):
            now.call = (PurePath(file["name"]).name, now.call[1])
        elif "DW_AT_call_line" in row and (line := _LINE.search(row)) and (text := line["said"] or line["data"]):
            now.call = (now.call[0], int(text, 0))
    return made


__all__ = ["Place", "callers", "described"]
