"""CUDA C++ cut into pieces with a class each, line by line, for a listing in colours. The standard library only."""

from __future__ import annotations

import re

# Classes of pieces: c comment, p preprocessor, s text in quotes, n number, k word of C++, t type, b word of CUDA;
# "" anything else.
_KEYWORDS = frozenset(
    "alignas auto bool break case char class const constexpr continue default do double else enum extern false float "
    "for if inline int long namespace new nullptr operator return short signed sizeof static struct switch template "
    "this true typedef typename union unsigned using void volatile while".split()
)
_CUDA = frozenset(
    "blockDim blockIdx gridDim threadIdx warpSize dim3 half half2 float2 float4 int2 int4 uint4 __half __nv_bfloat16 "
    "atomicAdd expf exp2f logf sqrtf rsqrtf fmaxf fminf fmaf".split()
)
_PIECE = re.compile(
    r"""(?P<c>//.*|/\*.*?(?:\*/|$))
    |(?P<s>"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')
    |(?P<n>\b(?:0x[0-9a-fA-F]+|\d+(?:\.\d*)?(?:[eE][-+]?\d+)?)(?:[fFuUlL]*)\b|\.\d+f?)
    |(?P<word>[A-Za-z_]\w*)""",
    re.VERBOSE,
)
Piece = tuple[str, str]  # class, text


def highlight(text: str) -> list[list[Piece]]:
    """The pieces of each line; put together they are the line again."""
    lines, in_comment = [], False
    for line in text.split("\n"):
        pieces, in_comment = _line(line, in_comment)
        lines.append(pieces)
    return lines


def _line(line: str, in_comment: bool) -> tuple[list[Piece], bool]:
    pieces: list[Piece] = []
    at = 0
    if in_comment:
        end = line.find("*/")
        if end < 0:
            return ([("c", line)] if line else []), True
        at = end + 2
        pieces.append(("c", line[:at]))
    if re.match(r"\s*#", line[at:]):
        code, slashes, comment = line[at:].partition("//")
        pieces.append(("p", code))
        return [*pieces, ("c", slashes + comment)] if slashes else pieces, False
    for found in _PIECE.finditer(line, at):
        if found.start() > at:
            pieces.append(("", line[at : found.start()]))
        at = found.end()
        kind = found.lastgroup or ""
        pieces.append((_class(found[0]) if kind == "word" else kind, found[0]))
        if kind == "c" and found[0].startswith("/*") and not found[0].endswith("*/"):
            return pieces, True
    if at < len(line):
        pieces.append(("", line[at:]))
    return pieces, False


def _class(word: str) -> str:
    if word in _KEYWORDS:
        return "k"
    return "b" if word in _CUDA or word.startswith("__") else ""


__all__ = ["Piece", "highlight"]
