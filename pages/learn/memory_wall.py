"""The memory wall: sizes and speeds of real memories, what naive attention moves, and where it runs out."""

from __future__ import annotations

import streamlit as st

from fmha import Problem, Tiling, formulas, traffic
from fmha.capacity import held_bytes, largest_n
from fmha.figures.memory_levels import format_speed, levels, size_and_speed
from fmha.figures.memory_vs_n import memory_vs_n
from fmha.figures.naive_kernels import naive_kernels
from fmha.hardware import GPUS, Gpu
from fmha.ui import charts, controls
from fmha.ui.page import configuration, explained_errors, page, try_this
from fmha.ui.this_gpu import default_gpu
from fmha.ui.words_formulas import formula_box
from fmha.units import format_bytes, format_flops, format_ratio, format_time_us

LENGTHS = [2**e for e in range(7, 21)]  # 128 to 1M tokens
TILES = Tiling(32, 32)  # naive traffic does not depend on it


def memories(gpu: Gpu) -> None:
    """Sizes and speeds of the chosen GPU, then of all of them."""
    st.header("Large and slow, small and fast", anchor=False)
    faster, smaller = gpu.smem_gbps / gpu.hbm_gbps, gpu.hbm_bytes / gpu.smem_bytes
    st.markdown(
        f"**On the {gpu.name}, shared memory is {format_ratio(faster)} faster than device memory and "
        f"{smaller:,.0f} times smaller:** {format_bytes(gpu.smem_per_sm)} on each of {gpu.sms} SMs, "
        f"against {format_bytes(gpu.hbm_bytes)} of {gpu.memory}."
    )
    left, right = st.columns(2)
    with left:
        charts.show(
            levels(gpu),
            key="levels",
            alt=f"{gpu.name}: device memory {format_bytes(gpu.hbm_bytes)} at {format_speed(gpu.hbm_gbps)}, L2 "
            f"{format_bytes(gpu.l2_bytes)}, shared memory {format_bytes(gpu.smem_bytes)} at "
            f"{format_speed(gpu.smem_gbps)}, registers {format_bytes(gpu.register_bytes)}.",
        )
    with right:
        charts.show(
            size_and_speed(GPUS.values(), gpu.key, height=340),
            key="gpus",
            alt="Device memories lie low and to the right, shared memories high and to the left, for all GPUs.",
        )
    with st.expander("All GPUs in numbers, with sources"):
        st.dataframe(
            [
                {
                    "GPU": g.name,
                    "device memory": f"{g.hbm_gb} GB {g.memory}",
                    "its speed": format_speed(g.hbm_gbps),
                    "L2": format_bytes(g.l2_bytes),
                    "SMs": g.sms,
                    "shared memory per SM": format_bytes(g.smem_per_sm),
                    "most per block": format_bytes(g.smem_per_block_optin),
                    "its speed, all SMs (derived)": format_speed(g.smem_gbps),
                    "fp32 peak, TFLOP/s": g.fp32_tflops,
                    "fp16 tensor peak, dense, TFLOP/s": g.fp16_tflops,
                    "source": g.source + (f"; {g.note}" if g.note else ""),
                }
                for g in GPUS.values()
            ],
            hide_index=True,
        )
    st.caption(
        "The speed of shared memory is derived: bytes a clock and SM, times SMs, times boost clock. Registers are "
        "faster still, and L2 lies between; no vendor document gives their speed, so none is drawn. "
        f"A block may use {format_bytes(gpu.smem_per_block_default)} of shared memory, and up to "
        f"{format_bytes(gpu.smem_per_block_optin)} on this GPU when it asks for it."
    )


def what_naive_moves(problem: Problem, gpu: Gpu) -> None:
    """Three kernels, and how long their bytes take beside their arithmetic."""
    st.header("What naive attention writes and reads again", anchor=False)
    moved = traffic(problem, TILES, "naive", method="closed")
    matrix = moved.by_tensor["S"][0]
    share = (sum(moved.by_tensor["S"]) + sum(moved.by_tensor["P"])) / moved.requested_bytes
    st.markdown(
        f"**S and P have {format_bytes(matrix)} each, and they cross to device memory and back: {100 * share:.0f} % of "
        f"all {format_bytes(moved.requested_bytes)} that the three kernels move.**"
    )
    charts.show(
        naive_kernels(moved.by_tensor),
        key="kernels",
        alt=f"Kernel 1 writes S, kernel 2 reads S and writes P, kernel 3 reads P; S and P have {format_bytes(matrix)} "
        f"each. Together the kernels move {format_bytes(moved.requested_bytes)}.",
    )
    peak = gpu.fp32_tflops if problem.dtype == "fp32" else gpu.fp16_tflops
    units = "fp32 units" if problem.dtype == "fp32" else "tensor cores"
    memory_us = moved.requested_bytes / gpu.hbm_gbps / 1e3
    maths_us = moved.flops / peak / 1e6
    left, middle, right = st.columns(3)
    left.metric("Moving the bytes", format_time_us(memory_us), help="bytes / device memory speed")
    middle.metric("Multiplying", format_time_us(maths_us), help=f"4 B H N² d FLOPs / peak of the {units}")
    right.metric("Moving takes", format_ratio(memory_us / maths_us), help="bytes' time / arithmetic's time")
    if memory_us > maths_us:
        lesson = f"so the {units} wait for memory: attention is **memory-bound** here, and fewer bytes mean less time"
    else:
        lesson = "so here the arithmetic is the longer part even for naive attention, at these peaks"
    st.markdown(
        f"Both at the {gpu.name}'s best speed: {format_bytes(moved.requested_bytes)} at {format_speed(gpu.hbm_gbps)}, "
        f"and {format_flops(moved.flops)} at {peak:g} TFLOP/s; {lesson}. Caches do not enter here: a small S may stay "
        f"in the {format_bytes(gpu.l2_bytes)} of L2."
    )
    formula_box(
        [
            formulas.matrix_bytes(problem),
            formulas.requested(problem, TILES, "naive"),
            formulas.compulsory(problem),
            formulas.flops(problem, TILES, "naive"),
            formulas.moving_us(moved.requested_bytes, gpu.hbm_gbps),
            formulas.multiplying_us(moved.flops, peak),
        ]
    )


