"""Roofline: how fast each memory level and each arithmetic unit lets a kernel be, and which of them binds."""

from __future__ import annotations

import streamlit as st

from fmha import Problem, Tiling, ladder
from fmha.figures.roof_chart import roof_chart
from fmha.hardware import DEFAULT_GPU, GPUS, Gpu
from fmha.measurement import Found, shipped
from fmha.model_facts_tiled import MMA_OF_PEAK, tiled_error
from fmha.roofline import LEVELS, ORDERS, ridge, roofs
from fmha.ui import charts, controls, roof_points
from fmha.ui.page import configuration, explained_errors, page, try_this
from fmha.ui.roof_points import Library, Shown, requested_intensity
from fmha.ui.sentences import percent
from fmha.ui.this_gpu import default_gpu
from fmha.units import format_bytes, format_flops, format_number, format_ratio

LENGTHS = [2**e for e in range(7, 18)]
TILES = [8, 16, 32, 64, 128, 256]
DTYPES = ("fp32", "tf32", "fp16", "bf16", "fp8")  # whose peaks are drawn


@st.cache_data(max_entries=64, show_spinner=False)
def predictions(problem: Problem, tiling: Tiling, gpu_key: str, orders: tuple[str, ...] = ORDERS) -> dict[str, Shown]:
    """Naive, kv-outer and q-outer under the roofs of a GPU."""
    return roof_points.predictions(problem, tiling, GPUS[gpu_key], orders)


@st.cache_data(max_entries=64, show_spinner=False)
def best_kernel(problem: Problem, tiling: Tiling, gpu_key: str) -> Shown | None:
    """The forecast of the best kernel on tensor cores."""
    return roof_points.best_kernel(problem, tiling, GPUS[gpu_key])


def recorded(problem: Problem, tiling: Tiling, gpu: Gpu) -> tuple[list[Found], list[Shown], list[Library]]:
    """What was measured at this setting or the nearest, on this GPU: kernels and the libraries of the same run."""
    found = roof_points.found_kernels((*shipped(), *ladder.shipped()), problem, tiling)
    here = [f for f in found if roof_points.device_key(f) == gpu.key]
    peers = next((p for f in here if (p := roof_points.libraries(f.run, problem.dtype))), [])
    return found, roof_points.measured_kernels(here), peers


def headline(shown: dict[str, Shown], gpu: Gpu) -> None:
    """The sentence that the sliders change."""
    flash, naive = shown["q-outer"], shown["naive"]
    bound = flash.bound
    peak = gpu.peak_tflops(bound.point.dtype)
    gap = f", {format_ratio(peak / bound.tflops)} below its {bound.point.dtype} peak" if bound.binds.is_memory else ""
    st.subheader(
        f"On the {gpu.name}, q-outer can do {format_number(bound.tflops)} TFLOP/s{gap}: {_binds(flash)}. "
        f"Naive can do {format_number(naive.bound.tflops)}: {_binds(naive)}.",
        anchor=False,
    )


def _binds(shown: Shown) -> str:
    level = shown.bound.binds.level
    name = {"SMEM": "shared memory", "L2": "the L2 cache", "HBM": "device memory"}.get(level, f"the {level} peak")
    return f"{name} binds" + (" while no cache helps" if shown.two_level else "")


def picture(problem: Problem, gpu: Gpu, shown: list[Shown], peers: list[Library]) -> None:
    """The chart."""
    used = sorted({s.bound.point.dtype for s in shown} | {p.dtype for p in peers})
    fig = roof_chart(roofs(gpu, DTYPES), [s.mark() for s in shown] + [p.mark() for p in peers], used)
    alt = "; ".join(
        f"{s.name}: {format_number(s.tflops)} TFLOP/s, {s.bound.binds.level} binds at {format_number(s.bound.tflops)}"
        for s in shown
    )
    charts.show(fig, key="roofline", alt=f"Roofline of the {gpu.name}. {alt}.")
    st.markdown(
        "**How to read it.** A kernel is a row of points at one height, one for each level: "
        ":small[■] shared memory, :small[◆] L2, :small[●] device memory. Each must stay below *its own* slope, and the "
        "row below the peak of its arithmetic. The point that meets its slope first is what holds the kernel back. "
        "Hollow points are predictions, drawn at the height that the roofs allow, or, for kernel 12, that is forecast; "
        "filled ones were measured."
    )
    if peers:
        st.caption(
            f"◁ Libraries ({problem.dtype}) were timed without counters: only their height is measured. They are drawn "
            "at the intensity of the compulsory bytes (Q, K, V read and O written once); more bytes would mean further "
            "left."
        )


