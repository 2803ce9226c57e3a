"""References: papers, manuals and data, with the sections that are used."""

from __future__ import annotations

from itertools import groupby

import streamlit as st

from fmha import ladder
from fmha.hardware import GPUS
from fmha.measurement import shipped
from fmha.paper_ratios import all_claims
from fmha.papers import Claim
from fmha.references import GROUPS, REFERENCES, Reference, named
from fmha.tile_designs import presets
from fmha.ui import controls
from fmha.ui.page import page, plain, try_this


def checked(reference: Reference, made: tuple[Claim, ...]) -> list[str]:
    """The claims of a paper that this app computes itself, by place."""
    own = sorted((c for c in made if named(c.paper) is reference), key=lambda c: c.place)
    return [
        f"{plain(place)}: {' '.join(plain(claim.text) for claim in group)}"
        for place, group in groupby(own, key=lambda claim: claim.place)
    ]


def show(reference: Reference, made: tuple[Claim, ...]) -> None:
    """One reference: what it is, where it is used, what of it is checked."""
    who = ", ".join(part for part in (reference.who, reference.year) if part)
    where = f"[{plain(reference.found)}]({reference.link})" if reference.link else plain(reference.found)
    places = [
        f"- {plain(place.where)}: {plain(place.what)}" + (f" (page *{place.page}*)" if place.page else "")
        for place in reference.places
    ]
    st.markdown(f"**{plain(reference.full)}.** {plain(who)}. {where}.\n\n" + "\n".join(places))
    lines = checked(reference, made)
    if lines:
        with st.expander(f"Claims of {reference.key} that are computed here ({len(lines)})"):
            st.markdown("\n".join(f"- {line}" for line in lines) + "\n\nVerdicts are on the page *Paper check*.")


def machines() -> None:
    """Where the figures of each GPU are from."""
    st.header("GPUs", anchor=False)
    st.markdown("Sizes, speeds and peaks of each GPU are read from these documents; what they leave open is said too.")
    st.dataframe(
        [
            {
                "GPU": gpu.name,
                "source": gpu.source,
                "speed of L2": gpu.l2_source or "not known",
                "remark": gpu.note,
            }
            for gpu in GPUS.values()
        ],
        hide_index=True,
    )


def recorded() -> None:
    """The measurements that come with the app."""
    st.header("Measurements of our own", anchor=False)
    lines = [
        f"- **{plain(r.device.facts.name)}**, d = {', '.join(sorted({str(run.problem.d) for run in r.runs}))}: "
        f"{len(r.runs)} problems, N = {min(run.problem.Nq for run in r.runs):,} to "
        f"{max(run.problem.Nq for run in r.runs):,}, made {r.runs[0].made[:10]}, driver {plain(r.device.driver)}, "
        f"CUDA {plain(r.device.cuda)}"
        for r in (*shipped(), *ladder.shipped())
        if r.runs
    ]
    st.markdown("\n".join(lines))


page(
    "References",
    f"**{len(REFERENCES)} papers, manuals and sources, each with the section that is used and what for.** Nothing is "
    "quoted: what is said here is said in our words, and what can be computed is computed again.",
    begins_with="words",
)
controls.notices()
made = all_claims((*shipped(), *ladder.shipped()))
for heading, entries in GROUPS.items():
    st.header(heading, anchor=False)
    for entry in entries:
        show(entry, made)
machines()
recorded()
found = {preset.name: preset.source for causal in (False, True) for preset in presets(64, causal, GPUS["H200"])}
st.caption("Tile sizes of others are read from: " + "; ".join(f"{k}, {plain(v)}" for k, v in found.items()) + ".")
try_this(
    [
        "Open the claims below *FlashAttention* and look on *Paper check* for the two that are not reproduced. What is "
        "counted differently there?",
        "Find the counter that the requested bytes are held against, then look for it on *Kernel lab*.",
    ]
)
