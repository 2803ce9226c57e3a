"""The settings that a lecture adds: a step is of its page, and its own controls move no other page."""

from __future__ import annotations

from fmha.ui.parameters import Fit, Range
from fmha.ui.settings import Book

STEPS = Range(1, 16)


def show(book: Book, page: str, url: dict[str, tuple[str, ...]] | None = None) -> int:
    """Open a page that has a control named step, and return what it shows."""
    if book.turn_to(page) and url is not None:
        book.read_url(url)
    fit = book.fit("step", STEPS, 1)
    book.draw("step", STEPS, fit)
    book.settle()
    return int(fit.value)


def test_a_step_is_kept_page_by_page() -> None:
    book = Book()
    assert show(book, "lecture", {"step": ("9",)}) == 9
    assert show(book, "example", {}) == 1
    book.wish("step", 4)
    assert show(book, "example") == 4
    assert show(book, "lecture") == 9
    assert show(book, "example") == 4


def test_what_is_forgotten_shows_its_default_and_leaves_the_link() -> None:
    book = Book()
    book.turn_to("lecture")
    book.wish("set_N", 8)
    fit = book.fit("set_N", STEPS, 3)
    book.draw("set_N", STEPS, fit, book.widget("set_N", STEPS, fit))
    assert book.url() == {"set_N": "8"}
    book.forget(["set_N", "set_d"])
    assert book.fit("set_N", STEPS, 3).value == 3 and book.url() == {}
    assert book.widget("set_N", STEPS, Fit(8)) == "set_N" != book.widget("set_N", STEPS, Fit(3)), "a new one shows it"


def test_controls_of_another_step_in_a_link_are_not_reported() -> None:
    book = Book()
    book.turn_to("lecture")
    book.read_url({"set_Br": ("8",), "nonsense": ("1",)})
    book.note_unknown()
    assert book.unknown == ("nonsense",)
