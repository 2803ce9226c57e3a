"""Timeline: which SM does what when. Blocks dealt to SMs in waves, their phases, the tail, and what would change it."""

from __future__ import annotations

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from fmha import Problem, Tiling
from fmha.dispatch import BLOCK_ORDERS, MEANING
from fmha.errors import FmhaError
from fmha.events import most_events
from fmha.figures import sm_time
from fmha.hardware import GPUS
from fmha.player import scene
from fmha.spans import at_work, starving_from
from fmha.ui import charts, controls, run_choice, timeline_as_run, timeline_words
from fmha.ui.page import configuration, page, plain, try_this
from fmha.ui.sentences import percent
from fmha.ui.this_gpu import default_gpu
from fmha.ui.timeline_closeup import KEY, close_up, picked, picture
from fmha.ui.timeline_run import (
    KERNEL_OF,
    MOST_EVENTS,
    STAGES,
    Asked,
    Held,
    Table,
    clocked,
    foretold,
    held,
    recorded,
    takes,
)
from fmha.units import format_count, format_ratio, format_time_us

LENGTHS = [*scene.LENGTHS, 2048, 4096, 8192, 16384]
HEAD_DIMS = [*scene.HEAD_DIMS, 256]
ORDERS = {"q-outer": "q-outer", "kv-outer": "kv-outer", "naive": "naive"}


def settings() -> Asked:
    """The controls, from above to below."""
    key = controls.choice("gpu", "GPU", {k: gpu.name for k, gpu in GPUS.items()}, default=default_gpu())
    gpu = GPUS[key]
    N = controls.slider("N", "Tokens N", options=LENGTHS, default=1024)
    H = controls.slider("H", "Heads H", lo=1, hi=64, default=16)
    B = controls.slider("B", "Batch B", options=[1, 2, 4, 8, 16], default=1)
    d = controls.slider("d", "Head dim d", options=HEAD_DIMS, default=64)
    Br = controls.slider("Br", "Q tile rows Br", options=scene.TILES, default=32)
    Bc = controls.slider("Bc", "K/V tile rows Bc", options=scene.TILES, default=32)
    order = controls.choice(
        "order", "Loop order", ORDERS, default="q-outer",
        help="q-outer: a block owns a Q tile. kv-outer: a block owns a head. naive: three kernels, one after another.",
    )  # fmt: skip
    dtype = controls.choice("dtype", "Data type", ["fp32", "fp16", "bf16"], default="fp32")
    causal = controls.causal()
    block_order = BLOCK_ORDERS[0]
    if order == "q-outer":
        block_order = controls.choice(
            "blocks", "Order of the blocks", list(BLOCK_ORDERS), default=BLOCK_ORDERS[0],
            help="; ".join(f"{name}: {MEANING[name]}" for name in BLOCK_ORDERS) + ".",
        )  # fmt: skip
    stages = controls.choice(
        "stages", "Stages", [str(n) for n in STAGES], default="1",
        help="Buffers for K/V tiles. With one a block loads, computes, loads; with more it loads ahead.",
    )  # fmt: skip
    sms = controls.slider(
        "sms", "SMs", options=sorted({*scene_sms(), gpu.sms}), default=gpu.sms,
        help=f"The {gpu.name} has {gpu.sms}. With fewer, waves are easier to see; a load still has one SM's share.",
    )  # fmt: skip
    problem, tiling = Problem(B=B, N=N, H=H, d=d, dtype=dtype, causal=causal), Tiling(Br, Bc)
    room, many = held(problem, tiling, gpu, int(stages)).places, "1"
    if order != "naive":
        many = controls.choice(
            "held", "Blocks on an SM", {"1": "1", "fit": f"all that fit: {room}"}, default="1",
            help="Several share the SM's speed. 1 as in the player; what fits: by shared memory, registers, threads.",
        )  # fmt: skip
    return Asked(problem, tiling, order, gpu, sms, block_order, int(stages), room if many == "fit" else 1)


def scene_sms() -> list[int]:
    """Numbers of SMs that the player offers."""
    return [2**e for e in range(scene.MAX_SMS.bit_length()) if 2**e <= scene.MAX_SMS]


def read_off(table: Table) -> None:
    """Waves, tail and shares: what the event table alone says."""
    blocks = table.blocks
    left, middle, right = st.columns(3, gap="medium")
    kernels = [kernel for _, kernel, *_ in table.waves]
    most = max(set(kernels), key=kernels.count)
    sizes = [size for _, kernel, _, size in table.waves if kernel == most]
    with left:
        st.markdown(timeline_words.waves(table))
        named = ", ".join(f"{size:,}" for size in sizes[-4:])
        charts.show(
            sm_time.wave_bars(sizes, blocks.places), key="wave-sizes", alt=f"Blocks in the last waves: {named}."
        )
    with middle:
        st.markdown(timeline_words.tail(table))
        moments, at = at_work(blocks)
        charts.show(
            sm_time.working(moments, at, blocks, starving_from(blocks)), key="working",
            alt=f"SMs at work over time: at most {int(at.max())} of {blocks.sms}.",
        )  # fmt: skip
    with right:
        st.markdown(timeline_words.shares(table))
        charts.show(
            sm_time.phase_shares(blocks), key="phase-shares",
            alt=f"Loads {percent(table.shares.loading)}, computing {percent(table.shares.computing)} of SMs x time.",
        )  # fmt: skip


