"""Words and names for a traced kernel: short numbers, colours of arrays and phases, sentences (Markdown)."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Sequence

from fmha.banks import BANK_BYTES, BANKS
from fmha.check import Check
from fmha.kernels import SECTOR
from fmha.phases import Phase
from fmha.trace import Count, LineFlops, Trace
from fmha.trace.walk import Request
from fmha.ui.sentences import percent
from fmha.units import format_bytes, format_count

_ROLES = {
    "Q": "Q", "Qi": "Q", "K": "K", "Kj": "K", "V": "V", "Vj": "V", "S": "S", "Sij": "S", "P": "S", "Pij": "S",
    "row": "S", "O": "O", "Oi": "O", "l": "l", "li": "l", "l_new": "l", "LSE": "l", "m": "m", "mi": "m", "m_new": "m",
    "alpha": "alpha", "beta": "alpha",
}  # fmt: skip
HEAT_ROLES = {"wavefronts": "SMEM", "conflicts": "warn", "global": "HBM", "wasted": "warn", "flops": "REG"}


def role_of(name: str) -> str:
    """The role (`fmha.figures.theme.ROLES`) whose colour an array, or what a phase computes, has."""
    return _ROLES.get(name, "SMEM")


def phase_name(phase: Phase | None, lines: Sequence[int] = ()) -> str:
    """A phase in few words: its maths, without what is said after a colon. lines: of what belongs to no phase."""
    if phase is not None:
        return re.split(r": |; |\. |, (?=only |-inf )", phase.maths)[0].rstrip(".")
    if not lines:
        return "waits"
    first, last = min(lines), max(lines)
    return f"line {first}" if first == last else f"lines {first} to {last}"


def compact(value: float) -> str:
    """A count in a few letters, for a heat strip: "512", "13.1 k", "4.19 M"."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= 0.9995 * size:
            digits = value / size
            return f"{digits:.0f} {unit}" if digits >= 99.95 else f"{digits:.3g} {unit}"
    return f"{value:.0f}"


def strip_value(measure: str, value: int) -> str:
    """What a heat strip says beside its bar."""
    return format_bytes(value) if measure == "global" else compact(value)


# --- verdict ----------------------------------------------------------------------------------------------------------


def clean(trace: Trace) -> str:
    """What was looked for and not found."""
    plans = trace.plan.launches
    blocks = sum(plan.grid for plan in plans)
    threads = sorted({plan.block for plan in plans})
    who = " or ".join(f"{n:,}" for n in threads)
    of = "the block" if blocks == 1 else f"each of {blocks:,} blocks"
    return (
        "No race, nothing out of bounds, every value that was read had been written, every barrier was reached by all "
        f"{who} threads of {of}."
    )


def right(found: Check) -> str:
    """How far O is from float64."""
    return f"O differs from float64 by {found.max_abs:.2g} at most ({found.max_abs_allowed:.2g} allowed)"


def total(counts: Sequence[Count], what: str) -> int:
    """A sum over counts: "wavefronts", "conflicts", "sectors", ..."""
    if what == "conflicts":
        return sum(c.wavefronts - c.ideal_wavefronts for c in counts)
    return sum(getattr(c, what) for c in counts)


def flops(lines: Sequence[LineFlops]) -> int:
    """All operations."""
    return sum(f.add + f.mul + f.div + f.special + f.max for f in lines)


# --- lines ------------------------------------------------------------------------------------------------------------


def line_table(counts: Sequence[Count]) -> str:
    """What one line does with each array, as a Markdown table: a column for each array."""
    if not counts:
        return ""
    facts: list[tuple[str, list[str]]] = [
        ("memory", ["shared" if c.space == "shared" else "device" for c in counts]),
        ("requests of warps", [f"{c.requests:,}" for c in counts]),
        ("bytes of all lanes", [format_bytes(c.nbytes) for c in counts]),
        ("sectors, fewest", [_of(c.sectors, c.ideal_sectors) if c.sectors else "" for c in counts]),
        ("wavefronts, fewest", [_of(c.wavefronts, c.ideal_wavefronts) if c.wavefronts else "" for c in counts]),
        ("widest request", [widest(c) for c in counts]),
    ]
    head = "| |" + "".join(f" {'writes' if c.is_write else 'reads'} `{c.array}` |" for c in counts)
    rule = "|---|" + "---:|" * len(counts)
    rows = [f"| {name} |" + "".join(f" {value} |" for value in row) for name, row in facts if any(row)]
    return "\n".join([head, rule, *rows])


