"""Two sources side by side or in one column: what changed is marked by sign and colour, by line and by word."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Sequence
from html import escape
from typing import NamedTuple

CONTEXT = 3  # unchanged lines around a change
_ALIKE = 0.55  # two lines more alike than that are one line that changed
_WORDS = re.compile(r"\w+|\s+|.")

STYLE = """<style>
.fmha-diff { overflow: auto; max-height: 40rem; border: 1px solid color-mix(in srgb, currentColor 25%, transparent);
  border-radius: 0.4rem; }
.fmha-diff table { border-collapse: collapse; font-family: "Source Code Pro", monospace; font-size: 0.95rem;
  line-height: 1.4; min-width: 100%; margin: 0; }
.fmha-diff caption { position: absolute; clip-path: inset(50%); width: 1px; height: 1px; overflow: hidden; }
.fmha-diff th { position: sticky; top: 0; text-align: left; padding: 0.25rem 0.6rem; border: 0; z-index: 1;
  background: var(--background-color, Canvas); backdrop-filter: blur(6px);
  border-bottom: 1px solid color-mix(in srgb, currentColor 25%, transparent); }
.fmha-diff td { border: 0; padding: 0 0.4rem; vertical-align: top; white-space: pre; tab-size: 4; }
.fmha-diff td.no { text-align: right; opacity: 0.75; user-select: none; min-width: 2.2em; }
.fmha-diff td.sign { font-weight: 700; padding: 0 0.1rem; }
.fmha-diff td.minus { background: color-mix(in srgb, #e5534b 20%, transparent); }
.fmha-diff td.plus { background: color-mix(in srgb, #2da44e 20%, transparent); }
.fmha-diff td.none { background: color-mix(in srgb, currentColor 5%, transparent); }
.fmha-diff td b { font-weight: 700; border-radius: 3px; }
.fmha-diff td.minus b { background: color-mix(in srgb, #e5534b 38%, transparent); }
.fmha-diff td.plus b { background: color-mix(in srgb, #2da44e 38%, transparent); }
.fmha-diff tr.gap td { padding: 0.15rem 0.6rem; opacity: 0.75; text-align: center;
  background: color-mix(in srgb, currentColor 8%, transparent); }
.fmha-diff.split table { table-layout: fixed; font-size: 0.86rem; }
.fmha-diff.split td { white-space: pre-wrap; overflow-wrap: anywhere; }
.fmha-diff.split col.no { width: 2.9em; }
.fmha-diff.split col.sign { width: 1.1em; }
@media (max-width: 900px) { .fmha-diff.split table { width: 60rem; } }
.fmha-diff td.half { border-left: 1px solid color-mix(in srgb, currentColor 25%, transparent); }
</style>"""


class Row(NamedTuple):
    """A line of the old file beside the one of the new file that it became; either may be missing (None).

    changed: whether they differ.
    """

    old: int | None
    new: int | None
    changed: bool


def rows(old: Sequence[str], new: Sequence[str], context: int = CONTEXT) -> list[list[Row]]:
    """Groups of rows around each change; what lies between is the same in both. Lines count from 0."""
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    groups = []
    for group in matcher.get_grouped_opcodes(context):
        made: list[Row] = []
        for tag, i0, i1, j0, j1 in group:
            if tag == "equal":
                made += [Row(i, j, False) for i, j in zip(range(i0, i1), range(j0, j1), strict=True)]
            else:
                made += _paired(old, new, range(i0, i1), range(j0, j1))
        groups.append(made)
    return groups


def _paired(old: Sequence[str], new: Sequence[str], olds: range, news: range) -> Iterator[Row]:
    """Lines of a replaced block: those that are alike stand in one row, in order; the others alone."""
    j = news.start
    for i in olds:
        found = next((k for k in range(j, news.stop) if _ratio(old[i], new[k]) > _ALIKE), None)
        if found is None:
            yield Row(i, None, True)
            continue
        yield from (Row(None, k, True) for k in range(j, found))
        yield Row(i, found, True)
        j = found + 1
    yield from (Row(None, k, True) for k in range(j, news.stop))


def _ratio(a: str, b: str) -> float:
    a, b = a.strip(), b.strip()
    return difflib.SequenceMatcher(None, a, b, autojunk=False).ratio() if a and b else 0.0


def _marked(mine: str, other: str | None) -> str:
    """A line with the words that the other one has not in <b>."""
    if other is None:
        return escape(mine)
    a, b = _WORDS.findall(mine), _WORDS.findall(other)
    parts = []
    for tag, i0, i1, _, _ in difflib.SequenceMatcher(None, a, b, autojunk=False).get_opcodes():
        text = escape("".join(a[i0:i1]))
        parts.append(text if tag == "equal" or not text.strip() else f"<b>{text}</b>")
    return "".join(parts)


def diff_html(old_name: str, old: str, new_name: str, new: str, *, is_split: bool) -> str:
    """A table of the changes from one text to another, as HTML with its style; every text is escaped.

    is_split: side by side; otherwise in one column, the old line above the new one.
    """
    a, b = old.splitlines(), new.splitlines()
    groups = rows(a, b)
    caption = f"<caption>Changes from {escape(old_name)} to {escape(new_name)}</caption>"
    if is_split:
        head = f'<tr><th colspan="3">{escape(old_name)}</th><th colspan="3">{escape(new_name)}</th></tr>'
    else:
        head = f'<tr><th colspan="4">{escape(old_name)} to {escape(new_name)}</th></tr>'
    body = []
    last, width = 0, 6 if is_split else 4
    for group in groups:
        first = next(row.new for row in group if row.new is not None) if any(r.new is not None for r in group) else last
        same = (first or 0) - last
        if same > 0:
            body.append(_gap(same, width))
        for row in group:
            body += _split(row, a, b) if is_split else _stacked(row, a, b)
        last = max([row.new for row in group if row.new is not None], default=last - 1) + 1
    if len(b) > last:
        body.append(_gap(len(b) - last, width))
    columns = '<col class="no"><col class="sign"><col>' * 2 if is_split else ""
    table = f"<table>{caption}<colgroup>{columns}</colgroup><thead>{head}</thead><tbody>{''.join(body)}</tbody></table>"
    label = f"Changes from {escape(old_name, quote=True)} to {escape(new_name, quote=True)}"
    look = "fmha-diff split" if is_split else "fmha-diff"
    return f'{STYLE}<div class="{look}" tabindex="0" role="region" aria-label="{label}">{table}</div>'


def _gap(lines: int, width: int) -> str:
    return f'<tr class="gap"><td colspan="{width}">{lines} line{"" if lines == 1 else "s"} unchanged</td></tr>'


def _split(row: Row, a: list[str], b: list[str]) -> list[str]:
    left = None if row.old is None else a[row.old]
    right = None if row.new is None else b[row.new]
    return [f"<tr>{_half(row.old, left, right, row.changed, '−', 'minus')}"
            f"{_half(row.new, right, left, row.changed, '+', 'plus', ' half')}</tr>"]  # fmt: skip


def _half(
    number: int | None, mine: str | None, other: str | None, changed: bool, sign: str, kind: str, edge: str = ""
) -> str:
    if number is None or mine is None:
        return f'<td class="no none{edge}"></td><td class="sign none"></td><td class="none"></td>'
    look = f" {kind}" if changed else ""
    text = _marked(mine, other) if changed else escape(mine)
    return (
        f'<td class="no{look}{edge}">{number + 1}</td><td class="sign{look}">{sign if changed else " "}</td>'
        f'<td class="text{look}">{text}</td>'
    )


def _stacked(row: Row, a: list[str], b: list[str]) -> list[str]:
    if not row.changed and row.old is not None and row.new is not None:
        text = escape(b[row.new])
        return [f'<tr><td class="no">{row.old + 1}</td><td class="no">{row.new + 1}</td><td class="sign"> </td>'
                f'<td class="text">{text}</td></tr>']  # fmt: skip
    made = []
    old = None if row.old is None else a[row.old]
    new = None if row.new is None else b[row.new]
    if old is not None and row.old is not None:
        made.append(
            f'<tr><td class="no minus">{row.old + 1}</td><td class="no minus"></td><td class="sign minus">−</td>'
            f'<td class="text minus">{_marked(old, new)}</td></tr>'
        )
    if new is not None and row.new is not None:
        made.append(
            f'<tr><td class="no plus"></td><td class="no plus">{row.new + 1}</td><td class="sign plus">+</td>'
            f'<td class="text plus">{_marked(new, old)}</td></tr>'
        )
    return made


__all__ = ["CONTEXT", "Row", "diff_html", "rows"]
