"""What the page *Timeline* says, in sentences (Markdown) that are computed."""

from __future__ import annotations

from collections.abc import Mapping

from fmha.forecast import Forecast
from fmha.gantt_map import GanttMap
from fmha.hardware import Gpu
from fmha.measurement import Found
from fmha.spans import Blocks, Shares, starving_from
from fmha.ui.page import plain
from fmha.ui.sentences import percent, said
from fmha.ui.timeline_run import Asked, Held, Table
from fmha.units import format_bytes, format_ratio, format_time_us

SAME = 1.002  # times that differ by less are called equal


def counted(number: int, one: str, many: str | None = None) -> str:
    """1 block, 2 blocks."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def headline(table: Table) -> str:
    """The picture in one sentence."""
    blocks, idle = table.blocks, table.shares.idle
    kernels = len({kernel for _, kernel, *_ in table.waves})
    turns = counted(kernels, "kernel") if kernels > 1 else counted(len(table.waves), "wave")
    most = "" if idle < 5e-4 else f"; SMs idle {percent(idle)} of the time"
    return (
        f"{counted(len(blocks), 'block')} on {counted(blocks.sms, 'SM')} {'takes' if len(blocks) == 1 else 'take'} "
        f"{format_time_us(blocks.span)} in {turns}{most}."
    )


def how_drawn(drawn: GanttMap, blocks: Blocks) -> str:
    """What the picture's cells are."""
    if drawn.how == "visits":
        text = "Each phase stands where it happens."
    else:
        text = (
            "Visits of a K/V tile are too narrow to be seen here, so all visits of a block are taken together: its bar "
            "is cut into its phases, each as long as it is in all. The close-up below has them in their true order."
        )
    if drawn.tracks == 2:
        text += " A block has two lines: its loads above, what it computes below."
    if drawn.lanes > 1:
        text += f" An SM has {drawn.lanes} lines, one for each place for a block."
    if drawn.hidden:
        text += f" Of {blocks.lanes} places of an SM {counted(drawn.lanes, 'is', 'are')} drawn."
    return text + " A dashed line: the first block of a wave begins. Hatched: no block."


def waves(table: Table) -> str:
    """Blocks in turns."""
    blocks = table.blocks
    where = counted(blocks.places, "SM" if blocks.lanes == 1 else "place")
    parts: dict[str, list[int]] = {}
    for kernel in sorted({kernel for _, kernel, *_ in table.waves}):
        sizes = [size for _, k, _, size in table.waves if k == kernel]
        missing = blocks.places - sizes[-1]
        last = "all full" if not missing else f"the last with {counted(sizes[-1], 'block')}"
        if len(sizes) == 1:
            last = "full" if not missing else f"with {missing:,} left empty"
        text = f"{counted(sum(sizes), 'block')} on {where} make {counted(len(sizes), 'wave')}, {last}"
        parts.setdefault(text, []).append(kernel + 1)
    if len(parts) == 1:
        text, kernels = next(iter(parts.items()))
        return f"**Waves.** {text}{' in each kernel' if len(kernels) > 1 else ''}."
    return "**Waves.** " + "; ".join(f"kernel {' and '.join(map(str, k))}: {text}" for text, k in parts.items()) + "."


def tail(table: Table) -> str:
    """What is idle, and from when."""
    blocks, idle, from_us = table.blocks, table.shares.idle, starving_from(table.blocks)
    if idle < 5e-4:
        return "**Tail.** No SM is ever without a block: all end together."
    if from_us <= blocks.begin + blocks.slack:
        used = len(set(blocks.sm.tolist()))
        return (
            f"**Tail.** SMs idle **{percent(idle)} of SMs x time**: {counted(blocks.sms - used, 'SM')} of {blocks.sms} "
            "never get a block."
        )
    return (
        f"**Tail.** SMs idle **{percent(idle)} of SMs x time**. From {format_time_us(from_us - blocks.begin)} on, the "
        f"last {percent((blocks.end - from_us) / blocks.span)} of the time, some have nothing left to do."
    )


def shares(table: Table) -> str:
    """Loading, computing, both."""
    part: Shares = table.shares
    waits = f", wait {percent(part.waits)}" if part.waits >= 5e-4 else ""
    both = f"do both at once {percent(part.both)}" if part.both >= 5e-4 else "never do both at once"
    more = "loads" if part.loading > part.computing else "computing"
    return (
        f"**Loads and computing.** SMs load {percent(part.loading)} of the time, compute or store "
        f"{percent(part.computing)}, {both}{waits}. No overlap could hide the longer of the two, which is {more}."
    )


