"""The player: workers stream K/V tiles through shared memory, and charts that follow it."""

from __future__ import annotations

from typing import Any, NamedTuple

import streamlit as st

from fmha import Problem, Tiling, traffic
from fmha.as_run import AsRun
from fmha.events import MAX_EVENTS, PHASES
from fmha.figures.running_rows import running_rows
from fmha.hardware import DEFAULT_GPU, GPUS, KIB, Gpu
from fmha.inputs import INPUTS
from fmha.memory import smem_bytes, smem_complaint
from fmha.player import scene
from fmha.player.as_run import play
from fmha.player.component import player
from fmha.player.payload import COLUMNS, PICTURE_SIDE, Scene, build, schedule_digest
from fmha.problem import MAX_TOKENS
from fmha.served import Served
from fmha.simulation import Run
from fmha.trace import follow
from fmha.ui import charts, controls, run_choice
from fmha.ui.export_box import Parcel, export_box
from fmha.ui.page import configuration, explained_errors, page, plain, try_this
from fmha.ui.this_gpu import default_gpu
from fmha.units import format_bytes, format_ratio, format_time_us

KEY = "tiles-player"
ORDERS = {"q-outer": "q-outer", "kv-outer": "kv-outer"}
ORDER_HELP = (
    "q-outer (FlashAttention-2, the tutorial's kernel): a worker owns a Q tile. "
    "kv-outer (FlashAttention, Algorithm 1): a worker owns a head; O, l, m make a round trip on every visit."
)
Tile = tuple[int, int]
View = tuple[int, Tile | None, bool, float]
SMS = [1, 2, 4, 8, 16, 32, 64]
L2_KIB = [0, 1, 4, 16, 64, 256, 1024]  # besides the real size: small enough for what the player shows to spill
L2_HELP = (
    "What a cache of this size makes of the loads: it keeps the tiles that were used last. The real size holds all "
    "that the player shows; make it small and see hits turn into loads from HBM."
)
MODEL = "model"
RECORDED = "gpu"
USUAL_RUN = "h200-02-n2048-h1"  # each of its workers has an SM to itself
PLAYED_BY = {MODEL: "Simulator", RECORDED: "a GPU, as recorded"} | {n: k.file for n, k in follow.KERNELS_SHOWN.items()}
BY_HELP = (
    "Simulator: the events of the loop order, computed. A GPU, as recorded: with the times that a real run wrote down. "
    "A .cu file: that very source runs on this machine's CPU, and what it does to memory is shown; its events and "
    "numbers are compared with the simulator's."
)
ROWS_PATTERN = r"\s*(\d{1,4}\s*(,\s*\d{1,4}\s*){0,5})?"


def tries(order: str, *, is_recorded: bool = False) -> list[str]:
    """Things to try; what they say holds for the loop order at hand, or for a recording."""
    if is_recorded:
        return [
            "Press **Space**. All workers began within a microsecond: how long do they stay in step, and what pulls "
            "them apart?",
            "Let it be played by the **Simulator**, with N = 128 and d = 64: which phase has most of the time there, "
            "and which in the recording of kernel 02? Bank conflicts cost no bytes and no FLOPs.",
            "Choose the recording of kernel 06: which phases got shorter than in 02, and by how much?",
            "Open *Timeline* with times **as run**: the same recording with all its SMs, beside the prediction.",
        ]
    both = [
        "Press **Space**, then step with **→**. Watch `m`, `l` and `alpha` of a row (click it). Which tiles make "
        "`alpha` drop below 1, and what happens to `Oi` in that moment?",
        "Set the input to **Max rises at every tile**, then to **Max never rises**, and compare the alpha columns.",
        "Switch on **Race naive** and play. When does naive attention write P for the first time, and when does flash?",
    ]
    if order == "kv-outer":
        return [
            *both,
            "Drag **L2 holds** down. O, l and m come back with every K/V tile: below which size do they come from HBM?",
            "A worker owns a whole head here. Set **H** to 4: how many SMs have something to do?",
            "Double **Bc**, then double **Br**. Only one of them halves the trips of O, l and m. Which, and why?",
        ]
    return [
        *both,
        "Set N = 128 and Br = Bc = 8 without a mask, and drag **d** from 8 up to 32. The K and V tiles grow, the N × N "
        "matrix does not: from some d on flash requests *more* than naive. Then double **Br** until flash wins again: "
        "with many tokens it does when Br > d / 2.",
        "With one head, N = 128 and Br = 8, set **SMs** to 4: the 16 workers run in four waves. Do the requested bytes "
        "change?",
        "Drag **L2 holds** down, with one SM and then with 16. K and V of this head take `2 N d` numbers: where do "
        "hits turn into loads from HBM? Why do 16 SMs side by side still hit when L2 holds little more than a tile?",
        "Switch on the **causal mask**: the hatched tiles are never loaded. Which worker has the least to do?",
    ]


