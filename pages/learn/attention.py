"""Attention as weighted retrieval: four scores, a real sentence, and what [B, H, N, d] means."""

from __future__ import annotations

import streamlit as st

from fmha.figures.heatmap import attention_map
from fmha.figures.layout_bhnd import memory_layout, offset, offset_bnhd
from fmha.figures.softmax_bars import scores_to_weights
from fmha.figures.words import weighted_words
from fmha.inputs import sentence
from fmha.reference import weights
from fmha.softmax import safe
from fmha.ui import charts, controls
from fmha.ui.page import page, plain, try_this

DEFAULT_SCORES = (2.0, 1.0, 0.0, -1.0)
SHAPE = (2, 3, 4, 4)  # B, H, N, d of the small picture
LAYERS, HEADS = 6, 12
PREVIOUS_WORD_HEAD = (0, 2)  # layer, head: each word looks at the word before it
SINK_HEAD = (4, 5)  # nearly all weight on [CLS]


def four_scores() -> None:
    """Scores on sliders, weights beside them."""
    st.header("Scores become weights", anchor=False)
    st.markdown(
        "One query has been compared with four keys. A high score is a good match. "
        "Softmax turns the scores into weights that are positive and sum to 1."
    )
    columns = st.columns(4)
    scores = []
    for index, (column, default) in enumerate(zip(columns, DEFAULT_SCORES, strict=True), start=1):
        with column:
            scores.append(controls.slider(f"s{index}", f"score {index}", lo=-6.0, hi=6.0, step=0.5, default=default))
    row = safe(scores).weights
    names = [f"key {k}" for k in range(1, 5)]
    charts.show(
        scores_to_weights(names, scores, row),
        key="scores",
        alt="Scores "
        + ", ".join(f"{s:g}" for s in scores)
        + " become weights "
        + ", ".join(f"{w:.2f}" for w in row)
        + ".",
    )
    top = max(scores)
    terms = " + ".join(rf"e^{{{s:g}}}" for s in scores)
    st.latex(rf"w_1 = \frac{{e^{{{scores[0]:g}}}}}{{{terms}}} = {row[0]:.4f}")
    mix = " + ".join(f"{w:.2f}\\,V_{k}" for k, w in enumerate(row, start=1))
    st.latex(rf"O = {mix}")
    st.markdown(
        f"The output O is the weighted average of the four values: this is all that attention retrieves. "
        f"The largest score here is {top:g}; only differences of scores matter, so softmax may subtract it first. "
        "The page *Online softmax* builds on that."
    )


def real_sentence() -> None:
    """One word of a real sentence and where it looks, in a chosen layer and head."""
    st.header("A real sentence, a real model", anchor=False)
    left, middle, right = st.columns(3)
    with left:
        layer = controls.slider("layer", "Layer (counted from 0)", lo=0, hi=LAYERS - 1, default=3)
    with middle:
        head = controls.slider("head", "Head (counted from 0)", lo=0, hi=HEADS - 1, default=1)
    data = sentence(layer, head)
    tokens = list(data.tokens or ())
    labels = {str(i): f"{i}: {token}" for i, token in enumerate(tokens)}
    with right:
        query = int(controls.choice("word", "Query word", labels, default=str(tokens.index("it"))))
    P = weights(data.problem, data.Q, data.K)[0, 0]
    row = P[query]
    best = int(row.argmax())
    st.html(weighted_words(tokens, row, query))
    st.markdown(
        f"**In layer {layer}, head {head}, the query “{plain(tokens[query])}” (framed) puts {row[best]:.3f} of its "
        f"weight on “{plain(tokens[best])}”.** The stronger the ground and the longer the bar, the more weight. "
        "The weights of the row sum to 1."
    )
    charts.show(
        attention_map(
            P, tokens=tokens, row=query, title=f"All {len(tokens)} x {len(tokens)} weights, layer {layer}, head {head}"
        ),
        key="map",
        alt=f"Weights of layer {layer}, head {head}, one row a query word. The row of {tokens[query]} is framed; "
        f"its largest weight is {row[best]:.3f}, on {tokens[best]}.",
    )
    d = data.problem.d
    st.markdown(
        f"Each row is one softmax, as above, over {len(tokens)} scores. A score is the dot product of the query's and "
        f"the key's vector, both of d = {d} numbers, divided by √d = {d**0.5:.2f} so that long vectors do not make "
        r"large scores: $S = QK^T/\sqrt{d}$, $P = \mathrm{softmax}(S)$, $O = PV$."
    )
    st.caption(
        "Q, K, V are recorded from all-MiniLM-L6-v2 (Apache-2.0), a small encoder with 6 layers of 12 heads; it has no "
        "causal mask, so a word also sees the words after it. [CLS] and [SEP] are the marks that the model puts "
        "around a text. See fmha/recorded/provenance.json."
    )


