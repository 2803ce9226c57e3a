"""Inside the kernel: the real .cu file, run on this machine's CPU while its every access to memory is watched."""

from __future__ import annotations

import streamlit as st

from fmha.errors import FmhaError
from fmha.inputs import INPUTS
from fmha.kernels import KERNELS
from fmha.trace import Trace
from fmha.trace.breaking import changes
from fmha.trace.lines import MEASURES, LineUse, by_line
from fmha.ui import controls, trace_break, trace_source, trace_step, traced
from fmha.ui import trace_kept as kept
from fmha.ui.page import configuration, explained_errors, page, plain, prose, try_this
from fmha.ui.trace_lines import measured_lines
from fmha.ui.trace_verdict import verdict
from fmha.ui.trace_words import arithmetic, line_table, phase_name, share, strip_value
from fmha.ui.traced import Asked


def attempt(asked: Asked) -> tuple[Trace | None, str]:
    """The run, or why there is none."""
    try:
        return traced.traced(asked), ""
    except FmhaError as error:
        text = str(error)
        return None, text[:1].upper() + text[1:]


def without_a_run(asked: Asked, why: str) -> None:
    """The source is still there to read."""
    st.info(plain(why))
    st.markdown(
        "Without a run there are no numbers of this kind here. The source stands below; *Under the hood of HBM* "
        "computes bytes, waves and bank conflicts from a model, and *Kernel lab* shows what a GPU measured."
    )


def source(asked: Asked, run: Trace | None, now: int | None) -> None:
    """The listing, and what one of its lines does."""
    st.header(f"{asked.kernel.file}, line by line", anchor=False)
    text = asked.kernel.source()
    if run is None:
        trace_source.listing(
            text, (), {}, measure=None, chosen=None, now=None, change=asked.change,
            alt=f"The source of {asked.kernel.file}.",
        )  # fmt: skip
        return
    used = by_line(run)
    left, right = st.columns([5, 3], gap="medium")
    with right:
        measure = trace_source.choose_measure()
        hot = trace_source.hottest(used, measure)
        line = choose_line(text, used, hot[0][0] if hot else None)
        if line is not None:
            one_line(run, used, line, measure)
        hottest(hot, measure)
    with left:
        trace_source.listing(
            text, run.phases, used, measure=measure, chosen=line, now=now, change=asked.change,
            alt=f"{asked.kernel.file} with {MEASURES[measure]} by line: "
            + ", ".join(f"line {n} {strip_value(measure, v)}" for n, v in hot[:5]) + ".",
        )  # fmt: skip


def choose_line(text: str, used: dict[int, LineUse], default: int | None) -> int | None:
    """The line whose numbers are shown: by this list, or by a click."""
    if not used:
        return None
    lines = text.split("\n")
    labels = {str(n): f"{n}: {lines[n - 1].split('//')[0].strip()}" for n in used}
    return int(kept.choice("line", "Line", labels, str(default or next(iter(used)))))


def one_line(run: Trace, used: dict[int, LineUse], line: int, measure: str) -> None:
    """What a line does with each array, and its arithmetic."""
    use = used[line]
    phase = next((p for p in run.phases if p.first <= line <= p.last), None)
    whole = sum(u.value(measure) for u in used.values())
    part = use.value(measure)
    in_phase = f" in `{phase_name(phase)}`" if phase else ""
    st.markdown(f"**Line {line}**{in_phase} has {share(part, whole)} of all {MEASURES[measure]}.")
    if use.counts:
        st.markdown(line_table(use.counts))
    if use.flops:
        st.markdown(f"Arithmetic: {arithmetic(use.flops)}.")
    for finding in use.findings:
        st.error(plain(finding.text))


def hottest(hot: list[tuple[int, int]], measure: str) -> None:
    """Where most of it is."""
    whole = sum(value for _, value in hot)
    if not whole:
        st.markdown(f"No line has any {MEASURES[measure]}.")
        return
    st.markdown(
        f"**All lines:** {strip_value(measure, whole)} {MEASURES[measure]}; most in "
        + ", ".join(f"line {line} ({share(value, whole)})" for line, value in hot[:3])
        + "."
    )