@st.cache_resource(max_entries=12, show_spinner=False)
def played(
    problem: Problem,
    tiling: Tiling,
    order: str,
    input_name: str,
    sms: int,
    seed: int,
    layer: int,
    head: int,
    gpu: str,
    by: str,
    _recorded: AsRun | None = None,
) -> tuple[scene.Played, str]:
    """The run behind the picture, shared by all sessions with the same settings, and what is to be said of it."""
    if _recorded is not None:
        return play(_recorded)
    kernel = follow.KERNELS_SHOWN.get(by)
    traced = follow.Follower(kernel, tiling, GPUS[gpu], sms, COLUMNS) if kernel else None
    now = scene.prepare(
        problem, tiling, order, input_name,
        sms=sms, seed=seed, layer=layer, head=head, gpu=GPUS[gpu], run_by=traced,
    )  # fmt: skip
    return now, traced.said if traced else ""


@st.cache_data(max_entries=48, show_spinner=False)
def payload(key: tuple[Any, ...], _now: scene.Played, view: View, start: tuple[int, int, int, bool] | None) -> bytes:
    """The player's bytes; `key` names the run, `view` = (SM, Q tile in focus, race, bytes that L2 holds)."""
    focus_sm, focus_tile, race, l2_bytes = view
    look = Scene(_now.gpu, _now.sms, focus_sm, focus_tile, race, start, _now.inputs.heads, _now.inputs.tokens)
    return build(_now.run, _now.naive_events, _now.served(l2_bytes), look)


class Chosen(NamedTuple):
    """The settings: (arguments of `played`), whether naive races, the size of L2 in KiB, further rows of the chart, and
    the recording that is played."""

    arguments: tuple[Any, ...]
    race: bool
    l2_kib: int
    rows: str
    recorded: AsRun | None = None


