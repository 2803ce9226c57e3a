"""Online softmax: one row arriving in tiles, three algorithms, overflow, and a misprint."""

from __future__ import annotations

import math
from collections.abc import Sequence

import streamlit as st

from fmha import Problem, Run, Tiling, load, simulate
from fmha.figures.accesses import accesses
from fmha.figures.matrices import number
from fmha.figures.overflow import last_finite, overflow
from fmha.figures.running_softmax import row_in_tiles, running_state
from fmha.formulas import Formula, RowBefore, row_step
from fmha.inputs import INPUTS, sentence
from fmha.reference import scores, weights
from fmha.softmax import ALGORITHMS, HALF, SINGLE, dot_products, recurrences, softmax_in
from fmha.ui import charts, controls
from fmha.ui.page import explained_errors, page, plain, try_this
from fmha.ui.words_formulas import formula_box

MADE = ("rising", "flat", "last", "sink", "random")
SOURCES = {name: INPUTS[name].title for name in MADE} | {"sentence": "A real sentence", "own": "My own scores"}
ROW_PATTERN = r"\s*[-+]?\d{1,4}(\.\d{1,4})?(\s*[,; ]\s*[-+]?\d{1,4}(\.\d{1,4})?){0,31}\s*"
SHIFTED = (2.0, 1.0, 0.0, -1.0)
MISPRINT = ((0.0, 2.0), (1.0, 3.0))  # scores, values: two tiles of one key


def run_row(row: list[float], Bc: int) -> Run:
    """One query row with these scores, run by the core in tiles of Bc keys: d = 1, q = 1, k = score, scale = 1."""
    problem = Problem(Nq=1, Nk=len(row), d=1, scale=1.0)
    column = [[[[x] for x in row]]]
    return simulate(problem, Tiling(1, Bc), [[[[1.0]]]], column, column)


