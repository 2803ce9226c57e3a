"""What a deck may write as Markdown: text, emphasis, code, lists, formulas and links; no HTML, no images, no headings.

The page shows Markdown with HTML switched off, so what is refused here could do no harm there either. It is refused
so that an author learns on which line the picture will not be what he wrote.
"""

from __future__ import annotations

import re

from fmha.lecture.errors import DeckError, shown

_CODE = re.compile(r"(`+)(?!`).*?(?<!`)\1(?!`)|\$\$.*?\$\$|\$[^$\n]+\$", re.DOTALL)
_TAG = re.compile(r"<[A-Za-z/!?][^\n]{0,60}")
_IMAGE = re.compile(r"!\[")
_TARGET = re.compile(r"\]\s*(?:\(|:)\s*<?\s*([^\s)>]*)")
_BARE = re.compile(r"\b([A-Za-z][A-Za-z0-9+.-]*)://\S*")
_ICON = re.compile(r":(?:material|streamlit)[/:]")
_HEADING = re.compile(r"^ {0,3}(#{1,6}(\s|$)|=+\s*$|-+\s*$)")
_INSIDE = re.compile(r"/?[A-Za-z0-9-]*(\?[^\s]*)?")  # a page of this app


def checked(text: str, line: int, longest: int = 2000) -> str:
    """`text` (Markdown) as it is.

    line: where it begins in the file.

    Raises:
        DeckError: with the line of what may not stand there.
    """
    if len(text) > longest:
        raise DeckError(line, f"this text has {len(text):,} characters, and {longest:,} fit on a step: cut it.")
    bare = _CODE.sub(lambda m: "".join(c if c == "\n" else " " for c in m[0]), text)
    for number, (row, whole) in enumerate(zip(bare.split("\n"), text.split("\n"), strict=True), line):
        odd = next((c for c in whole if not c.isprintable() and c != "\t"), None)
        if odd is not None:
            raise DeckError(number, f"the character U+{ord(odd):04X} cannot be shown: delete it.")
        if tag := _TAG.search(row):
            raise DeckError(number, f"HTML such as {shown(tag[0], 24)} is not taken: write Markdown, or `code`.")
        if _IMAGE.search(row):
            raise DeckError(number, "images are not taken: name one of the app's pictures with picture: in the header.")
        if _ICON.search(row):
            raise DeckError(number, "icons such as :material/...: are not taken: write a word.")
        if _HEADING.match(row):
            raise DeckError(number, "headings are not taken: the step's heading is its title: in the header.")
        for target in [t for t in _TARGET.findall(row) if t] + [m[0] for m in _BARE.finditer(row)]:
            if not (target.startswith("https://") or _INSIDE.fullmatch(target)):
                raise DeckError(
                    number, f"the link {shown(target, 30)} is not taken: link to https:// or to a page of this app."
                )
    return text


__all__ = ["checked"]
