"""What a traced run did, by source line: the numbers behind a heat strip."""

from __future__ import annotations

from dataclasses import dataclass, field

from fmha.trace.findings import Finding
from fmha.trace.tracing import Count, LineFlops, Trace

# What a heat strip can show -> in words, with what is counted.
MEASURES: dict[str, str] = {
    "wavefronts": "wavefronts of shared memory",
    "conflicts": "wavefronts that bank conflicts add",
    "global": "bytes of device memory, as requested",
    "wasted": "sectors moved beyond the fewest",
    "flops": "floating-point operations",
}


@dataclass
class LineUse:
    """One line of the kernel's own file: what it did with each array, its arithmetic, and what is wrong with it."""

    counts: list[Count] = field(default_factory=list)
    flops: list[LineFlops] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    def value(self, measure: str) -> int:
        """The number that a heat strip of this measure (a key of `MEASURES`) shows."""
        if measure == "flops":
            return sum(f.add + f.mul + f.div + f.special + f.max for f in self.flops)
        if measure == "global":
            return sum(c.nbytes for c in self.counts if c.space == "global")
        if measure == "wasted":
            return sum(c.sectors - c.ideal_sectors for c in self.counts)
        if measure == "conflicts":
            return sum(c.wavefronts - c.ideal_wavefronts for c in self.counts)
        if measure == "wavefronts":
            return sum(c.wavefronts for c in self.counts)
        raise KeyError(measure)


def by_line(trace: Trace) -> dict[int, LineUse]:
    """The lines of the kernel's own file that touched memory, computed, or have a finding, by number."""
    mine = trace.kernel.file
    used: dict[int, LineUse] = {}
    for count in trace.counts:
        if count.file == mine:
            used.setdefault(count.line, LineUse()).counts.append(count)
    for flops in trace.flops:
        if flops.line:
            used.setdefault(flops.line, LineUse()).flops.append(flops)
    for finding in trace.findings:
        if finding.file == mine and finding.line:
            used.setdefault(finding.line, LineUse()).findings.append(finding)
    return dict(sorted(used.items()))


__all__ = ["MEASURES", "LineUse", "by_line"]