def settings() -> Chosen:
    """The controls, from above to below."""
    by = controls.choice("by", "Played by", PLAYED_BY, default=MODEL, help=BY_HELP)
    if by == RECORDED:
        with explained_errors():
            recorded = run_choice.choose(USUAL_RUN)
        if recorded is not None:
            return of_recording(recorded)
        st.info("The simulator is shown: no recording is here yet. The page Timeline says how to make one.")
    titles = {name: source.title for name, source in INPUTS.items()}
    name = controls.choice("input", "Input", titles, default="random", help="Where Q, K and V come from.")
    source = INPUTS[name]
    race = races()
    N = controls.slider("N", "Tokens N", options=scene.lengths(name), default=min(128, source.N or 128))
    d = controls.slider("d", "Head dim d", options=scene.head_dims(name), default=source.d or 8)
    sizes = scene.tile_sizes(N)
    default = min(sizes, key=lambda size: abs(size - max(1, min(8, N // 2))))
    Br = controls.slider("Br", "Q tile rows Br", options=sizes, default=default)
    Bc = controls.slider("Bc", "K/V tile rows Bc", options=sizes, default=default)
    H = controls.slider("H", "Heads H", lo=1, hi=source.H or 8, default=1)
    sms = controls.slider("sms", "SMs", options=SMS, default=16, help="How many SMs share the workers.")
    gpu = controls.choice("gpu", "GPU", {key: gpu.name for key, gpu in GPUS.items()}, default=default_gpu())
    l2 = l2_kib(GPUS[gpu])
    order = controls.choice("order", "Loop order", ORDERS, default="q-outer", help=ORDER_HELP)
    causal = controls.causal()
    dtype = controls.choice("dtype", "Data type", ["fp32", "fp16", "bf16"], default="fp32")
    seed, layer, head = 0, 3, 0
    if source.N is None:
        seed = controls.number("seed", "Seed", lo=0, hi=9999, default=0)
    if name == "sentence":
        layer = controls.slider("layer", "Layer", lo=0, hi=5, default=3)
    if source.H and source.H > 1:
        head = controls.slider("head", "First head", lo=0, hi=source.H - 1, default=1)
    rows = more_rows()
    problem, tiling = Problem(N=N, d=d, H=H, dtype=dtype, causal=causal), Tiling(Br, Bc)
    if by in follow.KERNELS_SHOWN:
        kernel = follow.KERNELS_SHOWN[by]
        if why := follow.complaint(kernel, problem, tiling, order, GPUS[gpu]):
            st.info(plain(f"The simulator is shown. {why[0].upper()}{why[1:]}"))
            by = MODEL
    return Chosen((problem, tiling, order, name, sms, seed, layer, head, gpu, by), race, l2, rows)


def of_recording(recorded: AsRun) -> Chosen:
    """The further controls where a recording says the rest."""
    gpu = recorded.gpu or GPUS[DEFAULT_GPU]
    race, l2, rows = races(), l2_kib(gpu), more_rows()
    key = gpu.key if gpu.key in GPUS else DEFAULT_GPU
    by = f"{RECORDED} {recorded.key}"
    source = str(recorded.stamps.facts["input"])
    source = source if source in INPUTS else "random"
    return Chosen((recorded.problem, recorded.tiling, "q-outer", source, 0, 0, 3, 0, key, by), race, l2, rows, recorded)


def races() -> bool:
    """Whether naive attention is played, too."""
    return controls.toggle("race", "Race naive", help="Naive attention's three kernels beside flash, on one clock.")


def l2_kib(gpu: Gpu) -> int:
    """How much L2 holds."""
    full = gpu.l2_bytes // KIB
    return int(
        controls.slider(
            "l2kib", "L2 holds", options=[*L2_KIB, full], default=full, help=L2_HELP,
            format=lambda kib: format_bytes(kib * KIB) if kib else "nothing",
        )
    )  # fmt: skip


def more_rows() -> str:
    """Rows that are drawn in the chart besides the chosen one."""
    return controls.text(
        "rows", "More rows in the chart", longest=40, pattern=ROWS_PATTERN,
        what="up to six row numbers, such as 0, 5, 17",
        help="Numbers of rows in the sequence, with commas. The row that is clicked in the player is always drawn.",
    )  # fmt: skip


def moment() -> dict[str, Any]:
    """The chosen moment: what the person last did in the player, and on a fresh page what the address says.

    Known before the player is drawn again, and kept in the address: event (row of the event table), row and
    column of the score tile, SM.
    """
    state = st.session_state.get(KEY)
    at = dict((state.get("at") if state is not None else None) or {})
    if at:
        controls.assign(**{name: int(at[name]) for name in ("event", "row", "col", "sm")})
    named = {
        "event": controls.hidden("event", lo=-1, hi=MAX_EVENTS, default=-1),
        "row": controls.hidden("row", lo=0, hi=MAX_TOKENS, default=0),
        "col": controls.hidden("col", lo=0, hi=MAX_TOKENS, default=0),
        "sm": controls.hidden("sm", lo=0, hi=scene.MAX_SMS - 1, default=0),
    }
    return at or named


def focus(run: Run, at: dict[str, Any], schedule: str, sms: int) -> tuple[int, Tile | None, int]:
    """(SM, (head, Q tile), event) in focus. A choice made in another schedule keeps its SM only."""
    sm = min(max(int(at["sm"]), 0), sms - 1)
    event = int(at["event"])
    if at.get("schedule", schedule) != schedule or not 0 <= event < len(run.events) or run.events["sm"][event] != sm:
        event = scene.opening_event(run, sm)
    row = run.events[event]
    return sm, ((int(row["h"]), int(row["i"])) if row["i"] >= 0 else None), event


@st.fragment
def show(chosen: Chosen) -> None:
    """Player and what follows it. A fragment: choosing a moment redraws only this."""
    arguments, race, l2_kib, rows, recorded = chosen
    at = moment()
    with explained_errors():
        now, said = played(*arguments, recorded)
        run, schedule = now.run, schedule_digest(now.run)
        sm, tile, event = focus(run, at, schedule, now.sms)
        if "schedule" not in at:  # nothing chosen since the player was mounted: this is where it stands when it opens
            st.session_state[KEY + "-opened"] = (event, int(at["row"]), int(at["col"]), int(at["event"]) != event)
        start = st.session_state.get(KEY + "-opened")
        blob = payload(arguments, now, (sm, tile, race, l2_kib * KIB), start)
    if said and recorded is None:
        st.caption(plain(said))
    player(blob, key=KEY)
    if recorded is not None:
        st.caption(f"{plain(said)} {run_choice.provenance(recorded)}")
    problem, tiling, order, name, _, seed, layer, head, gpu, by = arguments
    parcel = Parcel(
        problem, tiling, order, name, now.sms, seed, layer, head, gpu, by if by in follow.KERNELS_SHOWN else None,
        l2_kib * KIB, race, event, int(at["row"]), int(at["col"]), f"{said} {recorded.origin}" if recorded else "",
    )  # fmt: skip
    home = st.container()
    below(now, now.served(l2_kib * KIB)[0], event, int(at["row"]), rows)
    controls.update_url()
    with home:  # last: it shows the address
        export_box(parcel, lambda: now)


def below(now: scene.Played, served: Served, event: int, row: int, wanted: str) -> None:
    """The chart and the sentence for the chosen moment. `wanted`: further rows, as typed."""
    run, what = now.run, now.run.events[event]
    problem, tiling = run.problem, run.tiling
    h, i, j = int(what["h"]), max(0, int(what["i"])), int(what["j"])
    first = i * tiling.Br
    last = min(first + tiling.Br, problem.Nq)
    number = min(first + row, last - 1)
    before_max = PHASES[what["phase"]].code in ("S", "load_Q", "load_K", "load_V", "load_O", "load_l", "load_m")
    reached = min(j - before_max, tiling.Tc(problem) - 1)
    head = f", head {now.inputs.heads[h]}" if now.inputs.heads else f", head {h}" if problem.H > 1 else ""
    where = f"SM {what['sm']}{head}, Q tile {i}" + (f", K/V tile {j} of {tiling.Tc(problem)}" if j >= 0 else "")
    word = f' ("{now.inputs.tokens[number]}")' if now.inputs.tokens else ""
    answer = ""
    if PHASES[what["phase"]].is_load:
        answer = " (from HBM)" if served.from_hbm[event] else " (L2 hit)"
    others = sorted({int(text) for text in wanted.split(",") if text.strip()} - {number})
    chosen = [number, *(r for r in others if r < problem.Nq)]
    st.markdown(
        f"**Chosen moment:** {where}, phase `{PHASES[what['phase']].maths}`{answer}, "
        f"from {format_time_us(float(what['t0']))} to {format_time_us(float(what['t1']))}. Below: the running maxima "
        f"of this Q tile's rows; row {number}{plain(word)} is strong. What lies to the right of the bar has not been "
        "visited."
    )
    elsewhere = {r: run.m[0, h, r] for r in chosen if not first <= r < last}
    charts.show(
        running_rows(run.m[0, h, first:last], first, chosen, reached, elsewhere),
        key="running-max",
        alt=f"Running maximum of rows {first} to {last - 1} after each K/V tile; row {number} ends at "
        f"{run.m[0, h, number, -1]:.3f}.",
    )


def bill(arguments: tuple[Any, ...], now: scene.Played, l2_kib: int, *, is_recorded: bool) -> None:
    """Requested bytes of the whole problem, shared memory, who answered, and what is simplified."""
    problem, tiling, order, *_ = arguments
    gpu, heads_shown = now.gpu, now.run.problem.H
    flash, naive = traffic(problem, tiling, order), traffic(problem, tiling, "naive")
    ratio = naive.requested_bytes / flash.requested_bytes
    left, middle, right = st.columns(3)
    left.metric(f"flash, {order}: requested", format_bytes(flash.requested_bytes))
    middle.metric(
        "naive: requested", format_bytes(naive.requested_bytes), f"{format_ratio(ratio)} flash", delta_color="off"
    )
    right.metric("shared memory a worker", format_bytes(smem_bytes(tiling, problem.d, problem.itemsize)))
    complaint = smem_complaint(tiling, problem.d, gpu.smem_per_block_optin, problem.itemsize)
    if complaint:
        st.warning(plain(complaint[0].upper() + complaint[1:]))
    if heads_shown < problem.H:
        why = "each of their workers has an SM to itself" if is_recorded else "it animates 4,096 visits at most"
        st.info(
            f"The player shows {heads_shown} of {problem.H} heads ({why}); the numbers above count all {problem.H}."
        )
    flash_l2, naive_l2 = now.served(l2_kib * KIB)
    holds = f"L2 that holds {format_bytes(l2_kib * KIB)}" if l2_kib else "no L2"
    st.markdown(
        f"**Who answers the loads**, with {holds}: flash reads {format_bytes(flash_l2.hbm_read)} of "
        f"{format_bytes(flash_l2.loaded)} from HBM ({flash_l2.hit_rate:.0%} L2 hits), naive "
        f"{format_bytes(naive_l2.hbm_read)} of {format_bytes(naive_l2.loaded)} ({naive_l2.hit_rate:.0%}). Of what they "
        f"store, flash has written {format_bytes(flash_l2.hbm_written)} back to HBM when it ends, naive "
        f"{format_bytes(naive_l2.hbm_written)}; the rest is still in L2."
    )
    workers = "A worker owns one Q tile and streams the K/V tiles past it"
    if order == "kv-outer":
        workers = (
            "Algorithm 1 gives each head to one worker; it first writes O = 0, l = 0, m = -inf "
            f"({format_bytes(flash.init_write_bytes)}, shown but counted apart)"
        )
    reduced = (
        f" The small benches show the largest score of each of {PICTURE_SIDE} x {PICTURE_SIDE} parts of a tile."
        if max(tiling.Br, tiling.Bc) > PICTURE_SIDE
        else ""
    )
    times = (
        f"Times follow a simple cost: bytes and FLOPs of each phase over one SM's share of the {gpu.name} "
        f"({gpu.sms} SMs), without latency or overlap, and as if HBM answered every load."
    )
    if is_recorded:
        times = "Times are a GPU's, as its first thread of each block saw them; a barrier's wait belongs to the phase."
    st.caption(
        f"{workers}. {times} Requested bytes: what "
        "workers load and store beyond their shared memory; caches do not enter. L2 here keeps whole tiles and throws "
        "out the one used longest ago; of SMs that load a tile together, the first fetches it; a stored tile goes to "
        "HBM when it is thrown out; flash and naive each begin with an empty L2. L1 and merged requests are left out: "
        "*Under the hood of HBM* has them. Numbers in the player are computed as a kernel would in "
        f"{problem.dtype}.{reduced}"
    )


def main() -> None:
    page(
        "Tiles in motion",
        "Workers stream tiles of Q, K and V through shared memory. Only `m`, `l` and `O` survive from tile to tile; "
        "the N × N matrix never exists.",
        begins_with="player",
    )
    left, right = st.columns([5, 1], gap="medium")  # on a phone the player comes first, then the controls
    with right:
        chosen = settings()
    with left:
        moment()  # the names that the player keeps in the address are known before unknown ones are reported
        controls.notices()
        show(chosen)
    arguments, l2_kib = chosen.arguments, chosen.l2_kib
    problem, tiling, order = arguments[0], arguments[1], arguments[2]
    with explained_errors():
        now, _ = played(*arguments, chosen.recorded)
    configuration(
        N=problem.Nq, d=problem.d, Br=tiling.Br, Bc=tiling.Bc, H=problem.H, dtype=problem.dtype,
        causal=problem.causal or "off", order=order, input=INPUTS[arguments[3]].title, SMs=now.sms,
        GPU=now.gpu.name, L2=format_bytes(l2_kib * KIB) if l2_kib else "none",
    )  # fmt: skip
    with explained_errors():
        bill(arguments, now, l2_kib, is_recorded=chosen.recorded is not None)
    try_this(tries(order, is_recorded=chosen.recorded is not None))


main()
