"""Where decks are found: the one that comes with the app, and a lecturer's own in $FMHA_DECKS or ./decks."""

from __future__ import annotations

import os
import re
from pathlib import Path

from fmha.lecture.deck import MOST_CHARACTERS, Deck, read_deck
from fmha.lecture.errors import DeckError

SHIPPED = Path(__file__).resolve().parent / "decks"
FIRST = "fmha101"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}")
_SUFFIXES = (".md", ".yaml", ".yml", ".txt")
_MOST_DECKS = 100


def folder() -> Path:
    """The folder of own decks. It need not exist."""
    return Path(os.environ.get("FMHA_DECKS") or "decks")


def decks() -> dict[str, Path]:
    """Decks by the name that a link gives them, the shipped ones first; files with other names are passed over."""
    found: dict[str, Path] = {}
    for place in (SHIPPED, folder()):
        try:
            files = sorted(place.iterdir())
        except OSError:  # there is no such folder, or it may not be read
            continue
        for file in files:
            if len(found) < _MOST_DECKS and file.suffix in _SUFFIXES and _NAME.fullmatch(file.stem) and file.is_file():
                found.setdefault(file.stem, file)
    return dict(sorted(found.items(), key=lambda item: item[0] != FIRST))


def decode(data: bytes) -> str:
    """The text of an uploaded or stored deck.

    Raises:
        DeckError: it is too long, or no UTF-8 text.
    """
    if len(data) > 4 * MOST_CHARACTERS:
        raise DeckError(0, f"the file has {len(data):,} bytes, and {4 * MOST_CHARACTERS:,} are read at most.")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise DeckError(0, "the file is no UTF-8 text: save it as UTF-8 in your editor.") from None


def load(path: Path) -> Deck:
    """The deck in a file.

    Raises:
        DeckError: it cannot be read, or what is wrong with it.
    """
    try:
        with path.open("rb") as file:
            data = file.read(4 * MOST_CHARACTERS + 1)
    except OSError:
        raise DeckError(0, f"the file of the deck {path.stem} cannot be read: look at its permissions.") from None
    return read_deck(decode(data))


__all__ = ["FIRST", "decks", "decode", "folder", "load"]
