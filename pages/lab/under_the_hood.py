"""Under the hood of HBM: bytes at four levels of memory, waves of blocks, banks of shared memory."""

from __future__ import annotations

import streamlit as st

from fmha import Problem, Tiling, ladder
from fmha.dispatch import BLOCK_ORDERS, MEANING
from fmha.edge import dram_doubt
from fmha.figures.answered import answered
from fmha.figures.byte_levels import byte_levels
from fmha.figures.l2_sizes import l2_sizes
from fmha.figures.wave_picture import wave_picture
from fmha.forecast import TIMED, own_order
from fmha.hardware import GPUS, MIB
from fmha.kernels import ALIASES, KERNELS
from fmha.levels import Levels, TensorBytes
from fmha.measurement import Found, Recording, nearest, shipped
from fmha.model_errors import errors, measured
from fmha.model_facts_tiled import tiled_error
from fmha.traffic import compulsory_bytes
from fmha.ui import cards, charts, controls, hood_words
from fmha.ui.bank_box import bank_box, banks
from fmha.ui.hood_run import FLASH, NAIVE, Asked, complaint, dealt, predicted
from fmha.ui.kernel_settings import usual_tiles
from fmha.ui.page import configuration, explained_errors, page, plain, try_this
from fmha.ui.sentences import percent
from fmha.ui.this_gpu import default_gpu
from fmha.ui.trust_box import trust_box
from fmha.units import format_bytes, format_ratio, format_time_us
from fmha.visit_costs import COSTED, ONE_SCORE

TILES = [8, 16, 32, 64, 128]
LARGE_TILES = [16, 32, 48, 64, 80, 96, 112, 128]  # of kernels 06 to 13
L2_MIB = [0, 1, 2, 4, 8, 16, 32, 48, 60, 96, 126, 256, 500]
NAMED_MIB = (0, 4, 60, 500)


def settings() -> Asked:
    """The controls."""
    columns = st.columns(4)
    with columns[0]:
        N = controls.slider("N", "Sequence length N", options=[2**e for e in range(7, 18)], default=4096)
        H = controls.slider("H", "Heads H", options=[1, 2, 4, 8, 16, 32, 64], default=16)
    with columns[1]:
        d = controls.slider("d", "Head dimension d", options=[16, 32, 64, 128, 256], default=64)
        B = controls.slider("B", "Batch B", options=[1, 2, 4, 8, 16], default=1)
    cuda = {key: gpu.name for key, gpu in GPUS.items() if gpu.is_cuda}
    with columns[3]:
        others = " and ".join(gpu.name for gpu in GPUS.values() if not gpu.is_cuda)
        key = controls.choice(
            "gpu", "GPU", cuda, default=default_gpu(),
            help=f"The kernels are CUDA, and the model of the caches covers no other GPU: the {others} is not offered.",
        )  # fmt: skip
        number = controls.choice(
            "kernel", "Kernel", {n: f"{n} {KERNELS[n].name}" for n in TIMED}, default=FLASH, aliases=ALIASES,
            help="01: naive attention in three functions. 02: the tutorial's kernel, q-outer. The others are q-outer "
            "too, from 06 on with larger tiles.",
        )  # fmt: skip
    kernel, large = KERNELS[number], number in COSTED and number not in ONE_SCORE
    problem = kernel.fitting(Problem(B=B, H=H, N=N, d=d))
    first = usual_tiles(kernel, problem, GPUS[key])
    with columns[2]:
        offered = LARGE_TILES if large else TILES
        Br = controls.slider("Br", "Br, rows in a Q tile", options=offered, default=first.Br)
        Bc = controls.slider("Bc", "Bc, keys in a K/V tile", options=offered, default=first.Bc)
    gpu = GPUS[key]
    left, middle, right = st.columns([2, 4, 3], vertical_alignment="bottom")
    with left:
        causal = controls.causal()
    with middle:
        order = own_order(kernel)
        if number == FLASH:
            order = controls.choice(
                "blocks", "Order of the blocks", list(BLOCK_ORDERS), default=BLOCK_ORDERS[0],
                help="; ".join(f"{name}: {MEANING[name]}" for name in BLOCK_ORDERS) + ".",
            )  # fmt: skip
    with right:
        own = gpu.l2_bytes / MIB
        sizes = sorted({*L2_MIB, int(own) if own == int(own) else own})
        mib = controls.slider("l2", f"If L2 had ... MiB (as built: {own:g})", options=sizes, default=own)
    return Asked(number, problem.replace(causal=causal), Tiling(Br, Bc), gpu, order, int(mib * MIB))


def recordings() -> tuple[Recording, ...]:
    """Everything that was counted."""
    return (*shipped(), *ladder.shipped())