# --- what would change it ---------------------------------------------------------------------------------------------


def what_if(asked: Asked) -> None:
    """Stages, block orders and what an SM holds."""
    p = asked.shown
    left, middle, right = st.columns(3, gap="medium")
    with left:
        times = {n: takes(asked.but(stages=n))[0] for n in STAGES}
        room = {n: held(p, asked.tiling, asked.gpu, n) for n in STAGES}
        st.markdown(timeline_words.stages(times, asked, room))
        names = {timeline_words.counted(n, "stage"): t for n, t in times.items()}
        chosen = timeline_words.counted(asked.stages, "stage")
        charts.show(sm_time.total_bars(names, chosen, asked.order), key="stage-times", alt=told(names))
    with middle:
        if asked.order == "q-outer":
            both = {name: takes(asked.but(block_order=name)) for name in BLOCK_ORDERS}
            totals, idles = ({name: pair[k] for name, pair in both.items()} for k in (0, 1))
            st.markdown(timeline_words.orders(totals, idles, p.causal is not None))
            charts.show(sm_time.total_bars(totals, asked.block_order, asked.order), key="order-times", alt=told(totals))
        else:
            st.markdown("**Block order.** It is offered for q-outer: blocks of the other orders last (nearly) as long.")
    with right:
        holds(asked, held(p, asked.tiling, asked.gpu, asked.stages))


def told(times: dict[str, float]) -> str:
    """Times as words."""
    return "; ".join(f"{name}: {format_time_us(t)}" for name, t in times.items()) + "."


def holds(asked: Asked, room: Held) -> None:
    """Blocks that an SM holds."""
    if asked.order == "naive":
        said = foretold("01", asked.problem, asked.tiling, asked.gpu, BLOCK_ORDERS[0])
        if isinstance(said, str):
            st.markdown(f"**Occupancy.** Not known: {plain(said)}")
        else:
            st.markdown(timeline_words.naive_occupancy(said, asked.gpu))
        return
    st.markdown(timeline_words.occupancy(asked, room))
    if room.found is not None:
        by = room.found.by_resource
        charts.show(
            sm_time.resource_bars(by, room.found.limited_by), key="occupancy",
            alt="Blocks an SM could hold by " + ", ".join(f"{name} {n}" for name, n in by.items()) + ".",
        )  # fmt: skip


def beside(asked: Asked, table: Table) -> None:
    """The simple cost beside the calibrated forecast and a recording."""
    st.header("How far from a real kernel", anchor=False)
    number = KERNEL_OF.get(asked.order)
    if number is None:
        st.markdown("No kernel of this app has this loop order, so there is no forecast and no recording of it.")
    elif asked.shown != asked.problem or asked.sms != asked.gpu.sms:
        st.markdown(
            "The calibrated forecast and recordings are of all heads on all SMs, so nothing stands beside this part."
        )
    else:
        said, found = foretold(number, asked.problem, asked.tiling, asked.gpu, asked.block_order), recorded(asked)
        left, right = st.columns([3, 2], gap="medium")
        left.markdown(timeline_words.compared(table, said, found, asked))
        rows = [sm_time.Compared("this timeline", table.blocks.span)]
        if not isinstance(said, str):
            rows.append(sm_time.Compared(f"forecast, kernel {number}", said.time_us))
        if found is not None and found.entry.time is not None:
            rows.append(sm_time.Compared("measured", found.entry.time.median_us, True))
        if len(rows) > 1:
            with right:
                alt = told({row.name: row.time_us for row in rows})
                charts.show(sm_time.compared(rows, asked.order), key="compared", alt=alt)
    st.caption(timeline_words.NOT_MODELLED)


# --- tasks ------------------------------------------------------------------------------------------------------------


PLAIN = Problem(N=1024, H=16, d=64)
LONG_HEAD = 400_000  # events of a head: above, tasks are computed for `PLAIN`


