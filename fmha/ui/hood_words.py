"""Why the bytes of four memory levels differ, in sentences (Markdown) that are computed. No Streamlit."""

from __future__ import annotations

from collections.abc import Mapping

from fmha.figures.byte_levels import WAVEFRONT, WAVEFRONTS, Level
from fmha.forecast import Forecast
from fmha.forecast_parts import FunctionForecast
from fmha.hardware import Gpu
from fmha.kernels import SECTOR
from fmha.l2_range import Range
from fmha.levels import caches_of
from fmha.measurement import Entry
from fmha.model_errors import LOADS, STORES, measured
from fmha.model_record import RANGE_HOLDS
from fmha.problem import Problem
from fmha.roofline import DRAM_READ, DRAM_WRITE, L2_SECTORS
from fmha.traffic import compulsory_bytes
from fmha.ui.sentences import percent
from fmha.units import format_bytes, format_ratio, format_time_us

LEVEL_NAMES = {
    "requested": "requested bytes",
    "l2": "bytes asked of L2",
    "dram": "DRAM bytes",
    "smem": "wavefronts of shared memory",
    "time": "time",
}


def rows(said: Forecast, wavefronts: int, problem: Problem, entry: Entry | None, doubt: str = "") -> list[Level]:
    """From the SM outwards, predicted beside measured; without an entry only what is predicted.

    wavefronts: predicted, of shared memory. doubt: why DRAM bytes are not predicted (`fmha.edge`), or "".
    """
    counted = dict(measured(entry)) if entry is not None else {}
    if entry is not None and "smem" in counted:
        counted["smem"] *= WAVEFRONT
    for name, metric in (("dram read", DRAM_READ), ("dram written", DRAM_WRITE)):
        value = entry.counter(metric) if entry is not None else None
        if value is not None:
            counted[name] = value
    levels = said.levels
    predicted = (
        ("smem", "shared memory, at most", float(WAVEFRONT * wavefronts), "SMEM", WAVEFRONTS),
        ("requested", "requested", levels.requested, "REG", f"{LOADS} + {STORES}"),
        ("l2", "asked of L2", levels.l2, "L2", L2_SECTORS),
        ("dram read", "DRAM read", None if doubt else said.dram_read, "HBM", DRAM_READ),
        ("dram written", "DRAM written", None if doubt else said.dram_written, "HBM", DRAM_WRITE),
    )
    out = []
    for key, name, value, role, metric in predicted:
        out.append(Level(f"{name}, predicted" if counted else name, value, role, "model", predicted=True))
        if key in counted:
            out.append(Level(f"{name}, measured", counted[key], role, metric))
    floor = compulsory_bytes(problem)
    return [*out, Level("compulsory", floor, "HBM", "Q, K, V read once, O written once", predicted=True)]


def headline(said: Forecast, doubt: str = "") -> str:
    """The levels in one sentence."""
    levels = said.levels
    reaches = f"Blocks request {format_bytes(levels.requested)}; {format_bytes(levels.l2 - levels.spilled)} of it"
    reaches += f" and {format_bytes(levels.spilled)} of spilled registers reach L2" if _spills(said) else " reaches L2"
    if doubt:
        return f"{reaches}. What the memory chips move cannot be predicted here."
    return (
        f"{reaches}, and {format_bytes(levels.dram)} is moved by the memory chips: "
        f"{percent(levels.dram / levels.requested)}."
    )


def _spills(said: Forecast) -> bool:
    """Whether spilled registers are worth a word."""
    return said.levels.spilled > 0.01 * said.levels.l2


def between(expected: Range) -> str:
    """How far the bytes asked of L2 are settled."""
    inside, of = RANGE_HOLDS
    return (
        f"L2 may be asked for **{format_bytes(expected.least)} to {format_bytes(expected.most)}**: it hangs on which "
        f"blocks are in step to some ten nanoseconds. In {inside} of {of} settings that were counted on an H200 the "
        "counter lay in such a range."
    )