def stages(times: Mapping[int, float], asked: Asked, room: Mapping[int, Held]) -> str:
    """What loading ahead gains, and what it costs in shared memory."""
    one, two, three = (times[n] for n in (1, 2, 3))
    if one / two < SAME:
        gain = "Loading ahead gains nothing here"
    else:
        gain = f"Loading one tile ahead (2 stages) takes {format_time_us(two)} instead of {format_time_us(one)}: " + (
            f"{format_ratio(one / two)} as fast"
        )
    third = "a third stage changes nothing" if two / three < SAME else f"a third one: {format_time_us(three)}"
    text = f"**Stages.** {gain}; {third}."
    if asked.order == "naive":
        return text
    first, second = room[1], room[2]
    text += f" Each further stage takes {format_bytes(second.smem - first.smem)} of shared memory for K and V"
    if first.found is None:
        return text + "."
    if second.found is None:
        return f"{text}, and two do not fit: {second.why_not}."
    if second.places < first.places:
        return f"{text}, and an SM then holds {counted(second.places, 'block')} instead of {first.places}."
    return f"{text}; an SM still holds {counted(second.places, 'block')}."


def orders(times: Mapping[str, float], idles: Mapping[str, float], causal: bool) -> str:
    """What another order of the blocks changes."""
    major, heavy = times["head-major"], times["heavy-first"]
    if max(times.values()) / min(times.values()) < SAME:
        why = "all blocks last equally long" if not causal else "there are too few blocks, or too many, for a tail"
        text = f"**Block order.** It changes nothing here, since {why}."
        return text if causal else f"{text} Switch the causal mask on: then heavy blocks can go first."
    best = min(times, key=lambda name: times[name])
    text = (
        f"**Block order.** Head-major, as kernels have it, takes {format_time_us(major)} with "
        f"{percent(idles['head-major'])} idle; heavy-first {format_time_us(heavy)} with {percent(idles['heavy-first'])}"
    )
    gain = 1 - heavy / major
    text += f": **{percent(gain)} less time**." if gain > SAME - 1 else "." if gain > -(SAME - 1) else ": longer."
    if best not in ("head-major", "heavy-first") and times[best] < heavy / SAME:
        text += f" The best is {best}: {format_time_us(times[best])}."
    return text


def occupancy(asked: Asked, room: Held) -> str:
    """How many blocks an SM holds, and what keeps it from more."""
    if room.found is None:
        return (
            f"**Occupancy.** Built like kernel 02 a block would need {room.why_not}: it cannot run on the "
            f"{asked.gpu.name}, and the picture is of a kernel that can."
        )
    found = room.found
    drawn = "" if asked.places == room.places else f" The picture has {asked.places}, as the player does."
    return (
        f"**Occupancy.** An SM of the {asked.gpu.name} holds **{counted(room.places, 'block')} at once**, "
        f"{found.warps} of {found.max_warps} warps; the limit is {found.limited_by}.{drawn} A block as kernel 02 "
        f"builds it: {room.threads:,} threads, {format_bytes(room.smem)} of shared memory."
    )


def naive_occupancy(forecast: Forecast, gpu: Gpu) -> str:
    """The same for kernel 01's three functions."""
    parts = [
        f"{counted(f.held.blocks, 'block')} of `{f.function}` (limited by {f.held.limited_by})"
        for f in forecast.functions
    ]
    return f"**Occupancy.** An SM of the {gpu.name} holds {', '.join(parts)}. The picture has one at a time."


def compared(table: Table, forecast: Forecast | str, found: Found | None, asked: Asked) -> str:
    """The simple cost beside the calibrated forecast (or why there is none) and a measurement."""
    mine = table.blocks.span
    text = (
        f"**The bars are not a forecast.** They cost what bytes and FLOPs take at the peaks of the {asked.gpu.name}: "
        f"{format_time_us(mine)}."
    )
    if isinstance(forecast, str):
        return f"{text} The calibrated forecast says nothing here: {plain(forecast)}"
    stage = "" if forecast.kernel == "01" else ", which has one stage,"
    text += (
        f" For kernel {forecast.kernel}{stage} the calibrated forecast says {format_time_us(forecast.time_us)}, "
        f"{format_ratio(forecast.time_us / mine)} of that: it knows the kernel, and that most of its time goes to "
        f"**{forecast.longest.binds}**."
    )
    if found is None or found.entry.time is None:
        return text
    measured, device = found.entry.time.median_us, found.recording.device
    return (
        f"{text} Measured on {said(device.facts.name, 60)}, {said(found.run.made[:10], 12)}: "
        f"**{format_time_us(measured)}**; the forecast is off by {100 * (forecast.time_us / measured - 1):+.1f} %."
    )


NOT_MODELLED = (
    "What is not modelled: latency and barriers; launches; bank conflicts and instructions, which make real kernels "
    "many times slower than these bars; caches (every load comes from device memory at one SM's share of the "
    "bandwidth, as in the player); blocks of one SM that hide each other's waits (they share its speed, and one that "
    "is alone gets no faster). A block goes to the SM that has room first; the hardware's choice is not documented."
)
