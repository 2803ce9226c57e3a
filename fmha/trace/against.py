"""A traced run held against what a GPU's profiler counted, line by line.

The tracer counts the source as written, the profiler what nvcc made of it: it joins neighbouring accesses into wider
ones, and keeps a value in a register instead of reading it back. Sectors of device memory are the same either way;
wavefronts of shared memory are compared where the compiled accesses are the source's. Both sides give what an inlined
function does to the kernel's line that calls it. A statement that runs on over several lines counts as its first.
"""

from __future__ import annotations

import itertools
import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from fmha.line_counts import LineCount, LineCounts
from fmha.trace.tracing import Count, Trace

_GOES_ON = re.compile(r"[,+\-*/%=&|?:(<>]$")  # a line that ends so is not the end of its statement

_NAMES = {"LDGSTS": "cp.async", "LDSM": "ldmatrix", "STSM": "stmatrix"}


@dataclass(frozen=True)
class Side:
    """One side of a comparison: sums over a line's accesses to one space, in one direction. widths: bytes a thread;
    ops: names of machine instructions, () of a traced run."""

    requests: int = 0
    lanes: int = 0
    nbytes: int = 0
    sectors: int = 0
    wavefronts: int = 0
    ideal_wavefronts: int = 0
    widths: tuple[int, ...] = ()
    ops: tuple[str, ...] = ()


@dataclass(frozen=True)
class Compared:
    """A source line of a function, what it does in one space and direction: traced, and counted on a GPU."""

    function: str
    file: str
    line: int
    space: str
    is_write: bool
    traced: Side
    measured: Side

    @property
    def is_copy(self) -> bool:
        """Whether this is the reading side of copies past the registers (cp.async). Of these the profiler counts the
        lanes that take part; those outside of a tensor read nothing and write zeros."""
        return self.space == "global" and self.measured.ops == ("LDGSTS",)

    @property
    def how(self) -> str:
        """The PTX instruction that the GPU ran where it is not a plain load or store; else ""."""
        return ", ".join(_NAMES[op] for op in self.measured.ops if op in _NAMES)

    @property
    def is_same(self) -> bool:
        """Whether the compiled accesses are the source's: as wide and as many, by as many lanes at once or fewer."""
        ours, theirs = self.traced, self.measured
        is_same = ours.lanes <= theirs.lanes if self.is_copy else ours.lanes == theirs.lanes
        return is_same and ours.widths == theirs.widths and ours.requests <= theirs.requests

    @property
    def is_split(self) -> bool:
        """Whether they are the source's, by fewer lanes at once: then even the fewest wavefronts are more."""
        return self.is_same and self.traced.ideal_wavefronts < self.measured.ideal_wavefronts

    @property
    def is_as_written(self) -> bool:
        """Whether the compiled accesses are the source's in everything."""
        return self.is_same and not self.is_split

    @property
    def is_equal(self) -> bool:
        """Whether sectors, bytes and wavefronts are the same on both sides."""
        ours, theirs = self.traced, self.measured
        is_same = self.is_copy or ours.nbytes == theirs.nbytes
        return is_same and (ours.sectors, ours.wavefronts) == (theirs.sectors, theirs.wavefronts)

    @property
    def why_not(self) -> str:
        """What the compiler did to this line, in words; "" where it is as written."""
        ours, theirs = self.traced, self.measured
        if self.is_as_written:
            return ""
        if self.is_split:
            who = "zeros beyond the tensor are written" if "LDGSTS" in theirs.ops else "some lanes do it"
            return (
                f"split: {who} apart from the rest, so {theirs.ideal_wavefronts:,} wavefronts are the fewest, not "
                f"{ours.ideal_wavefronts:,}"
            )
        if not theirs.lanes:
            return "no access as compiled: the values are in registers"
        if ours.widths != theirs.widths and ours.nbytes == theirs.nbytes:
            return f"joined: {_bytes(ours.widths)} in the source, {_bytes(theirs.widths)} as compiled"
        if theirs.lanes < ours.lanes:
            share = 100 * (1 - theirs.lanes / ours.lanes)
            wide = "" if ours.widths == theirs.widths else f"; {_bytes(theirs.widths)} as compiled"
            return f"{share:.0f} % of the accesses left out: the values are in registers{wide}"
        if theirs.lanes > ours.lanes:
            return f"{theirs.lanes - ours.lanes:,} accesses more than the source has"
        return (
            f"{theirs.requests:,} requests where the CPU made {ours.requests:,}: lanes that took a branch join the "
            "others later there"
        )


def _bytes(widths: Iterable[int]) -> str:
    return " and ".join(str(w) for w in widths) + " bytes a thread"


def compare(trace: Trace, counted: LineCounts) -> tuple[Compared, ...]:
    """Every statement of either side, in the order of functions and lines. Of device memory all arrays count."""
    first = statements(trace.text)

    def start(file: str, line: int) -> int:
        return first.get(line, line) if file == trace.kernel.file else line

    Key = tuple[str, str, int, str, bool]
    ours: dict[Key, list[Count]] = defaultdict(list)
    theirs: dict[Key, list[LineCount]] = defaultdict(list)
    for count in trace.counts:
        ours[count.function, count.file, start(count.file, count.line), count.space, count.is_write].append(count)
    for line in counted.lines:
        theirs[line.function, line.file, start(line.file, line.line), line.space, line.is_write].append(line)
    order = [launch.function for launch in trace.plan.launches]
    keys = sorted({*ours, *theirs}, key=lambda k: (order.index(k[0]), k[1] != trace.kernel.file, *k[1:]))
    return tuple(Compared(*key, _sum(ours.get(key, ())), _sum(theirs.get(key, ()))) for key in keys)


def statements(text: str) -> dict[int, int]:
    """The line on which the statement of each line begins, for lines that go on with one."""
    found: dict[int, int] = {}
    lines = [line.split("//", 1)[0].rstrip() for line in text.splitlines()]
    for number, (before, line) in enumerate(itertools.pairwise(lines), 2):
        if line.strip() and _GOES_ON.search(before):
            found[number] = found.get(number - 1, number - 1)
    return found


def _sum(counts: Iterable[Count | LineCount]) -> Side:
    made = list(counts)
    ops = {c.op for c in made if isinstance(c, LineCount)}
    return Side(
        sum(c.requests for c in made), sum(c.lanes for c in made), sum(c.nbytes for c in made),
        sum(c.sectors for c in made), sum(c.wavefronts for c in made), sum(c.ideal_wavefronts for c in made),
        tuple(sorted({c.access_bytes for c in made})), tuple(sorted(ops)),
    )  # fmt: skip


__all__ = ["Compared", "Side", "compare", "statements"]