def where_from(found: list[Found], problem: Problem, gpu: Gpu, measured: list[Shown]) -> None:
    """Device, date, source of what was measured, and what is not drawn."""
    if measured:
        lines = roof_points.origins(s.found for s in measured if s.found)
        st.markdown("  \n".join(f":small[{line}]" for line in lines))
        if problem.dtype != "fp32" and all(s.bound.point.dtype == "fp32" for s in measured):
            st.markdown(
                f":small[The measured kernels compute in fp32, the predictions in {problem.dtype}: each is held "
                "against the peak of its own type.]"
            )
        return
    devices = {key: GPUS[key].name for f in found if (key := roof_points.device_key(f)) is not None}
    if not devices:
        st.info("Nothing was recorded yet that has a time and counters: only predictions are drawn.")
        return
    st.info(
        f"Kernels were recorded on the {' and the '.join(devices.values())} only. A measured point belongs under the "
        f"roofs of its own GPU, so none is drawn under those of the {gpu.name}."
    )
    for key, name in devices.items():
        st.button(f"Show the {name}", on_click=controls.assign, kwargs={"gpu": key}, key=f"show-{key}")


def table(shown: list[Shown], peers: list[Library]) -> None:
    """The numbers behind the chart."""
    with st.expander("The numbers behind the chart"):
        rows = []
        for s in shown:
            point = s.bound.point
            cells = {
                level: f"{format_bytes(point.nbytes[level])}, {format_number(point.intensity(level) or 0)} FLOP/B"
                if point.nbytes.get(level)
                else "not known"
                for level in LEVELS
            }
            rows.append(
                {
                    "kernel": s.name,
                    "dtype": point.dtype,
                    "FLOPs": format_flops(point.flops),
                    **cells,
                    "what binds": s.bound.binds.level,
                    "at most, TFLOP/s": format_number(s.bound.tflops),
                    "forecast, TFLOP/s": format_number(s.tflops) if s.foretold_us else "",
                    "measured, TFLOP/s": "" if point.tflops is None else format_number(point.tflops),
                    "of the roof": "" if s.bound.reached is None else f"{100 * s.bound.reached:.0f} %",
                }
            )
        st.dataframe(rows, hide_index=True)
        if peers:
            st.dataframe(
                [{"library": p.name, "dtype": p.dtype, "measured, TFLOP/s": format_number(p.tflops)} for p in peers],
                hide_index=True,
            )
        others = [o for s in shown if s.found is not None for o in roof_points.other_tiles(s.found)]
        if others:
            st.markdown("**The same kernel in the same run, with other tiles:**")
            st.markdown("\n".join(f"- {o.sentence()}" for o in others))


def roofs_explained(problem: Problem, gpu: Gpu) -> None:
    """Where each roof comes from, and where slopes meet peaks."""
    st.header("The roofs", anchor=False)
    drawn = roofs(gpu, DTYPES)
    peak = next((r for r in drawn if r.level == problem.dtype), None)
    rows = [
        {
            "roof": r.level,
            "height": f"{r.rate:,.0f} GB/s" if r.is_memory else f"{r.rate:,.4g} TFLOP/s",
            f"meets the {problem.dtype} peak at": f"{format_number(ridge(r, peak))} FLOPs a byte"
            if r.is_memory and peak
            else "",
            "where the number is from": r.note or gpu.source,
        }
        for r in drawn
    ]
    st.dataframe(rows, hide_index=True)
    if gpu.l2_gbps is None:
        st.markdown(f"No document gives the L2 bandwidth of the {gpu.name}, so no L2 roof is drawn and L2 never binds.")
    st.markdown(
        "**Predicted bytes.** Where a kernel of this app has the loop order and can run the problem, L2 and device "
        "memory are those of a model of the caches. It was fitted to recordings on an H200; for other GPUs it is an "
        "estimate. Elsewhere they are the bytes that blocks request, the papers' two-level model: caches can only make "
        "them fewer, so the true points lie at or to the right of these. "
        "**Shared memory** counts 128 bytes for each turn of the banks: a bank conflict wastes a turn, and so it "
        "lowers the intensity. "
        "**Measured bytes** are Nsight Compute's, of each kernel alone with cold caches. "
        "FLOPs are the useful ones, 4 d for each visible pair of query and key; softmax, masked pairs and rescaling "
        "are not in them."
    )


def reached_since() -> str:
    """What mma.sync alone reached in the recordings that come with the app, in a few words."""
    for recording in ladder.shipped():
        best = recording.mma_sync_peak.best("bf16") if recording.mma_sync_peak else None
        if best is not None and recording.device.gpu.fp16_tflops:
            return f"; alone it was measured to reach {percent(best / recording.device.gpu.fp16_tflops)}"
    return ""


