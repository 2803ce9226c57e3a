"""What is wrong with a deck, and on which line."""

from __future__ import annotations

from fmha.errors import FmhaError


class DeckError(FmhaError):
    """A deck cannot be shown. `line` counts from 1; 0: the file as a whole."""

    def __init__(self, line: int, text: str) -> None:
        super().__init__(f"line {line}: {text}" if line else text)
        self.line = line


def shown(text: str, longest: int = 40) -> str:
    """A piece of somebody's file, in quotation marks, on one line and not too long, fit for a sentence.

    >>> shown("a  b")
    '"a b"'
    """
    clean = " ".join("".join(c if c.isprintable() else " " for c in text[: 2 * longest]).split())
    return f'"{clean[: longest - 1]}…"' if len(clean) > longest else f'"{clean}"'
