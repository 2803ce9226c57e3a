"""The page *Timeline* with a time-stamped run: as run above, predicted below, on one axis, and how far apart."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import streamlit as st

from fmha.as_run import AsRun, Spread, calibrated_us, predicted, spread_of, stretched
from fmha.figures import as_run as charts_of
from fmha.figures import gantt
from fmha.gantt_map import View, gantt_map
from fmha.ui import charts, controls, run_choice, timeline_words
from fmha.ui.page import configuration, plain, try_this
from fmha.ui.sentences import percent
from fmha.ui.timeline_run import Table, read_table
from fmha.units import format_ratio, format_time_us

CALIBRATED, SIMPLE = "calibrated", "simple"
AGAINST = {CALIBRATED: "calibrated", SIMPLE: "simple cost"}
AGAINST_HELP = (
    "Simple cost: bytes and FLOPs of each phase over one SM's share of the GPU's peaks, as in the player. Calibrated: "
    "the same timeline, made as long as the forecast of Under the hood of HBM says, which knows bank conflicts, issue "
    "slots and caches. There is one for every kernel."
)
USUAL = "h200-02-n1024-h16"  # the recording that is shown first
AS_RUN, PREDICTED = "as run", "predicted"
_TALL = 300  # pixels of the SMs of one of the two pictures


@dataclass(frozen=True)
class Both:
    """A recorded run and what was predicted of it; `how`: a key of `AGAINST`; calibrated: microseconds, if there is a
    forecast; simple: those of the simple cost."""

    run: AsRun
    measured: Table
    foretold: Table
    how: str
    calibrated: float | None
    simple: float


@st.cache_resource(max_entries=3, show_spinner=False)
def _measured(_run: AsRun, key: str) -> Table:
    return read_table(_run.events, _run.sms)


@st.cache_resource(max_entries=3, show_spinner=False)
def _foretold(_run: AsRun, key: str, span_us: float | None) -> Table:
    events = predicted(_run)
    return read_table(events if span_us is None else stretched(events, span_us), _run.sms)


@st.cache_data(max_entries=16, show_spinner=False)
def _calibrated(_run: AsRun, key: str) -> float | None:
    return calibrated_us(_run)


def settings() -> tuple[AsRun | None, str]:
    """The controls: which recording, and what it is held against. Errors as `fmha.ui.run_choice.choose`."""
    run = run_choice.choose(USUAL)
    if run is None:
        return None, SIMPLE
    how = SIMPLE
    if _calibrated(run, run.key) is not None:
        how = controls.choice("against", "Predicted by", AGAINST, default=CALIBRATED, help=AGAINST_HELP)
    return run, how


def both_of(run: AsRun, how: str) -> Both:
    """The recorded run and the predicted one.

    Raises:
        FmhaError: nothing can be predicted of it.
    """
    key = run.key
    calibrated = _calibrated(run, key)
    simple = _foretold(run, key, None)
    shown = _foretold(run, key, calibrated) if how == CALIBRATED and calibrated is not None else simple
    return Both(run, _measured(run, key), shown, how, calibrated, simple.blocks.span)


# --- the pictures -----------------------------------------------------------------------------------------------------


def pictures(both: Both, key: str, view: View, on_pick: Callable[[], None]) -> None:
    """Both, one above the other: all SMs, and one axis of time.

    key: of the measured one, in which `view` is framed and which can be clicked.
    """
    until = max(both.measured.blocks.end, both.foretold.blocks.end)
    how = []
    names = (f"As run on {plain(device_of(both.run))}", f"Predicted, {AGAINST[both.how]}")
    for name, table in zip(names, (both.measured, both.foretold), strict=True):
        blocks, is_measured = table.blocks, table is both.measured
        st.markdown(f"**{name}:** {timeline_words.headline(table)}")
        drawn = gantt_map(table.events, blocks, View(0, blocks.sms, blocks.begin, until))
        how.append(timeline_words.how_drawn(drawn, blocks))
        fine = max(1, _TALL // drawn.cells.shape[0])
        fig = gantt.gantt(
            drawn, blocks, table.areas, table.waves, view if is_measured else None, fine * drawn.cells.shape[0]
        )
        charts.show(
            fig, key=key if is_measured else "predicted", on_pick=on_pick if is_measured else None,
            alt=f"{AS_RUN if is_measured else PREDICTED}, SMs by time. {timeline_words.headline(table)}",
        )  # fmt: skip
    more = "" if how[0] == how[1] else f" Predicted: {how[1]}"
    if both.measured.blocks.tracks == 2:
        more += " As run, a tile loads from where the kernel asks for it to where it has waited for it, arrived or not."
    st.caption(f"Both share the axis of time; what is blank at the right is over. {how[0]}{more}")


def device_of(run: AsRun) -> str:
    """The GPU's name, short."""
    return str(run.stamps.facts["device"]).removeprefix("NVIDIA ")[:40]


