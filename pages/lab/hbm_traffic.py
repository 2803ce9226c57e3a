"""HBM traffic: requested bytes of three loop orders against N and against the tile sizes."""

from __future__ import annotations

import streamlit as st

from fmha import Problem, Tiling, Traffic, formulas
from fmha.figures.axes import ORDER_NAMES
from fmha.figures.memory_held import memory_held
from fmha.figures.traffic_tiles import traffic_tiles
from fmha.figures.traffic_vs_n import ratio_vs_n, traffic_vs_n
from fmha.hardware import GPUS, Gpu
from fmha.memory import hbm_held, smem_bytes
from fmha.traffic import closed_form, compulsory_bytes, theorem2_bytes
from fmha.ui import charts, controls
from fmha.ui.levels_box import LEVEL_LABELS, below_requests
from fmha.ui.page import configuration, explained_errors, page, prose, try_this
from fmha.ui.this_gpu import default_gpu
from fmha.ui.words_formulas import formula_box
from fmha.units import ceil_div, format_bytes, format_ratio

LENGTHS = [2**e for e in range(7, 21)]  # 128 to 1M tokens, the curves
OFFERED = sorted([*LENGTHS, 200, 1000, 10_000, 100_000])  # the slider also has lengths that no tile divides
TILES = [8, 16, 32, 64, 128, 256]
FLASH = ("q-outer", "kv-outer")
ORDERS = ("naive", *FLASH)
ORDER_LABELS = {"q-outer": "q-outer (FlashAttention-2)", "kv-outer": "kv-outer (FlashAttention-1)", "naive": "naive"}


@st.cache_data(max_entries=64, show_spinner=False)
def curves(problem: Problem, tiling: Tiling, write_lse: bool) -> dict[str, list[int]]:
    """Requested bytes at every length of the curves, for each order."""
    return {
        order: [closed_form(problem.replace(N=n), tiling, order, write_lse=write_lse).requested_bytes for n in LENGTHS]
        for order in ORDERS
    }


@st.cache_data(max_entries=64, show_spinner=False)
def grid(problem: Problem, order: str, write_lse: bool) -> list[list[int]]:
    """Requested bytes for every Br (rows) and Bc (columns)."""
    return [
        [closed_form(problem, Tiling(Br, Bc), order, write_lse=write_lse).requested_bytes for Bc in TILES]
        for Br in TILES
    ]


def in_words(problem: Problem, tiling: Tiling, moved: dict[str, Traffic]) -> None:
    """The sentence that the sliders change, and one true sentence for each order."""
    naive, flash = moved["naive"].requested_bytes, moved["q-outer"].requested_bytes
    first = moved["kv-outer"].requested_bytes
    ratio = naive / flash
    st.subheader(
        f"At N = {problem.Nq:,} naive attention moves {format_ratio(ratio)} the bytes of flash: {format_bytes(naive)} "
        f"against {format_bytes(flash)} (q-outer).",
        anchor=False,
    )
    Tr, Tc = tiling.Tr(problem), tiling.Tc(problem)
    masked = problem.causal is not None
    seen = " that the mask leaves visible" if masked else ""
    depends = "Br" if not masked else "Br (and a little on Bc, where the diagonal cuts tiles)"
    st.markdown(
        f"- **naive:** S and P are written once and read once each; nothing depends on Br and Bc"
        f"{', and the causal mask saves nothing' if masked else ''}.\n"
        f"- **flash, q-outer:** Q is read and O written once. {f'Each of the Tr = {Tr:,}' if Tr > 1 else 'The one'} Q "
        f"{'tiles' if Tr > 1 else 'tile'} reads all K and V tiles"
        f"{seen}, so traffic depends on {depends}.\n"
        f"- **flash, kv-outer:** K and V are read once. In each of up to Tc = {Tc:,} rounds Q is read, and O, "
        "l and m are "
        f"read *and* written{' for the rows that see the tile' if masked else ''}: {format_bytes(first)} in all, "
        f"{format_ratio(first / flash)} the bytes of q-outer."
    )