def exercises(asked: Asked) -> None:
    """Things to try; the numbers in them are computed, for the settings at hand if there is enough to see."""
    there = asked.but(
        problem=asked.problem.replace(causal=None), order="q-outer", block_order=BLOCK_ORDERS[0], stages=1, places=1
    )
    q, setting = there, ""
    if most_events(there.problem.replace(B=1, H=1, Hk=1), q.tiling, "kv-outer") > LONG_HEAD or not _has_tasks(there):
        q = there.but(problem=PLAIN, tiling=Tiling(32, 32))
        setting = "With N = 1,024, H = 16, B = 1, d = 64, Br = Bc = 32, fp32: "
    heads = q.problem.B * q.problem.H
    one, two, three = (takes(q.but(stages=n), heads)[0] for n in STAGES)
    masked = q.but(problem=q.problem.replace(causal="bottom-right"))
    major, heavy = (takes(masked.but(block_order=name), heads) for name in (BLOCK_ORDERS[0], "heavy-first"))
    idle = {H: takes(q, q.problem.B * H)[1] for H in range(1, 33)}
    worst = max(idle, key=lambda H: idle[H])
    outer = takes(q.but(order="kv-outer"), heads)[0]
    third = "changes nothing more" if two / three < timeline_words.SAME else f"makes it {format_time_us(three)}"
    try_this(
        [
            f"{setting}Move **H** from 1 to 32 with q-outer: SMs idle between {percent(min(idle.values()))} and "
            f"{percent(idle[worst])} (H = {worst}) of the time. Which H fill the last wave?",
            f"{setting}Set **Stages** to 2 and look at the close-up: {format_time_us(one)} become "
            f"{format_time_us(two)}, and a third stage {third}. Which of the two lines of a block has gaps now, and "
            "could more buffers fill them?",
            f"{setting}Switch the **causal mask** on: SMs idle {percent(major[1])} of {format_time_us(major[0])}. With "
            f"**heavy-first** it is {percent(heavy[1])} of {format_time_us(heavy[0])}. Where in the picture did the "
            "long bars go?",
            f"{setting}Choose **kv-outer**: a block owns a head, so {timeline_words.counted(min(q.sms, heads), 'SM')} "
            f"of {q.sms} get one, and the run takes {format_ratio(outer / one)} the time of q-outer. What would a "
            "larger batch **B** change?",
        ]
    )


def _has_tasks(q: Asked) -> bool:
    """Whether a second stage and a causal tail can be seen with these settings."""
    return q.problem.B * q.problem.H * q.tiling.Tr(q.problem) > q.sms and q.tiling.Tc(q.problem) > 1


MODEL, RUN = "model", "run"
TIMES = {MODEL: "predicted", RUN: "as run"}
TIMES_HELP = (
    "Predicted: a simple cost says how long each phase takes. As run: a GPU wrote down when each phase began, block by "
    "block; the prediction stands beside it."
)


def as_run(left: DeltaGenerator, right: DeltaGenerator) -> None:
    """A time-stamped run with what was predicted of it, in place of the settings' timeline."""
    run = both = None
    with left:
        notice, shown = st.container(), st.container()
    try:
        with right:
            run, how = timeline_as_run.settings()
        with shown:
            if run is None:
                timeline_as_run.none_yet()
            else:
                both = timeline_as_run.both_of(run, how)
                drawn = st.container()
                view, zoom = close_up(both.measured)
                with drawn:  # last: it frames what the close-up shows
                    measured = both.measured
                    timeline_as_run.pictures(both, KEY, view, lambda: picked(measured, zoom, view.sms))
                st.caption(run_choice.provenance(run))
    except FmhaError as error:
        shown.error(plain(str(error)[:1].upper() + str(error)[1:]))
    if run is not None:
        timeline_as_run.configuration_of(run)
    if both is not None:
        timeline_as_run.numbers(both)
    st.header("A recording of your own", anchor=False)
    run_choice.upload()
    if both is not None:
        timeline_as_run.exercises(both)
    with notice:
        controls.notices()


def main() -> None:
    page(
        "Timeline",
        "**A run is a schedule:** [[blocks|thread block]] go to [[SMs|SM]] in [[waves|wave]], load and compute in "
        "turns or at once, and in the [[tail]] some SMs have nothing left to do.",
    )
    left, right = st.columns([4, 1], gap="medium")  # on a phone the picture comes first, then the controls
    with right:
        times = controls.choice("clock", "Times", TIMES, default=MODEL, help=TIMES_HELP)
    if times == RUN:
        as_run(left, right)
        return
    with right:
        asked = settings()
    table = None
    with left:
        notice = st.container()
        try:
            table = clocked(asked)
            p = asked.shown
            st.subheader(timeline_words.headline(table), anchor=False)
            if p != asked.problem:
                st.info(
                    f"The timeline shows {p.B * p.H} of {asked.problem.B * asked.problem.H:,} heads: it draws "
                    f"{format_count(MOST_EVENTS)} events at most. All numbers here are of these heads."
                )
            picture(table)
        except FmhaError as error:
            st.error(plain(str(error)[:1].upper() + str(error)[1:]))
    p = asked.problem
    configuration(
        B=p.B, H=p.H, N=f"{p.Nq:,}", d=p.d, Br=asked.tiling.Br, Bc=asked.tiling.Bc, dtype=p.dtype,
        causal=p.causal or "none", order=asked.order, blocks=asked.block_order, stages=asked.stages,
        GPU=asked.gpu.name, SMs=asked.sms, **{"blocks on an SM": asked.places},
    )  # fmt: skip
    if table is not None:
        st.header("Waves, tail, overlap", anchor=False)
        read_off(table)
        st.header("What would change it", anchor=False)
        what_if(asked)
        beside(asked, table)
    exercises(asked)
    with notice:
        controls.notices()


main()
