"""Tile map: every Br x Bc of a design on a GPU: can it be, what does it move, how long does it take."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from fmha import Problem, Tiling, formulas, ladder
from fmha.figures.tile_cells import BEST, NAMES, SHORT, initials, shown, tile_cells
from fmha.forecast import Forecast, forecast, time_us
from fmha.hardware import DEFAULT_GPU, GPUS, Gpu
from fmha.kernels import KERNELS
from fmha.measurement import Recording, shipped
from fmha.model_facts import ERRORS_OF_THE_MODEL
from fmha.model_facts_tiled import LOWEST_RANKING, sweep_sentence, tiled_error
from fmha.tile_designs import DESIGNS, Preset, presets
from fmha.tilemap import BASE_SIZES, Cell, Metric, Predicted, TileMap, asked_of_l2, sweeps, tile_map
from fmha.traffic import closed_form
from fmha.ui import charts, controls, hood_words
from fmha.ui.page import configuration, explained_errors, page, plain, try_this
from fmha.ui.sentences import percent
from fmha.ui.this_gpu import default_gpu
from fmha.ui.words_formulas import formula_box
from fmha.units import format_bytes, format_number, format_ratio, format_time_us

LENGTHS = [2**e for e in range(7, 17)]
KEY = "tiles"
METRICS: tuple[Metric, ...] = ("requested", "l2", "time", "occupancy", "recorded")
# The cell that is framed on a fresh page.
FIRST = {"02": (32, 32), "12": (128, 64), "13": (128, 32), "fa2": (128, 64), "fa3": (128, 128)}
DESIGN_NAMES = {
    "02": "kernel 02", "12": "kernel 12", "13": "kernel 13", "fa2": "FlashAttention-2", "fa3": "FlashAttention-3",
}  # fmt: skip
OF_TENSOR_CORES = (16, 32, 48, 64, 80, 96, 112, 128)  # Bc of kernels 12 and 13
LARGEST = 1 << 20
# Visits that the model of a cell follows. L2 bytes are a few percent off; time hangs on shared memory, not on them.
VISITS = {"l2": 2_000, "time": 500}
VISITS_OF_LARGE_TILES = 800


@st.cache_data(max_entries=64, show_spinner=False)
def mapped(
    design: str, problem: Problem, gpu: Gpu, rows: tuple[int, ...], columns: tuple[int, ...], modelled: str
) -> TileMap:
    """The map, by its whole input. modelled: "l2" or "time", what the model says of our kernels' cells, or ""."""

    def l2(tiling: Tiling) -> Predicted:
        if design == "02":
            return Predicted(l2_bytes=asked_of_l2(problem, tiling, gpu, VISITS["l2"]))
        said = forecast(KERNELS[design], problem, tiling, gpu, most=VISITS_OF_LARGE_TILES)
        return Predicted(l2_bytes=said.levels.l2)

    def time(tiling: Tiling) -> Predicted:
        return Predicted(time_us=time_us(KERNELS[design], problem, tiling, gpu, most=VISITS["time"]))

    models = {"l2": l2, "time": time} if design in KERNELS else {}
    return tile_map(design, problem, gpu, rows, columns, model=models.get(modelled), recordings=recordings())


def recordings() -> tuple[Recording, ...]:
    """Everything that was timed with tiles."""
    return (*shipped(), *ladder.shipped(), *sweeps())


@st.cache_data(max_entries=64, show_spinner=False)
def foretold(number: str, problem: Problem, tiling: Tiling, gpu: Gpu) -> Forecast:
    """What the model says of one of our kernels with these tiles, in full."""
    return forecast(KERNELS[number], problem, tiling, gpu)