# --- the numbers ------------------------------------------------------------------------------------------------------


def spreads(both: Both) -> tuple[Spread, Spread]:
    """Measured and predicted in numbers."""
    return (
        spread_of(both.measured.blocks, both.measured.shares.idle),
        spread_of(both.foretold.blocks, both.foretold.shares.idle),
    )


def rows(both: Both) -> list[dict[str, str]]:
    """The table: what ran, what was predicted, and how they compare."""
    ran, said = spreads(both)
    times = [
        ("whole run", ran.span_us, said.span_us),
        ("a visit, median", ran.visit_us, said.visit_us),
        ("a worker, median", ran.worker_us, said.worker_us),
    ]
    made = [(name, format_time_us(a), format_time_us(b), f"{a / b:.3g}x") for name, a, b in times]
    made += [
        ("workers of one length differ by", _share(ran.spread), _share(said.spread), ""),
        ("SMs without a worker", _share(ran.idle), _share(said.idle), ""),
        ("workers on an SM at once", f"{ran.places}", f"{said.places}", ""),
    ]
    if ran.between_us is not None and said.between_us is not None:
        model = format_time_us(said.between_us) if said.between_us > 1e-6 else "0"
        made.append(("from a worker's last phase to the next one's first", format_time_us(ran.between_us), model, ""))
    return [{"": a, AS_RUN: b, PREDICTED: c, f"{AS_RUN} / {PREDICTED}": d} for a, b, c, d in made]


def _share(part: float) -> str:
    """A share in percent; nothing of a part that only rounding makes."""
    return percent(part) if part >= 5e-5 else "0 %"


def verdict(both: Both) -> str:
    """The prediction's error, in words (Markdown)."""
    ran, said = spreads(both)
    ratio = ran.span_us / said.span_us
    if 0.995 < ratio < 1.005:
        off = "as long as predicted"
    elif 0.7 < ratio < 1.4:
        off = f"{percent(abs(ratio - 1))} {'longer' if ratio > 1 else 'shorter'} than predicted"
    else:
        off = f"{format_ratio(max(ratio, 1 / ratio))} as {'long' if ratio > 1 else 'fast'} as predicted"
    text = f"**The run took {format_time_us(ran.span_us)}, {off}** ({AGAINST[both.how]}: {format_time_us(said.span_us)}"
    if both.how == CALIBRATED:
        text += f"; the simple cost alone: {format_time_us(both.simple)}"
    elif both.calibrated is not None:
        text += f"; the calibrated forecast: {format_time_us(both.calibrated)}"
    text += "). "
    with_stamps, without = run_choice.stamping(both.run)
    if run_choice.is_dear(both.run):
        rest = without / said.span_us
        text += (
            f"Part of that is the stamps: without them the kernel takes {format_time_us(without)} in place of "
            f"{format_time_us(with_stamps)}, {format_ratio(rest)} the prediction. "
        )
    ours, theirs = _grouped(ran.shares), _grouped(said.shares)
    furthest = max(ours, key=lambda name: abs(ours[name] - theirs[name]))
    text += (
        f"Of its workers' time, {furthest} take{'' if furthest == LOADS else 's'} {percent(ours[furthest])}; predicted "
        f"were {percent(theirs[furthest])}. {_why(both, ran)}"
    )
    return text


