"""Markdown as HTML: the part of it that decks, captions and our own prose use (see `fmha.lecture.markup`).

Everything else is text and is shown as it is written; so no deck can bring markup of its own.
"""

from __future__ import annotations

import re
from html import escape

from fmha.site.maths import mathml

_INLINE = re.compile(
    r"(?P<code>`+)(?P<coded>.+?)(?P=code)|\$(?P<maths>[^$\n]+)\$|\\(?P<bare>[^\w\s])|\*\*(?P<strong>.+?)\*\*"
    r"|\*(?P<em>[^*\n]+)\*|\[(?P<shown>[^\]\n]+)\]\((?P<target>[^)\s]*)\)",
    re.DOTALL,
)
_ITEM = re.compile(r"(?:[-*]|(\d+)\.) +(.*)", re.DOTALL)


def html_of(text: str) -> str:
    """Paragraphs, lists, emphasis, code, formulas and links of a Markdown text."""
    return "\n".join(_block(block) for block in re.split(r"\n\s*\n", text.strip()) if block.strip())


def inline(text: str) -> str:
    """The same within one line."""
    out, end = [], 0
    for hit in _INLINE.finditer(text):
        out += [_text(text[end : hit.start()]), _span(hit)]
        end = hit.end()
    return "".join([*out, _text(text[end:])])


def _block(block: str) -> str:
    lines = block.strip("\n").split("\n")
    if not _ITEM.match(lines[0]):
        return f"<p>{inline(block.strip())}</p>"
    items: list[str] = []
    for line in lines:
        if _ITEM.match(line) or not items:
            items.append(line)
        else:  # an item goes on in the next line
            items[-1] += " " + line.strip()
    found = [match for item in items if (match := _ITEM.match(item))]
    kind = "ol" if found[0][1] else "ul"
    return f"<{kind}>{''.join(f'<li>{inline(match[2])}</li>' for match in found)}</{kind}>"


def _span(hit: re.Match[str]) -> str:
    if hit["coded"] is not None:
        return f"<code>{escape(hit['coded'].strip())}</code>"
    if hit["maths"] is not None:
        return mathml(hit["maths"])
    if hit["bare"] is not None:
        return escape(hit["bare"])
    for kind in ("strong", "em"):
        if hit[kind] is not None:
            return f"<{kind}>{inline(hit[kind])}</{kind}>"
    if hit["target"].startswith("https://"):
        return f'<a href="{escape(hit["target"])}" rel="noopener">{inline(hit["shown"])}</a>'
    return inline(hit["shown"])  # a page of the app, which is not here


def _text(text: str) -> str:
    return escape(text, quote=False).replace("  \n", "<br>")


__all__ = ["html_of", "inline"]
