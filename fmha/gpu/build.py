"""From a `.cu` file to a cubin: compiled by nvcc, or by NVRTC where nvcc is missing or cannot; kept on disk.

An entry of the cache is found by the content of the source and of every local header that it includes, the defines,
the options, the architecture, and the compiler and its version. So an edited header is never missed, and a variant
that was built once is not compiled again.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fmha import build_cache
from fmha.errors import BuildError
from fmha.folders import cache_folder
from fmha.gpu import toolchain
from fmha.gpu.toolchain import Compiler
from fmha.processes import run_bounded

INCLUDE = re.compile(rb'^[ \t]*#[ \t]*include[ \t]*["<]([^">\n]+)[">]', re.MULTILINE)
AT_SOURCE = re.compile(r"(\(\d+\)|:\d+(:\d+)?): *(catastrophic |fatal )?error")
COMMON = ("-std=c++17", "-lineinfo")


@dataclass(frozen=True)
class Binary:
    """A compiled source file."""

    cubin: bytes
    compiler: str  # "nvcc 13.0 (/usr/local/cuda/bin/nvcc)"
    options: tuple[str, ...]  # all that it was given, but for file names
    log: str  # what it said: registers, shared memory, spills (ptxas -v), warnings
    seconds: float  # spent on this call
    cached: bool  # whether it was there already
    notes: tuple[str, ...] = ()  # sentences for the person


def build(
    source: Path,
    *,
    defines: Mapping[str, int | str],
    arch: str,
    options: Sequence[str] = (),
    cache: Path | None = None,
    timeout_s: float = 120.0,
    compilers: Sequence[Compiler] | None = None,
    driver: tuple[int, int] | None = None,
) -> Binary:
    """Compile `source` for `arch` ("sm_90", "sm_90a"), each of `defines` as a -D, or take it from the cache.

    `options` go to whichever compiler is used. `cache` is a folder (default: `cache_folder("kernels")`),
    `timeout_s` bounds one compiler run, `compilers` are those that may be used (default: all found), and `driver` is
    the CUDA version that the driver supports: a compiler of a later major version is then left out.
    Raises BuildError, whose `command` and `output` say all.
    """
    begun = time.monotonic()
    source = source.resolve()
    found = toolchain.compilers() if compilers is None else tuple(compilers)
    usable = toolchain.choose(found, arch, driver)
    if not usable:
        what, remedy = toolchain.why_none(found, arch, driver)
        raise BuildError(f"{source.name} cannot be compiled for {arch}. {what} {remedy}")
    notes = [f"{c} is not used: {_unfit(c, arch)}." for c in found[:1] if c not in usable]
    given = [*(f"-D{name}={value}" for name, value in defines.items()), *options]
    folder = cache_folder("kernels") if cache is None else cache
    content = _fingerprint(source, given)
    keys = [_key(content, arch, compiler, given) for compiler in usable]
    for key in keys:
        if (kept := _KEPT_HERE.get(key)) is not None:
            return replace(kept, seconds=time.monotonic() - begun)
        if (entry := build_cache.read(folder, key)) is not None:
            cubin, facts = entry
            spent = time.monotonic() - begun
            return Binary(cubin, facts["compiler"], tuple(facts["options"]), facts["log"], spent, True, tuple(notes))

    for position, (compiler, key) in enumerate(zip(usable, keys, strict=True)):
        cubin_or_none, log, command = _compile(compiler, source, arch, given, timeout_s)
        if cubin_or_none is None:
            error = _first_error(log, source)
            # A mistake in the source is one for every compiler; other trouble is this compiler's own.
            if AT_SOURCE.search(log) or position == len(usable) - 1:
                text = f"{compiler.kind} could not compile {source.name} for {arch}: {error}"
                raise BuildError(text, shlex.join(command), log)
            notes.append(f"{compiler} failed ({error}); {usable[position + 1]} is used instead.")
            continue
        used = tuple(_options(compiler, arch, given, source))
        made = Binary(cubin_or_none, str(compiler), used, log, time.monotonic() - begun, False, tuple(notes))
        if _fingerprint(source, given) != content:
            return made  # edited meanwhile: an entry might lie
        facts = {"compiler": made.compiler, "options": used, "log": log, "source": source.name}
        if why := build_cache.write(folder, key, made.cubin, facts):
            note = f"The folder {folder} cannot be written ({why}); kernels are compiled anew in each session."
            made = replace(made, notes=(*notes, note))
            _keep_here(key, replace(made, cached=True))
        return made
    raise AssertionError("the last compiler returns or raises")


_KEPT_HERE: dict[str, Binary] = {}  # by key; only what could not be written to disk
KEPT_HERE_LIMIT = 64


def _keep_here(key: str, binary: Binary) -> None:
    """Keep a binary in this process, in place of the oldest one if there are many."""
    _KEPT_HERE[key] = binary
    if len(_KEPT_HERE) > KEPT_HERE_LIMIT:
        _KEPT_HERE.pop(next(iter(_KEPT_HERE)), None)


def _unfit(compiler: Compiler, arch: str) -> str:
    if compiler.problem:
        return compiler.problem
    return "it is newer than the driver" if compiler.knows(arch) else f"it does not know {arch}"


def _options(compiler: Compiler, arch: str, given: Sequence[str], source: Path) -> list[str]:
    if compiler.kind == "nvcc":
        return ["-cubin", f"-arch={arch}", "-O3", *COMMON, "-Xptxas", "-v", *given]
    return [f"--gpu-architecture={arch}", *COMMON, "--ptxas-options=-v", *given]


def _compile(
    compiler: Compiler, source: Path, arch: str, given: Sequence[str], timeout_s: float
) -> tuple[bytes | None, str, list[str]]:
    """The cubin, or None where there is none; the compiler's output; its command line."""
    options = _options(compiler, arch, given, source)
    with tempfile.TemporaryDirectory(prefix="fmha-build-") as folder:
        target = Path(folder) / f"{source.stem}.cubin"
        if compiler.kind == "nvcc":
            command = [compiler.path, *options, str(source), "-o", str(target)]
        else:
            include = f"--include-path={source.parent}"
            command = toolchain.nvrtc_command(compiler.path, str(source), str(target), *options, include)
        # Its own temporary files go where they are deleted with ours, also when it is killed.
        env = {**os.environ, "LC_ALL": "C", "TMPDIR": folder, "TMP": folder, "TEMP": folder}
        try:
            code, log = run_bounded(command, timeout_s=timeout_s, env=env)
        except OSError as error:
            return None, f"{compiler.path}: {error}", command
        if code is None:
            text = f"{compiler.kind} took longer than {timeout_s:g} s for {source.name} and was stopped; try again."
            raise BuildError(text, shlex.join(command), log)
        if code or not target.is_file():
            return None, log or f"{compiler.kind} ended with exit code {code} and said nothing.", command
        return target.read_bytes(), log, command


