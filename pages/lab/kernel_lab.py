"""Kernel lab: real CUDA kernels on chosen Q, K, V, live on this machine's GPU or as recorded on another."""

from __future__ import annotations

import dataclasses
from typing import Any

import streamlit as st

from fmha import Problem, Tiling, ladder
from fmha.errors import FmhaError
from fmha.figures.byte_levels import byte_levels, levels
from fmha.figures.error_cells import cells_note, error_cells
from fmha.figures.kernel_times import kernel_times, timed
from fmha.figures.output_maps import Outputs, output_map, outputs
from fmha.figures.smem_map import smem_map, used_bytes
from fmha.hardware import Gpu
from fmha.inputs import INPUTS
from fmha.kernels import KERNELS, Kernel, Plan, kernel, previous
from fmha.measurement import Entry, Found, FunctionUse, Recording, nearest, shipped
from fmha.occupancy import occupancy
from fmha.traffic import closed_form
from fmha.ui import cards, charts, controls, live, sentences
from fmha.ui.kernel_settings import ANY_TILE, HEAD_DIMS, complaint, planned, said_settings, settings
from fmha.ui.live_box import OWN, RECORDED, WHICH, collect, counters_button, live_box
from fmha.ui.page import configuration, explained_errors, page, plain, try_this
from fmha.ui.recordings_box import recordings_box
from fmha.units import format_bytes, format_ratio


def launch_line(asked: live.Asked, plan: Plan | None, gpu: Gpu, wrong: str | None) -> None:
    """What would be launched, beside the limits, and the limit that is broken."""
    if plan is not None:
        st.markdown(sentences.launch_words(plan.launches, gpu, refused=wrong is not None))
    if wrong:
        st.warning(plain(wrong[0].upper() + wrong[1:]))


# --- the result -------------------------------------------------------------------------------------------------------


def choose(asked: live.Asked) -> tuple[Found | None, live.Outcome | None, str]:
    """What is shown: (found, the visitor's own run if it is one, where it comes from)."""
    desk = live.desk_in(st.session_state)
    outcome = desk.outcome(asked)
    opened = desk.opened
    recordings: tuple[Recording, ...] = (opened[1],) if opened else (*shipped(), *ladder.shipped())
    origin = f"Opened from {sentences.said(opened[0], 60)}" if opened else "Recorded"
    if outcome is not None:
        st.session_state.setdefault(WHICH, OWN)
        picked = st.segmented_control("Result", [OWN, RECORDED], required=True, key=WHICH, label_visibility="collapsed")
        if picked == OWN:
            return outcome.found(), outcome, OWN
    found = nearest(recordings, kernel(asked.kernel), asked.problem, asked.tiling)
    if found is not None:
        found = dataclasses.replace(found, differs=found.differs | other_input(asked, found))
    return found, None, origin


def other_input(asked: live.Asked, found: Found) -> dict[str, tuple[Any, Any]]:
    """How the Q, K, V of a recording differ from those that were asked for; sizes and times do not depend on them."""
    there, here = found.run.input, INPUTS[asked.input]
    if there != asked.input:
        return {"input": (here.title, INPUTS[there].title if there in INPUTS else sentences.said(there, 30))}
    return {"seed": (asked.seed, found.run.seed)} if here.N is None and asked.seed != found.run.seed else {}


def belongs_to(found: Found, outcome: live.Outcome | None) -> dict[str, Any]:
    """The settings that a result was made with, to be printed beside it."""
    if outcome is not None:
        return said_settings(outcome.asked)
    run, entry = found.run, found.entry
    tiling = Tiling(*entry.tiling) if entry.tiling else ANY_TILE
    known = run.input if run.input in INPUTS else "random"
    shown = said_settings(live.Asked(entry.name, run.problem, tiling, known, run.seed))
    return shown if run.input in INPUTS else shown | {"input": sentences.said(run.input, 30)}