def sizes(design: str, found: Sequence[Preset]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Br and Bc of the map: powers of two, and what the presets need; in steps of 16 where tensor cores take them."""
    if design in ("12", "13"):
        return (32, 64, 128, 256), OF_TENSOR_CORES
    rows = sorted({*BASE_SIZES, *(preset.Br for preset in found)})
    return tuple(rows), tuple(sorted({*BASE_SIZES, *(preset.Bc for preset in found)}))


def nearest(wanted: int, options: Sequence[int]) -> int:
    """The option that is closest in doublings."""
    return min(options, key=lambda size: abs(size / wanted - 1) if size > wanted else abs(wanted / size - 1))


def picked(rows: tuple[int, ...], columns: tuple[int, ...]) -> None:
    """A cell of the map was clicked."""
    place = charts.pick(KEY)
    if place is not None and 0 <= place[1] < len(rows) and 0 <= place[0] < len(columns):
        controls.assign(mBr=rows[place[1]], mBc=columns[place[0]])


def headline(drawn: TileMap, metric: Metric) -> None:
    """How many cells can be, and the best one."""
    total = len(drawn.rows) * len(drawn.columns)
    refused = drawn.refused()
    possible = total - sum(refused.values())
    why = ", ".join(f"{count} by {reason}" for reason, count in sorted(refused.items(), key=lambda item: -item[1]))
    text = f"{possible} of {total} tile sizes can be" + (f"; the others are forbidden: {why}" if why else "") + "."
    if not possible:
        text = f"None of {total} tile sizes can be; they are forbidden: {why}."
    st.subheader(text, anchor=False)
    best = drawn.best(metric)
    if best is not None:
        most = {"occupancy": "Most occupancy", "recorded": "Fastest recorded"}.get(metric, f"Least {NAMES[metric]}")
        equal = sum(1 for row in drawn.cells for c in row if c.value(metric) == best.value(metric)) - 1
        others = f"; {equal} more {'is' if equal == 1 else 'are'} equal, with more shared memory" if equal else ""
        st.markdown(f"**{most}: Br = {best.tiling.Br}, Bc = {best.tiling.Bc}** ({shown(best, metric)}){others}.")


def legend(drawn: TileMap, metric: Metric, found: Sequence[Preset]) -> None:
    """What the signs mean, and where the numbers are from."""
    reasons = [f"{SHORT[r]}: {r}" if SHORT[r] != r else r for r in drawn.refused()]
    signs = [f"{BEST} best", *(f"{initials(p.name)}: {p.name}'s tiles" for p in found)]
    st.caption(
        f"Darker is more. {' · '.join(signs)}" + (f" · Grey: forbidden by {', '.join(reasons)}." if reasons else ".")
    )


def numbers(drawn: TileMap, cell: Cell) -> None:
    """The chosen cell in numbers, or why it cannot be."""
    Br, Bc, gpu, p = cell.tiling.Br, cell.tiling.Bc, drawn.gpu, drawn.problem
    st.header(f"Br = {Br}, Bc = {Bc}", anchor=False)
    if not cell.runs:
        asked = closed_form(p, cell.tiling, "q-outer").requested_bytes
        st.warning(
            f"**Cannot be, by {cell.need.why_not}:** {plain(cell.need.sentence.rstrip('.'))}. It would request "
            f"{format_bytes(asked)}."
        )
        return
    held, waves = cell.held, cell.waves
    assert held is not None and waves is not None and cell.requested_bytes is not None
    l2, time, slow, ours = shown(cell, "l2"), shown(cell, "time"), "", drawn.design.key in KERNELS
    if ours:
        said = foretold(drawn.design.key, p, cell.tiling, gpu)
        l2, time = format_bytes(said.levels.l2), format_time_us(said.time_us)
        slow = "\n" + f"- {hood_words.costs(said.functions[0])}"
    boxes = [
        ("Requested", shown(cell, "requested")),
        ("Asked of L2, predicted", l2 or "no model"),
        ("Time, predicted" if ours else "Time, at best", time or "no model"),
        ("Recorded", f"{format_number(cell.tflops)} TFLOP/s" if cell.tflops else "nothing"),
    ]
    for pair in (boxes[:2], boxes[2:]):
        for column, (label, value) in zip(st.columns(2), pair, strict=True):
            column.metric(label, value)
    registers = f"{cell.need.registers} registers a thread" if cell.need.registers else "registers not known"
    tail = (
        "the last wave is full"
        if waves.last == waves.slots
        else f"the last one has {waves.last:,}, so {percent(1 - waves.busy)} of all places stay empty"
    )
    st.markdown(
        f"- **A block:** {cell.need.threads:,} threads, {format_bytes(cell.need.smem_bytes)} of shared memory, "
        f"{registers}.\n"
        f"- **An SM holds {held.blocks} {'block' if held.blocks == 1 else 'blocks'},** {held.warps} of "
        f"{held.max_warps} warps ({percent(held.fraction)}); the limit is {held.limited_by}.\n"
        f"- **{waves.blocks:,} blocks in {waves.waves:,} {'wave' if waves.waves == 1 else 'waves'}** of up to "
        f"{waves.slots:,} on {gpu.sms} SMs; {tail}."
        + (
            f"\n- **Ragged:** N = {p.Nq:,} is no multiple of Br or Bc, so the last tiles are not full."
            if p.Nq % Br or p.Nk % Bc
            else ""
        )
        + slow
    )


def with_numbers(drawn: TileMap, cell: Cell) -> None:
    """The formulas behind the cell, and the paper's choice of tiles in this GPU's shared memory."""
    problem, tiling = drawn.problem, cell.tiling
    shown = [*formulas.tile_counts(problem, tiling), formulas.requested(problem, tiling, "q-outer")]
    if drawn.design.key == "02":
        shown.append(formulas.smem(tiling, problem.d, problem.itemsize))
    shown += [
        formulas.flops(problem, tiling),
        *formulas.paper_tiles(drawn.gpu.smem_per_block_optin // problem.itemsize, problem.d),
    ]
    formula_box(shown)


def apply(cell: Cell, everywhere: tuple[int, int]) -> None:
    """The button that hands the cell's tiles to all pages."""
    Br, Bc = cell.tiling.Br, cell.tiling.Bc
    if everywhere == (Br, Bc):
        st.markdown(f"✓ All pages use Br = {Br}, Bc = {Bc}. A page that does not offer them takes the nearest it has.")
        return
    st.button(
        f"Use Br = {Br}, Bc = {Bc} everywhere", key="everywhere", on_click=controls.assign, kwargs={"Br": Br, "Bc": Bc},
        help="Sets Br and Bc on all pages.",
    )  # fmt: skip


def preset_buttons(found: Sequence[Preset]) -> None:
    """Tiles of others, one click away."""
    if not found:
        st.caption("FlashAttention-2 and -3 do not run on this GPU, so their tiles are not marked.")
        return
    st.markdown("**Tiles of others,** for this d, mask and GPU:")
    for preset in found:
        st.button(
            f"{preset.name}: {preset.Br} x {preset.Bc}", key=f"preset-{preset.design}", on_click=controls.assign,
            kwargs={"design": preset.design, "mBr": preset.Br, "mBc": preset.Bc},
        )  # fmt: skip
    st.caption("Sources: " + "; ".join(f"{preset.name}, {plain(preset.source)}" for preset in found) + ".")


def rules(drawn: TileMap) -> None:
    """What the map assumes."""
    st.header("What is assumed", anchor=False)
    design = drawn.design
    lines = [f"**{design.title}:** {design.rule}"]
    if design.key in KERNELS:
        unknown = ", and for tiles that were not compiled they are left out" if design.key == "02" else ""
        lines.append(
            "Registers are those of nvcc 13.0 for compute capability 9.0; other compilers and GPUs differ by a "
            f"few{unknown}."
        )
        lines.append(how_good(design.key, drawn.gpu))
    else:
        lines += [
            "The rule is ours, not theirs. It allows the tiles that its authors use and forbids those that they call "
            "impossible or slow because registers spill. No kernel of this app is built exactly so, so nothing is "
            "recorded, and no model says what L2 sees.",
            "**Time is the least that the roofs allow:** arithmetic on whole visited tiles at the matrix peak (SMs "
            "that have a block less wait for the busiest), requested bytes at the speed of L2 where it is known, "
            "compulsory bytes at the speed of device memory. Softmax, latency and synchronisation are not in it, so it "
            "does not tell good large tiles from bad ones; they are why one measures.",
        ]
    lines.append(
        "**Requested bytes** are exact (q-outer): Q once, K and V once for each Q tile, O once. So Br decides, and Bc "
        "acts through shared memory, registers and the mask's diagonal."
    )
    st.markdown("\n".join(f"- {line}" for line in lines))


def how_good(number: str, gpu: Gpu) -> str:
    """How far the predicted time can be trusted."""
    if number == "02":
        (error,) = (e for e in ERRORS_OF_THE_MODEL if e.what == "time")
        text = (
            f"within {100 * error.largest:.0f} % of what was recorded, half of them within {100 * error.median:.0f} %"
        )
        said = f"**Predicted time** was {text}."
    else:
        said = f"**Predicted time.** {tiled_error(number)}"
        if number == "12":
            said += (
                " In each of six settings it put the tile sizes into the recorded order but for neighbours "
                f"(Spearman's rank correlation {LOWEST_RANKING:g} or more). {sweep_sentence()}"
            )
        said += " Bytes asked of L2 come from the model of the caches, as on *Under the hood of HBM*."
    if gpu.key != DEFAULT_GPU:
        said += f" Nothing was measured on the {gpu.name}: there it is an estimate, by its own peaks and bandwidths."
    return said


def exercises(drawn: TileMap, problem: Problem, gpu: Gpu) -> None:
    """Things to try; the numbers in them are computed."""
    two = mapped("02", problem.replace(dtype="fp32"), gpu, BASE_SIZES, BASE_SIZES, "")
    requested, recorded = two.best("requested"), two.best("recorded")
    lines = []
    if requested is not None:
        line = (
            f"With kernel 02, colour by requested bytes: the fewest are at Br = {requested.tiling.Br}, Bc = "
            f"{requested.tiling.Bc}."
        )
        if recorded is not None:
            more = format_ratio((recorded.requested_bytes or 0) / (requested.requested_bytes or 1))
            line += (
                f" Then colour by recorded TFLOP/s: the fastest is Br = {recorded.tiling.Br}, Bc = "
                f"{recorded.tiling.Bc}, which requests {more} "
                "the bytes. What else counts?"
            )
        lines.append(line)
    for preset in presets(problem.d, problem.causal is not None, gpu):
        need = DESIGNS["02"].needs(problem, Tiling(preset.Br, preset.Bc), gpu)
        if need.why_not:
            lines.append(
                f"{preset.name} takes {preset.Br} x {preset.Bc} here. In kernel 02 that cannot be: "
                f"{plain(need.sentence)}. What does it do with S, P and O instead?"
            )
    twelve = mapped(
        "12", problem.replace(dtype="bf16"), gpu, *sizes("12", ()), "time"
    ).best("time")  # fmt: skip
    if twelve is not None and twelve.held is not None:
        lines.append(
            f"Choose kernel 12 and colour by time. The model's best tiles are Br = {twelve.tiling.Br}, Bc = "
            f"{twelve.tiling.Bc}, with {twelve.held.warps} of {twelve.held.max_warps} warps on an SM. Is it occupancy "
            "that makes tiles fast?"
        )
    limits = {g.key: g.smem_per_block_optin for g in GPUS.values() if g.is_cuda}
    small, large = min(limits, key=lambda k: limits[k]), max(limits, key=lambda k: limits[k])
    lines += [
        f"Set d = 256 and compare a {GPUS[small].name} ({format_bytes(limits[small])} of shared memory a block) with a "
        f"{GPUS[large].name} ({format_bytes(limits[large])}). Which cells are lost, and why?",
        "Choose FlashAttention-2's design with d = 64 and look at Br = 256, Bc = 64. A comment in its source calls "
        "these tiles slow because registers spill: "
        f"{plain(DESIGNS['fa2'].needs(Problem(N=1024, d=64, dtype='fp16'), Tiling(256, 64), GPUS['H200']).sentence)}.",
    ]
    try_this(lines)


def main() -> None:
    page(
        "Tile map",
        "**A [[tile]] size must fit before it can be fast:** threads, [[shared memory]] and [[registers]] forbid most "
        "of the map; bytes, [[waves]] and [[occupancy]] decide among the rest.",
    )
    notice = st.container()
    columns = st.columns(4)
    with columns[0]:
        N = controls.slider("N", "Sequence length N", options=LENGTHS, default=4096)
        H = controls.slider("H", "Heads H", options=[1, 2, 3, 4, 8, 16, 32, 64], default=16)
    with columns[1]:
        d = controls.slider("d", "Head dimension d", options=[16, 32, 64, 128, 256], default=64)
        B = controls.slider("B", "Batch B", options=[1, 2, 4, 8, 16, 32, 64], default=1)
    with columns[2]:
        gpu_key = controls.choice("gpu", "GPU", {k: g.name for k, g in GPUS.items()}, default=default_gpu())
        causal = controls.causal()
    with columns[3]:
        key = controls.choice("design", "Design", DESIGN_NAMES, default="02")
        colour = controls.choice("colour", "Colour shows", {m: NAMES[m] for m in METRICS}, default="requested")
    metric: Metric = next(m for m in METRICS if m == colour)
    gpu, design = GPUS[gpu_key], DESIGNS[key]
    found = presets(d, causal is not None, gpu)
    rows, cols = sizes(key, found)
    everywhere = (
        controls.hidden("Br", lo=0, hi=LARGEST, default=0), controls.hidden("Bc", lo=0, hi=LARGEST, default=0),
    )  # fmt: skip
    first = tuple(now or usual for now, usual in zip(everywhere, FIRST[key], strict=True))
    with explained_errors():
        problem = Problem(B=B, H=H, N=N, d=d, dtype=design.dtypes[0], causal=causal)
        configuration(
            B=B, H=H, N=f"{N:,}", d=d, dtype=problem.dtype, causal=causal or "none", GPU=gpu.name, design=design.title,
            colour=NAMES[metric],
        )  # fmt: skip
        drawn = mapped(key, problem, gpu, rows, cols, metric if metric in VISITS else "")
        headline(drawn, metric)
        left, right = st.columns([3, 2], gap="medium")
        with right:
            Br = controls.slider("mBr", "Cell: Br", options=rows, default=nearest(first[0], rows))
            Bc = controls.slider("mBc", "Cell: Bc", options=cols, default=nearest(first[1], cols))
            cell = drawn.at(Br, Bc)
        with left:
            known = sum(1 for row in drawn.cells for c in row if c.value(metric) is not None)
            if not known:
                st.info(nothing(drawn, metric))
            charts.show(
                tile_cells(drawn, metric, (Br, Bc), found), key=KEY, on_pick=lambda: picked(rows, cols),
                alt=f"{NAMES[metric]} for {len(rows)} x {len(cols)} tile sizes; the chosen cell is Br = {Br}, Bc = "
                f"{Bc}: {shown(cell, metric) or cell.need.why_not or 'no value'}.",
            )  # fmt: skip
            legend(drawn, metric, found)
        with right:
            numbers(drawn, cell)
            apply(cell, everywhere)
            preset_buttons(found)
        with_numbers(drawn, cell)
        rules(drawn)
        exercises(drawn, problem, gpu)
    with notice:
        controls.notices()


def nothing(drawn: TileMap, metric: Metric) -> str:
    """Why no cell has a value."""
    if not any(cell.runs for row in drawn.cells for cell in row):
        return f"No tile size can be on the {drawn.gpu.name} with this design."
    if metric == "recorded":
        return nothing_recorded(drawn)
    return "There is no model of this number for this design: choose kernel 02, or another colour."


def nothing_recorded(drawn: TileMap) -> str:
    """Where the design was recorded instead."""
    number = drawn.design.key if drawn.design.key in KERNELS else "02"
    there = [
        (run.problem, entry.dtype, recording.device.gpu.name)
        for recording in recordings() for run in recording.runs for entry in run.entries
        if entry.name == number and entry.time and entry.tiling
    ]  # fmt: skip
    text = "Nothing is recorded for these settings."
    if not there:
        return f"{text} Kernel {number} is in none of the recordings that come with the app."
    lengths = ", ".join(f"{n:,}" for n in sorted({p.Nq for p, *_ in there}))
    dims = " and ".join(str(d) for d in sorted({p.d for p, *_ in there}))
    p = drawn.problem
    here = sorted({(q.B, q.H) for q, *_ in there if (q.Nq, q.d, q.causal) == (p.Nq, p.d, p.causal)})
    heads = f"; with this N, d and mask: {', '.join(f'B = {B}, H = {H}' for B, H in here)}" if here else ""
    where = " and ".join(sorted({name for *_, name in there}))
    dtypes = " and ".join(sorted({dtype for _, dtype, _ in there}))
    return f"{text} Kernel {number} was recorded on {where} at N = {lengths}, d = {dims}, {dtypes}{heads}."


main()