def _first_error(log: str, source: Path) -> str:
    """The compiler's first complaint, in one line and without the source's folder."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    found = next((line for line in lines if re.search(r"\b(error|fatal)\b", line)), lines[-1] if lines else "")
    return re.sub(r"\s+", " ", found.replace(f"{source.parent}{os.sep}", "")).removeprefix("nvcc fatal : ")


def _key(content: str, arch: str, compiler: Compiler, given: Sequence[str]) -> str:
    parts = [content, arch, compiler.kind, compiler.version, *given]
    if compiler.kind == "nvcc":  # it obeys these
        parts += [os.environ.get(name, "") for name in ("NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS")]
    return hashlib.sha256("\0".join([*parts, sys.platform]).encode()).hexdigest()


def _fingerprint(source: Path, given: Sequence[str]) -> str:
    """Digest of the source and of all local headers that it includes, directly or not."""
    folders = [source.parent]
    folders += [Path(p[1]) for o in given if (p := re.match(r"(?:-I|--include-path=)(.+)", o))]
    try:
        content = source.read_bytes()
    except OSError as error:
        raise BuildError(f"{source} cannot be read: {error.strerror}.") from error
    digest, seen = hashlib.sha256(), {source}

    def add(path: Path, data: bytes) -> None:
        digest.update(f"{path.name}\0{len(data)}\0".encode() + data)
        for name in INCLUDE.findall(data):
            for folder in [path.parent, *folders]:
                header = (folder / os.fsdecode(name)).resolve()
                if header in seen:
                    break
                if header.is_file():
                    seen.add(header)
                    add(header, header.read_bytes())
                    break

    add(source, content)
    return digest.hexdigest()