def step(asked: Asked, run: Trace) -> int | None:
    """Step through; the source line at which it stands."""
    st.header("Step through, one warp at a time", anchor=False)
    prose(
        "The 32 [[lanes|lane]] of a [[warp]] ask for memory together. Device memory answers in [[sectors|sector]], "
        "shared memory in [[wavefronts|wavefront]]; [[bank conflicts|bank conflict]] take more of them."
    )
    try:
        here = trace_step.choose(asked, run)
    except FmhaError as error:
        st.warning(plain(str(error)))
        return None
    trace_step.show(asked, run, here)
    request = here.now
    return request.line if request is not None and request.file == asked.kernel.file else None


def exercises(asked: Asked) -> None:
    """Things to try."""
    barriers = [c for c in changes(KERNELS["02"].source()) if c.kind == "barrier"]
    lines = [
        *(["Choose kernel 02 above: the tasks that follow are about it."] if asked.number != "02" else []),
        "With d = 64 the request for `Kj` in `S = QK^T` takes 32 wavefronts. Set d = 33. Why is it one now?",
        "Set Br = Bc = 16 and look at `Qi` in the same phase: why 2-way, when all lanes of a row want one number?",
        "Set N = 50 and step to the last Q tile's `S = QK^T`: which lanes sit out, and why does the barrier not mind?",
        "Let the strip show sectors beyond the fewest, with d = 33 and Bc = 4. Which lines waste some, and why none "
        "with Bc = 8?",
        "Switch the causal mask on and step through visit after visit of the last Q tile: in which do lanes sit out?",
    ]
    if len(barriers) > 2:
        first, third = barriers[0], barriers[2]
        lines += [
            f"Take out the barrier of line {third.line}. Who reads what too early? Then that of line {first.line}: "
            "nothing goes wrong. Which other barrier does its work, and for which blocks does it not?",
        ]
    lines += [
        "Set N = 512, d = 64, Br = Bc = 32: a GPU has counted these settings. Where do the two counts differ?",
        "Open *Tiles in motion* and let it be played by `02_fmha101.cu`: the same kind of run, as a moving picture.",
    ]
    try_this(lines)


def main() -> None:
    page(
        "Inside the kernel",
        "**The real `.cu` file, run on this machine's CPU, with every access to memory written down:** who touches "
        "what, what each line costs, and what goes wrong when a [[barrier]] is missing.",
    )
    notice = st.container()
    with explained_errors():
        asked = traced.settings()
    top, breaking, listing, counted, stepping = (st.container() for _ in range(5))
    with breaking, st.container(border=True):
        left, right = st.columns(2, gap="medium")
        with left:
            asked = trace_break.choose(asked)
        outcome = st.container()
    p, t = asked.problem, asked.tiling
    with top:
        configuration(
            kernel=f"{asked.number} {asked.kernel.name}", H=p.H, N=p.Nq, d=p.d,
            **({"Br": t.Br, "Bc": t.Bc} if asked.kernel.tiled else {}), causal=p.causal or "none",
            input=INPUTS[asked.input].title, source=asked.kernel.source_hash(),
            **({"broken in line": asked.change.line} if asked.change else {}),
        )  # fmt: skip
        run, why = attempt(asked)
        if run is not None:
            verdict(asked, run)
        elif asked.change is None:
            without_a_run(asked, why)
    with right:
        every = trace_break.introduce(can_run=run is not None)
    with outcome:
        trace_break.broken(asked, run, why)
        if every:
            trace_break.each(asked)
    now = None
    if run is not None:
        with counted:
            measured_lines(asked, run)
        with stepping:
            now = step(asked, run)
    with listing:
        source(asked, run, now)
    exercises(asked)
    with notice:
        controls.notices()


main()
