"""Paper check: claims of the attention papers, each computed or held against a recording, with its verdict."""

from __future__ import annotations

from typing import NamedTuple

import streamlit as st

from fmha import ladder
from fmha.algorithms import WHY_THESE_TILES, fa1_tiles, flash_forward
from fmha.figures.claim_charts import Fill, blocks, sram_blocks
from fmha.hardware import KIB
from fmha.measurement import shipped
from fmha.paper_ratios import all_claims
from fmha.papers import CLAIMS, HEADS, Claim, D, Finding, N
from fmha.problem import DTYPES, Problem, Tiling
from fmha.traffic import closed_form
from fmha.ui import charts, controls
from fmha.ui.derivations import derivation
from fmha.ui.derivations_speed import Derivation
from fmha.ui.page import configuration, explained_errors, page, plain, try_this
from fmha.units import ceil_div, format_bytes, format_ratio

SOURCES = {
    "FlashAttention (2022)": "Dao, Fu, Ermon, Rudra, Ré: FlashAttention: Fast and Memory-Efficient Exact Attention "
    "with IO-Awareness, 2022 (arXiv 2205.14135)",
    "FlashAttention-2 (2023)": "Dao: FlashAttention-2: Faster Attention with Better Parallelism and Work Partitioning, "
    "2023 (arXiv 2307.08691)",
    "FlashAttention-3 (2024)": "Shah, Bikshandi, Zhang, Thakkar, Ramani, Dao: FlashAttention-3: Fast and Accurate "
    "Attention with Asynchrony and Low-precision, 2024 (arXiv 2407.08608)",
    "Online normalizer calculation for softmax (2018)": "Milakov, Gimelshein: Online normalizer calculation for "
    "softmax, 2018 (arXiv 1805.02867)",
}
SRAM = [16, 32, 48, 64, 96, 99, 128, 163, 164, 192, 227, 228, 256]  # KiB


class Look(NamedTuple):
    """How a verdict is shown: a sign, a word and a colour; any one of them is enough."""

    sign: str
    word: str
    color: str

    @property
    def badge(self) -> str:
        """Markdown."""
        return f":{self.color}-badge[{self.sign} {self.word}]"


LOOKS = {
    "reproduced": Look("✓", "reproduced", "green"),
    "shape only": Look("≈", "shape only", "orange"),
    "not reproduced": Look("✗", "not reproduced", "red"),
    "not tested": Look("–", "not tested here", "gray"),
}
SHOW = {"all": "all", **{key.replace(" ", "-"): look.word for key, look in LOOKS.items()}}


COMPUTED = frozenset(claim.id for claim in CLAIMS)  # the other claims are held against recordings


class Row(NamedTuple):
    """A claim and what its check found."""

    claim: Claim
    found: Finding

    @property
    def look(self) -> Look:
        """Of its verdict."""
        return LOOKS[self.found.verdict]

    @property
    def how(self) -> str:
        """Where our number is from."""
        return "here, computed" if self.claim.id in COMPUTED else "here, as measured and recorded"


@st.cache_resource(max_entries=32, show_spinner=False)
def computed(id: str) -> Finding:
    """What the check of a claim that needs no recording found: it has no input, so once is enough."""
    return next(claim for claim in CLAIMS if claim.id == id).check()


@st.cache_resource(max_entries=32, show_spinner=False)
def computed_derivation(id: str) -> Derivation | None:
    """What stands behind a claim that needs no recording."""
    return derivation(id, ())


def checked() -> list[Row]:
    """Every claim with its finding."""
    return [
        Row(c, computed(c.id) if c.id in COMPUTED else c.check()) for c in all_claims((*shipped(), *ladder.shipped()))
    ]


