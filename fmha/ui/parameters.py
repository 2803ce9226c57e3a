"""What a setting may be, and how a text from the URL becomes one. Plain Python, no Streamlit.

A link can carry anything: `?N=0`, `?N=1e9`, `?N=128&N=256`, `?N=<b>x</b>`, ten kilobytes. Each kind of setting has
`fit(wish)`, which takes such texts as well as values set by a widget and always returns an allowed value, together
with a sentence for the user where that value is not the one asked for.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

Value = int | float | str | bool
Wish = Value | tuple[str, ...]  # a value set by a widget, or the texts that the URL gives under one name

_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_LONGEST_NUMBER = 40  # characters; anything longer is not read as a number at all
_SHOWN = 32  # characters of a refused text that are shown back


class Fit(NamedTuple):
    """The value to use, and what to tell the user if it is not the one that was asked for."""

    value: Value
    problem: str | None = None
    refused: bool = False  # True: what was asked for is no value at all, so the default is used


class Kind(Protocol):
    """A kind of setting: the allowed values, the default among them, and the way in and out of a URL."""

    @property
    def choices(self) -> int | None:
        """How many values are allowed; None where they are too many to matter."""

    def fit(self, name: str, wish: Wish, default: Value) -> Fit:
        """The allowed value for `wish`, and the sentence if it differs from it."""

    def to_url(self, value: Value) -> str:
        """The text that stands for `value` in a link."""


def quote(text: str) -> str:
    """`text` as a short Markdown code span: nothing in it is rendered, and it cannot break out.

    >>> quote("<b>x</b>")
    '`<b>x</b>`'
    """
    clean = "".join(c if c.isprintable() else " " for c in text[: _SHOWN + 1]).replace("`", "'")
    clean = " ".join(clean.split())
    if not clean:
        return "nothing"
    return f"`{clean[:_SHOWN]}...`" if len(text) > _SHOWN else f"`{clean}`"


def read_number(text: str) -> int | float | None:
    """The number that `text` is, as an int where it is whole (`1e3` is 1000); None where it is none."""
    text = text.strip()
    if len(text) > _LONGEST_NUMBER or not _NUMBER.fullmatch(text):
        return None
    if text.lstrip("+-").isdigit():
        return int(text)
    number = float(text)
    if not math.isfinite(number):
        return None
    return int(number) if number.is_integer() else number


def show(value: Value) -> str:
    """A value as the user reads it; the same text as in the URL for numbers."""
    return f"{value:.12g}" if isinstance(value, float) else str(value)


def _text_of(wish: Wish) -> str:
    return str(wish[0]) if isinstance(wish, tuple) else show(wish)


def _refuse(name: str, wish: Wish, default: Value, why: str, shown: str | None = None) -> Fit:
    shown = show(default) if shown is None else shown
    then = f"{shown} is used" if shown else "It is left out"
    return Fit(default, f"**{name}** = {quote(_text_of(wish))}: {why}. {then}.", refused=True)


def _twice(name: str, wish: Wish, default: Value, shown: str | None = None) -> Fit | None:
    """The refusal of a link that names a setting more than once, None for any other wish."""
    if not isinstance(wish, tuple) or len(wish) == 1:
        return None
    shown = show(default) if shown is None else shown
    return Fit(default, f"**{name}** is given {len(wish)} times in the link. {shown} is used.", refused=True)


@dataclass(frozen=True)
class Range:
    """Numbers from `lo` to `hi` in steps of `step`; whole numbers if all three are ints."""

    lo: int | float
    hi: int | float
    step: int | float = 1

    def __post_init__(self) -> None:
        if self.step <= 0:
            raise ValueError(f"step={self.step} must be above 0")

    @property
    def whole(self) -> bool:
        return all(isinstance(x, int) for x in (self.lo, self.hi, self.step))

    @property
    def choices(self) -> int | None:
        return 1 if self.lo >= self.hi else None

    def fit(self, name: str, wish: Wish, default: Value) -> Fit:
        default = self._nearest(default if isinstance(default, int | float) else self.lo)
        if (twice := _twice(name, wish, default)) is not None:
            return twice
        number = read_number(_text_of(wish))
        if number is None or (self.whole and isinstance(number, float)):
            kind = "a whole number" if self.whole else "a number"
            return _refuse(name, wish, default, f"{kind} is needed here")
        value = self._nearest(number)
        if value == number or (not self.whole and math.isclose(value, number, rel_tol=1e-9)):
            return Fit(number if self.whole else float(number))
        if number > self.hi:
            why = f"the most here is {show(self.hi)}"
        elif number < self.lo:
            why = f"the least here is {show(self.lo)}"
        else:
            why = f"the steps here are {show(self.lo)}, {show(self.lo + self.step)}, ..."
        return Fit(value, f"**{name}** = {quote(_text_of(wish))}: {why}. {show(value)} is used.")

    def to_url(self, value: Value) -> str:
        return show(value)

    def _nearest(self, number: int | float) -> int | float:
        """The allowed value nearest to `number`; where `hi` is not on a step, the last step below it is the most."""
        if self.lo >= self.hi or number <= self.lo:
            return self.lo
        last = math.floor((self.hi - self.lo) / self.step * (1 + 1e-12))
        steps = last if number >= self.hi else min(math.floor((number - self.lo) / self.step + 0.5), last)
        value = self.lo + steps * self.step
        return value if self.whole else float(value)


@dataclass(frozen=True)
class Numbers:
    """A rising list of numbers, such as powers of two. A number between two of them becomes the nearer one."""

    options: tuple[int | float, ...]

    def __post_init__(self) -> None:
        if not self.options or list(self.options) != sorted(set(self.options)):
            raise ValueError(f"options must be one or more rising numbers, not {self.options}")

    @property
    def choices(self) -> int | None:
        return len(self.options)

    def fit(self, name: str, wish: Wish, default: Value) -> Fit:
        default = self._nearest(default if isinstance(default, int | float) else self.options[0])
        if (twice := _twice(name, wish, default)) is not None:
            return twice
        number = read_number(_text_of(wish))
        if number is None:
            return _refuse(name, wish, default, "a number is needed here")
        value = self._nearest(number)
        if value == number:
            return Fit(value)
        if number > self.options[-1]:
            why = f"the most here is {show(self.options[-1])}"
        elif number < self.options[0]:
            why = f"the least here is {show(self.options[0])}"
        else:
            why = "it is not one of the values offered here"
        return Fit(value, f"**{name}** = {quote(_text_of(wish))}: {why}. {show(value)} is used.")

    def to_url(self, value: Value) -> str:
        return show(value)

    def _nearest(self, number: int | float) -> int | float:
        return min(self.options, key=lambda option: (abs(option - number), option))


@dataclass(frozen=True)
class Choice:
    """One of a few names. `aliases` are other spellings that a link may use."""

    options: tuple[str, ...]
    aliases: Mapping[str, str] = field(default_factory=dict)
    label: Callable[[str], str] = field(default=str, compare=False)

    def __post_init__(self) -> None:
        if not self.options:
            raise ValueError("a choice needs at least one option")

    @property
    def choices(self) -> int | None:
        return len(self.options)

    def fit(self, name: str, wish: Wish, default: Value) -> Fit:
        default = default if default in self.options else self.options[0]
        if (twice := _twice(name, wish, default, self.label(str(default)))) is not None:
            return twice
        text = _text_of(wish)
        if text in self.options:
            return Fit(text)
        lowered = text.strip().lower()
        value = {option.lower(): option for option in self.options}.get(lowered) or self.aliases.get(lowered)
        if value in self.options:
            return Fit(value)
        if len(self.options) > 8 and self.options == tuple(str(n + 1) for n in range(len(self.options))):
            offered = f"1 to {len(self.options)}"
        else:
            more = len(self.options) - 8
            offered = ", ".join(self.options[:8]) + (f" and {more} more" if more > 0 else "")
        return _refuse(name, wish, default, f"the choice here is {offered}", self.label(str(default)))

    def to_url(self, value: Value) -> str:
        return str(value)


_TRUE = {"1", "true", "on", "yes", "br", "tl"}  # br and tl: a causal mask that another page names in more detail
_FALSE = {"0", "false", "off", "no", "none"}


@dataclass(frozen=True)
class Flag:
    """On or off; 1 or 0 in a link."""

    @property
    def choices(self) -> int | None:
        return 2

    def fit(self, name: str, wish: Wish, default: Value) -> Fit:
        default = bool(default)
        shown = "on" if default else "off"
        if (twice := _twice(name, wish, default, shown)) is not None:
            return twice
        lowered = _text_of(wish).strip().lower()
        if lowered in _TRUE or lowered in _FALSE:
            return Fit(lowered in _TRUE)
        return _refuse(name, wish, default, "1 (on) or 0 (off) is needed here", shown)

    def to_url(self, value: Value) -> str:
        return "1" if value else "0"


@dataclass(frozen=True)
class Text:
    """A short text. `pattern`, if given, must match all of it; `what` says in words what is allowed."""

    longest: int = 64
    pattern: str | None = None
    what: str = "a short text"

    @property
    def choices(self) -> int | None:
        return None

    def fit(self, name: str, wish: Wish, default: Value) -> Fit:
        default = str(default)
        if (twice := _twice(name, wish, default)) is not None:
            return twice
        text = _text_of(wish)
        if len(text) > self.longest:
            return _refuse(name, wish, default, f"at most {self.longest} characters are taken here")
        if not text.isprintable() or (self.pattern and not re.fullmatch(self.pattern, text)):
            return _refuse(name, wish, default, f"{self.what} is needed here")
        return Fit(text)

    def to_url(self, value: Value) -> str:
        return str(value)


def powers_of_two(lo: int, hi: int) -> list[int]:
    """The powers of two from `lo` to `hi`, both included.

    >>> powers_of_two(16, 100)
    [16, 32, 64]
    """
    return [2**e for e in range(max(lo - 1, 0).bit_length(), hi.bit_length()) if lo <= 2**e <= hi]


def as_numbers(options: Sequence[int | float]) -> tuple[int | float, ...]:
    """Options as plain Python numbers (NumPy scalars are turned into them), in rising order, each once."""
    plain = {option.item() if hasattr(option, "item") else option for option in options}
    return tuple(sorted(plain))
