"""The outer form of a deck: blocks of `name: value` lines between `---` lines, each followed by Markdown.

    ---
    title: One row at a time      # a header: as in YAML front matter, one text a name, nothing nested
    notes: Ask who has seen softmax before.
      A line that is indented goes on with the text above it.
    ---
    What the audience reads.

Two blanks and a # begin a remark. Nothing is evaluated: a value is the text that stands there. Each keeps its line for
the sentence about a mistake.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from fmha.lecture.errors import DeckError, shown

_FIELD = re.compile(r"(?P<name>[A-Za-z][A-Za-z0-9_]{0,30})[ \t]*:(?:[ \t]+(?P<value>.*))?")
_REMARK = re.compile(r"(^|\s\s+)#.*$")
_RULE = "---"


@dataclass(frozen=True)
class Field:
    """A value as it is written, and its line from 1."""

    value: str
    line: int


@dataclass(frozen=True)
class Block:
    """A header and the Markdown below it. line: where the header opens; text_line: where the text begins."""

    fields: dict[str, Field]
    text: str
    line: int
    text_line: int


def blocks(text: str) -> list[Block]:
    """The blocks of a file, in its order.

    Raises:
        DeckError: a line that is no `name: value`, a name given twice, a header that is not closed, or text before it.
    """
    lines = text.replace("\r\n", "\n").replace("\r", "\n").removeprefix("\ufeff").split("\n")
    found: list[Block] = []
    at = 0
    while at < len(lines) and lines[at].strip() != _RULE:
        if lines[at].strip():
            raise DeckError(at + 1, f"a deck begins with a line {_RULE}, not with {shown(lines[at])}.")
        at += 1
    while at < len(lines):
        opened = at
        end = next((n for n in range(at + 1, len(lines)) if lines[n].strip() == _RULE), None)
        if end is None:
            raise DeckError(opened + 1, f"the header that opens here is not closed: end it with a line {_RULE}.")
        fields = _fields(lines[opened + 1 : end], opened + 2)
        after = next((n for n in range(end + 1, len(lines)) if lines[n].strip() == _RULE), len(lines))
        body = lines[end + 1 : after]
        first = next((n for n, line in enumerate(body) if line.strip()), 0)
        found.append(Block(fields, "\n".join(body).strip("\n"), opened + 1, end + 2 + first))
        at = after
    return found


def _fields(lines: list[str], first: int) -> dict[str, Field]:
    fields: dict[str, Field] = {}
    name = ""
    for number, whole in enumerate(lines, first):
        line = _REMARK.sub("", whole)
        if not line.strip():
            continue
        if line[0] in " \t" and name:
            before = fields[name]
            fields[name] = Field(f"{before.value} {line.strip()}".strip(), before.line)
            continue
        match = _FIELD.fullmatch(line.rstrip())
        if match is None:
            raise DeckError(number, f"{shown(line)} is no setting: write name: value, and indent what goes on.")
        name = match["name"]
        if name in fields:
            raise DeckError(number, f"{name} is given twice in this step: keep one of them.")
        fields[name] = Field(_unquoted((match["value"] or "").strip()), number)
    return fields


def _unquoted(value: str) -> str:
    """Quotation marks around a whole value are dropped, as in YAML."""
    return value[1:-1] if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'" else value


__all__ = ["Block", "Field", "blocks"]
