"""What the numbers of a run say, in sentences (Markdown). No Streamlit; each sentence is computed from its numbers."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from fmha.figures.byte_levels import (
    CONFLICTS,
    DRAM_WRITE,
    L1_HITS,
    L2,
    L2_FROM_SMS,
    WAVEFRONTS,
    dram_measured,
    requested_measured,
)
from fmha.figures.kernel_times import Bar
from fmha.hardware import Gpu
from fmha.kernels import KERNELS, SECTOR, Launch
from fmha.measurement import Entry, Run
from fmha.memory import hbm_held
from fmha.occupancy import Occupancy
from fmha.problem import Problem
from fmha.speeds import peak_name, peak_tflops, tflops
from fmha.traffic import compulsory_bytes
from fmha.ui.page import plain
from fmha.units import format_bytes, format_count, format_number, format_ratio, format_time_us

NAIVE, FLASH = "01", "02"
# Markdown turns bare addresses into links, escaped or not; an invisible word joiner after these keeps them text.
_NO_LINK = re.compile(r"www(?=\.)|https?(?=:)|[\w.+-](?=@)", re.IGNORECASE)


def said(text: object, longest: int = 160) -> str:
    """A text from a file or from a device, as Markdown that shows it letter by letter: short, on one line, no link."""
    return plain(_NO_LINK.sub("\\g<0>\u2060", one_line(text, longest)))


def one_line(text: object, longest: int = 160) -> str:
    """A text from a file as one printable line of at most `longest` characters."""
    clean = "".join(c if c.isprintable() else " " for c in str(text)[: 2 * longest])
    clean = " ".join(clean.split())
    return clean if len(clean) <= longest else clean[: longest - 3] + "..."


def differences(differs: Mapping[str, tuple[Any, Any]]) -> str:
    """How a recorded run differs from what was asked: "asked N = 4,000, recorded N = 4,096; ..."."""
    pairs = dict(differs)
    if pairs.get("Nq") == pairs.get("Nk") and "Nq" in pairs:
        pairs = {"N": pairs.pop("Nq"), **{k: v for k, v in pairs.items() if k != "Nk"}}
    if pairs.get("H") == pairs.get("Hk"):
        pairs.pop("Hk", None)
    return "; ".join(f"asked {name} = {_value(a)}, recorded {name} = {_value(b)}" for name, (a, b) in pairs.items())


def _value(value: Any) -> str:
    return "off" if value is None else f"{value:,}" if isinstance(value, int) else str(value)


def percent(part: float) -> str:
    """A share: two digits, and never a rounded-down zero."""
    return f"{100 * part:.0f} %" if part >= 0.0995 else f"{100 * part:.2g} %"


def gigabytes(rate: float) -> str:
    """A rate in GB/s: two digits, and never a rounded-down zero."""
    return f"{rate:,.0f}" if rate >= 99.5 else f"{rate:.2g}"


# --- time -------------------------------------------------------------------------------------------------------------


def headline(entry: Entry, problem: Problem, gpu: Gpu) -> str:
    """Time, speed and share of the peak in one sentence."""
    if entry.time is None:
        return "This run has no time."
    speed, peak = tflops(problem, entry.time.median_us), peak_tflops(gpu, entry.dtype, entry.name)
    of = f"{peak_name(gpu, entry.dtype, entry.name)} of the {said(gpu.name, 60)}"
    share = f", {percent(speed / peak)} of {of}" if peak else ""
    return f"{_name(entry)} takes {format_time_us(entry.time.median_us)}: {format_number(speed)} TFLOP/s{share}."


def _name(entry: Entry) -> str:
    return f"{entry.name} {KERNELS[entry.name].name}" if entry.name in KERNELS else said(entry.title, 40)


def _length(problem: Problem) -> str:
    return f"N = {problem.Nq:,}" if problem.Nq == problem.Nk else f"Nq = {problem.Nq:,}, Nk = {problem.Nk:,}"


def flash_and_naive(run: Run, entry: Entry, bars: Sequence[Bar]) -> str | None:
    """Naive against flash from the times and bytes of one run; None where one of the two is missing or wrong."""
    right = [bar.entry for bar in bars]
    other = next((e for e in right if e.name in (NAIVE, FLASH) and e.name != entry.name), None)
    if entry not in right or entry.name not in (NAIVE, FLASH) or other is None:
        return None
    flash, naive = (entry, other) if entry.name == FLASH else (other, entry)
    if flash.time is None or naive.time is None or not (flash.requested_bytes and naive.requested_bytes):
        return None
    faster = naive.time.median_us / flash.time.median_us
    moved = naive.requested_bytes / flash.requested_bytes
    held = hbm_held(run.problem, "naive")
    part = f"{percent(1 / moved)} of" if moved >= 1 else format_ratio(1 / moved)
    what = f"requests {part} naive's bytes and keeps no S and P ({format_bytes(held['S'] + held['P'])} for naive)"
    if faster >= 1:
        return f"**Flash beats naive here:** it is {format_ratio(faster)} as fast, {what}."
    but = "although" if moved >= 1 else "and"
    text = f"**Naive is {format_ratio(1 / faster)} as fast as flash here,** {but} flash {what}."
    repeated = _conflicts(flash)
    if repeated is not None and repeated > 0.5:
        text += f" {percent(repeated)} of flash's shared-memory wavefronts repeat others because of bank conflicts."
    return text


def peers(problem: Problem, entry: Entry, bars: Sequence[Bar]) -> list[str]:
    """How the kernel stands against the libraries of the same run: the same precision first."""
    mine = next((b for b in bars if b.entry is entry), None)
    if mine is None:
        return []
    lines = []
    others = [b for b in bars if not b.entry.is_kernel]
    if fair := [b for b in others if b.dtype == mine.dtype]:
        best = min(fair, key=lambda b: b.median_us)
        ratio, name = mine.median_us / best.median_us, said(best.entry.title, 40)
        if ratio > 1:
            verdict = (
                f"{name} is {format_ratio(ratio)} as fast. A kernel that is written to be read may lose to a library, "
                f"and at {_length(problem)} this one does."
            )
        else:
            verdict = (
                f"no library of this run is faster; the nearest, {name}, takes {format_ratio(1 / ratio)} the time. "
                f"That holds at {_length(problem)}; elsewhere a teaching kernel may lose, at small N above all."
            )
        lines.append(f"**Fair comparison ({mine.dtype}):** {verdict}")
    if mine.dtype == "fp32" and (tensor := [b for b in others if b.dtype != "fp32"]):
        best = min(tensor, key=lambda b: b.median_us)
        lines.append(
            f"**Another precision:** in {best.dtype} libraries multiply on tensor cores, which fp32 kernels do not "
            f"use. {said(best.entry.title, 40)} takes {format_time_us(best.median_us)}: "
            f"{format_ratio(mine.median_us / best.median_us)} as fast."
        )
    return lines


def how_timed(entry: Entry) -> str | None:
    """Compiling and timing, apart from each other."""
    if entry.time is None:
        return None
    text = f"**Timed** {entry.time.repeats} times after {entry.time.warmups} warm-ups"
    if entry.build is None:
        return text + "."
    compiled = "the binary came from the cache" if entry.build.cached else f"{entry.build.seconds:.2g} s"
    return f"{text}. Compiling is not in it: {compiled}."


def bandwidth(entry: Entry, gpu: Gpu) -> str | None:
    """Requested bytes a second, beside what the memory chips deliver."""
    if entry.time is None or not entry.requested_bytes:
        return None
    gbps = entry.requested_bytes / entry.time.median_us / 1e3
    text = f"**Bandwidth:** it requests {format_bytes(entry.requested_bytes)} in that time, {gigabytes(gbps)} GB/s"
    if not gpu.hbm_gbps:
        return text + "."
    share, most = gbps / gpu.hbm_gbps, f"{gpu.memory} can deliver ({gpu.hbm_gbps:,.0f} GB/s)"
    if share > 1:
        return f"{text}: {format_ratio(share)} what {most}, so caches serve a part."
    return f"{text}: {percent(share)} of what {most}."


# --- bytes ------------------------------------------------------------------------------------------------------------


def bytes_explained(entry: Entry, problem: Problem, gpu: Gpu) -> list[str]:
    """Why the levels differ, from the numbers at hand."""
    measured = requested_measured(entry)
    lines = [_requested(entry, measured, problem)]
    asked = entry.requested_bytes if measured is None else measured
    if asked and (line := _l2(entry, asked)):
        lines.append(line)
    if (dram := dram_measured(entry)) is not None:
        lines.append(_dram(entry, problem, gpu, dram))
    if (repeated := _conflicts(entry)) is not None:
        lines.append(
            f"**Shared memory:** {format_count(entry.counter(WAVEFRONTS) or 0)} wavefronts (passes over its 32 banks); "
            f"{percent(repeated)} of them repeat others because of bank conflicts."
        )
    return lines


def _l2(entry: Entry, asked: int) -> str | None:
    """What became of the requests between the SMs and L2."""
    moved, tex, hits = entry.counter(L2), entry.counter(L2_FROM_SMS), entry.counter(L1_HITS)
    if moved is None:
        return None
    if tex is None or hits is None:
        return f"**L2 moved {format_ratio(moved / asked)} the requested bytes,** fills from the memory chips included."
    from_sms, in_l1 = SECTOR * tex / asked, SECTOR * hits / asked
    merged = max(0.0, 1.0 - from_sms - in_l1)
    text = f"**L2 was asked for {percent(from_sms)} of them.** "
    text += f"L1 had {percent(in_l1)}" if in_l1 >= 0.001 else "L1 had next to none"
    if merged >= 0.005:
        text += (
            f"; for {percent(merged)} several SMs asked for the same lines at nearly the same time, and their requests "
            "were merged on the way (the L2 request coalescer of recent GPUs)"
        )
    if moved > 1.05 * SECTOR * tex:
        more = format_bytes(moved - SECTOR * tex)
        text += f". Fills from the memory chips and traffic between the parts of L2 add {more}"
    return text + "."


def _requested(entry: Entry, measured: int | None, problem: Problem) -> str:
    predicted, parts = entry.requested_bytes, _parts_of_sectors(entry, problem)
    counted = f"{parts}: the hardware counts whole {SECTOR}-byte sectors, also where only a part of one is asked for."
    if measured is None:
        text = "No hardware counters were read for this run, so only the predicted bytes are known."
        return f"{text} Measured ones will be more. {counted}" if parts else text
    if measured == predicted:
        return f"**Requested: predicted and measured are equal to the byte** ({predicted:,} bytes)."
    factor = f"measured is {measured / max(predicted, 1):.4g} times predicted"
    if parts:
        return f"**Requested: {factor}.** {counted}"
    return (
        f"**Requested: {factor},** which whole sectors do not explain, as every warp asks for whole ones: the "
        "prediction misses something here."
    )


def _parts_of_sectors(entry: Entry, problem: Problem) -> str | None:
    """Why warps ask for parts of sectors; None when they ask for whole ones, or when the kernel is not known."""
    row = problem.d * problem.itemsize
    if row % SECTOR:
        return f"A row of d = {problem.d} is {row} bytes, not a multiple of {SECTOR}"
    if entry.tiling and entry.tiling[0] * entry.tiling[1] * problem.itemsize % SECTOR:
        threads = entry.tiling[0] * entry.tiling[1]
        return f"A block of {threads} threads loads {threads * problem.itemsize} bytes at a time"
    if problem.lens_k or problem.left_pad:
        return "With padding the kernel also reads the lengths"
    return None


def _dram(entry: Entry, problem: Problem, gpu: Gpu, dram: float) -> str:
    ratio = dram / compulsory_bytes(problem)
    held = hbm_held(problem, "naive")
    if entry.name == NAIVE:
        what, again = "S and P, which it reads again,", held["S"] + held["P"]
    else:
        what, again = "K and V of a head, which it reads again,", 2 * problem.Nk * problem.d * problem.itemsize
    fit = "fit" if again <= gpu.l2_bytes else "do not fit"
    why = f"{what} are {format_bytes(again)} and {fit} into the {format_bytes(gpu.l2_bytes)} of L2"
    if len(entry.counters) > 1 and fit == "fit":
        why += (
            ", but each function was counted with cold caches: what one leaves in L2, the next read from the memory "
            "chips here"
        )
    if ratio < 0.98:
        later = (entry.counter(DRAM_WRITE) or 0.0) < 0.98 * held["O"]
        how = "results that still lie in L2 when the kernel ends are written later; " if later else ""
        return f"**DRAM moved {percent(ratio)} of the compulsory bytes:** {how}{why}."
    if ratio <= 1.25:
        return f"**DRAM moved about the compulsory bytes** ({ratio:.2f} times): {why}."
    if entry.name != NAIVE and fit == "fit":
        why += (
            "; likely some were read again all the same, as blocks of several heads run at a time and the parts of L2 "
            "may hold copies of the same lines"
        )
    return f"**DRAM moved {format_ratio(ratio)} the compulsory bytes:** {why}."


def _conflicts(entry: Entry) -> float | None:
    """The share of shared-memory wavefronts that bank conflicts add; None where it was not counted."""
    waves, conflicts = entry.counter(WAVEFRONTS), entry.counter(CONFLICTS)
    return conflicts / waves if waves and conflicts is not None else None


# --- launch -----------------------------------------------------------------------------------------------------------


def launch_words(launches: Sequence[Launch], gpu: Gpu, *, refused: bool = False) -> str:
    """Grid, block and shared memory of a run, with the limits beside them."""
    used = [launch.smem_bytes + launch.static_smem_bytes for launch in launches]
    parts = [
        f"`{launch.function}` {launch.grid:,} {'block' if launch.grid == 1 else 'blocks'} of {launch.block:,} threads "
        f"with **{size:,} bytes** of shared memory"
        for launch, size in zip(launches, used, strict=True)
    ]
    default, optin = gpu.smem_per_block_default, gpu.smem_per_block_optin
    verb = "Would launch" if refused else "Launches"
    text = f"{verb} {'; then '.join(parts)}. The {said(gpu.name, 60)} allows a block {optin:,} bytes"
    return f"{text}, above {default:,} by opt-in" + (
        ", which this launch needs." if default < max(used) <= optin else "."
    )


def occupancy_words(launch: Launch, held: Occupancy, gpu: Gpu, *, registers: int | None) -> str:
    """How many blocks an SM holds, what limits that, and what it means."""
    used = launch.smem_bytes + launch.static_smem_bytes
    if held.blocks == 0:
        return f"`{launch.function}`: an SM of the {said(gpu.name, 60)} cannot hold a single block of this launch."
    why = {
        "shared memory": f"shared memory: a block takes {format_bytes(used)} of {format_bytes(gpu.smem_per_sm)}",
        "registers": f"registers: a block takes {(registers or 0) * launch.block:,} of {gpu.registers_per_sm:,}",
        "threads": f"threads: a block has {launch.block:,} of {gpu.threads_per_sm:,}",
        "blocks": f"the number of blocks: an SM holds {gpu.limits.blocks_per_sm} at most",
    }[held.limited_by]
    blocks = "1 block" if held.blocks == 1 else f"{held.blocks} blocks"
    warps = f"{held.warps} of {held.max_warps} warps ({percent(held.fraction)})"
    text = f"`{launch.function}`: an SM holds **{blocks}**, {warps}. The limit is {why}."
    if held.fraction < 0.5:
        text += (
            " That is low, and no error: with few warps an SM has little else to do while one waits, so each needs its "
            "data near, or several loads under way."
        )
    return text


__all__ = [
    "bandwidth",
    "bytes_explained",
    "differences",
    "flash_and_naive",
    "gigabytes",
    "headline",
    "how_timed",
    "launch_words",
    "occupancy_words",
    "one_line",
    "peers",
    "percent",
    "said",
]
