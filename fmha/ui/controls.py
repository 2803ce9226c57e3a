"""Controls: a widget, its URL parameter and its value, under one name.

    N = controls.slider("N", "Sequence length N", options=[128, 256, 512], default=128)

The name is the URL parameter, and it is shared by all pages: a value set on one page is kept on the next. Call
`notices()` once, after the last control; it says what was not taken as asked and writes the URL. Where no `help` is
given, it is the glossary's entry for the name.

Four things keep a value from being lost. The truth is the session's book of wishes, not the widget, whose state
Streamlit drops on a page change. A widget is made with its value and from then on only read: a control that has to
show another value is another widget, with a key of its own (`Book.widget` says why). So a key pressed during a slow
run is never undone, and what a slow browser reports of a widget that is gone is understood. A broken-off run leaves
book and widget in agreement at every point. And a control that was moved makes the whole page run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import parse_qs

import streamlit as st
from streamlit.runtime.scriptrunner import get_script_run_ctx

from fmha.glossary import of_control
from fmha.ui.page import plain
from fmha.ui.parameters import Choice, Flag, Kind, Numbers, Range, Text, Value, as_numbers, show
from fmha.ui.settings import Book, book_in

CAUSAL = {"none": "off", "br": "bottom-right", "tl": "top-left"}
_CAUSAL_ALIASES = {
    "0": "none",
    "false": "none",
    "off": "none",
    "1": "br",
    "true": "br",
    "on": "br",
    "bottom-right": "br",
    "top-left": "tl",
}
_BUTTONS = 4  # up to so many options are shown as buttons side by side, more as a list


def slider(
    name: str,
    label: str,
    *,
    options: Sequence[int | float] | None = None,
    lo: int | float | None = None,
    hi: int | float | None = None,
    step: int | float = 1,
    default: int | float,
    help: str | None = None,
    format: Callable[[Any], str] = show,
) -> Any:
    """A slider over `options`, or from `lo` to `hi` in steps of `step`. Arrow keys, Home and End move it.

    Returns a plain int, or a float where the options or bounds are floats. With one possible value it is no slider
    but a fixed value. A wish outside the range becomes the nearest allowed value, and `notices()` says so.
    """
    help = help or _meaning(name, label)
    if options is not None:
        numbers = Numbers(as_numbers(options))

        def readable(value: Any) -> str:
            return value if isinstance(value, str) else format(value)  # AppTest hands back what was formatted

        return _control(
            name,
            label,
            numbers,
            default,
            lambda is_at, **how: st.select_slider(
                label, numbers.options, value=is_at, format_func=readable, help=help, **how
            ),
            format,
        )
    if lo is None or hi is None:
        raise TypeError(f"slider {name!r} needs options, or lo and hi")
    span = _range(lo, hi, step)
    return _control(
        name,
        label,
        span,
        default,
        lambda is_at, **how: st.slider(label, span.lo, span.hi, value=is_at, step=span.step, help=help, **how),
        format,
    )


def number(
    name: str,
    label: str,
    *,
    lo: int | float,
    hi: int | float,
    step: int | float = 1,
    default: int | float,
    help: str | None = None,
) -> Any:
    """A number to type in, from `lo` to `hi`, with buttons for a step up and down."""
    span, help = _range(lo, hi, step), help or _meaning(name, label)
    return _control(
        name,
        label,
        span,
        default,
        lambda is_at, **how: st.number_input(label, span.lo, span.hi, value=is_at, step=span.step, help=help, **how),
    )


def choice(
    name: str,
    label: str,
    options: Sequence[str] | Mapping[str, str],
    *,
    default: str,
    aliases: Mapping[str, str] | None = None,
    help: str | None = None,
) -> str:
    """One of `options`; a mapping gives each its label. `aliases` are further spellings for links (lower case)."""
    labels = dict(options) if isinstance(options, Mapping) else {option: option for option in options}
    kind = Choice(tuple(labels), aliases or {}, labels.__getitem__)

    def draw(is_at: Any, **how: Any) -> Any:
        how |= {"format_func": labels.__getitem__, "help": help or _meaning(name, label)}
        if len(labels) <= _BUTTONS:
            return st.segmented_control(label, list(labels), default=is_at, required=True, wrap=True, **how)
        return st.selectbox(label, list(labels), index=list(labels).index(is_at), **how)

    return str(_control(name, label, kind, default, draw, lambda value: labels[str(value)]))


def toggle(name: str, label: str, *, default: bool = False, help: str | None = None) -> bool:
    """On or off; 1 or 0 in the URL."""
    help = help or _meaning(name, label)
    return bool(_control(name, label, Flag(), default, lambda is_at, **how: st.toggle(label, is_at, help=help, **how)))


def text(
    name: str,
    label: str,
    *,
    default: str = "",
    longest: int = 64,
    pattern: str | None = None,
    what: str = "a short text",
    help: str | None = None,
) -> str:
    """A short text. `pattern` (a regular expression for all of it) and `what` (the same in words) limit it."""
    kind, help = Text(longest, pattern, what), help or _meaning(name, label)
    return str(
        _control(
            name,
            label,
            kind,
            default,
            lambda is_at, **how: st.text_input(label, is_at, max_chars=longest, help=help, **how),
        )
    )


def causal(*, default: str = "none", help: str | None = None) -> str | None:
    """The causal mask with its alignment named: None, "bottom-right" or "top-left", as `Problem` takes it."""
    value = choice("causal", "Causal mask", CAUSAL, default=default, aliases=_CAUSAL_ALIASES, help=help)
    return {"none": None, "br": "bottom-right", "tl": "top-left"}[value]


def hidden(name: str, *, lo: int, hi: int, default: int) -> int:
    """A whole number that lives in the URL without a widget, such as the chosen row; `assign` sets it."""
    book = _book()
    kind = _range(lo, hi, 1)
    fit = book.fit(name, kind, _plain(default))
    book.draw(name, kind, fit)
    return int(fit.value)


def assign(**values: Value) -> None:
    """Set controls by name: `st.button("N = 4096", on_click=controls.assign, kwargs={"N": 4096})`.

    Call it in a callback, or before the controls are drawn; a control that is already drawn shows it on the next run.
    """
    book = _book()
    book.listen(st.session_state.get)  # what was moved before counts before
    for name, value in values.items():
        book.give(name, _plain(value))


def forget(*names: str) -> None:
    """Put controls back to their defaults, as if nobody had moved them. Call it where `assign` may be called."""
    book = _book()
    book.listen(st.session_state.get)
    book.forget(names)


def shown(name: str) -> Value | None:
    """What the widget of the control `name` shows at the moment; None where it has none on this page so far."""
    book = _book()
    book.listen(st.session_state.get, name)
    entry = book.drawn.get(name)
    return None if entry is None or entry.key is None else entry.told[entry.key]


def notices() -> None:
    """Say once, in one box, what was not taken as asked; then bring the URL up to date. After the last control."""
    book = _book()
    book.settle()
    book.note_unknown()
    if lines := book.notices():
        st.warning("  \n".join(lines))
    update_url()


def update_url() -> None:
    """Write the settings into the address bar if it does not say them yet. `notices()` calls it."""
    book = _book()
    wanted = book.url()
    texts: dict[str, tuple[str, ...]] = {name: (text,) for name, text in wanted.items()}
    if book.seen != texts:
        book.seen = texts  # first: the call ends with a message, and there a run that is overtaken is broken off
        st.query_params.from_dict(wanted)  # one message for all; it leaves Streamlit's embed parameters alone


def whole_page() -> None:
    """In a callback: run the whole page, also where the browser asks for one of its fragments alone.

    What changes within one frame the browser tells in one message, and if a fragment is part of it, the message asks
    for a run of that fragment alone: a control outside it would show a value that nothing on the page follows.
    """
    ctx = get_script_run_ctx(suppress_warning=True)
    if ctx is not None and ctx.fragment_ids_this_run:
        st.rerun()


def _meaning(name: str, label: str) -> str | None:
    """What the glossary says of the setting, for the "?" beside it."""
    term = of_control(name, label)
    return None if term is None else f"**{plain(term.name)}**: {plain(term.sentence)}"


def _range(lo: Any, hi: Any, step: Any) -> Range:
    """Bounds as plain numbers of one type: Streamlit takes three ints or three floats, not a mixture."""
    bounds = [_plain(x) for x in (lo, hi, step)]
    return Range(*bounds) if all(isinstance(x, int) for x in bounds) else Range(*map(float, bounds))


def _plain(value: Any) -> Any:
    """A NumPy scalar as a plain Python number; anything else as it is."""
    return value.item() if hasattr(value, "item") else value


def _book() -> Book:
    """The session's book, open at the page at hand.

    The URL is read when the page is opened and when the browser goes back to an earlier one. In all other runs it can
    say nothing that was not written here, and when keys come fast it says what was written a few runs ago.
    """
    book = book_in(st.session_state)
    ctx = get_script_run_ctx(suppress_warning=True)
    page = ctx.page_script_hash if ctx is not None else ""
    if page != book.page:
        book.listen(st.session_state.get)  # moved just before the page was left
    turned = book.turn_to(page)
    if ctx is not None and ctx.is_history_navigation:
        # On the same page, Streamlit does not refresh st.query_params when the browser goes back.
        book.read_url(parse_qs(ctx.query_string, keep_blank_values=True))
    elif turned:
        book.read_url({name: st.query_params.get_all(name) for name in st.query_params})
    return book


def _control(
    name: str,
    label: str,
    kind: Kind,
    default: Value,
    draw: Callable[..., Any],
    format: Callable[[Any], str] = show,
) -> Any:
    """Draw one control and return its value. See the head of this file for why it goes in this order."""
    book = _book()
    book.listen(st.session_state.get, name)
    before = book.drawn.get(name)
    fit = book.fit(name, kind, _plain(default))
    if name not in book.wishes and fit.problem and not (before and (before.value == default or before.problem)):
        fit = fit._replace(problem=None)  # nobody asked for the default and nobody has seen it here
    if kind.choices == 1:
        book.draw(name, kind, fit)
        _fixed(label, format(fit.value))
        return fit.value
    key = book.widget(name, kind, fit)
    book.draw(name, kind, fit, key)
    value = draw(fit.value, key=key, on_change=whole_page)
    if value != book.drawn[name].told[key]:  # of a browser back from a lost connection, whose widget is older
        book.listen({key: value}.get, name)
        fit = book.fit(name, kind, _plain(default))
        book.draw(name, kind, fit, key)
    return fit.value


def _fixed(label: str, shown: str) -> None:
    """A setting with one possible value, as a value and not as a control."""
    st.markdown(f":small[{label}]  \n**{shown}**", help="The other settings leave one possible value.")


__all__ = [
    "CAUSAL",
    "assign",
    "causal",
    "choice",
    "forget",
    "hidden",
    "notices",
    "number",
    "shown",
    "slider",
    "text",
    "toggle",
    "update_url",
    "whole_page",
]
