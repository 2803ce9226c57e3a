"""What on this machine can turn CUDA C++ into a cubin: nvcc, and NVRTC from a CUDA Toolkit or a Python package.

Nothing is loaded into this process. A compiler is asked once about itself; the answer is kept for as long as its
file stays the same, a complaint for a minute: what it lacks may lie elsewhere, and be there by then.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal

from fmha.processes import run_bounded

ASK_TIMEOUT_S = 20.0
ASK_AGAIN_S = 60.0  # after a complaint
ANSWERS_LIMIT = 32
NVRTC_SCRIPT = Path(__file__).with_name("nvrtc.py")


@dataclass(frozen=True)
class Compiler:
    """A CUDA compiler as found. `archs` as in "sm_90", ascending; `problem` says why it is of no use here."""

    kind: Literal["nvcc", "NVRTC"]
    path: str
    version: str  # "13.0"
    archs: tuple[str, ...]
    problem: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {self.version or '(unknown version)'} ({self.path})"

    @property
    def release(self) -> tuple[int, int]:
        """(13, 0)"""
        major, _, minor = self.version.partition(".")
        return int(major or 0), int(minor or 0)

    def knows(self, arch: str) -> bool:
        """Whether it compiles for `arch`: "sm_90", or with the features of one GPU alone "sm_90a"."""
        return arch.rstrip("af") in self.archs


def arch_of(compute: str) -> str:
    """The architecture of a compute capability: "9.0" gives "sm_90"."""
    return "sm_" + compute.replace(".", "")


def choose(compilers: Iterable[Compiler], arch: str, driver: tuple[int, int] | None = None) -> tuple[Compiler, ...]:
    """The compilers that make cubins for `arch` that a driver for CUDA `driver` loads, in the order given.

    A driver loads what any compiler of its own major version, or an earlier one, has made.
    """
    return tuple(
        c for c in compilers if not c.problem and c.knows(arch) and (driver is None or c.release[0] <= driver[0])
    )


def why_none(compilers: Sequence[Compiler], arch: str, driver: tuple[int, int] | None = None) -> tuple[str, str]:
    """Where `choose` finds none: what stands in the way, and what to do about it; a sentence each."""
    if not compilers:
        return (
            "Neither nvcc nor NVRTC was found, so no kernel can be compiled.",
            f"Install NVRTC with `{pip_install(driver)}`, or the CUDA Toolkit, and put nvcc on the PATH.",
        )
    working = [c for c in compilers if not c.problem]
    if not working:
        return (
            f"{compilers[0]} does not work here: {compilers[0].problem.rstrip('.')}.",
            f"Install what it asks for, or NVRTC, which needs no host compiler: `{pip_install(driver)}`.",
        )
    knowing = [c for c in working if c.knows(arch)]
    if knowing and driver:
        major = min(c.release[0] for c in knowing)
        return (
            f"The driver supports CUDA {driver[0]}.{driver[1]} and loads nothing that {_all(knowing)} makes.",
            f"Update the NVIDIA driver to one for CUDA {major}, or install an older compiler: `{pip_install(driver)}`.",
        )
    span = "; ".join(f"{c} knows {c.archs[0]} to {c.archs[-1]}" if c.archs else f"{c} names none" for c in working)
    newest = max((_number(c.archs[-1]) for c in working if c.archs), default=0)
    if _number(arch) > newest:
        remedy = "Install a newer compiler: `pip install --upgrade nvidia-cuda-nvrtc`, or a newer CUDA Toolkit."
    else:
        remedy = "Install a compiler that still knows this GPU: a CUDA Toolkit of an earlier major version."
    return f"No compiler found here knows {arch}: {span}.", remedy


def pip_install(driver: tuple[int, int] | None) -> str:
    """The command that installs an NVRTC for a driver. The package has had its version in its name up to CUDA 12."""
    if driver is None:
        return "pip install nvidia-cuda-nvrtc"
    package = f"nvidia-cuda-nvrtc-cu{driver[0]}" if driver[0] < 13 else f"'nvidia-cuda-nvrtc=={driver[0]}.*'"
    return f"pip install {package}"


def compilers(timeout_s: float = ASK_TIMEOUT_S) -> tuple[Compiler, ...]:
    """All compilers of this machine: nvcc first, then NVRTC, the newest first."""
    nvcc = find_nvcc(timeout_s)
    return (*([nvcc] if nvcc else []), *find_nvrtc(timeout_s))


def find_nvcc(timeout_s: float = ASK_TIMEOUT_S) -> Compiler | None:
    """The nvcc of $CUDACXX, $CUDA_HOME, $CUDA_PATH, the PATH or /usr/local/cuda: the first that works, or else the
    first there is."""
    found: list[Compiler] = []
    for path in _nvcc_paths():
        found.append(_answer(_ask_nvcc, path, timeout_s))
        if not found[-1].problem:
            return found[-1]
    return found[0] if found else None


def find_nvrtc(timeout_s: float = ASK_TIMEOUT_S) -> tuple[Compiler, ...]:
    """Every NVRTC of $CUDA_HOME, $CUDA_PATH, the loader's path, /usr/local/cuda and the Python packages; the newest
    first, one for each version."""
    seen: dict[str, Compiler] = {}
    for path in _nvrtc_paths():
        compiler = _answer(_ask_nvrtc, path, timeout_s)
        seen.setdefault(compiler.version or path, compiler)
    return tuple(sorted(seen.values(), key=lambda c: c.release, reverse=True))


def _nvcc_paths() -> list[str]:
    roots = [Path(os.environ[name]) / "bin" / "nvcc" for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name)]
    names = [os.environ.get("CUDACXX"), *map(str, roots), "nvcc", "/usr/local/cuda/bin/nvcc"]
    return list(dict.fromkeys(path for name in names if name and (path := shutil.which(name))))


def _nvrtc_paths() -> list[str]:
    windows = sys.platform == "win32"
    pattern = "nvrtc64_*.dll" if windows else "libnvrtc.so*"
    roots = [Path(os.environ[name]) for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name)]
    if not windows:
        roots.append(Path("/usr/local/cuda"))
    folders = [root / part for root in roots for part in ("lib64", "lib", "targets/x86_64-linux/lib", "bin", "bin/x64")]
    variable = "PATH" if windows else "LD_LIBRARY_PATH"
    folders += [Path(part) for part in os.environ.get(variable, "").split(os.pathsep) if part]
    folders += _python_folders()
    files = [file for folder in folders for file in _glob(folder, pattern)] + _loader_files()
    real = (file.resolve() for file in files if ".alt." not in file.name and "builtins" not in file.name)
    return list(dict.fromkeys(str(file) for file in real if file.is_file()))


def _python_folders() -> Iterator[Path]:
    """Where wheels keep NVRTC: nvidia-cuda-nvrtc (CUDA 13: nvidia/cu13), nvidia-cuda-nvrtc-cu12, torch on Windows."""
    for entry in dict.fromkeys(sys.path):
        root = Path(entry)
        for part in ("lib", "bin", "bin/x86_64"):
            yield from _glob(root, f"nvidia/*/{part}")
        yield root / "torch" / "lib"


def _glob(folder: Path, pattern: str) -> list[Path]:
    with suppress(OSError):
        return sorted(folder.glob(pattern))
    return []


@lru_cache(maxsize=1)
def _loader_files() -> list[Path]:
    """What the system's loader knows as libnvrtc."""
    tool = shutil.which("ldconfig") or shutil.which("/sbin/ldconfig")
    if not tool or not sys.platform.startswith("linux"):
        return []
    done = subprocess.run([tool, "-p"], capture_output=True, text=True, check=False)
    return [Path(path) for path in re.findall(r"^\s*libnvrtc\.so\S* .*=> (\S+)$", done.stdout, re.MULTILINE)]


