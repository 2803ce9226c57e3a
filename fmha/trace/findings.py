"""What is wrong with a kernel, in words: races, wild accesses, reads of what nothing wrote, missed barriers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fmha.kernels import Launch
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
}
_SEVERAL = 2**32 - 1  # threads, where one number does not say who


@dataclass(frozen=True)
class Finding:
    """One fault, where it was first seen, and how often.

    kind: a value of `KINDS`; text: one sentence; file, line: in the source (0: none); other_line: of the access that it
    collides with (0: none); function, block, thread: who; count: how often, or in how many pairs of accesses.
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
    kind, launch, at = int(row["kind"]), int(row["launch"]), int(row["at"])
    regions = raw.regions[launch]
    site = program.sites[int(row["site"])]
    other = program.sites[int(row["other_site"])]
    region = regions[int(row["region"])] if int(row["region"]) < len(regions) else None
    verb = "writes" if site.is_write else "reads"
    thread, other_thread = int(row["thread"]), int(row["other_thread"])
    second = "several threads" if other_thread == _SEVERAL else f"thread {other_thread}"
    line, other_line, file = site.line, 0, site.file
    if kind == 1:
        text = f"{verb} {_nearest(at, regions)}"
    elif kind == 2:
        asked = format_bytes(launches[launch].smem_bytes)
        text = f"{verb} byte {at:,} of dynamic shared memory, and the launch asked for {asked}"
    elif kind == 3:
        text = f"reads {_cell(region, at)}, which nothing has written"
    elif kind in (4, 5, 6):
        what, other_line = _cell(region, at), other.line
        same = region is not None and region.space == "global"
        between = "and nothing orders blocks or threads in between" if same else "with no barrier in between"
        before = {4: f"{second} wrote", 5: f"{second} read", 6: f"{second} wrote"}[kind]
        text = f"{verb} {what}, which {before}{f' in line {other_line}' if other_line else ''}, {between}"
    elif kind == 7:
        text = f"writes {_cell(region, at)}, which is an input"
    else:
        line, file = at, next((s.file for s in program.sites if s.file.endswith(".cu")), "")
        if kind == 8:
            text = f"has ended, while {second} waits at the barrier in this line"
        elif kind == 9:
            other_line = int(row["region"])
            text = f"waits at the barrier in line {other_line}, while {second} waits at the one in this line"
        else:
            text = "waits here for lanes of its warp that never come"
    function = launches[launch].function
    where = f"{file}:{line}" if line else file or "?"
    sentence = f"{where}: in {function}, block {int(row['block'])}, thread {thread} {text}."
    return Finding(
        KINDS[kind], sentence, file, line, other_line, function, int(row["block"]), thread, int(row["count"])
    )


def _cell(region: Region | None, at: int) -> str:
    return f"{region.name} at byte {at - region.first:,}" if region else f"shared memory at byte {at:,}"


def _nearest(at: int, regions: Sequence[Region]) -> str:
    """An address in the arena that is in no buffer, relative to the buffer next to it."""
    for region in regions:
        if region.space == "global":
            behind = at - region.first - region.nbytes
            if 0 <= behind < GAP:
                return f"{region.name}, {behind:,} bytes behind its end"
            if 0 < region.first - at <= GAP // 2:
                return f"{region.name}, {region.first - at:,} bytes before its beginning"
    return "an address that belongs to no array"


__all__ = ["KINDS", "Finding", "findings"]