def recorded(asked: Asked) -> Found | None:
    """The recording of exactly these settings, with counters."""
    found = nearest(recordings(), KERNELS[asked.number], asked.problem, asked.tiling)
    if found is None or found.differs or not found.entry.counters or not asked.as_built:
        return None
    return found if found.recording.device.gpu.key == asked.gpu.key else None


# --- levels -----------------------------------------------------------------------------------------------------------


def four_levels(asked: Asked) -> None:
    """Predicted bytes, and measured ones beside them where there are any."""
    said, found, doubt = asked.forecast(), recorded(asked), plain(asked.doubt())
    turns = asked.wavefronts
    st.subheader(hood_words.headline(said, doubt), anchor=False)
    expected = asked.expected()
    if expected is not None:
        st.markdown(hood_words.between(expected))
    rows = hood_words.rows(said, turns, asked.problem, found.entry if found else None, doubt)
    left, right = st.columns([3, 2], gap="medium")
    with left:
        named = ", ".join(f"{row.name} {format_bytes(row.nbytes)}" for row in rows if row.nbytes is not None)
        charts.show(byte_levels(rows), key="levels", alt=f"Bytes at each level: {named}.")
        if found is not None:
            cards.provenance(found, "Measured")
            st.markdown(
                "**Here the model is off by** "
                + hood_words.off(errors(said, turns, measured(found.entry)))
                + " of what was measured."
            )
        else:
            st.caption("Predicted: hatched. " + not_measured(asked))
        if not asked.checked:
            (one,) = said.functions
            st.markdown(
                f"**Time, predicted: {format_time_us(said.time_us)}.** {hood_words.costs(one)} "
                f":small[{tiled_error(asked.number)}]"
            )
    with right:
        st.markdown(
            "\n".join(
                f"- {x}" for x in hood_words.why(said, asked.problem, asked.gpu, asked.l2_bytes, asked.naive, doubt)
            )
        )


def not_measured(asked: Asked) -> str:
    """Why nothing measured stands beside, and which settings have it."""
    if not asked.as_built:
        return "No GPU is built like this, so nothing measured stands beside it."
    there = [
        run.problem for recording in recordings() for run in recording.runs
        if any(e.name == asked.number and e.counters for e in run.entries)
    ]  # fmt: skip
    if not there:
        return f"Nothing was measured for these settings: no counters of kernel {asked.number} come with the app."
    lengths = ", ".join(f"{n:,}" for n in sorted({p.Nq for p in there}))
    dims, heads = (" and ".join(str(x) for x in sorted(v)) for v in ({p.d for p in there}, {p.H for p in there}))
    names = " and ".join(sorted({recording.device.gpu.name for recording in recordings()}))
    sizes = " and ".join(str(B) for B in sorted({p.B for p in there}))
    entries = [e for r in recordings() for run in r.runs for e in run.entries if e.name == asked.number and e.counters]
    tiles = ", ".join(f"{a} x {b}" for a, b in sorted({e.tiling for e in entries if e.tiling}))
    return (
        f"Nothing was measured for these settings. Counters of kernel {asked.number} were read on {names} at N = "
        f"{lengths}, d = {dims}, H = {heads}, B = {sizes}" + (f", with tiles of {tiles}." if tiles else ".")
    )


def who_answers(asked: Asked) -> None:
    """Hit rates by tensor."""
    st.header("Who answers a load", anchor=False)
    parts = [one.levels for one in asked.forecast().functions]
    if asked.doubt():
        part = parts[0].all
        st.markdown(
            f"L1 answers {percent(part.l1_hits / part.read)} of the loaded bytes, merging "
            f"{percent(part.merged / part.read)}; how L2 and DRAM share the rest cannot be predicted here."
        )
        return
    for part in parts:
        if len(parts) > 1:
            st.markdown(f"**`{part.function}`**")
        everything = part.all
        charts.show(
            answered(part), key=f"answered-{part.function}",
            alt=f"{part.function}: of {format_bytes(everything.read)} loaded, L1 answers "
            f"{percent(everything.l1_hits / everything.read)}, merging {percent(everything.merged / everything.read)}, "
            f"L2 {percent(everything.l2_hits / everything.read)}, DRAM "
            f"{percent(everything.dram_read / everything.read)}.",
        )  # fmt: skip
    with st.expander("The same in bytes, by function and tensor"):
        st.dataframe(
            [
                {
                    "function": part.function, "tensor": name, "loaded": f"{t.read:,.0f}",
                    "L1 hits": f"{t.l1_hits:,.0f}", "merged": f"{t.merged:,.0f}", "L2 hits": f"{t.l2_hits:,.0f}",
                    "DRAM read": f"{t.dram_read:,.0f}",
                    "stored": f"{t.written:,.0f}", "DRAM written": f"{t.dram_written:,.0f}",
                }
                for part in parts
                for name, t in by_tensor(part).items()
            ],
            hide_index=True,
        )  # fmt: skip
        st.caption(
            "Predicted bytes, expected values. What is stored and not yet written to DRAM lies in L2 at the end."
        )


