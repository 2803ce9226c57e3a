"""Differences of two sources: pairs of lines, marks inside them, every line there, and nothing of a text is HTML."""

from __future__ import annotations

import html
import re

from hypothesis import given
from hypothesis import strategies as st

from fmha.kernels import KERNELS, previous
from fmha.ui.diff_view import CONTEXT, diff_html, rows

lines = st.lists(
    st.sampled_from(["int a = b;", "int a = c;", "", "}", "for (;;) {", "  return <b>x</b> & y;"]), max_size=12
)


@given(lines, lines)
def test_rows_hold_every_change_once_and_in_order(old: list[str], new: list[str]) -> None:
    groups = rows(old, new, context=1)
    flat = [row for group in groups for row in group]
    for side, count in (("old", len(old)), ("new", len(new))):
        numbers = [n for row in flat if (n := getattr(row, side)) is not None]
        assert numbers == sorted(set(numbers)) and all(0 <= n < count for n in numbers)
    for row in flat:
        assert row.old is not None or row.new is not None
        if not row.changed:
            assert row.old is not None and row.new is not None and old[row.old] == new[row.new]
    # Lines that are in no row are the same in both.
    assert [x for i, x in enumerate(old) if i not in {r.old for r in flat}] == [
        x for i, x in enumerate(new) if i not in {r.new for r in flat}
    ]
    assert bool(groups) == (old != new)


def test_a_line_that_changed_a_little_stands_beside_itself() -> None:
    (group,) = rows(["a", "float x = Kj[col * d + k];", "b"], ["a", "float x = Kj[col * pitch + k];", "b"])
    assert [(r.old, r.new, r.changed) for r in group] == [(0, 0, False), (1, 1, True), (2, 2, False)]
    text = diff_html("x.cu", "float x = Kj[col * d + k];", "y.cu", "float x = Kj[col * pitch + k];", is_split=True)
    assert "<b>d</b>" in text and "<b>pitch</b>" in text


def test_text_is_never_html() -> None:
    bad = "<script>alert(1)</script>"
    for is_split in (True, False):
        text = diff_html(bad, bad + "\n<i>", bad, "<img src=x>", is_split=is_split)
        assert (
            "<script" not in text
            and "<img" not in text
            and "<i>" not in text
            and "&lt;img" in re.sub("</?b>", "", text)
        )


def test_each_rung_shows_all_changed_lines_in_both_layouts() -> None:
    for chosen in KERNELS.values():
        below = previous(chosen)
        if below is None:
            continue
        for is_split in (True, False):
            text = diff_html(below.file, below.source(), chosen.file, chosen.source(), is_split=is_split)
            shown = [
                html.unescape(re.sub(r"<[^>]+>", "", cell))
                for cell in re.findall(r'<td class="text[^"]*">(.*?)</td>', text)
            ]
            changed = {x for group in rows(below.source().splitlines(), chosen.source().splitlines()) for r in group
                       if r.changed and r.new is not None for x in [chosen.source().splitlines()[r.new]]}  # fmt: skip
            assert changed <= set(shown)
            left_out = sum(int(n) for n in re.findall(r">(\d+) lines? unchanged<", text))
            groups = rows(below.source().splitlines(), chosen.source().splitlines())
            there = sum(row.new is not None for group in groups for row in group)
            assert left_out + there == len(chosen.source().splitlines()) and 'tabindex="0"' in text


def test_one_line_is_one_line() -> None:
    old = "\n".join(f"line {n}" for n in range(1 + CONTEXT))
    for is_split in (True, False):
        assert ">1 line unchanged<" in diff_html("a", old + "\nx", "b", old + "\ny", is_split=is_split)
