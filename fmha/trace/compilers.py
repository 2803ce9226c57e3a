"""The C++ compiler of this machine: $CXX, g++, clang++ or c++, and otherwise the one of the ziglang package."""

from __future__ import annotations

import importlib.util
import os
import platform
import re
import shlex
import shutil
import sys
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from fmha.errors import TraceError
from fmha.processes import run_bounded

Machine = Literal["x86_64", "arm64"]


@dataclass(frozen=True)
class CppCompiler:
    """A C++ compiler. command: how it is called; family: whose flags it takes; version: its own words."""

    command: tuple[str, ...]
    family: Literal["gcc", "clang", "zig"]
    version: str

    def __str__(self) -> str:
        return f"{shlex.join(self.command)} ({self.version})"

    @property
    def hooks(self) -> tuple[str, ...]:
        """Flags that make it call a hook at every load and store that the source has, and nothing else."""
        if self.family == "gcc":
            return ("-fsanitize=thread", "--param=tsan-instrument-func-entry-exit=0")
        inner = ("-tsan-instrument-read-before-write=1", "-tsan-instrument-func-entry-exit=0")
        wide = ("-fno-vectorize", "-fno-slp-vectorize")  # several accesses would become one
        return ("-fsanitize=thread", *(word for flag in inner for word in ("-mllvm", flag)), *wide)


def machine() -> Machine:
    """The processor's architecture.

    Raises:
        TraceError: one for which no fibers are written, or Windows.
    """
    name = platform.machine().lower()
    if sys.platform == "win32":
        raise TraceError("kernels run on the CPU under Linux and macOS only, not under Windows: use WSL.")
    if name in ("x86_64", "amd64"):
        return "x86_64"
    if name in ("arm64", "aarch64"):
        return "arm64"
    raise TraceError(f"kernels run on the CPU of x86-64 and arm64 machines only, and this one is {name}.")


@lru_cache(maxsize=8)
def _asked(command: tuple[str, ...], _path: str) -> CppCompiler | None:
    """The compiler behind a command; None if it does not answer as one."""
    try:
        code, said = run_bounded([*command, "--version"], timeout_s=20)
    except OSError:
        return None
    if code != 0 or not said.strip():
        return None
    if "ziglang" in command:
        family: Literal["gcc", "clang", "zig"] = "zig"
    else:
        family = "clang" if re.search(r"\bclang\b", said) else "gcc"
    return CppCompiler(command, family, said.splitlines()[0].strip())


def compiler() -> CppCompiler:
    """The compiler to use.

    Raises:
        TraceError: there is none; the text says what to install.
    """
    machine()
    wishes = [tuple(shlex.split(os.environ["CXX"]))] if os.environ.get("CXX", "").strip() else []
    wishes += [("g++",), ("clang++",), ("c++",)]
    for command in wishes:
        path = shutil.which(command[0])
        if path and (found := _asked(command, path)):
            return found
    if importlib.util.find_spec("ziglang") and (found := _asked((sys.executable, "-m", "ziglang", "c++"), "")):
        return found
    raise TraceError(
        "no C++ compiler was found, so kernels cannot be run on the CPU: install g++ or clang++, or run "
        "`pip install ziglang`, which brings one."
    )


__all__ = ["CppCompiler", "Machine", "compiler", "machine"]