def by_tensor(levels: Levels) -> dict[str, TensorBytes]:
    """Bytes of each tensor, of registers that threads spill, if they do, and of all together."""
    spilled = TensorBytes(written=levels.spilled)
    beside = {"spilled registers": spilled} if levels.spilled else {}
    return {**levels.by_tensor, **beside, "all": levels.all + spilled}


def other_l2(asked: Asked) -> None:
    """DRAM bytes with other L2 caches."""
    st.header("What if L2 were larger, or not there?", anchor=False)
    own = asked.gpu.l2_bytes
    every = sorted({*(mib * MIB for mib in NAMED_MIB), own, asked.l2_bytes})
    sizes = [size for size in every if not asked.doubt(l2_bytes=size)]
    dram = [asked.forecast(l2_bytes=size).levels.dram for size in sizes]
    floor = compulsory_bytes(asked.problem)
    charts.show(
        l2_sizes(sizes, dram, floor, own, asked.l2_bytes), key="l2-sizes",
        alt="DRAM bytes by size of L2: "
        + ", ".join(f"{size / MIB:g} MiB {format_bytes(value)}" for size, value in zip(sizes, dram, strict=True)) + ".",
    )  # fmt: skip
    missing = [f"{size / MIB:g}" for size in every if size not in sizes]
    if missing:
        st.caption(f"Not predicted for {' and '.join(missing)} MiB: there K and V in use are near or beyond L2.")
    if len(sizes) == 1:
        return
    none, most = dram[0], dram[-1]
    st.markdown(
        f"Without L2 the memory chips would have to deliver {format_bytes(none)}, all that L1 and merging leave; with "
        f"{sizes[-1] / MIB:g} MiB it is {format_bytes(most)}"
        + (f", {format_ratio(none / most)} less." if most and none > 1.05 * most else ".")
    )


# --- waves ------------------------------------------------------------------------------------------------------------


def waves(asked: Asked) -> None:
    """Who is on which SM, when."""
    st.header("Waves: blocks on SMs over time", anchor=False)
    sms = asked.gpu.sms
    for one in asked.forecast().functions:
        turn, held = one.waves, one.held
        full = "all full" if turn.last == turn.slots else f"the last with {turn.last:,}"
        st.markdown(
            f"- `{one.function}`: **{turn.blocks:,} blocks**, {held.blocks} on an SM at once (limited by "
            f"{held.limited_by}), {turn.slots:,} on {sms} SMs: **{turn.waves:,} "
            f"{'wave' if turn.waves == 1 else 'waves'}**, {full}."
        )
    if asked.naive:
        st.caption("The picture is drawn for kernel 02, whose blocks are all of one kind.")
        return
    places = asked.forecast().functions[0].held.blocks
    drawn = dealt(asked.problem, asked.tiling, sms, places, asked.order)
    charts.show(
        wave_picture(drawn), key="waves",
        alt=f"{drawn.blocks:,} blocks on {drawn.slots:,} places; {percent(drawn.busy)} of places x time works, and in "
        f"the last {percent(drawn.tail)} of the time some idle.",
    )  # fmt: skip
    cut = f" The first {drawn.blocks:,} of {drawn.total:,} blocks are drawn." if drawn.blocks < drawn.total else ""
    thin = f" {len(set(drawn.sm.tolist()))} of {sms} SMs are drawn." if len(drawn.sm) < drawn.slots else ""
    st.markdown(
        f"**{percent(drawn.busy)} of the places work on average;** for the last {percent(drawn.tail)} of the time some "
        f"have nothing left to do. Order: {MEANING[asked.order]}."
    )
    st.caption(
        f"A line is a place for a block; light and strong blue are even and odd heads, their two shades even and odd Q "
        f"tiles; clear is idle.{cut}{thin}"
    )
    if controls.toggle("orders", "Compare all block orders"):
        table = []
        for order in BLOCK_ORDERS:
            one = dealt(asked.problem, asked.tiling, sms, places, order)
            levels = asked.forecast(order=order).levels
            table.append(
                {
                    "order": order, "what": MEANING[order], "time, visits": f"{one.end:,.0f}",
                    "places that work": percent(one.busy), "tail": percent(one.tail),
                    "asked of L2": format_bytes(levels.l2),
                    "DRAM": "not predicted" if asked.doubt(order) else format_bytes(levels.dram),
                }
            )  # fmt: skip
        st.dataframe(table, hide_index=True)