def title(found: Found) -> None:
    """The result in one sentence; a wrong one has no speed."""
    entry, gpu = found.entry, found.recording.device.gpu
    timed_and_right = entry.time is not None and cards.is_right(entry.check)
    st.header(sentences.headline(entry, found.run.problem, gpu) if timed_and_right else "Result", anchor=False)


def result(found: Found, outcome: live.Outcome | None, origin: str, asked: live.Asked) -> None:
    """Everything that was measured, under its own settings."""
    run, entry, gpu = found.run, found.entry, found.recording.device.gpu
    right = cards.is_right(entry.check)
    cards.provenance(found, origin)
    configuration(**belongs_to(found, outcome))
    if outcome is not None and outcome.asked != asked:
        st.info("These are results for the settings in the line above, not for those of the controls.")
    cards.verdict(entry.check)
    if not right or entry.time is None:
        if right:
            st.error(plain(sentences.one_line(entry.absent or "This run has no time.", 300)))
        errors(entry, run.problem)
        return
    bars = timed(run)
    left, beside = st.columns([3, 2], gap="medium")
    with left:
        fastest = min(bars, key=lambda b: b.median_us)
        charts.show(
            kernel_times(run, bars, entry, gpu), key="times",
            alt=f"Median times of {len(bars)} implementations; the fastest is {fastest.title} in {fastest.dtype}.",
        )  # fmt: skip
    with beside:
        told = [sentences.flash_and_naive(run, entry, bars), *sentences.peers(run.problem, entry, bars)]
        st.markdown(
            "\n".join(f"- {t}" for t in [*told, sentences.bandwidth(entry, gpu), sentences.how_timed(entry)] if t)
        )
        errors(entry, run.problem)
    with st.expander("All times, what was not run, clocks"):
        cards.times_table(run, bars, gpu)
    if outcome is not None and outcome.O is not None:
        pictures(outcome)
    moved(found, outcome)


def errors(entry: Entry, problem: Problem) -> None:
    """The error map."""
    error = entry.error_map
    if error is None:
        return
    st.markdown(f"**Error map,** head {error.h}" + (f", batch entry {error.b}" if problem.B > 1 else ""))
    try:
        fig = error_cells(error, problem.d, cards.is_right(entry.check))
    except FmhaError as wrong:
        st.info(plain(str(wrong)))
        return
    note = cells_note(error, problem.d)
    charts.show(fig, key="errors", alt=f"Error of O against float64, {note}.")
    allowed = f"; {entry.check.max_abs_allowed:.2g} is allowed" if entry.check else ""
    st.caption(f"|O - float64|: {note}{allowed}.")


@st.cache_data(max_entries=8, show_spinner="Computing the same in float64")
def compared(asked: live.Asked, made: str, _O: Any) -> Outputs:
    """O and its float64 truth; `made` tells runs of the same settings apart."""
    b, h = asked.show
    return outputs(
        asked.problem, _O, b, h, input=asked.input, seed=asked.seed, layer=asked.layer, head=asked.head
    )  # fmt: skip


def pictures(outcome: live.Outcome) -> None:
    """O beside the reference."""
    shown = compared(outcome.asked, outcome.recording.made, outcome.O)
    b, h = outcome.asked.show
    head = f"head {h}" + (f", batch entry {b}" if outcome.asked.problem.B > 1 else "")
    left, right = st.columns(2)
    with left:
        st.markdown(f"**O of the kernel,** {head}, {shown.note}")
        charts.show(output_map(shown.found, shown), key="O", alt=f"O of {head} as the kernel computed it.")
    with right:
        if shown.truth is None:
            st.markdown("The float64 picture is left out: making so many inputs again would take too long.")
            return
        st.markdown(f"**O in float64,** {head}, {shown.note}")
        charts.show(output_map(shown.truth, shown), key="truth", alt=f"O of {head} in float64, on the same scale.")