def overview(rows: list[Row]) -> None:
    """How many of each verdict, and all claims in a table."""
    count = {verdict: sum(row.found.verdict == verdict for row in rows) for verdict in LOOKS}
    st.subheader(
        f"Of {len(rows)} claims, {count['reproduced']} are reproduced, {count['shape only']} only in their shape, "
        f"{count['not reproduced']} not; {count['not tested']} cannot be tested with what was recorded.",
        anchor=False,
    )
    for column, (verdict, look) in zip(st.columns(4), LOOKS.items(), strict=True):
        column.metric(f"{look.sign} {look.word}", count[verdict])
    st.dataframe(
        [
            {
                "verdict": f"{row.look.sign} {row.look.word}",
                "claim": row.claim.text,
                "the paper": row.found.theirs,
                "here": row.found.ours,
                "where": f"{row.claim.paper}, {row.claim.place}",
            }
            for row in rows
        ],
        hide_index=True,
        height="content",
        column_config={"verdict": {"width": 130}, "claim": {"width": 420}, "the paper": {"width": 260}},
    )


def card(row: Row) -> None:
    """One claim: verdict, both numbers, the reason, and what stands behind it."""
    claim, found = row.claim, row.found
    with st.container(border=True):
        st.markdown(f"{row.look.badge} **{plain(claim.text)}**  \n:small[{claim.paper}, {claim.place}]")
        theirs, ours = st.columns(2)
        theirs.markdown(f":small[the paper]  \n**{plain(found.theirs)}**")
        ours.markdown(f":small[{row.how}]  \n**{plain(found.ours)}**")
        st.markdown(f"**Why:** {plain(found.why)}")
        behind = (
            computed_derivation(claim.id)
            if claim.id in COMPUTED
            else derivation(claim.id, (*shipped(), *ladder.shipped()))
        )
        if behind is None:
            return
        with st.expander("How our number comes about"):
            for formula in behind.formulas:
                st.latex(formula)
            if behind.text:
                st.markdown(behind.text)
            if behind.rows:
                st.dataframe(list(behind.rows), hide_index=True, height="content")
            if behind.chart is not None:
                charts.show(behind.chart, key=f"chart-{claim.id}", alt=behind.alt)


def tile_choice() -> tuple[int, int, str]:
    """FlashAttention-1's tiles with its units; returns (KiB of SRAM, d, dtype) of the controls."""
    st.header("How FlashAttention-1 chooses its tiles", anchor=False)
    left, middle, right = st.columns(3)
    with left:
        sram = controls.slider("sram", "SRAM of an SM, KiB", options=SRAM, default=192)
    with middle:
        d = controls.slider("d", "Head dimension d", options=[16, 32, 64, 128, 256], default=64)
    with right:
        dtype = controls.choice("dtype", "Data type", ["fp32", "fp16", "bf16"], default="fp16")
    size = DTYPES[dtype].itemsize
    M = sram * KIB // size
    tiling = fa1_tiles(M, d)
    Br, Bc = tiling.Br, tiling.Bc
    configuration(SRAM=f"{sram} KiB", d=d, dtype=dtype, M=f"{M:,} elements")
    st.latex(rf"M = \frac{{{sram} \cdot 1024\ \text{{bytes}}}}{{{size}\ \text{{bytes an element}}}} = {_tex(M)}")
    st.latex(
        rf"B_c = \left\lceil \frac{{M}}{{4d}} \right\rceil = "
        rf"\left\lceil \frac{{{_tex(M)}}}{{4 \cdot {d}}} \right\rceil = {Bc}"
    )
    st.latex(rf"B_r = \min(B_c, d) = \min({Bc}, {d}) = {Br}")
    slip, square = fa1_tiles(sram * KIB, d), Tiling(Bc, Bc)
    fills = [Fill("Algorithm 1", tiling), Fill("Br without min", square), Fill("M in bytes", slip)]
    used = [sum(blocks(fill.tiling, d).values()) / M for fill in fills]
    charts.show(
        sram_blocks(fills, d, M), key="sram-blocks",
        alt="; ".join(f"{fill.title}: {100 * u:.0f} % of M" for fill, u in zip(fills, used, strict=True)) + ".",
    )  # fmt: skip
    share = {name: 100 * n / M for name, n in blocks(tiling, d).items()}
    st.markdown(
        f"- **What the 4 is for:** four blocks are d wide, Kj and Vj with Bc = {Bc} rows, Qi and Oi with Br = {Br}. A "
        f"quarter of M for each is Bc = M / 4d. Here Kj takes {share['K']:.0f} %, Vj {share['V']:.0f} %, Qi "
        f"{share['Q']:.0f} %, Oi {share['O']:.0f} % of M.\n"
        f"- **Why min with d:** Sij, Br x Bc, must fit too. With Br ≤ d it takes at most d · M/4d, a quarter: here "
        f"{share['S']:.0f} %. With Br = Bc = {Bc} it alone would take {100 * Bc * Bc / M:.0f} % of M.\n"
        f"- **Units:** M counts elements. Who puts bytes there gets Bc = {slip.Bc} and blocks of {100 * used[2]:.0f} % "
        f"of M.\n"
        f"- **In all** Algorithm 1's blocks take {100 * used[0]:.0f} % of M"
        f"{': more than there is. ' if used[0] > 1 else '. '}"
        "The formula is right up to a constant and no layout: kernels use smaller tiles."
    )
    st.caption(WHY_THESE_TILES)
    return sram, d, dtype