# --- tasks ------------------------------------------------------------------------------------------------------------


def exercises(asked: Asked) -> None:
    """Things to try; the numbers in them are computed."""
    gpu, order = asked.gpu, BLOCK_ORDERS[0]
    long, tiles = Problem(N=65536, d=128), Tiling(64, 16)
    head = 2 * long.Nk * long.d * long.itemsize
    lines = []
    if KERNELS[FLASH].complaint(long, tiles, gpu) is None:
        said = predicted(FLASH, long, tiles, gpu, order, gpu.l2_bytes)
        ratio = (said.dram_read + said.dram_written) / compulsory_bytes(long)
        lines.append(
            f"Kernel 02 with N = 65,536, d = 128, H = 1, Br = 64, Bc = 16: K and V of the head are "
            f"{format_bytes(head)}, L2 of the {gpu.name} is {format_bytes(gpu.l2_bytes)}. DRAM moves "
            f"{format_ratio(ratio)} the compulsory bytes. "
            + ("Which L2 size makes it 1? Which block order helps?" if ratio > 1.2 else "Which L2 size makes it more?")
        )
    p = asked.problem
    both = [n for n in (NAIVE, FLASH) if KERNELS[n].complaint(p, asked.tiling, gpu) is None]
    if len(both) == 2:
        naive, flash = (predicted(n, p, asked.tiling, gpu, order, gpu.l2_bytes).levels for n in both)
        places = predicted(FLASH, p, asked.tiling, gpu, order, gpu.l2_bytes).functions[0].held.blocks
        moves = f" and moves {format_ratio(naive.dram / flash.dram)} the DRAM bytes"
        if dram_doubt(p, asked.tiling, gpu, blocks_per_sm=places):
            moves = ""
        lines.append(
            f"Choose kernel 01. With your settings it requests {format_ratio(naive.requested / flash.requested)} the "
            f"bytes of kernel 02{moves}. Which tensors are they?"
        )
        cured = [banks(FLASH, p, asked.tiling, gpu, pad) for pad in (0, 1)]
        worst = cured[0].worst()
        if worst is not None:
            lines.append(
                f"Choose kernel 02 and look at `{worst.text}` on the banks. Then set the padding to 1: the run needs "
                f"{format_ratio(cured[0].wavefronts / cured[1].wavefronts)} fewer wavefronts. Why does one float do, "
                "and why would 32 not?"
            )
    masked = Problem(N=4096, H=4, d=64, causal="bottom-right")
    light, heavy = (dealt(masked, Tiling(32, 32), gpu.sms, 1, name) for name in (order, "heavy-first"))
    lines.append(
        f"Switch the causal mask on with N = 4,096, H = 4, Br = Bc = 32 and change the order of the blocks. With one "
        f"block on an SM, {percent(light.busy)} of the places work in head-major order and {percent(heavy.busy)} with "
        "heavy-first. Why?"
    )
    lines.append("Set L2 to 0. Who answers now, and does DRAM then move all requested bytes? Who spares it the rest?")
    try_this(lines)


def main() -> None:
    page(
        "Under the hood of HBM",
        '**What papers call an "HBM access" is a request.** L1, merging and L2 answer most of them; Nsight Compute '
        "counts what is left.",
    )
    notice = st.container()
    with explained_errors():
        asked = settings()
    p = asked.problem
    configuration(
        kernel=f"{asked.number} {KERNELS[asked.number].name}", B=p.B, H=p.H, N=f"{p.Nq:,}", d=p.d,
        **({} if asked.naive else {"Br": asked.tiling.Br, "Bc": asked.tiling.Bc}), dtype=p.dtype,
        causal=p.causal or "none", GPU=asked.gpu.name, L2=format_bytes(asked.l2_bytes),
        **({} if asked.naive else {"blocks": asked.order}),
    )  # fmt: skip
    wrong = complaint(asked)
    if wrong:
        st.error(plain(wrong[:1].upper() + wrong[1:]))
        st.markdown(
            "Nothing can be predicted for a launch that the GPU refuses. The *Tile map* shows which tiles can be."
        )
    else:
        four_levels(asked)
        who_answers(asked)
        other_l2(asked)
        waves(asked)
        if asked.checked:
            bank_box(asked.number, p, asked.tiling, asked.gpu)
        else:
            st.caption(
                "Accesses to shared memory are drawn bank by bank for kernels 01 and 02. Of this kernel only the turns "
                "of the banks in a visit are known, counted from its tiles, without Q and O."
            )
    trust_box(asked.number)
    exercises(asked)
    with notice:
        controls.notices()


main()