def why(said: Forecast, problem: Problem, gpu: Gpu, l2_bytes: int, naive: bool, doubt: str = "") -> list[str]:
    """From the paper's count down to what Nsight Compute shows for DRAM, one step a line."""
    levels, p = said.levels, problem
    part = levels.all
    lines = [
        f"**The papers count requests.** Their two-level model has an SM's fast memory and HBM and nothing between, so "
        f"each of the {format_bytes(levels.requested)} that blocks load and store is an HBM access. Nsight Compute "
        f"shows it as {SECTOR} bytes for each sector of global loads and stores."
    ]
    sharing = part.l1_hits + part.merged
    if sharing > 0.005 * part.read:
        lines.append(
            f"**{percent(sharing / part.read)} of the loads end before L2:** {_little(part.l1_hits / part.read)} "
            f"hit in the SM's own L1, {_little(part.merged / part.read)} are served together with the same request of "
            "another SM of the same cluster. Blocks of one head read the same K and V, and as long as they are in "
            "step, as those are that wait for DRAM together, they ask at the same time."
        )
    elif caches_of(gpu, 0).merging_sms == 1:
        lines.append(
            "**Nearly all loads go on to L2:** L1 holds little that is asked for again. That SMs of a cluster share a "
            "request was measured on the H200 only, and is assumed for GPUs whose L2 has two halves, as its has."
        )
    else:
        lines.append(
            "**Nearly all loads go on to L2:** hardly a block near by asks for the same tile at the same time."
        )
    if _spills(said):
        lines.append(
            f"**{percent(levels.spilled / levels.l2)} of what L2 gets are registers:** threads have too few for these "
            "tiles and store some of them, in each visit. Nobody requested these bytes. L1 passes stores on to L2, and "
            "answers when they are loaded again."
        )
    if doubt:
        return [*lines, f"**{doubt.split(': ')[0]}:** {': '.join(doubt.split(': ')[1:])}"]
    head = 2 * p.Nk * p.d * p.itemsize
    matrix = p.B * p.H * p.Nq * p.Nk * p.itemsize
    what, size, one = ("S", matrix, True) if naive else ("K and V of a head", head, False)
    copies = caches_of(gpu, 0).copies
    twice = f", {format_bytes(copies * size)} with a copy in each half of L2," if copies > 1 else ""
    fits = ("fits" if one else "fit") if copies * size <= l2_bytes else ("does not fit" if one else "do not fit")
    lines.append(
        f"**L2 answers {percent(levels.l2_hit_rate)} of what it is asked.** {what}, which "
        f"{'is' if one else 'are'} read again, {'has' if one else 'have'} {format_bytes(size)}{twice} and {fits} into "
        f"{format_bytes(l2_bytes)}."
    )
    floor, ratio = compulsory_bytes(p), levels.dram / compulsory_bytes(p)
    left = part.left_dirty
    later = (
        f" {format_bytes(left)} of results still lie in L2 when the kernel ends; the profiler does not see them leave."
        if left > 0.02 * max(part.written, 1)
        else ""
    )
    lines.append(
        f"**DRAM moves {format_bytes(levels.dram)},** {_times_of(ratio)} the compulsory {format_bytes(floor)}.{later}"
    )
    last = (
        "S and P are written and read back once each, so caches help little as soon as they outgrow L2."
        if naive
        else "Tiles act on the first at once, and on the second only when what is read again outgrows L2."
    )
    if levels.dram:
        lines.append(
            f"**So the papers' HBM accesses are {format_ratio(levels.requested / levels.dram)} the DRAM bytes here.** "
            f"Neither is wrong: the first says what a kernel asks for and grows with N²; the second what is left when "
            f"the caches of the {gpu.name} have answered. {last}"
        )
    return lines


def _little(share: float) -> str:
    return percent(share) if share >= 5e-4 else "none"


def _times_of(ratio: float) -> str:
    return "about" if 0.95 <= ratio <= 1.05 else format_ratio(ratio)


def off(errors: Mapping[str, float]) -> str:
    """The model's errors in words: "requested +0.0 %, asked of L2 -4.1 %"."""
    return ", ".join(f"{LEVEL_NAMES[key]} {100 * error:+.1f} %" for key, error in errors.items())


def costs(said: FunctionForecast) -> str:
    """What takes the time of a function."""
    if not said.together_us:
        return f"**{said.binds.capitalize()}** takes longest, says the model."
    if said.resources[said.binds] >= said.together_us:
        return f"**{said.binds}** takes longest, says the model: {format_time_us(said.resources[said.binds])}."
    most = sorted((name for name in said.resources if name not in ("L2", "DRAM")), key=lambda n: -said.resources[n])
    alone = ", ".join(f"{name} {format_time_us(said.resources[name])}" for name in most)
    return f"**They hardly overlap:** {alone} alone; {format_time_us(said.together_us)} together, with waits."
