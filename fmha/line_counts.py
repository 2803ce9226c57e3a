"""What a GPU's profiler counted on each source line of a kernel: read from Nsight Compute's source page, kept as JSON.

The page lists machine instructions below the source line that they came from. An instruction says by its name what it
touches and how wide: `LDS.128` loads 16 bytes a thread from shared memory.
"""

from __future__ import annotations

import csv
import dataclasses
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fmha.errors import InputError
from fmha.problem import Problem, Tiling

FOLDER = Path(__file__).resolve().parent / "recorded" / "lines"
FORMAT = "fmha line counts 1"
_OPCODE = re.compile(r"^\s*(?:@!?U?P\w+\s+)?(?P<name>LDG|STG|LDS|STS)(?P<rest>(?:\.\w+)*)\s")
_WIDTHS = {"128": 16, "64": 8, "U16": 2, "S16": 2, "U8": 1, "S8": 1}
# Column of the source page -> field of LineCount.
COLUMNS = {
    "Instructions Executed": "requests",
    "Predicated-On Thread Instructions Executed": "lanes",
    "L2 Theoretical Sectors Global": "sectors",
    "L1 Wavefronts Shared": "wavefronts",
    "L1 Wavefronts Shared Ideal": "ideal_wavefronts",
}


@dataclass(frozen=True)
class LineCount:
    """What the instructions of one width did for one source line, over all warps of a launch.

    space: "global" or "shared". access_bytes: of one thread, as compiled. requests: of warps; lanes: accesses of
    threads; sectors: of 32 bytes, of device memory; wavefronts of shared memory, and the fewest that would do.
    """

    function: str
    file: str
    line: int
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
            if any(type(getattr(line, n)) is not int for line in lines for n in names[5:]):
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


@dataclass(frozen=True)
class Listed:
    """One machine instruction of a launch, with its counts."""

    file: str
    line: int
    address: str
    source: str
    counts: Mapping[str, int]


def read_page(text: str, functions: Sequence[str]) -> list[tuple[str, list[Listed]]]:
    """Nsight Compute's `--csv --page source --print-source cuda,sass`: (function, instructions) of each launch of the
    given functions.

    A launch is several tables, one for each source file; a table that was there before begins the next launch.

    Raises:
        InputError: a column is missing: the report holds no counters by instruction.
    """
    launches: list[tuple[str, list[Listed]]] = []
    seen: set[tuple[str, str]] = set()
    addresses: set[str] = set()
    file = function = ""
    columns: dict[str, int] = {}
    line = 0
    for row in csv.reader(text.splitlines()):
        if len(row) < 2:
            continue
        if row[0] == "File Path":
            file = re.split(r"[/\\]", row[1])[-1]
        elif row[0] in ("Function Name", "Kernel Name"):
            function = row[1].split("(")[0].strip()
            if function not in functions and launches:
                function = launches[-1][0]  # a function that was inlined into it
            if not launches or launches[-1][0] != function or (file, function) in seen:
                launches.append((function, []))
                seen, addresses = set(), set()
            seen.add((file, function))
        elif row[0] == "Line No":
            columns = _columns(row)
        elif columns and len(row) > max(columns.values()):
            address = row[columns["Address"]].strip()
            if row[0].strip().isdigit():
                line = int(row[0])
            elif re.match(r"(0x)?[0-9a-fA-F]+$", address) and address not in addresses:
                addresses.add(address)
                counts = {field: _whole(row[columns[name]]) for name, field in COLUMNS.items()}
                launches[-1][1].append(Listed(file, line, address, row[columns["SASS"]], counts))
    return launches


def _columns(row: Sequence[str]) -> dict[str, int]:
    """Where the columns that are needed stand: `Source` is there twice, the instruction's is the second."""
    missing = [name for name in (*COLUMNS, "Address") if name not in row]
    if missing:
        raise InputError(f"the source page has no column {missing[0]!r}: record with `--section SourceCounters`.")
    found = {name: row.index(name) for name in (*COLUMNS, "Address")}
    return {**found, "SASS": max(n for n, name in enumerate(row) if name == "Source")}


def _whole(text: str) -> int:
    text = text.strip().replace(",", "")
    return round(float(text)) if re.match(r"[\d.]+(e[+-]?\d+)?$", text) else 0


def opcode(source: str) -> tuple[str, bool, int] | None:
    """(space, whether it writes, bytes a thread) of an instruction that accesses device or shared memory, else None."""
    found = _OPCODE.match(source + " ")
    if found is None:
        return None
    widths = [_WIDTHS[part] for part in found["rest"].split(".") if part in _WIDTHS]
    space = "global" if found["name"].endswith("G") else "shared"
    return space, found["name"].startswith("ST"), widths[0] if widths else 4


def by_line(function: str, listed: Iterable[Listed]) -> tuple[LineCount, ...]:
    """Instructions added up by line, space, direction and width."""
    sums: dict[tuple[str, int, str, bool, int], list[int]] = {}
    for one in listed:
        what = opcode(one.source)
        if what is None:
            continue
        row = sums.setdefault((one.file, one.line, *what), [0] * len(COLUMNS))
        for n, field in enumerate(COLUMNS.values()):
            row[n] += one.counts[field]
    return tuple(LineCount(function, *key, *row) for key, row in sorted(sums.items()) if row[1])


__all__ = [
    "COLUMNS", "FOLDER", "FORMAT", "LineCount", "LineCounts", "Listed", "by_line", "opcode", "read_page", "shipped",
]  # fmt: skip
