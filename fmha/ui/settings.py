"""The settings of one visitor: what he asked for, by name, and the link that says it. No Streamlit in here.

The book keeps *wishes*, not values: the last thing that the user set, or the text that a link gave. Each page
fits a wish to what it offers at the moment. So a tile of 64 rows that had to shrink to 8 when N became 8 is 64
again when N grows, and a value too large for one page is still there on the next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fmha.ui.parameters import Fit, Kind, Value, Wish, quote

# Every name that some page of the app reads from the URL. A name outside this list that no control of the
# page at hand claims either is reported to the user.
KNOWN = frozenset(
    {"N", "d", "Br", "Bc", "H", "B", "dtype", "causal", "order", "rows"}
    | {"input", "layer", "head", "batch", "seed", "gpu", "sms", "row", "col", "step", "race"}
    | {"event", "sm", "tile", "l2kib", "by"}
    | {"kernel", "Hk", "Nk", "cross", "show", "device"}
    | {"sram", "verdict"}
    | {"design", "colour", "mBr", "mBc"}
    | {"find", "subject", "module"}
    | {"deck", "present", "notes"}
    | {"take", "heat", "line", "part", "block", "qtile", "visit", "warp", "phase", "req", "each"}
    | {"stages", "held", "zoom", "at", "smspan", "firstsm"}
    | {"blocks", "l2", "orders", "pad", "site01", "site02", "stride", "turn", "check", "level"}
)
LECTURE = "set_"  # ... begin the names of a lecture's own controls
PER_PAGE = frozenset({"step"})  # the same word for different things: kept page by page
IGNORED_PREFIXES = ("embed", "_", "utm_")  # Streamlit's own, and what other sites add to links
_MOST_UNKNOWN = 3  # unknown names that are spelled out in one notice
_OLDER = 3  # widgets of a control, before the one drawn last, that may still be on a slow browser's screen


@dataclass
class Entry:
    """One control as it was last drawn on the page at hand."""

    kind: Kind
    value: Value
    problem: str | None
    key: str | None = None  # of its widget; None: it has none
    told: dict[str, Value] = field(default_factory=dict)  # what its widgets show, the newest last, as far as is known


@dataclass
class Book:
    """Wishes by name, and what is on the page at hand."""

    wishes: dict[str, Wish] = field(default_factory=dict)
    page: str | None = None
    drawn: dict[str, Entry] = field(default_factory=dict)
    recent: set[str] = field(default_factory=set)  # drawn since `settle` was last called
    unknown: tuple[str, ...] = ()
    seen: dict[str, tuple[str, ...]] = field(default_factory=dict)  # the URL as last read or written
    carried: dict[str, tuple[str, ...]] = field(default_factory=dict)  # ... as written by the page before
    left: dict[str, dict[str, tuple[str, ...]]] = field(default_factory=dict)  # ... by page, when it was left
    apart: dict[str, dict[str, Wish]] = field(default_factory=dict)  # wishes for `PER_PAGE`, by page that was left
    widgets: dict[tuple[str | None, str], int] = field(default_factory=dict)  # so far, by page and control

    def turn_to(self, page: str) -> bool:
        """Open the book at `page`; True if it was another one before. Then nothing counts as drawn yet."""
        if page == self.page:
            return False
        if self.page is not None:
            self.left[self.page] = self.seen
            self.apart[self.page] = {name: self.wishes.pop(name) for name in PER_PAGE & self.wishes.keys()}
        self.wishes |= self.apart.pop(page, {})
        self.carried = self.seen  # some ways to another page take the URL along
        # A page that is come back to with the URL that it was left with brings no news: the session has them.
        self.page, self.drawn, self.recent, self.unknown = page, {}, set(), ()
        self.seen = self.left.get(page, {})
        return True

    def read_url(self, texts: Mapping[str, Iterable[str]]) -> None:
        """Take over what the URL says that it did not say before. Names it does not mention keep their wishes."""
        url = {name: tuple(values) for name, values in texts.items()}
        for name, values in url.items():
            if values in (self.seen.get(name), self.carried.get(name)) or name.startswith(IGNORED_PREFIXES):
                continue
            self.give(name, values)
        self.seen = url

    def fit(self, name: str, kind: Kind, default: Value) -> Fit:
        """The value of `name` for a control of this kind, and the sentence if it is not the one asked for."""
        return kind.fit(name, self.wishes.get(name, default), default)

    def widget(self, name: str, kind: Kind, fit: Fit) -> str:
        """The key of the widget for the control `name`: the one on the page if it shows this value, else a new one.
        A text that is refused stays where it was typed, to be corrected.

        A widget that is on somebody's screen is never set. The order to do so may be lost, where the next run follows
        before a slow browser has drawn it; and until it has arrived, what the browser reports looks like a move back.
        A new widget begins with its value, whichever run's message the browser draws it from.
        """
        entry = self.drawn.get(name)
        if entry is not None and entry.key is not None and entry.kind == kind:
            shown = entry.told[entry.key]
            if shown == fit.value or (fit.refused and shown == self.wishes.get(name)):
                return entry.key
        number = self.widgets.get((self.page, name), 0)
        self.widgets[self.page, name] = number + 1
        return f"{name}-{number}" if number else name

    def draw(self, name: str, kind: Kind, fit: Fit, key: str | None = None) -> None:
        """Note that the control `name` shows this value on the page at hand. key: of its widget, if it has one."""
        before = self.drawn.get(name)
        told = dict(before.told) if before is not None else {}
        if key is not None:
            shown = told.pop(key, fit.value)
            told = dict([*told.items(), (key, shown)][-1 - _OLDER :])
        self.drawn[name] = Entry(kind, fit.value, fit.problem, key, told)
        self.recent.add(name)

    def listen(self, reported: Callable[[str], Any], *names: str) -> None:
        """Take over what the user has moved.

        reported: the value that the browser reports for a widget's key, None if none. names: of controls; none: all
        that are on the page. A widget that a newer one has taken the place of counts, too: the browser may not have
        drawn the newer one when it was moved.
        """
        for name in names or self.drawn:
            if (entry := self.drawn.get(name)) is None:
                continue
            for key, told in entry.told.items():
                now = reported(key)
                if now is not None and now != told:
                    entry.told[key] = now
                    self.wish(name, now)

    def settle(self) -> None:
        """The page's controls have been drawn: forget those that it no longer has."""
        self.drawn = {name: entry for name, entry in self.drawn.items() if name in self.recent}
        self.recent = set()
        self.carried = {}

    def wish(self, name: str, value: Wish) -> None:
        """The user set `name`."""
        self.wishes[name] = value

    def give(self, name: str, wish: Wish) -> None:
        """`name` gets a value from elsewhere than its own widget: from a link, or from a button."""
        self.wishes[name] = wish

    def url(self) -> dict[str, str]:
        """The link's parameters for the page at hand: every setting on it that was ever touched."""
        texts = {}
        for name, entry in self.drawn.items():
            if name in self.wishes:
                fit = entry.kind.fit(name, self.wishes[name], entry.value)
                if not fit.refused:
                    texts[name] = entry.kind.to_url(fit.value)
        return texts

    def forget(self, names: Iterable[str]) -> None:
        """Nobody asked for these any more: their controls show their defaults."""
        for name in names:
            self.wishes.pop(name, None)

    def note_unknown(self) -> None:
        """Look for names in the URL that nothing reads. They are told until the page is left."""
        strange = [
            name
            for name in self.seen
            if name not in KNOWN and name not in self.drawn and not name.startswith((*IGNORED_PREFIXES, LECTURE))
        ]
        for name in strange:
            self.wishes.pop(name, None)
        self.unknown += tuple(name for name in strange if name not in self.unknown)

    def notices(self) -> list[str]:
        """One sentence (Markdown, with everything from the URL quoted) for each thing that was not taken as asked."""
        lines = [entry.problem for entry in self.drawn.values() if entry.problem]
        if self.unknown:
            names = ", ".join(quote(name) for name in self.unknown[:_MOST_UNKNOWN])
            more = len(self.unknown) - _MOST_UNKNOWN
            lines.append(f"This page has no setting named {names}{f' and {more} more' if more > 0 else ''}.")
        return lines


def book_in(session: Any) -> Book:
    """The book kept in a session's state (any mutable mapping with string keys)."""
    key = "fmha.settings"
    if key not in session:
        session[key] = Book()
    book: Book = session[key]
    return book
