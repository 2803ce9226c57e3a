"""The C++ compiler of this machine: $CXX, g++, clang++ or c++, and otherwise the one of the ziglang package."""

from __future__ import annotations

import importlib.util
import os
import platform
import re
import shlex
import shutil
import sys
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal

from fmha.errors import TraceError
from fmha.folders import cache_folder
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
    def flags(self) -> tuple[str, ...]:
        """Flags that every use of it needs."""
        # zig checks for undefined behaviour if not told otherwise, and compiles for the very processor it runs on.
        return ("-fno-sanitize=undefined", "-mcpu=baseline") if self.family == "zig" else ()

    @property
    def inlining(self) -> tuple[str, ...]:
        """Flags that make it inline what a GPU's compiler would, and tell which calls those were (inlining.py)."""
        if self.family == "gcc":
            # It says so in words, and marks where statements begin, in the order of the source.
            return ("-finline-small-functions", "-gdwarf-5", "-dA", "-gstatement-frontiers", "-ginline-points")
        # -finline-limit means nothing to clang. Apple's would write an older DWARF.
        return ("-mllvm", "-inline-threshold=20000", *(["-gdwarf-5"] * (self.family == "clang")))

    @property
    def hooks(self) -> tuple[str, ...]:
        """Flags that make it call a hook at every load and store that the source has, and nothing else."""
        # What the source copies by a call stays a call, and a loop does not become one.
        calls = tuple(f"-fno-builtin-{name}" for name in ("memcpy", "memmove", "memset"))
        if self.family == "gcc":
            # Threaded jumps would give a line several places, and anchors keep the distance between shared variables.
            more = ["-fno-reorder-blocks", "-fno-thread-jumps", "-fno-section-anchors"]
            more += ["--param=tsan-instrument-func-entry-exit=0"]
            # Sums stay in memory if the source has them there.
            more += ["-fno-move-loop-stores"] * (self._major >= 12)
            return ("-fsanitize=thread", *calls, *more)
        # Vectors would make one access of several. A call of expf may change memory, as g++ has it everywhere.
        more = ["-fno-vectorize", "-fno-slp-vectorize", "-fmath-errno"]
        more += ["-Xclang", "-O1"] * (self.family == "zig")  # of its own accord it takes -O1 for -O2
        inner = ["tsan-instrument-read-before-write=1", "tsan-instrument-func-entry-exit=0", "disable-licm-promotion"]
        return ("-fsanitize=thread", *calls, *more, *(word for flag in inner for word in ("-mllvm", f"-{flag}")))

    @property
    def _major(self) -> int:
        found = re.search(r"\b(\d+)\.\d+\.\d+", self.version)
        return int(found[1]) if found else 0

    @property
    def for_c(self) -> tuple[str, ...]:
        """How it is called to compile a file in C."""
        return (*self._zig_cc, *self.flags) if self.family == "zig" else (*self.command, "-x", "c")

    @property
    def for_linking(self) -> tuple[str, ...]:
        """How it is called to link object files, and behind them `libraries`."""
        if self.family != "zig":
            return self.command
        return (*self._zig_cc, *self.flags, *(("-nostdlib",) if _system_libraries() else ()))

    @property
    def libraries(self) -> tuple[str, ...]:
        """What to link with: the C library."""
        if self.family == "zig" and (found := _system_libraries()):
            return found
        return () if sys.platform == "darwin" else ("-lm",)

    @property
    def _zig_cc(self) -> tuple[str, ...]:
        return (*self.command[:-1], "cc")


@lru_cache(maxsize=1)
def _system_libraries() -> tuple[str, ...]:
    """The files of the C library that this process uses; none where that is not to be seen.

    zig would link with a C library and a start of its own, and build them first: half a minute instead of a moment.
    """
    try:
        files = {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "/" in line}
    except OSError:
        return ()
    names = re.compile(r"libc\.so\.6|libc-2\.\d+\.so|ld-musl-.*\.so\.1")
    libc = next((file for file in sorted(files) if names.fullmatch(Path(file).name)), None)
    if libc is None:
        return ()
    libm = Path(libc).with_name("libm.so.6")
    return (libc, str(libm)) if libm.exists() else (libc,)


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


def environment() -> dict[str, str]:
    """Variables for a compiler: English, and a folder for what zig keeps, which it would look for in a home."""
    return {"ZIG_GLOBAL_CACHE_DIR": str(cache_folder("zig")), **os.environ, "LC_ALL": "C"}


@lru_cache(maxsize=8)
def _asked(command: tuple[str, ...], _path: str) -> CppCompiler | None:
    """The compiler behind a command; None if it does not answer as one."""
    try:
        code, said = run_bounded([*command, "--version"], timeout_s=20, env=environment())
    except OSError:
        return None
    if code != 0 or not re.search(r"clang|gcc|[gc]\+\+", said, re.IGNORECASE):
        return None  # other programs answer too
    family: Literal["gcc", "clang", "zig"] = "clang" if re.search(r"\bclang\b", said) else "gcc"
    if len(command) > 1 and (Path(command[-2]).name in ("zig", "ziglang")):
        family = "zig"
    return CppCompiler(command, family, said.splitlines()[0].strip())


def compiler() -> CppCompiler:
    """The compiler to use.

    Raises:
        TraceError: there is none; the text says what to install.
    """
    machine()
    wishes: list[tuple[str, ...]] = [("g++",), ("clang++",), ("c++",)]
    with suppress(ValueError):  # an open quote
        if wish := tuple(shlex.split(os.environ.get("CXX", ""))):
            wishes.insert(0, wish)
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


__all__ = ["CppCompiler", "Machine", "compiler", "environment", "machine"]
