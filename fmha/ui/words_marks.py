"""Words with their meaning at hand: `[[q-outer]]` in our own prose becomes a word that explains itself. No Streamlit.

The tip shows when the pointer is on the word and when the word has the keyboard's focus; Escape has no work to do, as
the tip goes with the focus. A screen reader reads the word and then its meaning.
"""

from __future__ import annotations

import re
from html import escape

from fmha.errors import FmhaError
from fmha.glossary import Term, lookup

# `position-try-fallbacks` turns a tip over where it would leave the window; on a phone it lies at the foot of it.
STYLE = """
.fmha-term { position: relative; border-bottom: 2px dotted currentColor; cursor: help; white-space: nowrap; }
.fmha-term:focus-visible { outline: 3px solid currentColor; outline-offset: 2px; border-radius: 3px; }
.fmha-tip { display: none; position: fixed; position-area: bottom span-right; margin-top: 6px; z-index: 1000;
  position-try-fallbacks: flip-inline, flip-block, flip-inline flip-block; box-sizing: border-box;
  width: max-content; max-width: min(24rem, 90vw); padding: .6rem .8rem; border-radius: .5rem; white-space: normal;
  font-size: 1rem; font-weight: 400; line-height: 1.45; color: #ffffff; background: #1b232e;
  border: 1px solid #8592a6; }
.fmha-term:hover > .fmha-tip, .fmha-term:focus > .fmha-tip { display: block; }
@supports not (position-area: bottom) { .fmha-tip { position: absolute; left: 0; top: 1.6em; } }
@media (max-width: 640px) {
  .fmha-tip { position: fixed; position-area: none; left: 1rem; right: 1rem; top: auto; bottom: 1rem; width: auto; }
}
"""

_MARK = re.compile(r"\[\[([^\[\]|]+)(?:\|([^\[\]|]+))?\]\]")
_CODE = re.compile(r"(``?[^`]*``?)")


def marked(text: str) -> tuple[str, bool]:
    """Markdown with `[[word]]` and `[[shown words|entry]]` as explained words, and whether it now holds HTML.

    All HTML in it is made here: whatever else looks like a tag is escaped, so text from outside stays text.

    Raises:
        FmhaError: a marked word that the glossary does not have; a slip of the author, found by the tests.
    """
    if not _MARK.search(text):
        return text, False
    parts = _CODE.split(text)
    return "".join(part if k % 2 else _replace(part) for k, part in enumerate(parts)), True


def _replace(text: str) -> str:
    out, end = [], 0
    for hit in _MARK.finditer(text):
        term = lookup(hit[2] or hit[1])
        if term is None:
            raise FmhaError(f"[[{hit[2] or hit[1]}]] is not in the glossary: add it to fmha/glossary.py.")
        out += [_quiet(text[end : hit.start()]), _span(hit[1], term)]
        end = hit.end()
    return "".join([*out, _quiet(text[end:])])


def _quiet(text: str) -> str:
    """No tags and no entities, but Markdown as it is: a quotation begins with >, and that stays."""
    return text.replace("&", "&amp;").replace("<", "&lt;")


def _span(shown: str, term: Term) -> str:
    return (
        f'<span class="fmha-term" tabindex="0">{_text(shown)}<span class="fmha-tip" role="tooltip">'
        f"{_text(_about(term))}</span></span>"
    )


def _about(term: Term) -> str:
    also = f" ({', '.join(term.also[:2])})" if term.also else ""
    return f"{term.name}{also}: {term.sentence}"


def _text(text: str) -> str:
    """HTML text in which Markdown finds nothing either."""
    return "".join(f"&#{ord(c)};" if c in "\\`*_{}[]()#+-!|~$:" else escape(c) for c in text)
