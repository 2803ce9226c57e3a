"""The ladder: all kernels, one idea a rung, beside the libraries; what each was to bring, and what it brought."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from fmha import ladder, rungs
from fmha.figures.ladder_bars import NAMES, SHORT, ladder_bars, worth
from fmha.figures.roof_chart import Mark, roof_chart
from fmha.hardware import DEFAULT_GPU, GPUS, Gpu
from fmha.kernels import KERNELS, Kernel, previous
from fmha.ladder import COUNTED_AT, DIMS, HIDDEN, LENGTHS, TOKENS, Measured, Rung
from fmha.measurement import Recording
from fmha.problem import Causal
from fmha.roofline import measured as measured_point
from fmha.roofline import roofs
from fmha.ui import charts, controls, ladder_words, live
from fmha.ui.diff_view import diff_html
from fmha.ui.page import configuration, page, prose, try_this
from fmha.ui.recordings_box import recordings_box
from fmha.ui.sentences import said
from fmha.units import format_number

MASKS: dict[str, str] = {"none": "none", "br": "causal"}
LEVELS = {"SMEM": "shared memory", "L2": "L2", "HBM": "device memory"}
SPLIT, STACKED = "side by side", "one column"


def recordings() -> tuple[tuple[Recording, ...], str | None]:
    """The visitor's own recording if one is open, else those that come with the app; and its name."""
    opened = live.desk_in(st.session_state).opened
    return ((opened[1],), opened[0]) if opened else (ladder.shipped(), None)


def settings() -> tuple[int, int, Causal | None, str, bool]:
    """N, d, mask, dtype of the 16-bit kernels, and whether the axis is logarithmic."""
    columns = st.columns([3, 2, 2, 2, 2])
    with columns[0]:
        N = controls.slider("N", "Tokens N", options=list(LENGTHS), default=COUNTED_AT)
    with columns[1]:
        d = int(controls.choice("d", "Head dim d", [str(x) for x in DIMS], default=str(DIMS[0])))
    with columns[2]:
        dtypes = ["bf16", "fp16", "fp32"]
        dtype = controls.choice(
            "dtype", "Data type", dtypes, default="bf16",
            help="Kernels that compute in 16 bits are shown in this one, the others in fp32; fp32: these alone.",
        )  # fmt: skip
    with columns[3]:
        mask = controls.choice(
            "causal", "Causal mask", MASKS, default="none", aliases={"bottom-right": "br", "1": "br"}
        )
    with columns[4]:
        is_log = controls.choice("scale", "Scale", ["log", "linear"], default="log") == "log"
    return N, d, "bottom-right" if mask == "br" else None, dtype, is_log


def which_rung(dtype: str) -> Kernel:
    """The kernel that is explained: the last one to begin with."""
    shown = [k for k in KERNELS.values() if dtype in k.dtypes or "fp32" in k.dtypes]
    number = controls.slider(
        "rung", "Rung", options=[int(k.number) for k in shown], default=int(shown[-1].number),
        format=lambda n: ladder_words.label(KERNELS[f"{n:02}"]), help="The kernel that is explained below.",
    )  # fmt: skip
    return KERNELS[f"{number:02}"]


def peers_of(
    known: Sequence[Recording], N: int, d: int, causal: Causal | None, steps: Sequence[Rung]
) -> list[Measured]:
    """The peers of every dtype that the rungs have."""
    dtypes = dict.fromkeys(step.dtype for step in steps)
    return [m for dtype in dtypes for m in ladder.peers(known, N, d, causal, dtype)]


def gpu_of(steps: Sequence[Rung]) -> Gpu:
    """The GPU that the rungs were measured on."""
    return next((s.measured.recording.device.gpu for s in steps if s.measured), GPUS[DEFAULT_GPU])