def where_it_runs_out(problem: Problem, gpu: Gpu) -> None:
    """Bytes held against N, and the largest N on every card."""
    st.header("Where it runs out", anchor=False)
    held = {order: [held_bytes(problem.replace(N=n), order) for n in LENGTHS] for order in ("naive", "q-outer")}
    cards = {g.key: g.hbm_bytes for g in GPUS.values()}
    naive_n, flash_n = (largest_n(problem, order, gpu.hbm_bytes) for order in ("naive", "q-outer"))
    st.markdown(
        f"**On one {gpu.name}, naive attention is full at N = {naive_n:,}; flash at N = {flash_n:,}.** Naive holds S "
        "and P, which grow with N². Flash holds Q, K, V, O and one number a row (LSE), which grow with N."
    )
    charts.show(
        memory_vs_n(LENGTHS, held, cards, gpu.key, naive_n),
        key="runs-out",
        alt=f"Bytes held against N. Naive crosses the {format_bytes(gpu.hbm_bytes)} of the {gpu.key} at N = "
        f"{naive_n:,}; flash stays below up to N = {flash_n:,}.",
    )
    st.dataframe(
        [
            {
                "GPU": g.name,
                "device memory": format_bytes(g.hbm_bytes),
                "naive is full at N": f"{largest_n(problem, 'naive', g.hbm_bytes):,}",
                "flash is full at N": f"{largest_n(problem, 'q-outer', g.hbm_bytes):,}",
            }
            for g in GPUS.values()
        ],
        hide_index=True,
    )
    st.caption(
        "Counted: Q, K, V, O, and for naive S and P (in the same data type), of one layer, forward only. A "
        "real model also holds weights "
        "and other layers, and the driver keeps a few percent. Thin dotted lines are the other cards."
    )


def exercises(problem: Problem, gpu: Gpu) -> None:
    """Things to try; the numbers in them are computed for the settings at hand."""
    n = problem.Nq
    matrix = n * n * problem.B * problem.H * problem.itemsize
    l2_n = max((m for m in LENGTHS if m * m * problem.B * problem.H * problem.itemsize <= gpu.l2_bytes), default=0)
    small, large = GPUS["T4"], GPUS["B200"]
    ratio = largest_n(problem, "naive", large.hbm_bytes) / largest_n(problem, "naive", small.hbm_bytes)
    more = large.hbm_bytes / small.hbm_bytes
    until = f"N = {l2_n:,}" if l2_n else "less than the shortest N on the slider"
    try_this(
        [
            f"Double N. S, {format_bytes(matrix)} at N = {n:,}, becomes four times as large; Q, K, V, O only twice.",
            f"On the slider, what is the longest N at which all of S still fits into the L2 cache of the {gpu.name} "
            f"({format_bytes(gpu.l2_bytes)})? With your B, H and data type: {until}.",
            f"Compare a {small.name} with a {large.name}. The second has {more:.1f}x the memory, but naive attention "
            f"gets only {ratio:.1f}x the length: the square root of it.",
            f"Switch the data type from fp32 to fp16. The bytes halve, and on this GPU the multiplication takes "
            f"{gpu.fp16_tflops / gpu.fp32_tflops:.1f}x less time, on tensor cores. Does the wall get lower or higher? "
            "Watch the three times above.",
        ]
    )


page(
    "The memory wall",
    "**[[Naive attention]] writes an N x N matrix to slow [[memory|device memory]] and reads it back.** Its arithmetic "
    "is fast; the trips to memory are not.",
)
columns = st.columns(3)
with columns[0]:
    key = controls.choice("gpu", "GPU", {k: g.name for k, g in GPUS.items()}, default=default_gpu())
    dtype = controls.choice("dtype", "Data type", ["fp32", "fp16", "bf16"], default="fp16")
with columns[1]:
    N = controls.slider("N", "Sequence length N", options=LENGTHS, default=8192)
    d = controls.slider("d", "Head dimension d", options=[16, 32, 64, 128, 256], default=64)
with columns[2]:
    H = controls.slider("H", "Heads H", options=[1, 2, 4, 8, 16, 32, 64], default=16)
    B = controls.slider("B", "Batch B", options=[1, 2, 4, 8, 16, 32, 64], default=1)
controls.notices()
with explained_errors():
    chosen = GPUS[key]
    asked = Problem(B=B, H=H, N=N, d=d, dtype=dtype)
    configuration(GPU=chosen.name, B=B, H=H, N=N, d=d, dtype=dtype)
    memories(chosen)
    what_naive_moves(asked, chosen)
    where_it_runs_out(asked, chosen)
    exercises(asked, chosen)