def chosen_row() -> tuple[list[float], list[str] | None, str]:
    """The row of scores that the controls ask for, its words where there are any, and what it is."""
    left, middle, right = st.columns(3)
    with left:
        source = controls.choice("input", "Scores of one row", SOURCES, default="rising")
    if source == "own":
        with middle:
            text = controls.text(
                "scores",
                "Scores, separated by commas",
                default="2, 1, 0, -1, 3, 2.5, 4, 0.5",
                longest=200,
                pattern=ROW_PATTERN,
                what="up to 32 numbers with commas between them",
            )
        row = [float(part) for part in text.replace(";", " ").replace(",", " ").split()]
        return row, None, "my own scores"
    if source == "sentence":
        with middle:
            layer = controls.slider("layer", "Layer (counted from 0)", lo=0, hi=5, default=3)
            head = controls.slider("head", "Head (counted from 0)", lo=0, hi=11, default=1)
        data = sentence(layer, head)
        tokens = list(data.tokens or ())
        labels = {str(i): f"{i}: {token}" for i, token in enumerate(tokens)}
        with right:
            word = int(controls.choice("word", "Query word", labels, default=str(tokens.index("it"))))
        row = scores(data.problem, data.Q, data.K)[0, 0, word].tolist()
        return row, tokens, f"“{plain(tokens[word])}” in layer {layer}, head {head}"
    with middle:
        keys = controls.slider("keys", "Keys in the row", lo=4, hi=64, step=4, default=32)
    with right:
        seed = controls.slider("seed", "Seed", lo=0, hi=9, default=0)
    problem = Problem(N=keys, d=32)
    data = load(source, problem, seed=seed)
    row = scores(problem, data.Q, data.K)[0, 0, keys // 2].tolist()
    return row, None, f"{SOURCES[source].lower()} (seed {seed})"


def arriving(row: list[float], names: list[str] | None, what: str, run: Run, Bc: int, tile: int) -> None:
    """The row with its tiles, the update in numbers, and the three running values."""
    count = len(run.m[0, 0, 0])
    m, l, alpha = run.m[0, 0, 0], run.l[0, 0, 0], run.alpha[0, 0, 0]
    m_old = float(m[tile - 1]) if tile else -math.inf
    m_new, l_new, a = float(m[tile]), float(l[tile]), float(alpha[tile])
    if tile == 0:
        event = "The first tile: there is nothing to rescale yet."
    elif m_new > m_old:
        event = f"The max rises from {m_old:.3g} to {m_new:.3g}, so all that was summed so far shrinks by {a:.4g}."
    else:
        event = "The max stays, so alpha is 1 and nothing is rescaled."
    st.markdown(f"**Tile {tile + 1} of {count} arrives.** {event}")
    seen = [min((j + 1) * Bc, len(row)) for j in range(count)]
    left, right = st.columns(2)
    with left:
        charts.show(
            row_in_tiles(row, Bc, tile, m, names=names, height=440),
            key="row",
            alt=f"Scores of {what} in tiles of {Bc}; tile {tile + 1} arrives; the running max is {m_new:.4g}.",
        )
    with right:
        charts.show(
            running_state(m, l, alpha, seen, tile, height=440),
            key="state",
            alt=f"After tile {tile + 1}: m = {m_new:.4g}, l = {l_new:.4g}, alpha = {a:.4g}. l lies between 1 and "
            f"{seen[tile]}, the number of keys seen.",
        )
    steps = with_numbers(row, Bc, tile)
    for step in steps[:3]:
        st.latex(step.latex)
    formula_box(steps[3:], "The same for O and LSE, with your numbers (V is the score itself here)")
    st.markdown(
        f"**Why l cannot overflow:** it is a sum of {seen[tile]} terms $e^{{S_j - m}}$, each at most 1, and "
        "the term of "
        f"the max itself is exactly 1. So after {seen[tile]} keys 1 ≤ l ≤ {seen[tile]} (dotted); here l = {l_new:.4g}. "
        "FlashAttention rescales its unfinished output O by the same alpha, and divides by l once, after the last tile."
    )


def with_numbers(row: list[float], Bc: int, tile: int) -> tuple[Formula, ...]:
    """The update by tile number `tile`, from the first tile on, as formulas with numbers."""
    before = RowBefore()
    for j in range(tile + 1):
        part = row[j * Bc : (j + 1) * Bc]
        steps = row_step(before, part, part)  # `run_row` takes the scores for values
        before = RowBefore(steps[0].value, steps[2].value, steps[3].value)
    return steps


def three_algorithms(row: list[float]) -> None:
    """Naive, safe, online: accesses counted in real loops over the row above."""
    st.header("Three ways, counted", anchor=False)
    runs = [algorithm(row) for algorithm in ALGORITHMS]
    by_name = {run.name: run for run in runs}
    st.markdown(
        f"Each algorithm below really ran over the {len(row)} scores above, and every read or write of an element was "
        f"counted: **naive {by_name['naive'].per_element:g}, safe {by_name['safe'].per_element:g}, online "
        f"{by_name['online'].per_element:g} accesses per element.**"
    )
    charts.show(
        accesses(runs),
        key="accesses",
        alt="Accesses per element: " + ", ".join(f"{r.name} {r.per_element:g}" for r in runs) + ".",
    )
    truth = weights(Problem(Nq=1, Nk=len(row), d=1, scale=1.0), [[[[1.0]]]], [[[[x] for x in row]]])[0, 0, 0]
    st.dataframe(
        [
            {
                "algorithm": run.name,
                "passes over the row": run.what,
                "reads and writes per element": f"{run.per_element:g}",
                "largest error of a weight": _error(abs(run.weights - truth).max()),
                "safe from overflow": "no" if run.name == "naive" else "yes",
            }
            for run in runs
        ],
        hide_index=True,
    )
    st.markdown(
        "Naive reads twice and writes once, but it may overflow. Safe needs a pass of its own for the max. "
        "Online finds "
        "max and sum in one pass: safe at naive's price. FlashAttention drops even the second pass, because it never "
        "writes the weights: each tile's weights go into O at once."
    )


def is_broken(weights: Sequence[float]) -> bool:
    """Whether these are no weights: NaN among them, or a sum that is not 1 (0 where only the sum overflowed)."""
    return not abs(sum(weights) - 1) < 0.05


def overflows() -> None:
    """exp without the max subtracted, really computed in fp16 and fp32; and a dot product that overflows before."""
    st.header("Why the max is subtracted", anchor=False)
    shift = controls.slider("shift", "Added to each of the scores 2, 1, 0, -1", lo=0, hi=100, default=12)
    row = [score + shift for score in SHIFTED]
    bad16 = softmax_in(row, HALF, subtract_max=False)
    bad32 = softmax_in(row, SINGLE, subtract_max=False)
    good = softmax_in(row, HALF, subtract_max=True)
    broken = [n for n, w in (("fp16", bad16), ("fp32", bad32)) if is_broken(w)]
    verdict = (
        f"overflows in {' and in '.join(broken)}: an infinite sum leaves weights of 0 or NaN"
        if broken
        else "still works"
    )
    st.markdown(
        f"The same number is added to every score, so the weights must not change. **Without the max subtracted, a top "
        f"score of {max(row):g} {verdict}.** With it, fp16 gives {', '.join(f'{w:.3f}' for w in good)}."
    )
    left, right = st.columns([3, 2])
    with left:
        charts.show(
            overflow(max(row)),
            key="overflow",
            alt=f"exp(x) is finite up to x = {last_finite(HALF):.2f} in fp16 and {last_finite(SINGLE):.2f} in fp32. "
            f"The top score is {max(row):g}.",
        )
    with right:
        st.dataframe(
            [
                {"score": f"{s:g}", "fp16": _weight(a), "fp32": _weight(b), "fp16, max subtracted": _weight(c)}
                for s, a, b, c in zip(row, bad16, bad32, good, strict=True)
            ],
            hide_index=True,
        )
        st.caption("Weights, each step rounded to the type in the heading. bf16 has the range of fp32.")
    st.subheader("A trap one step earlier", anchor=False)
    sizes = {"40x64": "q = k = 40, d = 64", "256x128": "q = k = 256, d = 128"}
    pick = controls.choice("dot", "Every element of q and k, in fp16", sizes, default="40x64")
    value, d = (int(part) for part in pick.split("x"))
    st.dataframe(
        [
            {
                "the dot product": way.way,
                "sum": number(way.largest),
                "scaled score": number(way.score),
                "weights of 4 equal keys": ", ".join(number(w) for w in way.weights),
            }
            for way in dot_products(value, d, 4)
        ],
        hide_index=True,
    )
    st.markdown(
        f"q · k = {value * value * d:,}, more than 65,504, the largest fp16. Scaled by 1/√{d} it is "
        f"{value * value * d / math.sqrt(d):,.0f}. Subtracting the max comes too late for a sum that is infinite "
        "already, so kernels sum q · k in fp32 (as tensor cores do), or scale Q first where that is enough."
    )


def misprint() -> None:
    """The right recurrence and two printed with a slip, on two tiles of one key."""
    st.header("Which way the factor goes", anchor=False)
    row, values = MISPRINT
    right, inverse, recap = recurrences(row, values)
    st.markdown(
        "The first arXiv version of the FlashAttention-2 paper prints an inverse on the rescaling factor, and its "
        "recap of FlashAttention leaves the factor out. Many readers have stumbled over this. Two tiles of one key "
        f"decide it: S = {row[0]:g}, then {row[1]:g}; V = {values[0]:g}, then {values[1]:g}. (m and l are the "
        "old values, "
        "m′ and l′ the new ones; the first two rules divide by l′ at the end.)"
    )
    for column, rule, name, verdict in zip(
        st.columns(3),
        (right, inverse, recap),
        ("The right rule", "With the printed inverse", "With the recap's formula"),
        ("✓ the weighted average", "✗ more than any value", "✗ more than any value"),
        strict=True,
    ):
        with column:
            st.metric(name, f"O = {rule.output:.6f}", verdict, delta_color="off", delta_arrow="off")
            st.latex(rule.formula)
    st.markdown(
        f"A weighted average of {values[0]:g} and {values[1]:g} cannot be larger than {max(values):g}, so two of the "
        "three must be wrong. This app computes with the first everywhere: $e^{m_{old} - m_{new}}$ is at most 1, what "
        "was summed so far only ever shrinks."
    )


@st.cache_data(max_entries=1, show_spinner=False)
def exercise_numbers() -> dict[str, float]:
    """The numbers in the exercises: alpha and l of the row 0, 2; the last alpha of "last"; where softmax breaks."""
    two = run_row([0.0, 2.0], 1)
    problem = Problem(N=32, d=32)
    last = load("last", problem, seed=0)
    end = run_row(scores(problem, last.Q, last.K)[0, 0, 16].tolist(), 4)
    shifts = {
        name: next(
            shift
            for shift in range(101)
            if is_broken(softmax_in([score + shift for score in SHIFTED], kind, subtract_max=False))
        )
        for name, kind in (("fp16", HALF), ("fp32", SINGLE))
    }
    alpha, total = float(two.alpha[0, 0, 0, 1]), float(two.l[0, 0, 0, 1])
    return {"alpha": alpha, "l": total, "last": float(end.alpha[0, 0, 0, -1]), **shifts}


def exercises() -> None:
    """Things to try; the numbers in them are computed."""
    numbers = exercise_numbers()
    try_this(
        [
            f"Choose *{SOURCES['flat']}* and step through the tiles: from the second tile on alpha is 1. Then "
            f"*{SOURCES['rising']}*: alpha is below 1 at every tile, and l stays small.",
            f"Choose *{SOURCES['last']}* with 32 keys, seed 0 and Bc = 4. The last tile's alpha is "
            f"{numbers['last']:.4f}: nearly all that was summed before no longer counts.",
            f"Choose *{SOURCES['own']}*, write 0, 2 and set Bc = 1. You should read alpha = "
            f"{numbers['alpha']:.4f} and l = {numbers['l']:.4f}. Then write 1, 1, 1, 1: l "
            "climbs along its upper bound. Which row keeps l on the lower one? (A first score far above the "
            "rest: 50, 1, 1, 1.)",
            "Move the shift below *Why the max is subtracted*. Softmax without the max breaks at "
            f"{numbers['fp16']:g} in fp16 and at {numbers['fp32']:g} in fp32.",
        ]
    )


def _error(error: float) -> str:
    return "NaN, it overflowed" if math.isnan(error) else f"{error:.1e}"


def _weight(w: float) -> str:
    return "NaN" if math.isnan(w) else f"{w:.4f}"


page(
    "Online softmax",
    "**A [[softmax]] needs the whole row, but a [[running max]] and a [[running sum]] are enough to take it tile by "
    "tile.** When the max rises, what was summed so far shrinks by [[alpha]].",
)
notice = st.container()
with explained_errors():
    st.header("One row, arriving in tiles", anchor=False)
    row_scores, words, title = chosen_row()
    left_column, right_column = st.columns(2)
    with left_column:
        width = controls.slider("Bc", "Bc, keys in a tile", options=[1, 2, 4, 8, 16, 32], default=4)
    result = run_row(row_scores, width)
    tiles = result.m.shape[-1]
    with right_column:
        now = controls.slider("tile", "Tile that arrives (arrow keys step)", lo=1, hi=tiles, default=(tiles + 1) // 2)
    st.caption(f"Row: {title} · {len(row_scores)} keys · Bc = {width} · {tiles} tiles")
    arriving(row_scores, words, title, result, width, now - 1)
    three_algorithms(row_scores)
    overflows()
    misprint()
with notice:
    controls.notices()
exercises()