def climb(steps: Sequence[Rung], peers: Sequence[Measured], gpu: Gpu, chosen: Kernel, dtype: str, is_log: bool) -> None:
    """The bars, and the table behind them."""
    st.subheader(ladder_words.headline(steps, peers, gpu, dtype), anchor=False)
    named = "; ".join(f"{s.kernel.number} {s.kernel.name} {format_number(s.tflops)}" for s in steps if s.tflops)
    charts.show(
        ladder_bars(steps, peers, gpu, chosen.number, is_log=is_log), key="bars",
        alt=f"TFLOP/s of each kernel: {named}. Lines: the libraries of the same runs.",
    )  # fmt: skip
    shown = dict.fromkeys(m.entry.name for m in worth(peers) if m.tflops is not None)
    lines = "; ".join(f"{SHORT[n]}: {NAMES[n]}" for n in shown if n in SHORT and SHORT[n] not in NAMES[n])
    timed = ladder.samples((*(s.measured for s in steps if s.measured), *peers))
    st.caption(
        f"Lines: libraries, timed in turns with the kernels of their dtype{f' ({lines})' if lines else ''}. "
        + (f"Medians of {timed}." if timed else "")
    )
    first = next((s.measured for s in steps if s.measured), None)
    if first is not None:
        st.markdown(ladder_words.provenance(first).replace(f" · source {first.entry.source_hash}", ""))
        if told := ladder_words.ceiling(first, [s.dtype for s in steps], gpu):
            prose(told)
    old = [s.kernel.number for s in steps if s.measured and s.measured.entry.stale]
    if old:
        st.warning(
            f"The source of {', '.join(old)} has changed since this was recorded, so the numbers may have too: "
            "`python -m fmha bench --ladder` records them anew."
        )
    with st.expander("All rungs in numbers: error, registers, shared memory, lines"):
        st.dataframe(ladder_words.rung_rows(steps, peers, gpu), hide_index=True)
        st.caption("Runs: how often it was timed; ± half the way from the 10th to the 90th percentile.")
        if why := ladder_words.absent(peers, steps):
            st.markdown("**Without a time:**\n" + "\n".join(why))


def explained(chosen: Kernel, known: Sequence[Recording]) -> None:
    """What the rung was to bring, and what it brought."""
    text = rungs.texts().get(chosen.name)
    st.header(f"{ladder_words.label(chosen)}: {chosen.title}", anchor=False)
    if text is None:
        prose(chosen.changed)
        return
    prose(text.idea)
    results = rungs.outcomes(chosen, known)
    if results:
        when = "before it was measured" if text.is_prediction else "by design; written after a first run"
        st.markdown(f"**Expected {when}, and what came out**")
        st.markdown("\n".join(f"- {ladder_words.claim_line(outcome)}" for outcome in results))
    if text.after:
        prose(f"**Learned:** {text.after}")


def with_below(chosen: Kernel, steps: Sequence[Rung]) -> tuple[Rung, Rung | None]:
    """The chosen rung and the one below it."""
    below = previous(chosen)
    here = next(s for s in steps if s.kernel is chosen)
    return here, next((s for s in steps if s.kernel is below), None)


def counters(chosen: Kernel, steps: Sequence[Rung]) -> None:
    """The counter that moved, and all others that were read."""
    here, below = with_below(chosen, steps)
    rows = rungs.moved(here.measured, below.measured if below else None)
    if not rows:
        st.markdown("No hardware counters of this rung are recorded: `bench --ladder --counters` reads them.")
        return
    text = rungs.texts().get(chosen.name)
    watch = text.watch if text else ""
    if sentence := ladder_words.watched(rows, watch):
        st.markdown(sentence)
    st.dataframe(ladder_words.counter_rows(rows, watch), hide_index=True)


def cost(chosen: Kernel, steps: Sequence[Rung], gpu: Gpu) -> None:
    """Lines, registers, shared memory, occupancy."""
    told = ladder_words.costs(*with_below(chosen, steps), gpu)
    st.markdown("\n".join(f"- {line}" for line in told))


def changed(chosen: Kernel) -> None:
    """The difference to the rung below, or the first kernel's source."""
    below = previous(chosen)
    st.header("What changed in the source", anchor=False)
    if below is None:
        st.markdown("The first kernel: there is nothing below it to compare with.")
        st.code(chosen.source(), language="cpp", line_numbers=True, height=480)
        return
    count = rungs.lines(chosen)
    st.markdown(
        f"From `{below.file}` to `{chosen.file}`: **{count.added} lines of code came, {count.removed} went.** "
        f"{chosen.changed}"
    )
    look = controls.choice("diff", "Layout", [SPLIT, STACKED], default=SPLIT)
    st.html(diff_html(below.file, below.source(), chosen.file, chosen.source(), is_split=look == SPLIT))


