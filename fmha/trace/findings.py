"""What is wrong with a kernel, in words: races, wild accesses, reads of what nothing wrote, missed barriers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fmha.kernels import Launch
from fmha.trace.assembly import Site
from fmha.trace.build import Program
from fmha.trace.run import GAP, Raw, Region
from fmha.units import format_bytes

KINDS = {
    1: "out of bounds",
    2: "beyond shared memory",
    3: "read of what nothing wrote",
    4: "race",
    5: "race",
    6: "race",
    7: "input overwritten",
    8: "barrier missed",
    9: "barriers differ",
    10: "warp operation missed",
    11: "null pointer",
    12: "misaligned",
}
WILD = (KINDS[1], KINDS[2], KINDS[11], KINDS[12])  # accesses that might crash where nobody looks
_SEVERAL = 2**32 - 1  # threads or blocks, where one number does not say who
_OF_LINES = (8, 9, 10)  # kinds that are seen at barriers, and not at an access to memory


@dataclass(frozen=True)
class Finding:
    """One fault, where it was first seen, and how often.

    kind: a value of `KINDS`; text: one sentence; file, line: where it is written, be it in a helper (0: none);
    other_line: of the access that it collides with (0: none); function, block, thread: who; count: how often, or in
    how many pairs of accesses.
    """

    kind: str
    text: str
    file: str
    line: int
    other_line: int
    function: str
    block: int
    thread: int
    count: int


def findings(raw: Raw, program: Program, launches: Sequence[Launch]) -> tuple[Finding, ...]:
    """All faults, each once: by kind and source lines, in the order of the lines."""
    merged: dict[tuple[Any, ...], Finding] = {}
    for row in raw.findings:
        found = _finding(row, raw, program, launches)
        key = (found.kind, found.file, found.line, found.other_line, found.function)
        before = merged.get(key)
        if before is None or (found.block, found.thread) < (before.block, before.thread):
            count = found.count + (before.count if before else 0)
            merged[key] = Finding(**{**found.__dict__, "count": count})
        else:
            merged[key] = Finding(**{**before.__dict__, "count": before.count + found.count})
    return tuple(sorted(merged.values(), key=lambda f: (f.file, f.line, f.kind, f.other_line)))


def _finding(row: Any, raw: Raw, program: Program, launches: Sequence[Launch]) -> Finding:
    kind, launch, block, thread = (int(row[name]) for name in ("kind", "launch", "block", "thread"))
    site, other = (program.sites[int(row[name])] for name in ("site", "other_site"))
    function = launches[launch].function
    if kind in _OF_LINES:
        file = next((s.file for s in program.sites if s.file.endswith(".cu")), "")  # of the kernel: it has the barriers
        line, other_line = int(row["at"]), int(row["region"]) if kind == 9 else 0
        text = _at_barrier(kind, row)
    else:
        file, line, other_line = site.inner_file, site.inner_line, other.inner_line if kind in (4, 5, 6) else 0
        text = f"{'writes' if site.is_write else 'reads'} {_access(kind, row, raw.regions[launch], launches[launch])}"
        if kind in (4, 5, 6):
            text += f", {_collision(row, other, file)}"
    where = f"{file}:{line}" if line else file or "?"
    sentence = f"{where}: in {function}, block {block}, thread {thread} {text}."
    return Finding(KINDS[kind], sentence, file, line, other_line, function, block, thread, int(row["count"]))


def _access(kind: int, row: Any, regions: Sequence[Region], launch: Launch) -> str:
    """What is read or written."""
    at, number = int(row["at"]), int(row["region"])
    region = regions[number] if number < len(regions) else None
    if kind == 1:
        return _nearest(at, regions, region)
    if kind == 2:
        where = f"{-at:,} bytes before its beginning" if at < 0 else f"at byte {at:,}"
        return f"dynamic shared memory {where}, and the launch asked for {format_bytes(launch.smem_bytes)}"
    if kind == 11:
        return "through a null pointer" + (f", {at:,} bytes behind it" if at else "")
    if kind == 12:
        size = int(row["other_thread"])
        return f"{size} bytes at once from an address that is not a multiple of {size}"
    cell = f"{region.name} at byte {at - region.first:,}" if region else f"shared memory at byte {at:,}"
    return cell + {3: ", which nothing has written", 7: ", which is an input"}.get(kind, "")


def _collision(row: Any, other: Site, file: str) -> str:
    """Who has touched it before, in words that follow a comma."""
    block, thread = int(row["other_block"]), int(row["other_thread"])
    is_mine = block == int(row["block"])
    who = "several threads" if thread == _SEVERAL else f"thread {thread}"
    if not is_mine:
        who = "several blocks" if block == _SEVERAL else f"{who} of block {block}"
    did = "read" if int(row["kind"]) == 5 else "wrote"
    place, line = other.inner_file, other.inner_line
    there = f" in line {line}{f' of {place}' if place != file else ''}" if line else ""
    return f"which {who} {did}{there}, " + ("with no barrier in between" if is_mine else "and nothing orders blocks")


def _at_barrier(kind: int, row: Any) -> str:
    second, line = int(row["other_thread"]), int(row["region"])
    if kind == 8:
        return f"has ended, while thread {second} waits at the barrier in this line"
    if kind == 9:
        return f"waits at the barrier in line {line}, while thread {second} waits at the one in this line"
    return f"waits here for thread {second} of its warp, which waits in line {line}"


def _nearest(at: int, regions: Sequence[Region], known: Region | None) -> str:
    """An address outside all arrays, by the array next to it. at: in the arena, or in shared memory."""
    best, away = "an address that belongs to no array", GAP
    for region in regions if known is None else (known,):
        if known is None and region.space != "global":
            continue
        behind, before = at - region.first - region.nbytes, region.first - at
        if 0 <= behind < away:
            best, away = f"{region.name}, {_bytes(behind)} its end", max(1, behind)
        elif 0 < before < away:
            best, away = f"{region.name}, {before:,} bytes before its beginning", before
    return best


def _bytes(behind: int) -> str:
    return f"{behind:,} bytes behind" if behind else "right behind"


__all__ = ["KINDS", "WILD", "Finding", "findings"]