def exercises(problem: Problem, tiling: Tiling, gpu: Gpu, shown: dict[str, Shown]) -> None:
    """Things to try; the numbers in them are computed."""
    size, flash = problem.itemsize, shown["q-outer"]
    here = {order: requested_intensity(problem, tiling, order) for order in ORDERS}
    tasks = []
    for other in (Tiling(64, 16), Tiling(32, 32)):
        then = predictions(problem, other, gpu.key, ("q-outer",))["q-outer"]
        if other != tiling and then.lacking is None and flash.lacking is None:
            tasks.append(
                f"Set Br = {other.Br} and Bc = {other.Bc}. Bank conflicts of shared memory change with the tiles: "
                f"q-outer goes from {format_number(flash.bound.tflops)} to {format_number(then.bound.tflops)} TFLOP/s "
                f"at most, and {_binds(then)}."
            )
            break
    if tiling.Br < TILES[-1] and 2 * tiling.Br <= problem.Nq:
        taller = requested_intensity(problem, Tiling(2 * tiling.Br, tiling.Bc), "q-outer")
        tasks.append(
            f"Double Br to {2 * tiling.Br}: half as many Q tiles read K and V, and q-outer does "
            f"{format_number(taller)} FLOPs for each byte that it requests instead of {format_number(here['q-outer'])}."
        )
    mask = "" if problem.causal is None else " without a mask"
    tasks.append(
        f"Make N longer. For each requested byte, naive's FLOPs tend to d / (bytes an element) = {problem.d / size:g}"
        f"{mask}, q-outer's to 2 Br / (bytes an element) = {2 * tiling.Br / size:g}{mask}; here they are "
        f"{format_number(here['naive'])} and {format_number(here['q-outer'])}. Larger tiles help flash; naive is "
        "helped by d and the data type alone."
    )
    hbm = next(r for r in roofs(gpu) if r.level == "HBM")
    meets = ", ".join(
        f"{r.level} at {format_number(ridge(hbm, r))}" for r in roofs(gpu, ("fp32", "fp16")) if not r.is_memory
    )
    tasks.append(
        f"Switch the data type. On this GPU the slope of device memory meets the peaks ({meets} FLOPs a byte): the "
        "faster the arithmetic, the more often each byte must be used."
    )
    other_gpu = GPUS["T4" if gpu.key != "T4" else DEFAULT_GPU]
    if other_gpu.peak_tflops(problem.dtype):
        there = predictions(problem, tiling, other_gpu.key, ("q-outer",))["q-outer"]
        tasks.append(
            f"Choose the {other_gpu.name}. There q-outer can do {format_number(there.bound.tflops)} TFLOP/s instead of "
            f"{format_number(flash.bound.tflops)}, and {_binds(there)}."
        )
    try_this(tasks)


page(
    "Roofline",
    "**A kernel can be no faster than its bytes arrive and no faster than its arithmetic runs.** Each memory level "
    "sets a slope, each arithmetic unit a ceiling; the lowest of them over a kernel is the one that binds.",
)
notice = st.container()
columns = st.columns(4)
with columns[0]:
    N = controls.slider("N", "Sequence length N", options=LENGTHS, default=4096)
    H = controls.slider("H", "Heads H", options=[1, 2, 4, 8, 16, 32, 64], default=16)
with columns[1]:
    Br = controls.slider("Br", "Br, rows in a Q tile", options=TILES, default=32)
    B = controls.slider("B", "Batch B", options=[1, 2, 4, 8, 16, 32, 64], default=1)
with columns[2]:
    Bc = controls.slider("Bc", "Bc, keys in a K/V tile", options=TILES, default=32)
with columns[3]:
    d = controls.slider("d", "Head dimension d", options=[16, 32, 64, 128, 256], default=64)
    gpu_key = controls.choice("gpu", "GPU", {k: g.name for k, g in GPUS.items()}, default=default_gpu())
with columns[2]:
    offered = [name for name in ("fp32", "fp16", "bf16") if GPUS[gpu_key].peak_tflops(name)]
    dtype = controls.choice("dtype", "Data type", offered, default="fp32")
causal = controls.causal()
with explained_errors():
    asked, tiles = Problem(B=B, H=H, N=N, d=d, dtype=dtype, causal=causal), Tiling(Br, Bc)
    gpu = GPUS[gpu_key]
    configuration(
        GPU=gpu.name, B=B, H=H, N=f"{N:,}", d=d, Br=Br, Bc=Bc, dtype=dtype, causal=causal or "none"
    )  # fmt: skip
    found, measured, peers = recorded(asked, tiles, gpu)
    shown = predictions(asked, tiles, gpu_key)
    headline(shown, gpu)
    best = best_kernel(asked, tiles, gpu_key)
    everything = [*shown.values(), *([best] if best else []), *measured]
    picture(asked, gpu, everything, peers)
    st.header("Which roof binds", anchor=False)
    st.markdown("\n".join(f"- {s.sentence()}" for s in everything))
    if best:
        st.caption(
            f"The forecast: {tiled_error('12')} It takes mma.sync, the kernel's instruction, for "
            f"{percent(MMA_OF_PEAK['9'])} of Hopper's matrix peak{reached_since()}. On other GPUs than the H200 it is "
            "an estimate."
        )
    where_from(found, asked, gpu, measured)
    table(everything, peers)
    roofs_explained(asked, gpu)
    exercises(asked, tiles, gpu, shown)
with notice:
    controls.notices()