def moved(found: Found, outcome: live.Outcome | None) -> None:
    """Predicted and measured bytes, level by level."""
    st.header("Bytes: predicted and measured", anchor=False)
    entry, problem, gpu = found.entry, found.run.problem, found.recording.device.gpu
    rows = levels(entry, problem)
    left, right = st.columns([3, 2], gap="medium")
    with left:
        named = ", ".join(f"{r.name} {format_bytes(r.nbytes)}" for r in rows if r.nbytes is not None)
        charts.show(
            byte_levels(rows if entry.counters else [r for r in rows if r.predicted]),
            key="levels",
            alt=f"Bytes at each level: {named}.",
        )
    with right:
        st.markdown("\n".join(f"- {line}" for line in sentences.bytes_explained(entry, problem, gpu)))
        if outcome is not None and not entry.counters:
            counters_button(outcome)
    with st.expander("The same in bytes, and the counters behind them"):
        cards.bytes_table(rows, entry)


# --- shared memory, occupancy, source ---------------------------------------------------------------------------------


def memory_map(asked: live.Asked, plan: Plan, gpu: Gpu, found: Found | None, refused: bool) -> None:
    """What lies where in the shared memory of the launch that is set above, and what an SM holds of it."""
    st.header("Shared memory and occupancy", anchor=False)
    shown = ("kernel", "N", "Nq", "Nk", "d", "Br", "Bc")
    configuration(**{k: v for k, v in said_settings(asked).items() if k in shown}, GPU=gpu.name)
    charts.show(
        smem_map(plan.launches, gpu), key="smem",
        alt="Shared memory: " + ", ".join(f"{x.function} {used_bytes(x):,} bytes a block" for x in plan.launches),
    )  # fmt: skip
    with st.expander("Offsets and sizes"):
        cards.smem_table(plan.launches)
    if refused:
        st.markdown("This launch is refused, so nothing is said of its occupancy.")
        return
    use = {u.function: u for u in built_alike(asked, gpu, found)}
    lines, rows = [], []
    for launch in plan.launches:
        known = use.get(launch.function)
        registers = known.registers if known else None
        held = occupancy(gpu, threads=launch.block, smem_bytes=used_bytes(launch), registers=registers)
        lines.append("- " + sentences.occupancy_words(launch, held, gpu, registers=registers))
        driver = "unknown" if known is None or known.blocks_per_sm is None else str(known.blocks_per_sm)
        rows.append(
            {
                "function": launch.function,
                "blocks an SM, predicted": str(held.blocks),
                "blocks an SM, by the driver": driver,
                "limited by": held.limited_by,
                "warps": f"{held.warps} of {held.max_warps}",
                "registers a thread": "unknown" if registers is None else str(registers),
                "spills, bytes a thread": "unknown" if known is None else str(known.local_bytes),
            }
        )
    st.markdown("\n".join(lines))
    st.dataframe(rows, hide_index=True)
    apart = [
        r["function"] for r in rows if r["blocks an SM, by the driver"] not in ("unknown", r["blocks an SM, predicted"])
    ]
    if apart:
        st.markdown(f"For {', '.join(f'`{name}`' for name in apart)} the driver says otherwise: believe the driver.")
    if not use:
        st.caption(
            "Registers are known once this kernel has been compiled for these tiles; without them, threads, shared "
            "memory and the number of blocks alone decide."
        )


def built_alike(asked: live.Asked, gpu: Gpu, found: Found | None) -> tuple[FunctionUse, ...]:
    """What the compiler said of the shown result's functions, where they are the ones of this launch.

    d and N are arguments, so registers hold for all of them; blocks an SM only for the same shared memory.
    """
    if found is None or found.entry.build is None or found.entry.stale:
        return ()
    entry, there, here = found.entry, found.run.problem, asked.problem
    tiles = (asked.tiling.Br, asked.tiling.Bc)
    compiled = (entry.name, entry.tiling or tiles, found.recording.device.gpu.compute)
    if compiled != (asked.kernel, tiles, gpu.compute):
        return ()
    if (there.d, there.Nk) == (here.d, here.Nk):
        return found.entry.build.functions
    return tuple(dataclasses.replace(use, blocks_per_sm=None) for use in found.entry.build.functions)


