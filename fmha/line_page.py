"""Nsight Compute's source page, read: what each machine instruction of a launch did, added up by the kernel's lines.

The page lists machine instructions below the source line that they came from. An instruction says by its name what it
touches and how wide: `LDS.128` loads 16 bytes a thread from shared memory. `LDGSTS` (cp.async) reads device memory and
writes shared memory, and counts as both; `LDSM` (ldmatrix) loads four bytes a thread for each of its matrices.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from fmha.errors import InputError
from fmha.line_counts import LineCount

_OPCODE = re.compile(r"^\s*(?:@!?U?P\w+\s+)?(?P<name>[A-Z][A-Z0-9_]*)(?P<rest>(?:\.\w+)*)\s")
# What an instruction does: (space, whether it writes) of each of its accesses.
_ACCESSES = {
    "LDG": (("global", False),), "STG": (("global", True),), "LDS": (("shared", False),), "STS": (("shared", True),),
    "LDSM": (("shared", False),), "STSM": (("shared", True),), "LDGSTS": (("global", False), ("shared", True)),
}  # fmt: skip
_WIDTHS = {"128": 16, "64": 8, "U16": 2, "S16": 2, "U8": 1, "S8": 1}
# Column of the source page -> field of LineCount.
COLUMNS = {
    "Instructions Executed": "requests",
    "Predicated-On Thread Instructions Executed": "lanes",
    "L2 Theoretical Sectors Global": "sectors",
    "L1 Wavefronts Shared": "wavefronts",
    "L1 Wavefronts Shared Ideal": "ideal_wavefronts",
}


class Home(NamedTuple):
    """Where a machine instruction belongs: file and line of the kernel. name: of the instruction."""

    file: str
    line: int
    name: str


@dataclass(frozen=True)
class Listed:
    """One machine instruction of a launch, with its counts."""

    file: str
    line: int
    address: str
    source: str
    counts: Mapping[str, int]


def read_page(
    text: str, functions: Sequence[str], homes: Mapping[str, Mapping[int, Home]] | None = None
) -> list[tuple[str, list[Listed]]]:
    """Nsight Compute's `--csv --page source --print-source cuda,sass`: (function, instructions) of each launch of the
    given functions.

    A launch is several tables, one for each source file; a table that was there before begins the next launch.
    homes: {function: {offset: where its instruction belongs}}; without them an instruction has the line below which
    the page lists it first.

    Raises:
        InputError: a column is missing: the report holds no counters by instruction; or `homes` are of another binary.
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
    if homes is None:
        return launches
    return [(function, _at_home(function, listed, homes.get(function, {}))) for function, listed in launches]


_ALIGNED = 128  # where functions begin


def _at_home(function: str, listed: Sequence[Listed], homes: Mapping[int, Home]) -> list[Listed]:
    """The same instructions, each at the kernel's own line."""
    if not listed:
        return []
    begin = min(int(one.address, 16) for one in listed) // _ALIGNED * _ALIGNED
    made = []
    for one in listed:
        home = homes.get(int(one.address, 16) - begin)
        found = _OPCODE.match(one.source + " ")
        if home is None or found is None or found["name"] != home.name:
            raise InputError(
                f"the source page of {function} lists {one.source.strip()[:40]!r}, and the binary has "
                f"{home.name if home else 'nothing'} there: profile it again."
            )
        made.append(replace(one, file=home.file, line=home.line))
    return made


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


class Access(NamedTuple):
    """What an instruction does: its name, the space, whether it writes there, and how many bytes a thread."""

    op: str
    space: str
    is_write: bool
    nbytes: int


def accesses(source: str) -> tuple[Access, ...]:
    """What a machine instruction does with device and shared memory; () for one that touches neither."""
    found = _OPCODE.match(source + " ")
    if found is None or found["name"] not in _ACCESSES:
        return ()
    parts = found["rest"].split(".")
    if found["name"] in ("LDSM", "STSM"):  # .M88.4: four matrices of 8 x 8 numbers of 16 bits
        nbytes = 4 * next((int(part) for part in parts if part in ("2", "4")), 1)
    else:
        nbytes = next((_WIDTHS[part] for part in parts if part in _WIDTHS), 4)
    return tuple(Access(found["name"], *access, nbytes) for access in _ACCESSES[found["name"]])


def by_line(function: str, listed: Iterable[Listed]) -> tuple[LineCount, ...]:
    """Instructions added up by line, name, space, direction and width."""
    sums: dict[tuple[str, int, str, str, bool, int], list[int]] = {}
    for one in listed:
        for access in accesses(one.source):
            row = sums.setdefault((one.file, one.line, *access), [0] * len(COLUMNS))
            for n, field in enumerate(COLUMNS.values()):
                is_other = field == "sectors" if access.space == "shared" else field.endswith("wavefronts")
                row[n] += 0 if is_other else one.counts[field]
    return tuple(LineCount(function, *key, *row) for key, row in sorted(sums.items()) if row[1])


__all__ = ["COLUMNS", "Access", "Home", "Listed", "accesses", "by_line", "read_page"]
