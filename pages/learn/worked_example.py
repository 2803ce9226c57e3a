"""The 4 x 4 example: two workers, two tiles each, every number."""

from __future__ import annotations

import streamlit as st

from fmha import Tiling, reference, simulate
from fmha.figures.matrices import STYLE, matrix, number, step
from fmha.figures.worked_steps import Step, ghost, worker_steps
from fmha.inputs import worked_example
from fmha.reference import scores
from fmha.ui import charts, controls
from fmha.ui.page import explained_errors, page, try_this

TILES = Tiling(2, 2)
NAMES = ("worker Q₁ (rows 1 and 2)", "worker Q₂ (rows 3 and 4)")


def one_step(steps: list[Step], at: int) -> None:
    """The step that happens now, and what the worker holds after it."""
    now = steps[at]
    st.markdown(f"**{now.title}**")
    st.html(f'{STYLE}<div style="min-height:15.5rem">{now.html}</div>')  # the page below does not jump
    st.caption(now.sentence)


def all_steps(steps: list[Step], upto: int) -> None:
    """Every step so far, in order."""
    for index, now in enumerate(steps[:upto], start=1):
        st.markdown(f"{index}. **{now.title}**")
        st.html(STYLE + now.html)


page(
    "Worked example",
    "**FlashAttention gives exactly the result of the full matrix, without ever holding it.** Here is every number of "
    "a 4 x 4 example, two workers side by side.",
)
data = worked_example()
problem = data.problem
with explained_errors():
    run = simulate(problem, TILES, data.Q, data.K, data.V)
    by_worker = [worker_steps(run, worker) for worker in range(len(NAMES))]
    S = scores(problem, data.Q, data.K)[0, 0]
    truth = reference(problem, data.Q, data.K, data.V).O[0, 0]

    st.header("The problem", anchor=False)
    st.markdown(
        f"N = {problem.Nq} tokens, head dimension d = {problem.d}, so scores are divided by √{problem.d} = "
        f"{problem.d**0.5:g}. V is the identity, so an output row *is* the row of weights. Tiles are "
        f"{TILES.Br} x {TILES.Bc}: rows 1 and 2 of Q go to one worker, rows 3 and 4 to another, and both stream the "
        "same two K/V tiles."
    )
    st.html(
        STYLE
        + step(*(matrix(name, array[0, 0], name) for name, array in (("Q", data.Q), ("K", data.K), ("V", data.V))))
    )

    st.header("Step by step", anchor=False)
    count = len(by_worker[0])
    left, right = st.columns([3, 1], vertical_alignment="bottom")
    with left:
        now = controls.slider("step", "Step (arrow keys)", lo=1, hi=count, default=5)
    with right:
        everything = controls.toggle("all", "Show all steps")
    controls.notices()
    for column, name, steps in zip(st.columns(2, border=True), NAMES, by_worker, strict=True):
        with column:
            st.subheader(name, anchor=False)
            if everything:
                all_steps(steps, count)
            else:
                st.caption(f"step {now} of {count}")
                one_step(steps, now - 1)

    st.header("The matrix that is never stored", anchor=False)
    left, right = st.columns([2, 3])
    shown = count if everything else now
    with left:
        charts.show(
            ghost(run, S, shown),
            key="ghost",
            alt=f"The 4 x 4 score matrix after step {shown}: tiles in shared memory now show their numbers, tiles "
            "already used are forgotten.",
        )
    with right:
        m, l, alpha = run.m[0, 0], run.l[0, 0], run.alpha[0, 0]
        st.markdown(
            "Scores stand where a tile of S (or the P made from it) lies in some worker's shared memory at "
            "this step; a "
            "dot marks a score that was used and forgotten. The two workers need nothing from each other, so "
            "they run at the same time "
            "on different SMs, in any order."
        )
        st.markdown(
            f"After step {shown} of {count}, device memory holds Q, K, V"
            f"{' and all of O' if shown == count else ', and no part of S, P or O'}."
        )
    st.header("Row by row", anchor=False)
    st.dataframe(
        [
            {
                "row": row + 1,
                "m after tile 1, 2": f"{number(m[row, 0])}, {number(m[row, 1])}",
                "α at tile 2": number(alpha[row, 1]),
                "l after tile 1, 2": f"{number(l[row, 0])}, {number(l[row, 1])}",
                "output row": ", ".join(number(x) for x in run.O[0, 0, row]),
            }
            for row in range(problem.Nq)
        ],
        hide_index=True,
    )
    error = abs(run.O[0, 0] - truth).max()
    st.markdown(
        f"The full softmax, computed at once in float64, gives the same rows: the largest difference is "
        f"{error:.0e}. Row 1 is softmax([{', '.join(number(x) for x in S[0])}]), row 2 softmax("
        f"[{', '.join(number(x) for x in S[1])}])."
    )
    same = [row + 1 for row in range(1, problem.Nq) if alpha[row, 1] == alpha[0, 1]]
    try_this(
        [
            f"Go to the step *m new* of the second tile. In row 1 the max rises from {number(m[0, 0])} to "
            f"{number(m[0, 1])}: α = {number(alpha[0, 1])}. In row 2 it stays {number(m[1, 1])}: α = "
            f"{number(alpha[1, 1])}. Which other row has row 1's α? (row {', '.join(map(str, same))})",
            f"Before the division, row 1 of O sums to l = {number(l[0, 1])}. Why exactly to l? (V is the "
            "identity, so O "
            "collects the same weights that l adds up.)",
            "Row 3 has four equal scores. Before stepping, say what its m, l and output row are; then check "
            f"(m = {number(m[2, 1])}, l = {number(l[2, 1])}, every weight {number(run.O[0, 0, 2, 0])}).",
            "In *Tiles in motion*, choose the input *Worked example* with N = 4, d = 4, Br = 2, Bc = 2 and "
            "watch the same "
            "numbers move.",
        ]
    )
