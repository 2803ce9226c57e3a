"""What a GPU's profiler counted on each source line of a kernel: read from Nsight Compute's source page, kept as JSON.

One rule gives every access its line: that of the kernel itself. What a function does that was inlined into it, of the
same file or of a header, counts on the line of the kernel that calls it.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fmha.errors import InputError
from fmha.problem import Problem, Tiling

FOLDER = Path(__file__).resolve().parent / "recorded" / "lines"
FORMAT = "fmha line counts 2"


@dataclass(frozen=True)
class LineCount:
    """What the instructions of one name and width did for one source line, over all warps of a launch.

    op: the instruction's name, as "LDS". space: "global" or "shared". access_bytes: of one thread, as compiled.
    requests: of warps; lanes: accesses of threads (of `LDGSTS` all that take part, also those that write zeros and
    read nothing); sectors: of 32 bytes, of device memory; wavefronts of shared memory, and the fewest that would do.
    """

    function: str
    file: str
    line: int
    op: str
    space: str
    is_write: bool
    access_bytes: int
    requests: int
    lanes: int
    sectors: int
    wavefronts: int
    ideal_wavefronts: int

    @property
    def nbytes(self) -> int:
        """Bytes of all threads."""
        return self.lanes * self.access_bytes


@dataclass(frozen=True)
class LineCounts:
    """A counted run. facts: device, driver, cuda, profiler, compiler, made, kernel, source (the hash), problem, tiling.

    totals: {function: {metric: value}}, read by other counters in the same run. lines: in the order of launches, files
    and lines.
    """

    facts: dict[str, Any]
    totals: dict[str, dict[str, float]]
    lines: tuple[LineCount, ...]

    @property
    def problem(self) -> Problem:
        """What was run."""
        return Problem(**self.facts["problem"])

    @property
    def tiling(self) -> Tiling:
        """With which tiles."""
        return Tiling(**self.facts["tiling"])

    @property
    def title(self) -> str:
        """Kernel, problem and tiles in a few words."""
        p, t = self.problem, self.tiling
        mask = f", causal {p.causal}" if p.causal else ""
        return f"{self.facts['kernel']}: N={p.Nq}, d={p.d}, H={p.H}, {t.Br} x {t.Bc}{mask}"

    def to_json(self) -> str:
        """As text, which `from_json` reads."""
        names = [field.name for field in dataclasses.fields(LineCount)]
        rows = [[getattr(line, name) for name in names] for line in self.lines]
        head = json.dumps({"format": FORMAT, "facts": self.facts, "totals": self.totals, "columns": names})
        body = ",\n".join(json.dumps(row, separators=(",", ":")) for row in rows)
        return f'{head[:-1]},\n"lines": [\n{body}\n]}}\n'

    @classmethod
    def from_json(cls, text: str, name: str = "the file") -> LineCounts:
        """Read what `to_json` wrote.

        Raises:
            InputError: it is something else.
        """
        names = [field.name for field in dataclasses.fields(LineCount)]
        try:
            data = json.loads(text)
            if data["format"] != FORMAT or data["columns"] != names:
                raise ValueError(data["format"])
            lines = tuple(LineCount(*row) for row in data["lines"])
            if any(type(getattr(line, n)) is not int for line in lines for n in names[6:]):
                raise ValueError("counts are whole numbers")
            totals = {f: {m: float(v) for m, v in metrics.items()} for f, metrics in data["totals"].items()}
            made = cls(dict(data["facts"]), totals, lines)
            if not (isinstance(made.facts["kernel"], str) and made.problem and made.tiling):
                raise ValueError("no kernel")
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise InputError(
                f"{name} holds no counts by line: make them with `python -m fmha.gpu.lines` on a machine with a GPU."
            ) from error
        return made


def shipped(kernel: str | None = None) -> tuple[LineCounts, ...]:
    """The counted runs that come with the app, of one kernel by its number or of all."""
    found = [
        LineCounts.from_json(path.read_text(encoding="utf-8"), path.name) for path in sorted(FOLDER.glob("*.json"))
    ]
    return tuple(one for one in found if kernel is None or one.facts["kernel"] == kernel)


__all__ = ["FOLDER", "FORMAT", "LineCount", "LineCounts", "shipped"]