def code(chosen: Kernel, found: Found | None) -> None:
    """Source, difference to the kernel before, build."""
    st.header("Source", anchor=False)
    before = previous(chosen)
    titles = [f"{chosen.file}", f"Changes from {before.file}" if before else "Changes", "Build"]
    source, changes, build = st.tabs(titles)
    with source:
        cards.source(chosen)
    with changes:
        cards.difference(chosen, before)
    with build:
        cards.build(found.entry.build if found is not None else None)


# --- tasks ------------------------------------------------------------------------------------------------------------


def tasks(asked: live.Asked, gpu: Gpu) -> None:
    """Things to try; what they say is computed for the settings at hand."""
    p, flash = KERNELS["02"].fitting(asked.problem), KERNELS["02"]
    Br, Bc = asked.tiling.Br, asked.tiling.Bc
    half, now = (closed_form(p, Tiling(rows, Bc), "q-outer").requested_bytes for rows in (max(1, Br // 2), Br))
    naive = KERNELS["01"].plan(p, ANY_TILE, gpu).requested.requested_bytes
    fits = [d for d in HEAD_DIMS if flash.can(p.replace(d=d), Tiling(32, 32), gpu)]
    plain_fits = [d for d in fits if smem(p, d, gpu) <= gpu.smem_per_block_default]
    refused = flash.complaint(p.replace(d=64), Tiling(64, 64), gpu)
    lines = [
        f"Kernel 02 requests {format_bytes(now)} here with Br = {Br}, and {format_bytes(half)} with Br = "
        f"{max(1, Br // 2)}. Does the time grow as the bytes do? What else changes with Br?",
        f"Kernel 01 requests {format_bytes(naive)} for the same problem, {format_ratio(naive / now)} kernel 02's. "
        "Which of the two is faster, and which DRAM bytes did each cause? Requested bytes do not decide alone.",
        f"Set Br = Bc = 32 and raise d: up to d = {max(plain_fits, default=0)} the launch stays within the 48 KiB "
        f"that need no opt-in, and d = {max(fits, default=0)} is the largest on offer that the {gpu.name} takes.",
        "Set N = 33 with d = 64, then N = 64 with d = 33. Both results are right. In which of the two do the "
        "measured bytes (they need hardware counters) equal the predicted ones, and why?",
    ]
    if refused:
        lines.append(f"Set Br = Bc = 64, d = 64. Before anything is launched the page says: *{plain(refused)}*")
    try_this(lines)


def smem(problem: Problem, d: int, gpu: Gpu) -> int:
    """Shared memory of a block of kernel 02 with tiles of 32 x 32, bytes."""
    return used_bytes(KERNELS["02"].plan(problem.replace(d=d), Tiling(32, 32), gpu).launches[0])


def main() -> None:
    page(
        "Kernel lab",
        "Real CUDA kernels on your Q, K, V: **checked first, then timed,** and every predicted byte beside the "
        "measured one.",
    )
    desk = live.desk_in(st.session_state)
    collect(desk)
    notice = st.container()
    machine = live.machine(0.5)
    with explained_errors():
        asked, target = settings(machine)
    with notice:
        controls.notices()
    gpu = target.gpu
    plan = planned(asked, gpu)
    wrong = complaint(asked, gpu, target.known.free_bytes if target.known else None)
    launch_line(asked, plan, gpu, wrong)
    live_box(asked, machine, target, wrong)
    heading, pick = (
        st.columns([5, 2], vertical_alignment="bottom") if desk.outcomes else (st.container(), st.container())
    )
    with pick:
        found, outcome, origin = choose(asked)
    if found is not None:
        with heading:
            title(found)
        result(found, outcome, origin, asked)
    else:
        st.info(
            "No result of this kernel is at hand: run it on a GPU, or open a recording below. What follows is "
            "computed from the settings."
        )
    if plan is not None:
        memory_map(asked, plan, gpu, found, wrong is not None)
    code(kernel(asked.kernel), found)
    recordings_box(outcome)
    tasks(asked, gpu)


main()
