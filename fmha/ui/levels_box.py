"""The chart of bytes against N at other levels than requested, on a GPU."""

from __future__ import annotations

from itertools import takewhile

import streamlit as st

from fmha.errors import FmhaError
from fmha.figures.axes import ORDER_NAMES
from fmha.figures.levels_vs_n import levels_vs_n
from fmha.figures.traffic_vs_n import traffic_vs_n
from fmha.hardware import Gpu
from fmha.kernels import KERNELS
from fmha.measurement import shipped
from fmha.model_errors import measured
from fmha.order_levels import LEVELS, WAVEFRONT, Level, doubt, order_bytes
from fmha.problem import Problem, Tiling
from fmha.traffic import compulsory_bytes
from fmha.ui import charts
from fmha.ui.page import plain
from fmha.units import format_bytes

ORDERS = ("naive", "q-outer", "kv-outer")
LENGTHS = [2**e for e in range(7, 18)]  # 128 to 128K tokens: longer ones take the cache model too long
ALL = "all"
LEVEL_LABELS = {
    "requested": "requested", "L2": "L2", "DRAM": "DRAM", "SMEM": "shared memory", ALL: "all levels of q-outer",
}  # fmt: skip
LEVEL_WORDS = {
    "L2": "**L2:** what SMs ask of L2 and store to it, after L1 hits and after requests of SMs of one cluster were "
    "merged.",
    "DRAM": "**DRAM:** what the memory chips of the {gpu} deliver and take. While what is read again fits into its "
    "{l2} of L2, that is about the compulsory bytes, whatever the tiles are.",
    "SMEM": "**Shared memory:** 128 bytes for each turn of the banks, so a bank conflict counts as bytes that could "
    "have been delivered.",
    ALL: "**All levels of one kernel (02, q-outer):** lines are predicted, marks were counted on the {gpu}.",
}


@st.cache_data(max_entries=64, show_spinner=False)
def level_curves(
    problem: Problem, tiling: Tiling, gpu: Gpu, level: Level, orders: tuple[str, ...] = ORDERS
) -> dict[str, list[float]]:
    """Bytes at a level at the lengths of the shorter curves, up to the first that has no number, for each order."""
    found = {order: [order_bytes(order, problem.replace(N=n), tiling, gpu, level) for n in LENGTHS] for order in orders}
    known = {order: list(takewhile(bool, values)) for order, values in found.items()}
    return {order: [v for v in values if v] for order, values in known.items() if values}


def below_requests(problem: Problem, tiling: Tiling, gpu: Gpu, level: str) -> None:
    """Bytes at another level than requested, on this GPU, against N."""
    if problem.dtype != "fp32":
        st.info(
            f"Levels other than requested are shown for fp32, in which this app's kernels compute; {problem.dtype} is "
            "kept for all that is below."
        )
    p = problem.replace(dtype="fp32")
    refused = KERNELS["02"].complaint(p, tiling, gpu)
    try:
        _chart(p, tiling, gpu, level)
    except FmhaError as error:
        text = str(error)
        st.warning(plain(text[:1].upper() + text[1:]))
        return
    lines = [LEVEL_WORDS[level].format(gpu=gpu.name, l2=format_bytes(gpu.l2_bytes))]
    if level != ALL:
        lines.append(
            "Naive is kernel 01 here, which reads Q, K and V once for each of its 64 x 64 tiles, so that it can ask "
            "more of L2 than the requests of Algorithm 0 above. kv-outer has no kernel in this app: its bytes are "
            "those of Algorithm 1 in the same model of the caches, and no counters were there to hold them against."
        )
    if refused and level in ("SMEM", ALL):
        lines.append(f"Nothing is said of q-outer's shared memory: {plain(refused)}")
    elif refused:
        lines.append(
            "Kernel 02 cannot have these tiles; q-outer is predicted as if a block had fewer threads and shared memory "
            "alone decided how many blocks an SM holds."
        )
    early = next(((n, text) for n in LENGTHS if (text := doubt("q-outer", p.replace(N=n), tiling, gpu))), None)
    if early and level in ("DRAM", ALL):
        reason = early[1].partition(": ")[2]
        lines.append(f"DRAM bytes of q-outer cannot be predicted from N = {early[0]:,} on: {plain(reason)}")
    if level == "SMEM":
        lines.append("So nothing is known of its shared memory.")
    st.markdown(" ".join(lines) + " How far the model is off stands on the page *Under the hood of HBM*.")


def _chart(p: Problem, tiling: Tiling, gpu: Gpu, level: str) -> None:
    """The curves of one level, or all levels of q-outer."""
    floor = [float(compulsory_bytes(p.replace(N=n))) for n in LENGTHS]
    if level == ALL:
        moved = {lv: level_curves(p, tiling, gpu, lv, ("q-outer",)).get("q-outer") for lv in LEVELS}
        shown = {name: values for name, values in moved.items() if values} | {"compulsory": floor}
        charts.show(
            levels_vs_n(LENGTHS, shown, counted(p, tiling, gpu), p.Nq), key="bytes",
            alt=f"Bytes of flash, q-outer, on the {gpu.name} at N = {LENGTHS[-1]:,}: "
            + ", ".join(_last(name, values) for name, values in shown.items()) + ".",
        )  # fmt: skip
        return
    found = level_curves(p, tiling, gpu, next(lv for lv in LEVELS if lv == level))
    charts.show(
        traffic_vs_n(LENGTHS, found, floor, None, p.Nq, level=level), key="bytes",
        alt=f"Bytes at {level} on the {gpu.name} at N = {LENGTHS[-1]:,}: "
        + ", ".join(_last(ORDER_NAMES[o], v) for o, v in found.items()) + ".",
    )  # fmt: skip


def _last(name: str, values: list[float]) -> str:
    """The value at the longest length, in words."""
    return f"{name} {format_bytes(values[-1]) if len(values) == len(LENGTHS) else 'not predicted'}"


def counted(problem: Problem, tiling: Tiling, gpu: Gpu) -> dict[str, list[tuple[int, float]]]:
    """What the hardware counted for kernel 02 at other lengths of the same problem, by level."""
    points: dict[str, list[tuple[int, float]]] = {}
    names = {"requested": ("requested", 1), "l2": ("L2", 1), "dram": ("DRAM", 1), "smem": ("SMEM", WAVEFRONT)}
    for recording in shipped():
        if recording.device.gpu.key != gpu.key:
            continue
        for run in recording.runs:
            entry = run.entry("02", tiling)
            if run.problem == problem.replace(N=run.problem.Nq) and entry is not None and not entry.stale:
                for key, value in measured(entry).items():
                    if key in names:
                        name, factor = names[key]
                        points.setdefault(name, []).append((run.problem.Nq, factor * value))
    return points