def roof(chosen: Kernel, steps: Sequence[Rung], gpu: Gpu, dtype: str) -> None:
    """The points of all rungs under the roofs, one way from the first to the last."""
    st.header("The way under the roofs", anchor=False)
    points = [
        (s, point)
        for s in steps
        if s.measured and (point := measured_point(s.measured.run, s.measured.entry)) is not None
    ]
    if len(points) < 2:
        st.markdown("No hardware counters are recorded for these rungs, so their place under the roofs is not known.")
        return
    level = controls.choice("level", "Bytes of", LEVELS, default="SMEM", help="The memory whose bytes are counted.")
    marks, drawn, at = [], [], None
    for step, point in points:
        intensity = point.intensity(level)
        if intensity is None or point.tflops is None:
            continue
        if step.kernel is chosen:
            at = len(marks)
        drawn.append(step)
        marks.append(Mark(ladder_words.label(step.kernel), {level: intensity}, point.tflops, True))
    places = {step.kernel.number: place for place, step in enumerate(drawn)}
    path = [
        (places[below.number], places[step.kernel.number])
        for step in drawn
        if (below := previous(step.kernel)) is not None and below.number in places
    ]
    dtypes = list(dict.fromkeys((dtype, *(s.dtype for s in drawn))))
    charts.show(
        roof_chart(roofs(gpu, dtypes), marks, dtypes, path=path, chosen=at, height=520), key="roof",
        alt="; ".join(
            f"{m.label}: {format_number(next(iter(m.intensity.values())))} FLOPs a byte of {LEVELS[level]}, "
            f"{format_number(m.tflops)} TFLOP/s"
            for m in marks
        ),
    )  # fmt: skip
    prose(
        f"Each point is a kernel: how many FLOPs it makes of a byte of {LEVELS[level]}, and how fast it is. A rung "
        "that uses each byte more often moves to the right; one that waits less moves up. The ring is the rung chosen "
        "above."
    )


def tasks(steps: Sequence[Rung], known: Sequence[Recording]) -> None:
    """Things to try; what they say is computed."""
    pairs = [with_below(s.kernel, steps) for s in steps]
    speeds = [(s.tflops / b.tflops, s) for s, b in pairs if b and s.tflops and b.tflops]
    lines = ["Move *Rung* from left to right and read only the claims: which of them would you have believed?"]
    if speeds:
        most, step = max(speeds, key=lambda pair: pair[0])
        lines.append(
            f"The largest step is {ladder_words.label(step.kernel)}: {most:.3g} times the rung below. Find the lines "
            "in the source that did it; how many are there?"
        )
    every = [o for k in KERNELS.values() for o in rungs.outcomes(k, known)]
    missed, told = sum(o.held is False for o in every), sum(o.held is not None for o in every)
    if told:
        lines.append(
            f"{missed} of {told} claims were not confirmed. Choose one: what did the author overlook? The counters "
            "say it."
        )
    lines.append("Set the scale to *linear*: which steps can still be seen? The same steps on *log* are ratios.")
    lines.append("Change N from 1,024 to 16,384: which kernels gain, and why do the libraries gain too?")
    try_this(lines)


def main() -> None:
    page(
        "The ladder",
        "From the tutorial's kernel upwards, **one idea a rung**: what it was to bring, what it brought, and which "
        "counter moved.",
    )
    N, d, causal, dtype, is_log = settings()
    notice, above = st.container(), st.container()
    chosen = which_rung(dtype)
    known, opened = recordings()
    steps = ladder.rungs(known, N, d, causal, dtype)
    peers = peers_of(known, N, d, causal, steps)
    p = ladder.problem(N, d)
    gpu = gpu_of(steps)
    with above:
        configuration(
            B=p.B, H=p.H, N=f"{N:,}", d=d, dtype=dtype, causal=causal or "none", tokens=f"{TOKENS:,}",
            hidden=f"{HIDDEN:,}", recording=said(opened, 60) if opened else "shipped",
        )  # fmt: skip
        if any(s.measured for s in steps):
            if told := ladder_words.elsewhere(steps, dtype, ladder.recorded_at(known, dtype)):
                st.info(told)
            climb(steps, peers, gpu, chosen, dtype, is_log)
        else:
            st.info(
                "This shape was not recorded: choose another, or record it with `python -m fmha bench --ladder` on a "
                "GPU and open the file below."
            )
    explained(chosen, known)
    # Counters are read at one length, without a mask.
    counted = ladder.counted(known, d, dtype)
    left, right = st.columns([3, 2], gap="medium")
    with left:
        st.subheader("The counter that moved", anchor=False)
        st.caption(f"N = {COUNTED_AT:,} · d = {d} · no mask · {with_below(chosen, counted)[0].dtype}")
        counters(chosen, counted)
    with right:
        st.subheader("What it costs", anchor=False)
        cost(chosen, steps if any(s.measured for s in steps) else counted, gpu)
    changed(chosen)
    roof(chosen, counted, gpu, dtype)
    with notice:
        controls.notices()
    recordings_box(None, "`python -m fmha bench --ladder` writes a recording of this page on any NVIDIA GPU.")
    tasks(steps, known)


main()