def _tex(value: int) -> str:
    return f"{value:,}".replace(",", "{,}")


def exercises(sram: int, d: int, dtype: str) -> None:
    """Things to try; the numbers in them are computed."""
    size, n = DTYPES[dtype].itemsize, 65536
    M = sram * KIB // size

    def accesses(elements: int, width: int) -> int:
        return flash_forward(n, width, fa1_tiles(elements, width).Bc).elements

    now = accesses(M, d)
    tasks = []
    if d < 256:
        more = accesses(M, 2 * d) / now
        tasks.append(
            f"Set d = {2 * d}. Bc goes from {fa1_tiles(M, d).Bc} to {fa1_tiles(M, 2 * d).Bc}, and at N = {n:,} "
            f"Algorithm 1 makes {more:.2f} times the accesses. Theorem 2 says 4 times, N² d² / M."
        )
    other = 48 if sram != 48 else 192
    less = accesses(other * KIB // size, d)
    tasks.append(
        f"Set the SRAM to {other} KiB, which is {format_ratio(other / sram)} as much. Bc becomes "
        f"{fa1_tiles(other * KIB // size, d).Bc}, and the accesses at N = {n:,} become {less / now:.2f} times as many: "
        f"Theorem 2 says {sram / other:.2f}."
    )
    problem = Problem(B=64, H=16, N=N, d=D, dtype="fp16")
    moved = closed_form(problem, Tiling(64, 256), "kv-outer").requested_bytes
    tasks.append(
        f"On the page *HBM traffic* set B = 64, H = 16, N = {N:,}, d = {D}, fp16, Bc = 256: kv-outer is Algorithm 1 "
        f"and moves {format_bytes(moved)} = {moved / 1e9:.2f} GB in the forward pass. Compare it with the point at 256 "
        f"of the claim about Fig. 2, middle, which also counts zeros written at the start and l and m in 2 bytes ("
        f"{flash_forward(N, D, 256).nbytes(2, HEADS) / 1e9:.2f} GB, Tc = {ceil_div(N, 256)})."
    )
    try_this(tasks)


page(
    "Paper check",
    "**What the papers print, computed again.** Each claim is a check that this app runs; where our number is "
    "not theirs, the reason is said, or that it is not known.",
)
notice = st.container()
with explained_errors():
    everything = checked()
    overview(everything)
    st.header("Claim by claim", anchor=False)
    wanted = controls.choice("verdict", "Show", SHOW, default="all")
    here = [row for row in everything if wanted in ("all", row.found.verdict.replace(" ", "-"))]
    if not here:
        st.markdown("No claim has this verdict.")
    for row in here:
        card(row)
    settings = tile_choice()
    st.header("Sources", anchor=False)
    st.markdown("\n".join(f"- **{short}:** {source}" for short, source in SOURCES.items()))
    st.caption(
        "Numbers of the papers are those printed there. Ours that are measured are from the recordings that come with "
        "this app: forward passes, a cold L2 cache before each, the device and day beside each number."
    )
    exercises(*settings)
with notice:
    controls.notices()