def against_length(problem: Problem, tiling: Tiling, gpu: Gpu, write_lse: bool) -> None:
    """Bytes and their ratio against N."""
    st.header("Against the sequence length", anchor=False)
    level = controls.choice("level", f"At level (on the {gpu.name})", LEVEL_LABELS, default="requested")
    if level != "requested":
        below_requests(problem, tiling, gpu, level)
        return
    moved = curves(problem, tiling, write_lse)
    M = gpu.smem_per_block_optin
    floor = [compulsory_bytes(problem.replace(N=n)) for n in LENGTHS]
    theorem = [theorem2_bytes(problem.replace(N=n), M) for n in LENGTHS]
    charts.show(
        traffic_vs_n(LENGTHS, moved, floor, theorem, problem.Nq),
        key="bytes",
        alt="Requested bytes against N, logarithmic. At one million tokens: "
        + ", ".join(f"{ORDER_NAMES[o]} {format_bytes(moved[o][-1])}" for o in ORDERS)
        + ".",
    )
    charts.show(
        ratio_vs_n(
            LENGTHS,
            {o: [a / b for a, b in zip(moved["naive"], moved[o], strict=True)] for o in FLASH},
            problem.Nq,
        ),
        key="ratio",
        alt=f"Naive bytes divided by q-outer bytes: {moved['naive'][0] / moved['q-outer'][0]:.1f} at N = 128, "
        f"{moved['naive'][-1] / moved['q-outer'][-1]:.1f} at one million.",
    )
    limit = 2 * tiling.Br / problem.d
    masked = (
        f" The causal mask doubles that, to {2 * limit:g}, as naive does not profit from it." if problem.causal else ""
    )
    st.markdown(
        "All three grow with N² in the end, so the ratio flattens. For q-outer it tends to 2 Br / d = "
        f"{limit:g}: taller "
        f"Q tiles read K and V less often.{masked}"
    )
    again = 2 * problem.Nk * problem.d * problem.itemsize
    matrices = 2 * problem.B * problem.H * problem.Nq * problem.Nk * problem.itemsize
    fit = (again <= gpu.l2_bytes, matrices <= gpu.l2_bytes)
    lesson = {
        (
            True,
            False,
        ): "So the bytes that reach the memory chips can differ far more than the requested bytes drawn here.",
        (
            True,
            True,
        ): "At this size the cache can serve both, and the memory chips may see little more than the compulsory bytes.",
        (False, True): "So here the cache is kinder to naive attention: N is short beside d.",
        (False, False): "So at this size the memory chips must serve both again and again.",
    }[fit]
    st.markdown(
        f"**Where the bytes come from matters as much.** What flash (q-outer) reads again are the K and V of a head, "
        f"{format_bytes(again)}: they {'fit' if fit[0] else 'do not fit'} into the "
        f"{format_bytes(gpu.l2_bytes)} of L2 on the "
        f"{gpu.name}. What naive reads again are S and P, {format_bytes(matrices)}: they "
        f"{'fit' if fit[1] else 'do not fit'}. {lesson}"
    )
    st.caption(
        f"N²d²/M is FlashAttention's Theorem 2 with M = {M // problem.itemsize:,} elements of {problem.dtype}, the "
        f"{format_bytes(M)} of shared memory that one block may use on the {gpu.name}. It says how the bytes can grow "
        "when tiles fill the whole of M, not how many they are. Compulsory: Q, K, V read once and O written once; "
        "nothing can move less."
    )


def against_tiles(problem: Problem, tiling: Tiling, gpu: Gpu, write_lse: bool) -> None:
    """Bytes over Br x Bc, with the tiles that do not fit."""
    st.header("Against the tile sizes", anchor=False)
    order = controls.choice("order", "Loop order", ORDER_LABELS, default="q-outer")
    nbytes = grid(problem, order, write_lse)
    limit = gpu.smem_per_block_optin
    fits = [[smem_bytes(Tiling(Br, Bc), problem.d, problem.itemsize) <= limit for Bc in TILES] for Br in TILES]
    charts.show(
        traffic_tiles(TILES, TILES, nbytes, fits, (tiling.Br, tiling.Bc), order),
        key="tiles",
        alt=f"Requested bytes of {ORDER_NAMES[order]} at N = {problem.Nq:,} for Br and Bc from 8 to 256.",
    )
    need = smem_bytes(tiling, problem.d, problem.itemsize)
    verdict = "fits" if need <= limit else "does not fit"
    lesson = {
        "q-outer": "Br decides: it says how often K and V are read. Bc acts through shared memory",
        "kv-outer": "Bc decides: it says how often Q and O are read and O is written. Br acts through shared memory",
        "naive": "Naive attention does not depend on tiles: all cells are equal",
    }[order]
    if problem.causal is not None and order != "naive":
        lesson += ", and through the tiles that the mask's diagonal cuts: they are visited whole"
    st.markdown(
        f"**{ORDER_NAMES[order]} at N = {problem.Nq:,}.** {lesson}. A cross marks tiles that do not fit into the "
        f"{format_bytes(limit)} a block may use on the {gpu.name} (the tutorial's kernel: Q, K, V tiles in "
        f"{problem.dtype}, "
        f"scores and accumulator in fp32). Your Br = {tiling.Br}, Bc = {tiling.Bc} needs {format_bytes(need)}: "
        f"it {verdict}."
    )