def _of(value: int, least: int) -> str:
    return f"{value:,} of {least:,}" if value == least else f"**{value:,}** of {least:,}"


def widest(count: Count) -> str:
    """The most expensive request: "32-way" in shared memory, "5 sectors" in device memory."""
    if count.space == "shared":
        return "no conflict" if count.widest <= 1 else f"**{count.widest}-way**"
    return f"{count.widest} {'sector' if count.widest == 1 else 'sectors'}"


def arithmetic(lines: Sequence[LineFlops]) -> str:
    """The operations of one line in words; "" where it has none."""
    names = {
        "add": "additions", "mul": "multiplications", "div": "divisions", "special": "exp, log, sqrt", "max": "max",
    }  # fmt: skip
    found = {text: sum(getattr(f, key) for f in lines) for key, text in names.items()}
    return ", ".join(f"{format_count(n)} {text}" for text, n in found.items() if n)


# --- requests ---------------------------------------------------------------------------------------------------------


def where(request: Request) -> str:
    """The array of a request, with the head of a tensor or the place of a tile: "`Q`, head 1", "`Kj`, place 2 of 2"."""
    name = f"`{request.array}`" if request.array != "?" else "no array"
    element = next((e for e in map(request.element, range(32)) if e is not None), None)
    if element is None or len(element) < 3:
        return name
    if request.space == "shared":
        # A tile that lies there more than once: elements are counted by what a lane asks for, so look at the bytes.
        offset = next(o for o in request.offsets if o is not None and 0 <= o < request.size)
        return f"{name}, place {offset * request.shape[0] // request.size + 1} of {request.shape[0]}"
    heads = request.shape[1] > 1
    return f"{name}, head {element[1]}" if heads else name


def place(element: tuple[int, ...] | None) -> str:
    """An element as its row and column, or its index."""
    return "outside" if element is None else ", ".join(map(str, element[-2:]))


def cost(request: Request) -> str:
    """What a request costs, in a sentence."""
    who = f"{request.lanes} {'lane' if request.lanes == 1 else 'lanes'}"
    if request.space == "shared":
        if request.cost == request.least:
            return f"{who}, {request.cost} {'wavefront' if request.cost == 1 else 'wavefronts'}: no conflict."
        return (
            f"{who}, **{request.cost} wavefronts** where {request.least} would do: {request.ways:g}-way, because lanes "
            "want different words of one bank."
        )
    moved = f"{who} want {format_bytes(request.lanes * request.nbytes)}; "
    sectors = f"{request.cost} {'sector' if request.cost == 1 else 'sectors'} of {SECTOR} bytes"
    if request.cost == request.least:
        return f"{moved}{sectors} {'moves' if request.cost == 1 else 'move'}, no fewer would do."
    return f"{moved}**{sectors}** move where {request.least} would do."


def pattern(request: Request) -> str:
    """How the lanes' places follow one another in shared memory, and what that means for the banks; "" where they
    follow no rule, or in device memory."""
    at = [offset for offset in request.offsets if offset is not None]
    steps = {b - a for a, b in itertools.pairwise(at)}
    if request.space != "shared" or request.nbytes != BANK_BYTES or len(steps) != 1:
        return ""
    words = steps.pop() // BANK_BYTES
    if words == 0:
        return "**All lanes want one word:** its bank delivers it once, to all of them (a broadcast)."
    used = BANKS // math.gcd(BANKS, words)
    apart = "the next word" if words == 1 else f"a word {words} further"
    text = f"**From lane to lane: {apart}.** "
    if used == BANKS:
        odd = "" if words == 1 else f", because {words} is odd"
        return f"{text}So each lane has a bank of its own{odd}."
    return (
        f"{text}{words} and {BANKS} have the factor {math.gcd(BANKS, words)} in common, so only {used} of {BANKS} "
        f"banks {'is' if used == 1 else 'are'} asked."
    )


def sits_out(request: Request, threads: int) -> str:
    """How many lanes take no part; "" where all do. threads: of the warp."""
    out = threads - request.lanes
    if out <= 0:
        return ""
    return f" {out} {'lane sits' if out == 1 else 'lanes sit'} out: a condition in the source excludes them."


def share(part: int, whole: int) -> str:
    """A part of a whole in percent; "none" for none."""
    return percent(part / whole) if part and whole else "none"


__all__ = [
    "HEAT_ROLES", "arithmetic", "clean", "compact", "cost", "flops", "line_table", "pattern", "phase_name", "place",
    "right", "role_of", "share", "sits_out", "strip_value", "total", "where", "widest",
]  # fmt: skip
