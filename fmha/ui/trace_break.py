"""Break a kernel on purpose: take a barrier or a bound out of its source and see what the tracer finds."""

from __future__ import annotations

import dataclasses

import streamlit as st

from fmha.errors import FmhaError
from fmha.problem import Problem
from fmha.trace import Finding, Trace
from fmha.trace.breaking import Change, changes, hard_case
from fmha.ui import controls, traced
from fmha.ui import trace_kept as kept
from fmha.ui.page import plain
from fmha.ui.traced import NOTHING, Asked
from fmha.units import format_count

_SHOWN = 6


def choose(asked: Asked) -> Asked:
    """The control: the same settings with something taken out."""
    offered = changes(asked.kernel.source())
    labels = {NOTHING: "nothing"} | {change.key: label(change) for change in offered}
    take = kept.choice("take", "Break it: take out", labels, NOTHING)
    return dataclasses.replace(asked, take=take)


def label(change: Change) -> str:
    """For the list."""
    if change.kind == "barrier":
        return f"line {change.line}: the barrier ({change.why})"
    return f"line {change.line}: the bound {change.taken.strip(' &')} ({change.why})"


def introduce(*, can_run: bool) -> bool:
    """What this is about, and whether everything is to be taken out in turn."""
    st.markdown("Each `__syncthreads()` names the hazard that it closes. Take one out and see which threads collide.")
    return can_run and controls.toggle("each", "Take each out in turn and list what is found (some seconds)")


def broken(asked: Asked, run: Trace | None, why_not: str = "") -> None:
    """What came of it. run: None where it could not be traced to its end, for the reason `why_not`."""
    change = asked.change
    if change is None:
        return
    what = "the barrier" if change.kind == "barrier" else f"the bound `{change.taken.strip(' &')}`"
    st.error(
        f"**Broken on purpose:** `{asked.kernel.file}` without {what} of line {change.line}. All numbers are of this "
        "source."
    )
    st.markdown(f"It is there because: *{plain(change.why)}*.")
    if run is None:
        st.markdown(f"**It could not be run to its end:** {plain(why_not)}")
        return
    found = traced.checked(asked, run)
    if run.findings:
        st.markdown(f"**Found:**\n{findings(run.findings)}")
    wrong = not found.ok or found.not_finite > 0
    if wrong:
        st.markdown(f"**The result is wrong:** {plain(found.verdict.removeprefix('wrong: '))}.")
    elif run.findings:
        st.markdown(
            "**The result is right all the same, by luck:** on a CPU one thread runs after another. On a GPU it may be "
            "wrong, differently each time, and often it is right in a test and wrong a year later."
        )
    if not run.findings and not wrong:
        harder(asked)


def each(asked: Asked) -> None:
    """What everything that can be taken out is good for."""
    rows = traced.each(asked.number, asked.problem, asked.tiling, asked.input, asked.kernel.source())
    st.dataframe(rows, hide_index=True)
    p = hard_case(asked.tiling)
    st.caption(
        f"The harder problem: {_case(p)}. It has blocks without a key, tiles that are not full, and several visits."
    )


def _case(p: Problem) -> str:
    lens = ", ".join(map(str, p.lens_k or ()))
    return f"a batch of {p.B} padded sequences with {lens} keys of {p.Nk}, d = {p.d}, causal"


def findings(found: tuple[Finding, ...]) -> str:
    """As a list, the first of them."""
    lines = [
        f"- {plain(f.text)}" + (f" ({format_count(f.count)} times)" if f.count > 1 else "") for f in found[:_SHOWN]
    ]
    if len(found) > _SHOWN:
        lines.append(f"- and {len(found) - _SHOWN} more, marked in the source")
    return "\n".join(lines)


def harder(asked: Asked) -> None:
    """With these settings nothing happens; a problem in which it does."""
    st.markdown(
        "**Nothing goes wrong with these settings:** another barrier does its work, or the tiles are all full. A bug "
        "like this waits for other sizes."
    )
    p = hard_case(asked.tiling)
    try:
        run = traced.hard(asked)
    except FmhaError as error:
        st.markdown(f"A harder problem could not be run: {plain(str(error))}")
        return
    case = _case(p)
    if run.findings:
        st.markdown(f"**In {case}, it is found:**\n{findings(run.findings)}")
    else:
        st.markdown(f"In {case}, nothing is found either: with these tiles it only saves work.")


__all__ = ["broken", "choose", "each", "introduce", "label"]
