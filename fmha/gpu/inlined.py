"""Which line of the kernel each machine instruction belongs to, through all functions that were inlined.

An instruction of a helper has a line in the helper, and one wherever the helper is called. Nsight Compute's page lists
it under the first of these, and under the others only now and then; `nvdisasm` says all of them.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from fmha.errors import GpuError, InputError
from fmha.gpu import toolchain
from fmha.line_page import Home

_SECTION = re.compile(r"^\s*\.section\s+\.text\.([\w$.]+)")
_PLACE = re.compile(r'^\s*//## File "([^"]*)", line (\d+)')
_INSTRUCTION = re.compile(r"^\s*/\*([0-9a-f]{4,})\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_]*)")


def find() -> str | None:
    """The path of `nvdisasm`, or None. It is a part of the CUDA Toolkit."""
    beside = [Path(folder) / "bin" for name in ("CUDA_HOME", "CUDA_PATH") if (folder := os.environ.get(name))]
    nvcc = toolchain.find_nvcc()
    beside += [Path(nvcc.path).resolve().parent] if nvcc else []
    path = os.pathsep.join([os.environ.get("PATH", ""), *map(str, beside), "/usr/local/cuda/bin"])
    return shutil.which("nvdisasm", path=path)


def disassemble(cubin: Path, timeout_s: float = 120.0) -> str:
    """A kernel's binary as text, with the lines of each instruction.

    Raises:
        GpuError: no nvdisasm, or it does not take the file.
    """
    program = find()
    if program is None:
        raise GpuError(
            "nvdisasm was not found, so instructions of inlined functions cannot be given to the kernel's lines: "
            "it comes with the CUDA Toolkit; put it on the PATH."
        )
    try:
        done = subprocess.run(
            [program, "--print-line-info-inline", "--print-code", str(cubin)],
            capture_output=True, text=True, errors="replace", timeout=timeout_s,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise GpuError(f"{program} could not read {cubin.name} ({type(error).__name__}): install it anew.") from None
    if done.returncode:
        said = next((line for line in done.stderr.splitlines() if line.strip()), f"exit code {done.returncode}")
        raise GpuError(f"nvdisasm does not take {cubin.name}: {said}"[:300])
    return done.stdout


def homes(text: str) -> dict[str, dict[int, Home]]:
    """{function: {offset of an instruction: where it belongs}}, from what `disassemble` gave.

    Raises:
        InputError: it names no lines: the kernel was compiled without `-lineinfo`.
    """
    found = {function: _own_lines(listed) for function, listed in _instructions(text).items()}
    if not found:
        raise InputError("the listing names no source lines: compile with `-lineinfo`, and list with inlining.")
    return found


_Place = tuple[str, int]


def _instructions(text: str) -> dict[str, dict[int, tuple[str, tuple[_Place, ...]]]]:
    """{function: {offset: (name of the instruction, its lines from the innermost outwards)}}."""
    found: dict[str, dict[int, tuple[str, tuple[_Place, ...]]]] = {}
    chain: tuple[_Place, ...] = ()
    function, is_begun = "", False
    for row in text.splitlines():
        if place := _PLACE.match(row):
            chain = () if is_begun else chain  # the first after an instruction begins a new list
            chain, is_begun = (*chain, (re.split(r"[/\\]", place[1])[-1], int(place[2]))), False
        elif section := _SECTION.match(row):
            function, chain = section[1], ()
        elif function and chain and (instruction := _INSTRUCTION.match(row)):
            is_begun = True
            found.setdefault(function, {})[int(instruction[1], 16)] = (instruction[2], chain)
    return found


def _own_lines(listed: Mapping[int, tuple[str, tuple[_Place, ...]]]) -> dict[int, Home]:
    """Each instruction's outermost line. Now and then nvcc forgets who called: then a helper's line stands alone, and
    the caller is taken from the nearest instruction that came from the same line of the helper."""
    called: dict[_Place, list[int]] = {}
    for offset, (_, chain) in listed.items():
        for place in chain[:-1]:
            called.setdefault(place, []).append(offset)
    made = {}
    for offset, (name, chain) in listed.items():
        place = chain[-1]
        if len(chain) == 1 and (there := called.get(place)):
            nearest = min(there, key=lambda other: abs(other - offset))
            place = listed[nearest][1][-1]
        made[offset] = Home(*place, name)
    return made


__all__ = ["disassemble", "find", "homes"]
