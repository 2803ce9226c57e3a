"""One worker's events as lines of small matrices: what went in, what came out, every number."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import plotly.graph_objects as go

from fmha.events import PHASES
from fmha.figures import theme
from fmha.figures.matrices import matrix, number, step
from fmha.figures.sketch import Sketch
from fmha.simulation import Run, WorkerState


@dataclass(frozen=True)
class Step:
    """One event of one worker: its maths, its place, its matrices as HTML, and a sentence about it."""

    code: str
    title: str
    html: str
    sentence: str


def worker_events(run: Run, worker: int) -> list[int]:
    """Rows of the event table that belong to a worker, in order."""
    return [int(row) for row in np.flatnonzero(run.events["worker"] == worker)]


def worker_steps(run: Run, worker: int) -> list[Step]:
    """Every event of a worker (q-outer order), with the state before and after it taken from the run."""
    before: WorkerState | None = None
    steps = []
    for row in worker_events(run, worker):
        after = run.state_at(row)
        steps.append(_step(run, row, before, after))
        before = after
    return steps


def _step(run: Run, row: int, before: WorkerState | None, after: WorkerState) -> Step:
    event = run.events[row]
    phase = PHASES[event["phase"]]
    i, j = int(event["i"]) + 1, int(event["j"]) + 1  # the example counts tiles from 1
    if phase.is_load:
        name = f"{phase.tensor}{_sub(i if phase.tensor == 'Q' else j)}"
        said = f"{name} comes from device memory into shared memory: {int(event['nbytes'])} bytes."
        html = step(matrix(name, after.smem[phase.tensor], phase.tensor))
        return Step(phase.code, f"load {name}", html, said)
    if phase.is_store:
        html = step(matrix(f"O{_sub(i)}", _array(after.O), "O"))
        return Step(phase.code, f"store O{_sub(i)}", html, f"{int(event['nbytes'])} bytes go to device memory.")
    return _COMPUTE[phase.code](run, before, after, _sub(i), _sub(j))


def _scores(run: Run, before: WorkerState | None, after: WorkerState, i: str, j: str) -> Step:
    Q, K, S = (after.smem[name] for name in "QKS")
    html = step(
        matrix(f"Q{i}", Q, "Q"),
        "×",
        matrix(f"K{j}ᵀ", K.T, "K"),
        f"× {run.problem.scale:g} =",
        matrix(f"S{i}{j}", S, "S"),
    )
    title = f"S{i}{j} = Q{i} K{j}ᵀ / √{run.problem.d}"
    return Step("S", title, html, "One tile of scores; it lies in shared memory only.")


def _max(run: Run, before: WorkerState | None, after: WorkerState, i: str, j: str) -> Step:
    S, m_new, alpha = after.smem["S"], _array(after.m), _array(after.alpha)
    m_old = np.full(len(S), -np.inf) if before is None or before.m is None else before.m
    html = step(
        "max(",
        matrix("m old", m_old, "m"),
        ",",
        matrix(f"row max of S{i}{j}", S.max(axis=1), "S"),
        ") =",
        matrix("m new", m_new, "m", marked=np.flatnonzero(m_new > m_old).tolist()),
        "    exp(m old − m new) =",
        matrix("α", alpha, "alpha", marked=np.flatnonzero(alpha < 1).tolist()),
    )
    return Step("m", "m new = max(m old, row max), α = exp(m old − m new)", html, _about_alpha(before, after))


def _weights(run: Run, before: WorkerState | None, after: WorkerState, i: str, j: str) -> Step:
    P, l_new = after.smem["S"], _array(after.l)
    l_old = np.zeros(len(P)) if before is None or before.l is None else before.l
    html = step(
        matrix(f"P{i}{j}", P, "S"),
        "    ",
        matrix("α", _array(after.alpha), "alpha"),
        "×",
        matrix("l old", l_old, "l"),
        "+",
        matrix(f"row sum of P{i}{j}", P.sum(axis=1), "S"),
        "=",
        matrix("l new", l_new, "l"),
    )
    title = f"P{i}{j} = exp(S{i}{j} − m new), l = α l + row sum"
    return Step("P", title, html, "Weights relative to the present max; not probabilities yet.")


def _output(run: Run, before: WorkerState | None, after: WorkerState, i: str, j: str) -> Step:
    P, V, O_new = after.smem["S"], after.smem["V"], _array(after.O)
    O_old = np.zeros_like(O_new) if before is None or before.O is None else before.O
    html = step(
        matrix("α", _array(after.alpha), "alpha"),
        "×",
        matrix("O old", O_old, "O"),
        "+",
        matrix(f"P{i}{j}", P, "S"),
        "×",
        matrix(f"V{j}", V, "V"),
        "=",
        matrix("O new", O_new, "O"),
    )
    said = f"Row by row: the old sum shrinks by α, then tile K{j}, V{j} adds its part. S{i}{j} is forgotten."
    return Step("O", f"O = α O + P{i}{j} V{j}", html, said)


def _normalize(run: Run, before: WorkerState | None, after: WorkerState, i: str, j: str) -> Step:
    O_new = _array(after.O)
    O_old = O_new if before is None or before.O is None else before.O
    html = step(matrix("O", O_old, "O"), "÷", matrix("l", _array(after.l), "l"), "=", matrix(f"O{i}", O_new, "O"))
    return Step("normalize", "O = O / l", html, "One division, after the last tile: each row of weights sums to 1.")


_COMPUTE = {"S": _scores, "m": _max, "P": _weights, "O": _output, "normalize": _normalize}


def _array(value: np.ndarray | None) -> np.ndarray:
    """A part of the state that this phase has for certain."""
    if value is None:
        raise ValueError("the run's events are not in q-outer order: m, l, alpha or O is missing")
    return value


def _about_alpha(before: WorkerState | None, after: WorkerState) -> str:
    if before is None or before.m is None or not np.isfinite(before.m).any():
        return "The first tile: no max yet, so α = exp(−∞) = 0 and there is nothing to rescale."
    alpha = after.alpha if after.alpha is not None else np.ones(0)
    said = [
        f"row {index + 1}: the max {'rises' if a < 1 else 'stays'}, α = {a:.4f}".replace("1.0000", "1")
        for index, a in enumerate(alpha)
    ]
    return "Each row has its own max. " + "; ".join(said) + "."


def _sub(index: int | str) -> str:
    return "".join("₀₁₂₃₄₅₆₇₈₉"[int(digit)] for digit in str(index))


def ghost(run: Run, S: np.ndarray, done: int, height: int = 330) -> go.Figure:
    """The N x N score matrix that is never stored: tiles not seen yet, in shared memory now, and forgotten.

    Args:
        S: [Nq, Nk] scores, for the numbers.
        done: events done by each worker.
    """
    fig = Sketch("", height)
    Br, Bc = run.tiling.Br, run.tiling.Bc
    Nq, Nk = S.shape
    strength, texts = np.zeros((Nq, Nk)), np.full((Nq, Nk), "", dtype=object)
    for worker in np.unique(run.events["worker"]):
        rows = worker_events(run, int(worker))[:done]
        current = _current_tile(run, rows)
        for event in run.events[rows]:
            if PHASES[event["phase"]].code != "S":
                continue
            tile = (int(event["i"]), int(event["j"]))
            here = np.s_[tile[0] * Br : (tile[0] + 1) * Br, tile[1] * Bc : (tile[1] + 1) * Bc]
            strength[here] = 1.0 if tile == current else 0.25
            texts[here] = [[f"<b>{number(x)}</b>" for x in line] for line in S[here]] if tile == current else "·"
    fig.add_heatmap(
        z=strength,
        zmin=0,
        zmax=1,
        colorscale=[[0, theme.color("S", 0.0)], [1, theme.color("S", 0.5)]],
        showscale=False,
        xgap=2,
        ygap=2,
        hoverinfo="skip",
    )
    columns, lines = np.meshgrid(np.arange(Nk), np.arange(Nq))
    fig.add_scatter(
        x=columns.ravel(),
        y=lines.ravel(),
        text=texts.ravel().tolist(),
        mode="text",
        textfont={"size": 18},
        hoverinfo="skip",
        showlegend=False,
    )
    edges = [("v", x) for x in (*range(0, Nk, Bc), Nk)] + [("h", y) for y in (*range(0, Nq, Br), Nq)]
    line = {"color": theme.color("skip"), "width": 2, "dash": "dash"}
    fig.shapes += [
        {"type": "line", "x0": at - 0.5, "x1": at - 0.5, "y0": -0.5, "y1": Nq - 0.5, "line": line}
        if way == "v"
        else {"type": "line", "x0": -0.5, "x1": Nk - 0.5, "y0": at - 0.5, "y1": at - 0.5, "line": line}
        for way, at in edges
    ]
    plain: dict[str, Any] = {"showgrid": False, "zeroline": False, "fixedrange": True}
    keys, queries = list(range(Nk)), list(range(Nq))
    fig.xaxis(range=[-0.55, Nk - 0.45], tickvals=keys, ticktext=[f"key {k + 1}" for k in keys], **plain)
    fig.yaxis(range=[Nq - 0.45, -0.55], tickvals=queries, ticktext=[f"row {k + 1}" for k in queries], **plain)
    fig.update(margin={"t": 8})
    return fig.figure()


def _current_tile(run: Run, rows: list[int]) -> tuple[int, int] | None:
    """The tile whose S or P is in shared memory after these events: from its S to its O."""
    if not rows:
        return None
    event = run.events[rows[-1]]
    if PHASES[event["phase"]].code in ("S", "m", "P", "O"):
        return int(event["i"]), int(event["j"])
    return None
