"""Small matrices with their numbers, as HTML: for pages that show every intermediate value."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import numpy as np
from numpy.typing import ArrayLike

from fmha.figures import theme

STYLE = """<style>
.fmha-step{display:flex;flex-wrap:wrap;gap:.4rem .9rem;align-items:center;margin:.15rem 0 .55rem}
.fmha-mat{display:inline-flex;flex-direction:column;align-items:center}
.fmha-mat b{font-size:1rem;margin-bottom:.15rem}
.fmha-mat table{border-collapse:separate;border-spacing:3px;margin:0;border-left:3px solid;border-right:3px solid;
 border-radius:.4rem}
.fmha-mat td{padding:.15rem .4rem;text-align:right;border:0;border-radius:.25rem;font-size:1.05rem;
 font-variant-numeric:tabular-nums;min-width:2.2rem}
.fmha-op{font-size:1.2rem}
</style>"""


def number(value: float) -> str:
    """Four decimals at most, no trailing zeros, a real minus sign: 0.1353, -1, 0.5."""
    if np.isnan(value):
        return "NaN"
    if np.isinf(value):
        return "∞" if value > 0 else "−∞"
    text = f"{value:.4f}".rstrip("0").rstrip(".")
    return ("0" if text in ("-0", "") else text).replace("-", "−")


def matrix(name: str, values: ArrayLike, role: str, *, marked: Sequence[int] = ()) -> str:
    """A matrix or a column vector under its name; the rows in `marked` are drawn stronger."""
    table = np.asarray(values, np.float64)
    table = table[:, None] if table.ndim == 1 else table
    rows = []
    for index, row in enumerate(table):
        ground = theme.color(role, 0.42 if index in marked else 0.14)
        rows.append("<tr>" + "".join(f'<td style="background:{ground}">{number(v)}</td>' for v in row) + "</tr>")
    edge = theme.color(role)
    return (
        f'<span class="fmha-mat"><b>{escape(name)}</b><table style="border-color:{edge}">{"".join(rows)}</table></span>'
    )


def step(*parts: str) -> str:
    """Matrices and signs (plain text, escaped) in one line that wraps on a narrow page."""
    cells = [p if p.startswith("<span") else f'<span class="fmha-op">{escape(p)}</span>' for p in parts]
    return f'<div class="fmha-step">{"".join(cells)}</div>'