def many_heads() -> None:
    """[B, H, N, d]: which number lies where."""
    B, H, N, d = SHAPE
    st.header("Many heads: [B, H, N, d]", anchor=False)
    st.markdown(
        "One pattern of attention is rarely enough, so a layer has many heads, each with its own Q, K, V. "
        "A batch adds sequences that have nothing to do with one another. Kernels store Q, K, V and O as one array "
        "**[B, H, N, d]**: batch, head, token, element. "
        f"Here is a Q with B = {B}, H = {H}, N = {N}, d = {d}; the number in a cell is its place in memory."
    )
    columns = st.columns(4)
    limits = (("b", "batch b", B, 1), ("h", "head h", H, 1), ("n", "token n", N, 2), ("k", "element k", d, 1))
    index = []
    for column, (name, label, size, default) in zip(columns, limits, strict=True):
        with column:
            index.append(controls.slider(name, label, lo=0, hi=size - 1, default=default))
    b, h, n, k = index
    place = offset(SHAPE, (b, h, n, k))
    charts.show(
        memory_layout(SHAPE, (b, h, n, k)),
        key="layout",
        alt=f"{B * H} matrices of {N} x {d} cells. The element b={b}, h={h}, n={n}, k={k} has offset {place}.",
    )
    st.latex(r"\text{offset} = ((b \cdot H + h) \cdot N + n) \cdot d + k")
    st.latex(rf"= (({b} \cdot {H} + {h}) \cdot {N} + {n}) \cdot {d} + {k} = {place}")
    st.markdown(
        f"Every framed {N} x {d} block is one head, and it is one piece of memory: a thread block that works for "
        f"batch {b}, head {h} starts at element {offset(SHAPE, (b, h, 0, 0))} and needs nothing outside its block. "
        f"Some libraries store [B, N, H, d] instead; there the same element has offset "
        f"{offset_bnhd(SHAPE, (b, h, n, k))}. Mixing the two up raises no error and gives wrong answers."
    )


@st.cache_data(max_entries=1, show_spinner=False)
def exercise_numbers() -> tuple[float, float]:
    """Mean weight on the word before in the one head, and on [CLS] in the other."""
    layer, head = PREVIOUS_WORD_HEAD
    data, sink = sentence(layer, head), sentence(*SINK_HEAD)
    previous = weights(data.problem, data.Q, data.K)[0, 0].diagonal(-1).mean()
    on_first = weights(sink.problem, sink.Q, sink.K)[0, 0][:, 0].mean()
    return float(previous), float(on_first)


def exercises() -> None:
    """Things to try; the numbers in them are computed."""
    equal = safe([3.0] * 4).weights[0]
    layer, head = PREVIOUS_WORD_HEAD
    sink_layer, sink_head = SINK_HEAD
    previous, on_first = exercise_numbers()
    _, H, N, d = SHAPE
    try_this(
        [
            f"Set all four scores to the same number. Every weight is {equal:g}, whichever number you choose.",
            "Raise all four scores by 1. The bars on the left move, the weights do not: only differences count.",
            f"Choose layer {layer}, head {head} and look at the map: each word looks at the word before it "
            f"(mean weight {previous:.2f} one place left of the diagonal). Then choose layer {sink_layer}, head "
            f"{sink_head}: on average {on_first:.2f} of a word's weight goes to [CLS]. Such a key is called an "
            "attention sink.",
            f"In the memory picture, how far does the offset jump from token n to n + 1? (d = {d}) And from head h to "
            f"h + 1? (N d = {N * d}) And from batch 0 to 1? (H N d = {H * N * d})",
        ]
    )


page(
    "Attention",
    "**Attention is weighted retrieval:** a query is compared with every key, the scores become weights, and the "
    "output is the weighted average of the values.",
)
notice = st.container()
four_scores()
real_sentence()
many_heads()
with notice:
    controls.notices()
exercises()