def exact(moved: dict[str, Traffic]) -> None:
    """Every byte, by tensor."""
    with st.expander("The same in exact bytes, by tensor"):
        st.dataframe(
            [
                {
                    "order": ORDER_NAMES[order],
                    "tensor": tensor,
                    "read, bytes": f"{read:,}",
                    "written, bytes": f"{written:,}",
                }
                for order, tr in moved.items()
                for tensor, (read, written) in [
                    *tr.by_tensor.items(),
                    ("all", (tr.requested_read_bytes, tr.requested_write_bytes)),
                ]
            ],
            hide_index=True,
        )
        st.markdown(
            "\n".join(
                f"- {ORDER_NAMES[order]}: **{tr.requested_bytes:,} bytes** in all"
                + (
                    f", and {tr.init_write_bytes:,} bytes to set O, l, m up, counted apart"
                    if tr.init_write_bytes
                    else ""
                )
                for order, tr in moved.items()
            )
        )


def with_numbers(problem: Problem, tiling: Tiling, gpu: Gpu, write_lse: bool) -> None:
    """The formulas behind the bytes."""
    formula_box(
        [
            *formulas.tile_counts(problem, tiling),
            *(formulas.requested(problem, tiling, o, write_lse=write_lse and o == "q-outer") for o in ORDERS),
            formulas.compulsory(problem),
            formulas.limit_ratio(problem, tiling),
            formulas.flops(problem, tiling),
            formulas.theorem2(problem, gpu.smem_per_block_optin),
        ]
    )


def held(problem: Problem) -> None:
    """Bytes in device memory at once."""
    st.header("What must be held", anchor=False)
    parts = {order: hbm_held(problem, order) for order in ORDERS}
    totals = {order: sum(sizes.values()) for order, sizes in parts.items()}
    charts.show(
        memory_held(parts),
        key="held",
        alt="Held in device memory: "
        + ", ".join(f"{ORDER_NAMES[o]} {format_bytes(t)}" for o, t in totals.items())
        + ".",
    )
    st.markdown(
        f"At N = {problem.Nq:,} naive attention holds {format_ratio(totals['naive'] / totals['q-outer'])} the "
        "memory of "
        "flash: S and P are there, N x N for each head. The page *The memory wall* shows which cards that fills."
    )


def what_is_counted() -> None:
    """What these numbers are and are not."""
    st.header("What is counted", anchor=False)
    prose(
        "**[[Requested bytes]]:** what [[thread blocks|thread block]] load and store beyond their [[registers]] and "
        "[[shared memory]], in the two-level "
        "model of the papers. Only real rows of a ragged last tile count, and only K/V tiles that are visited. "
        "[[L1]] and [[L2]] caches are not in it: on a GPU they serve part of these requests, and the HBM chips see "
        "less. [[l]], [[m]] and [[LSE]] take 4 bytes a row, whatever the data type. LSE is only written when training "
        "will need it.\n\n**The other levels** are chosen above the first chart: what L2 and DRAM see of these "
        "requests, and what shared memory delivers. **Not covered yet:** the backward pass and FlashAttention-3."
    )


