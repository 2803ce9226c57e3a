"""What a compiler's assembly text says, and what it has to say for the runtime: sites and shared variables.

A kernel compiled with `-fsanitize=thread -S` calls a hook at every load and store. Each such call gets a number, its
*site*, in the first argument register that the call leaves free; numbers grow in the order of the program
(`fmha.trace.order`). The `.loc` directive before a call names the line on which the access is written; if a function
was inlined there, the calls that led to it (`fmha.trace.inlining`) name the line of the kernel that it belongs to.
Static variables, which are what `__shared__` became, are listed for the runtime and get room behind them, so that an
index too far is noticed.
Works on x86-64 and arm64, for ELF and Mach-O, on what g++ and clang write.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import NamedTuple

from fmha.errors import BuildError
from fmha.trace.inlining import Place, callers, described
from fmha.trace.order import Loops, program_structure

FLOP_KINDS = 5  # add, mul, div, special (exp, log, sqrt), max
MAX_SITES = 1 << 16  # as in runtime.c
MAX_DEPTH = 8  # of loops inside one another that are told apart, as in runtime.c
RED_ZONE = 256  # bytes behind each shared variable that belong to none

# The hooks, and how many whole-number arguments the compiler passes to each.
_ARGUMENTS = {
    "read_range": 2, "write_range": 2, "memcpy": 3, "memmove": 3, "memset": 3,
}  # fmt: skip
_RUNTIME_CALLS = {"fmha_atomic_add_f32": 1, "fmha_atomic_i32": 3, "fmha_atomic_cas": 3}
_CALL = re.compile(
    r"^\s*(?:callq?|j[a-z]+|bl|b)\s+_?(__tsan_(?:(?:unaligned_|volatile_)*(?P<way>read|write)(?P<size>\d+)"
    r"|(?P<other>read_range|write_range|memcpy|memmove|memset))|(?P<own>fmha_atomic_\w+)"
    r"|(?P<plain>memcpy|memmove|memset))\b"
)
# What counts arithmetic, on line 0 as it was compiled (counting.h).
_FLOPS = re.compile(
    r"((?:\baddq\s+\$\w+,\s*|\badrp\s+x16,\s*|\[x16,\s*(?::lo12:)?)_?fmha_flops(?:@PAGE(?:OFF)?)?)(?:\+(\d+))?"
)
_FILE = re.compile(r'^\s*\.file\s+(\d+)\s+(?:"(?P<folder>[^"]*)"\s+)?"(?P<name>[^"]*)"')
_LOC = re.compile(r"^\s*\.loc\s+(\d+)\s+(\d+)")
_COMM = re.compile(r"^(\s*\.comm\s+)([\w.$]+),\s*(\d+)(.*)$")
_ZEROFILL = re.compile(r"^(\s*\.zerofill\s+__DATA\s*,\s*__bss\s*,\s*)([\w.$]+)\s*,\s*(\d+)(.*)$")
_LABEL = re.compile(r"^([\w.$]+):")
_ZERO = re.compile(r"^\s*\.(?:zero|skip|space)\s+(\d+)")
_END = re.compile(r"^\s*\.(?:size|globl|section)\b|-- End function")
_SECTION = re.compile(r"^\s*\.(?:section\s+(\S+)|(text|data|bss)\b)")
_X86 = ("edi", "esi", "edx", "ecx", "r8d")


@dataclass(frozen=True)
class Site:
    """A load or store in the source: file (its name), line (from 1), nbytes a thread.

    file, line: of the kernel, which calls the function that does it, or does it itself; a function that is not inlined
    stands for itself. inner_file, inner_line: where it is written.
    """

    file: str
    line: int
    is_write: bool
    nbytes: int
    inner_file: str = ""
    inner_line: int = 0


@dataclass(frozen=True)
class Assembly:
    """The text to assemble, and what its numbers mean. statics: (name in the source, bytes)."""

    text: str
    sites: tuple[Site, ...]
    statics: tuple[tuple[str, int], ...]


def prepare(text: str, sources: Sequence[str], lines: int, machine: str, *, is_macho: bool) -> Assembly:
    """Rewrite a compiler's output.

    Args:
        sources: names of the files whose lines count, the kernel's first and then its headers'; code inlined from any
            other is written on the line that it is used on.
        lines: of the longest source, for the counters of arithmetic by line.
        machine: "x86_64" or "arm64".
    """
    files: dict[str, str] = {}
    line = within = at = ("", 0)  # of the kernel; of the source; of the last `.loc`
    is_lost = False  # clang forgets the line of what it moves ahead of a loop; then it is the line that follows
    waiting: list[_Call] = []
    calls: list[_Call] = []
    ranged = line
    statics: list[tuple[str, int]] = []
    out: list[str] = []
    section, label = "", ""

    def static(symbol: str, nbytes: int) -> None:
        if (name := _variable(symbol.removeprefix("_") if is_macho else symbol)) is not None:
            statics.append((name, nbytes))
            symbols.append(symbol)

    symbols: list[str] = []
    rows = text.splitlines()
    place, loops = program_structure(rows, machine)
    calls_at = described(rows)
    led: tuple[Place, ...] = ()
    for index, row in enumerate(rows):
        if _END.search(row):
            waiting.clear()
        led = calls_at.get(index, led)
        found = _LOC.match(row)
        if found:
            at = (files.get(found[1], ""), int(found[2]))
            led = led if calls_at else callers(row)
        if found or index in calls_at:
            ours = [(name, number) for name, number in (at, *led) if name in sources and number]
            if ours:
                within, line = ours[0], ours[-1]
            if found:
                is_lost = not ours and (is_lost or at[0] in sources)
            if ours and found:
                for call in waiting:
                    call.sites[:] = [Site(*line, site.is_write, site.nbytes, *within) for site in call.sites]
                waiting.clear()
        elif "fmha_flops" in row:
            row = _counted_on(row, line[1] if line[0] == sources[0] else 0)
        elif found := _FILE.match(row):
            files[found[1]] = PurePath(found["name"]).name
        elif found := _CALL.match(row):
            way, own, plain, other = found["way"], found["own"], found["plain"], found["other"] or found["plain"]
            if plain and ranged == line:  # g++ has reported it already, as ranges
                out.append(row)
                continue
            if plain:
                row = row.replace(plain, f"__tsan_{plain}", 1)
            if other in ("read_range", "write_range"):
                ranged = line
            before = 1 if way else _RUNTIME_CALLS[own] if own else _ARGUMENTS[other]
            if other in ("memcpy", "memmove"):  # where it reads, and where it writes
                sites = [Site(*line, is_write, 4, *within) for is_write in (False, True)]
            else:
                is_write = way == "write" or bool(own) or other not in (None, "read_range")
                sites = [Site(*line, is_write, int(found["size"] or 4), *within)]
            calls.append(_Call(place[index], len(out), before, sites, loops[index]))
            waiting += calls[-1:] * is_lost
            out.append("")  # becomes the instruction that passes the number
        elif found := _COMM.match(row) or _ZEROFILL.match(row):
            static(found[2], int(found[3]))
            row = f"{found[1]}{found[2]},{int(found[3]) + RED_ZONE}{found[4]}"
        elif found := _SECTION.match(row):
            section = found[1] or found[2]
        elif found := _LABEL.match(row):
            label = found[1]
        elif (
            re.search("bss|__data", section)  # Mach-O keeps those of templates among the data
            and (found := _ZERO.match(row))
            and rows[index - 1].startswith(f"{label}:")
            and re.match("__?Z", label)
        ):
            static(label, int(found[1]))
            row = f"\t.zero\t{int(found[1]) + RED_ZONE}"
        out.append(row)
    numbered, inside = [Site("", 0, False, 0)], [Loops()]  # 0: none
    for call in sorted(calls, key=lambda c: c.place):
        out[call.row] = _pass_number(call.before, len(numbered), machine)
        numbered += call.sites
        inside += [call.loops] * len(call.sites)
    if len(numbered) > MAX_SITES:
        raise BuildError(
            f"the kernel has {len(numbered):,} loads and stores, and tracing tells {MAX_SITES:,} apart: shorten it."
        )
    out.extend(_tables(symbols, statics, lines, inside, is_macho=is_macho))
    return Assembly("\n".join(out) + "\n", tuple(numbered), tuple(statics))


class _Call(NamedTuple):
    """A hook's call: where in the program, in which row its number is to be passed, behind how many arguments; what
    it reports, and the loops that it is in."""

    place: int
    row: int
    before: int
    sites: list[Site]
    loops: Loops


def _variable(symbol: str) -> str | None:
    """The name in the source of a static variable of a function or a file; None for what the compiler made up."""
    if symbol.startswith("_ZL"):
        found = re.match(r"_ZL(\d+)", symbol)
        return symbol[found.end() : found.end() + int(found[1])] if found else None
    if not symbol.startswith("_ZZ"):
        return None
    for found in reversed(list(re.finditer(r"E(\d+)(?=[A-Za-z_])", symbol))):
        name = symbol[found.end() : found.end() + int(found[1])]
        if re.fullmatch(r"(_\d|__\d+_)?", symbol[found.end() + int(found[1]) :]) and len(name) == int(found[1]):
            return name
    return None


def _counted_on(row: str, line: int) -> str:
    """A row of what counts arithmetic on line 0, for another line."""
    return _FLOPS.sub(lambda found: f"{found[1]}+{int(found[2] or 0) + 8 * FLOP_KINDS * line}", row)


def _pass_number(before: int, site: int, machine: str) -> str:
    return f"\tmovl\t${site}, %{_X86[before]}" if machine == "x86_64" else f"\tmovz\tw{before}, #{site}"


def _tables(
    symbols: list[str], statics: list[tuple[str, int]], lines: int, loops: list[Loops], *, is_macho: bool
) -> list[str]:
    """The builder's part of what runtime.c asks for: fmha_statics, fmha_loops, fmha_flops, fmha_flop_lines."""
    u = "_" if is_macho else ""
    constants = "\t.section\t__DATA,__const" if is_macho else '\t.section\t.data.rel.ro,"aw"'
    out = [constants, "\t.p2align\t3", f"\t.globl\t{u}fmha_statics", f"{u}fmha_statics:"]
    for symbol, (_, nbytes) in zip(symbols, statics, strict=True):
        out += [f"\t.quad\t{symbol}", f"\t.quad\t{nbytes}"]
    numbers = [[loop % (1 << 16) for loop in (*path, *[0] * MAX_DEPTH)[:MAX_DEPTH]] for path in loops]
    out += [
        "\t.quad\t0",
        "\t.quad\t0",
        f"\t.globl\t{u}fmha_loops",
        f"{u}fmha_loops:",
        *("\t.short\t" + ", ".join(map(str, row)) for row in numbers),
        "\t.p2align\t3",
        f"\t.globl\t{u}fmha_flop_lines",
        f"{u}fmha_flop_lines:",
        f"\t.quad\t{lines + 1}",
    ]
    out += ["\t.data", "\t.p2align\t3", f"\t.globl\t{u}fmha_flops", f"{u}fmha_flops:"]
    # Not .bss: there the runtime looks for shared variables.
    return [*out, f"\t.fill\t{FLOP_KINDS * (lines + 1)}, 8, 0"]
