"""O of one head as a picture, and the same from float64, over the same rows."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import plotly.graph_objects as go
from numpy.typing import ArrayLike, NDArray

from fmha.figures import theme
from fmha.figures.sketch import Sketch
from fmha.inputs import load
from fmha.problem import Problem, cast
from fmha.reference import output_rows
from fmha.units import ceil_div

MAX_ROWS = 256  # rows that are drawn
MAX_NUMBERS = 1 << 26  # of Q, K and V: making more of them only for a picture takes too long


class Outputs(NamedTuple):
    """Some rows of O of head (b, h): `found` as the kernel left them, `truth` in float64 (None: not computed)."""

    found: NDArray[Any]
    truth: NDArray[np.float64] | None
    rows: NDArray[np.int64]
    every: int

    @property
    def note(self) -> str:
        """Which rows these are."""
        return "all rows" if self.every == 1 else f"every {_ordinal(self.every)} row"

    @property
    def largest(self) -> float:
        """The largest magnitude, one colour scale for both pictures."""
        both = [self.found] if self.truth is None else [self.found, self.truth]
        return float(max(np.abs(a[np.isfinite(a)]).max(initial=0.0) for a in both)) or 1.0


def outputs(
    problem: Problem, O: ArrayLike, b: int, h: int, *, input: str, seed: int, layer: int = 3, head: int = 0
) -> Outputs:
    """O [Nq, d] of one head and its float64 truth, at most `MAX_ROWS` rows, evenly spaced. The inputs are made anew."""
    p = problem
    every = ceil_div(p.Nq, MAX_ROWS)
    rows = np.arange(0, p.Nq, every)
    truth = None
    if p.B * p.d * (p.H * p.Nq + 2 * p.Hk * p.Nk) <= MAX_NUMBERS:
        made = load(input, p, seed=seed, layer=layer, head=head)
        # The kernel was given float32, which it stored in its dtype.
        Q, K, V = (cast(array.astype(np.float32), p.dtype) for array in (made.Q, made.K, made.V))
        truth = output_rows(p, Q, K, V, b, h, rows)
    return Outputs(np.asarray(O)[rows], truth, rows, every)


def output_map(values: NDArray[Any], shown: Outputs, height: int = 420) -> go.Figure:
    """Rows of O from the top, columns across; both pictures of a pair share the scale of `shown`."""
    top = shown.largest
    fig = Sketch("", height)
    fig.add_heatmap(
        z=np.where(np.isfinite(values), np.round(values.astype(np.float64), 5), np.nan),
        y=shown.rows,
        zmin=-top,
        zmax=top,
        colorscale=theme.diverging("Q", "O"),
        colorbar={"title": {"text": "O"}, "thickness": 14},
        hovertemplate="row %{y}, column %{x}: %{z:.5f}<extra></extra>",
    )
    plain: dict[str, Any] = {"showgrid": False, "zeroline": False}
    fig.xaxis(title="column of O", **plain)
    fig.yaxis(title="query row", autorange="reversed", **plain)
    fig.update(margin={"t": 12})
    return fig.figure()


def _ordinal(n: int) -> str:
    ending = "th" if n % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(n % 10, "th")
    return f"{n}{ending}"