LOADS = "loads"
_GROUPS = {
    LOADS: ("load_Q", "load_K", "load_V"),
    "`S = QKᵀ`": ("S",),
    "the maximum": ("m",),
    "`P` with its sum": ("P",),
    "`O`": ("O", "normalize", "store_O", "store_LSE"),
}


def _grouped(shares: Mapping[str, float]) -> dict[str, float]:
    """Shares by what is computed, loads together."""
    return {name: sum(shares.get(code, 0.0) for code in codes) for name, codes in _GROUPS.items()}


def _why(both: Both, ran: Spread) -> str:
    """What the simple cost leaves out, named by the phase where it is seen."""
    told = {
        "02": "One thread a row finds maximum and sum while the others wait, and `Qi Kjᵀ` meets bank conflicts: the "
        "simple cost knows neither.",
        "03": "One thread a row finds maximum and sum while the others wait: the simple cost counts FLOPs only.",
    }
    return told.get(str(both.run.stamps.facts["kernel"]), "The simple cost counts bytes and FLOPs, not waiting.")


def numbers(both: Both) -> None:
    """How far the two are apart."""
    st.header("How far the prediction is off", anchor=False)
    st.markdown(verdict(both))
    ran, said = spreads(both)
    left, right = st.columns([5, 6], gap="medium")
    with left:
        st.dataframe(rows(both), hide_index=True)
        st.caption(
            "A visit: one worker, one K/V tile, with its part of what the worker does before and after. The spread is "
            "the range of the middle 80 % of workers with equally many visits, over their median."
        )
    with right:
        charts.show(
            charts_of.shares_beside({AS_RUN: ran.shares, PREDICTED: said.shares}), key="shares-beside",
            alt="Of the workers' time as run: " + ", ".join(f"{c} {percent(s)}" for c, s in ran.shares.items()) + ".",
        )  # fmt: skip
    lasts = [(name, t.blocks.t1 - t.blocks.t0) for name, t in ((AS_RUN, both.measured), (PREDICTED, both.foretold))]
    charts.show(
        charts_of.worker_times(lasts), key="worker-times",
        alt=f"Half of the workers last {format_time_us(ran.worker_us)}, predicted {format_time_us(said.worker_us)}.",
    )  # fmt: skip


def none_yet() -> None:
    """Nothing was recorded."""
    st.info(
        "No recording is here yet. On a machine with an NVIDIA GPU, `python -m fmha bench --timestamps --N 1024 --H 16 "
        "--d 64` writes one into the folder where it is started; open it below."
    )


def configuration_of(run: AsRun) -> None:
    """The settings of the recording, in a line."""
    p, t, facts = run.problem, run.tiling, run.stamps.facts
    configuration(
        kernel=plain(str(facts["kernel"])[:8]), B=p.B, H=p.H, N=f"{p.Nq:,}", d=p.d, Br=t.Br, Bc=t.Bc, dtype=p.dtype,
        causal=p.causal or "none", GPU=plain(device_of(run)), SMs=run.sms,
    )  # fmt: skip


def exercises(both: Both) -> None:
    """Things to try."""
    shares = _grouped(spreads(both)[0].shares)
    most = max(shares, key=lambda name: shares[name])
    try_this(
        [
            f"Most of the workers' time goes into {most} ({percent(shares[most])}). Find it in the close-up, "
            "then in the source on *Inside the kernel*: which line is it?",
            "Choose the recording of another kernel with the same problem: which phase became shorter, and did another "
            "become longer?",
            "Compare the recordings with and without a causal mask: where do SMs stand empty, and would another order "
            "of the blocks (*heavy-first*, with predicted times) fill them?",
            "Look at the first microseconds in the close-up: who begins late, and how late?",
        ]
    )


__all__ = [
    "Both", "both_of", "configuration_of", "exercises", "none_yet", "numbers", "pictures", "rows", "settings",
    "verdict",
]  # fmt: skip