def _stamp(path: str) -> tuple[int, int]:
    """Changes when the file is replaced."""
    with suppress(OSError):
        stat = Path(path).stat()
        return stat.st_mtime_ns, stat.st_size
    return 0, 0


_ANSWERS: dict[tuple[str, tuple[int, int]], tuple[float, Compiler]] = {}  # when, what; bounded


def _answer(ask: Callable[[str, float], Compiler], path: str, timeout_s: float) -> Compiler:
    """What a compiler says of itself, kept."""
    key = path, _stamp(path)
    when, kept = _ANSWERS.get(key, (0.0, None))
    if kept is not None and not (kept.problem and time.monotonic() - when > ASK_AGAIN_S):
        return kept
    found = ask(path, timeout_s)
    if len(_ANSWERS) >= ANSWERS_LIMIT:
        _ANSWERS.clear()
    _ANSWERS[key] = time.monotonic(), found
    return found


def _ask_nvcc(path: str, timeout_s: float) -> Compiler:
    code, said = _ask([path, "--version"], timeout_s)
    found = re.search(r"release (\d+\.\d+)", said)
    if code or not found:
        return Compiler("nvcc", path, "", (), _last_line(said) or "it does not say its version")
    code, said = _ask([path, "--list-gpu-code"], timeout_s)
    if code:  # nvcc before CUDA 11.5
        said = _ask([path, "--help"], timeout_s)[1]
    archs = tuple(sorted(set(re.findall(r"\bsm_\d+\b", said)), key=_number))
    with tempfile.TemporaryDirectory() as folder:
        empty = Path(folder) / "empty.cu"
        empty.touch()
        code, said = _ask([path, "-E", str(empty)], timeout_s)  # asks the host compiler, which it cannot do without
    problem = (_failure(said) or f"it ended with exit code {code} and said nothing") if code else ""
    return Compiler("nvcc", path, found[1], archs, problem)


def _ask_nvrtc(path: str, timeout_s: float) -> Compiler:
    code, said = _ask([*nvrtc_command(path)], timeout_s)
    if code:
        return Compiler("NVRTC", path, "", (), _last_line(said) or f"it ended with exit code {code}")
    try:
        about = json.loads(said.splitlines()[-1])
        return Compiler("NVRTC", path, about["version"], tuple(about["archs"]))
    except (IndexError, KeyError, TypeError, ValueError):
        return Compiler("NVRTC", path, "", (), "its answer cannot be read")


def nvrtc_command(library: str, *arguments: str) -> list[str]:
    """The command line that runs NVRTC in a process of its own (fmha.gpu.nvrtc)."""
    return [sys.executable, "-I", str(NVRTC_SCRIPT), library, *arguments]


def _ask(command: list[str], timeout_s: float) -> tuple[int, str]:
    try:
        code, said = run_bounded(command, timeout_s=timeout_s)
    except OSError as error:
        return -1, str(error)
    return (-1, f"it did not answer within {timeout_s:g} s") if code is None else (code, said)


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1].strip() if lines else ""


def _failure(text: str) -> str:
    """What nvcc said, in one line: its host compiler's complaint, then its own."""
    return "; ".join(re.sub(r"\s+", " ", line).strip().rstrip(".") for line in text.strip().splitlines()[-2:])


def _number(arch: str) -> int:
    return int(re.sub(r"\D", "", arch) or 0)


def _all(compilers: Sequence[Compiler]) -> str:
    return " or ".join(map(str, compilers))