def exercises(problem: Problem, gpu: Gpu, write_lse: bool) -> None:
    """Things to try; the numbers in them are computed."""
    small = Problem(N=1024, d=64, dtype="fp16")
    known = {Br: closed_form(small, Tiling(Br, 64), "q-outer", write_lse=True).requested_bytes for Br in (16, 64, 128)}
    masked = closed_form(small.replace(causal="br"), Tiling(64, 64), "q-outer", write_lse=True).requested_bytes
    tiles = ceil_div(1024, 64)
    cheapest = "; ".join(f"{order}: {_cheapest(problem, gpu, order, write_lse)}" for order in FLASH)
    try_this(
        [
            "Set N = 1024, d = 64, H = 1, B = 1, fp16, Br = Bc = 64 and write LSE. Flash (q-outer) moves "
            f"{known[64]:,} bytes "
            f"(in the exact numbers below the first chart). Br = 128 makes it {known[128]:,}, Br = 16 "
            f"{known[16]:,}; Bc "
            "changes nothing.",
            f"In that setting switch the causal mask on: {masked:,} bytes. Of the {tiles * tiles} tiles only "
            f"{tiles * (tiles + 1) // 2} are visited. Why more than half? (The tiles on the diagonal are "
            "visited whole.)",
            "Set Br = 8 and d = 256. Does naive move more or less than flash at N = 1M? The ratio tends to 2 Br / d = "
            f"{2 * 8 / 256:g}, below 1: tiles that are too small are worse than no tiles.",
            "Choose the order kv-outer in the tile picture: now Bc decides, and Br does not (without a mask). "
            "Which tiles move the fewest "
            f"bytes and still fit into the shared memory of the {gpu.name}? With your settings: {cheapest}.",
        ]
    )


def _cheapest(problem: Problem, gpu: Gpu, order: str, write_lse: bool) -> str:
    """The tiles of the picture that fit and move the fewest bytes; of equals, those with the least shared memory."""
    fitting = [
        (nbytes, smem_bytes(Tiling(Br, Bc), problem.d, problem.itemsize), Br, Bc)
        for Br, line in zip(TILES, grid(problem, order, write_lse), strict=True)
        for Bc, nbytes in zip(TILES, line, strict=True)
        if smem_bytes(Tiling(Br, Bc), problem.d, problem.itemsize) <= gpu.smem_per_block_optin
    ]
    if not fitting:
        return "none of them fits"
    nbytes, _, Br, Bc = min(fitting)
    return f"Br = {Br}, Bc = {Bc} ({format_bytes(nbytes)})"


page(
    "HBM traffic",
    "**The [[loop order]] and the tile size decide how many bytes attention asks of memory;** the arithmetic stays "
    "the same.",
)
notice = st.container()
columns = st.columns(4)
with columns[0]:
    N = controls.slider("N", "Sequence length N", options=OFFERED, default=8192)
    H = controls.slider("H", "Heads H", options=[1, 2, 3, 4, 8, 16, 32, 64], default=16)
with columns[1]:
    Br = controls.slider("Br", "Br, rows in a Q tile", options=TILES, default=128)
    B = controls.slider("B", "Batch B", options=[1, 2, 4, 8, 16, 32, 64], default=1)
with columns[2]:
    Bc = controls.slider("Bc", "Bc, keys in a K/V tile", options=TILES, default=64)
    dtype = controls.choice("dtype", "Data type", ["fp32", "fp16", "bf16"], default="fp16")
with columns[3]:
    d = controls.slider("d", "Head dimension d", options=[16, 32, 64, 128, 256], default=64)
    gpu_key = controls.choice("gpu", "On GPU", {k: g.name for k, g in GPUS.items()}, default=default_gpu())
left, right = st.columns(2, vertical_alignment="bottom")
with left:
    causal = controls.causal()
with right:
    lse = controls.toggle("lse", "Write LSE", help="q-outer also stores 4 bytes a row, which the backward pass needs")
with explained_errors():
    asked = Problem(B=B, H=H, N=N, d=d, dtype=dtype, causal=causal)
    tiles_asked = Tiling(Br, Bc)
    gpu = GPUS[gpu_key]
    configuration(
        B=B, H=H, N=f"{N:,}", d=d, Br=Br, Bc=Bc, dtype=dtype, causal=causal or "none", LSE="written" if lse else "no"
    )
    totals = {o: closed_form(asked, tiles_asked, o, write_lse=lse) for o in ORDERS}
    in_words(asked, tiles_asked, totals)
    against_length(asked, tiles_asked, gpu, lse)
    exact(totals)
    with_numbers(asked, tiles_asked, gpu, lse)
    against_tiles(asked, tiles_asked, gpu, lse)
    held(asked)
    what_is_counted()
    exercises(asked, gpu, lse)
with notice:
    controls.notices()
