"""From an unmodified .cu file to a program that runs its kernels on the CPU; cached by content."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from fmha import build_cache
from fmha.errors import BuildError
from fmha.folders import cache_folder
from fmha.kernels import SOURCES, Argument
from fmha.processes import run_bounded
from fmha.trace.assembly import Site, prepare
from fmha.trace.compilers import CppCompiler, compiler, environment, machine
from fmha.trace.complaints import called_with, explained
from fmha.trace.headers import gathered
from fmha.trace.inlining import described
from fmha.trace.inlining_clang import inlined
from fmha.trace.order import program_structure

NATIVE = Path(__file__).resolve().parent / "native"
HEADER, RUNTIME = NATIVE / "cuda_on_cpu.h", NATIVE / "runtime.c"
COMPILE_LIMIT_S = 120.0
DYNAMIC_ROOM = 232_448  # bytes that `extern __shared__` can name: what an H200 allows a block
Mode = Literal["trace", "flops"]

# -O1: -O0 would count what any compiler keeps in registers, and higher levels duplicate and merge accesses.
# Functions are inlined as on a GPU, and loops not unrolled: one site in the program for each in the source.
_FLAGS = (
    "-std=gnu++17", "-O1", "-g1", "-w", "-fno-exceptions", "-fno-rtti", "-fno-asynchronous-unwind-tables",
    "-fno-strict-aliasing", "-fno-stack-protector", "-fno-common", "-ffp-contract=off",
    "-fno-unroll-loops", "-fno-jump-tables", "-finline-functions", "-finline-limit=20000",
)  # fmt: skip


@dataclass(frozen=True)
class Program:
    """A kernel file compiled for the CPU. binary: an executable file's bytes; sites, statics: what its numbers mean
    (`fmha.trace.assembly`); functions: the kernels by index; seconds: what it took, cached or not."""

    binary: bytes
    functions: tuple[str, ...]
    sites: tuple[Site, ...]
    statics: tuple[tuple[str, int], ...]
    compiler: str
    seconds: float
    is_cached: bool


def build(
    source: Path,
    functions: Sequence[str],
    defines: Mapping[str, int],
    mode: Mode = "trace",
    *,
    text: str | None = None,
    folder: Path | None = None,
    called: Mapping[str, Sequence[Argument]] | None = None,
    cache: Path | None = None,
) -> Program:
    """Compile the kernels `functions` of a .cu file, each of `defines` as a -D, or take them from the cache.

    mode: "trace" reports every load and store, "flops" counts arithmetic instead. text: to be used in place of the
    source file's; folder: where that text's headers lie (the source file's), before those of cuda_src. called: the
    arguments of functions whose parameters are to be held against them.

    Raises:
        BuildError: the source does not compile; `command` and `output` say all. InputError: a header cannot be read.
        TraceError: no compiler.
    """
    begun = time.perf_counter()
    cpp = compiler()
    beside = (source.parent if folder is None else folder).absolute()
    files = gathered(source.name, source.read_text(encoding="utf-8") if text is None else text, beside, [SOURCES])
    parts = [machine(), sys.platform, str(cpp), mode, *functions, *(f"{k}={v}" for k, v in sorted(defines.items()))]
    parts += [f"{name}\0{content}" for name, content in sorted(files.items())]
    checks = {name: called_with(arguments) for name, arguments in (called or {}).items()}
    parts += [str(checks)]
    parts += [path.read_text(encoding="utf-8") for path in (*sorted(NATIVE.rglob("*.h")), RUNTIME)]
    steps = (build, compiler, gathered, prepare, program_structure, described, inlined)
    parts += [Path(step.__code__.co_filename).read_text(encoding="utf-8") for step in steps]
    key = hashlib.sha256("\0".join(parts).encode()).hexdigest()
    kept = cache_folder("traces") if cache is None else cache
    if (entry := build_cache.read(kept, key)) is not None:
        binary, facts = entry
        return _program(binary, facts, time.perf_counter() - begun, is_cached=True)
    runtime = _runtime(cpp, kept)
    with tempfile.TemporaryDirectory(prefix="fmha-trace-") as name:
        try:
            binary, facts = _compile(cpp, Path(name), files, source.name, functions, checks, defines, mode, runtime)
        except BuildError as error:
            code = {name: _without_comments(content) for name, content in files.items()}
            log = error.output.replace(f"{name}{os.sep}", "")
            if (said := explained(log, source.name, code, functions, (beside, SOURCES))) is not None:
                raise BuildError(said, error.command) from None
            raise
    build_cache.write(kept, key, binary, facts)  # a folder that cannot be written costs time only
    return _program(binary, facts, time.perf_counter() - begun, is_cached=False)


def _program(binary: bytes, facts: Mapping[str, Any], seconds: float, *, is_cached: bool) -> Program:
    return Program(
        binary,
        tuple(facts["functions"]),
        tuple(Site(**site) for site in facts["sites"]),
        tuple((name, nbytes) for name, nbytes in facts["statics"]),
        facts["compiler"],
        seconds,
        is_cached,
    )


_running: dict[str, Future[bytes]] = {}  # runtimes that are being compiled: builds side by side share one
_lock = threading.Lock()


def _runtime(cpp: CppCompiler, folder: Path) -> Future[bytes]:
    """runtime.c as an object file: from the cache, or compiled beside the kernel and kept for the next one."""
    text = RUNTIME.read_text(encoding="utf-8")
    key = hashlib.sha256("\0".join([machine(), sys.platform, str(cpp), *cpp.for_c, text]).encode()).hexdigest()
    with _lock:
        if (running := _running.get(key)) is not None:
            return running
        made: Future[bytes] = Future()
        if (entry := build_cache.read(folder, key)) is not None:
            made.set_result(entry[0])
            return made
        _running[key] = made

    def work() -> None:
        try:
            with tempfile.TemporaryDirectory(prefix="fmha-runtime-") as name:
                command = [*cpp.for_c, "-O2", "-w", "-c", str(RUNTIME), "-o", "runtime.o"]
                _run(command, Path(name), RUNTIME.name)
                binary = (Path(name) / "runtime.o").read_bytes()
            build_cache.write(folder, key, binary, {})
            made.set_result(binary)
        except BaseException as error:
            made.set_exception(error)
        finally:
            with _lock:
                _running.pop(key, None)

    threading.Thread(target=work, name="fmha-runtime").start()
    return made


def _compile(
    cpp: CppCompiler,
    folder: Path,
    files: Mapping[str, str],
    source: str,
    functions: Sequence[str],
    checks: Mapping[str, tuple[str, str]],
    defines: Mapping[str, int],
    mode: Mode,
    runtime: Future[bytes],
) -> tuple[bytes, dict[str, Any]]:
    dynamic: dict[str, None] = {}
    for name, text in files.items():
        code = _without_comments(text)
        dynamic |= dict.fromkeys(re.findall(r"extern\s+__shared__[^;\[]*?(\w+)\s*\[\s*\]", code))
        text = re.sub(r"\bextern(\s+)__shared__\b", r"extern\1", text)
        text = re.sub(r"^[ \t]*#[ \t]*pragma[ \t]+unroll\b.*$", "", text, flags=re.MULTILINE)  # clang would do it
        (folder / name).write_text(text, encoding="utf-8")
    (folder / "kernels.cpp").write_text(_glue(source, functions, checks, files), encoding="utf-8")
    flags = [*cpp.flags, *_FLAGS, *(f"-D{name}={value}" for name, value in defines.items())]
    flags += [f"-I{NATIVE}", f"-I{NATIVE / 'include'}"]
    flags += [*cpp.inlining, *(["-DFMHA_TRACE", *cpp.hooks] if mode == "trace" else ["-DFMHA_COUNT_FLOPS"])]
    assembly_file = folder / "kernels.s"
    _run([*cpp.command, *flags, "-S", "kernels.cpp", "-o", str(assembly_file)], folder, source)
    is_macho = sys.platform == "darwin"
    lines = max(text.count("\n") + 1 for text in files.values())
    raw: dict[str, str] = {"encoding": "utf-8", "errors": "surrogateescape"}  # clang writes bytes of constants as such
    made = prepare(assembly_file.read_text(**raw), list(files), lines, machine(), is_macho=is_macho)
    assembly_file.write_text(made.text + _dynamic(dynamic, is_macho=is_macho), **raw)
    (folder / "runtime.o").write_bytes(runtime.result())
    program = folder / "program"
    _run([*cpp.for_linking, "kernels.s", "runtime.o", "-o", program.name, *cpp.libraries], folder, source)
    facts = {
        "functions": list(functions),
        "sites": [asdict(site) for site in made.sites],
        "statics": [list(one) for one in made.statics],
        "compiler": str(cpp),
    }
    return program.read_bytes(), facts


def _glue(
    source: str, functions: Sequence[str], checks: Mapping[str, tuple[str, str]], files: Mapping[str, str]
) -> str:
    """The translation unit: the header, the kernels, and a way in for each of them.

    Headers of the system come first: they would not understand that `float` counts.
    """
    lines = []
    for name in re.findall(r'^[ \t]*#[ \t]*include[ \t]*[<"]([^<>"\n]+)[>"]', "\n".join(files.values()), re.MULTILINE):
        if name not in files and not (NATIVE / "include" / name).exists():
            # g++ leaves out, without a word, what it was asked for and did not find; so ask by another name.
            lines += [f"#if __has_include(<./{name}>)", f"#include <{name}>", "#endif"]
    lines += ['#include "cuda_on_cpu.h"', f'#include "{source}"']
    lines += [
        f'static_assert(fmha::takes(&{name}, "{kinds}"), "{name} is called with ({words})");'
        for name, (kinds, words) in checks.items()
    ]
    plain = '__attribute__((no_sanitize("thread"), noinline)) static void'
    lines += [
        f"{plain} fmha_enter_{index}(void** at) {{ fmha::call(&{name}, at); }}" for index, name in enumerate(functions)
    ]
    entries = ", ".join(f"fmha_enter_{index}" for index in range(len(functions)))
    return "\n".join([*lines, f'extern "C" {{ extern void (*const fmha_kernels[])(void**) = {{{entries}}}; }}', ""])


def _dynamic(names: Mapping[str, None], *, is_macho: bool) -> str:
    """Room for `extern __shared__`: all names of it mean the same bytes."""
    labels = ["fmha_dynamic", *names]
    if is_macho:
        room = [f"\t.globl\t_{name}" for name in labels] + [
            "\t.data",
            "\t.p2align\t10",
            *(f"_{name}:" for name in labels),
        ]
    else:
        room = [f"\t.globl\t{name}" for name in labels]
        room += ['\t.section\t.bss.fmha,"aw",@nobits', "\t.p2align\t10", *(f"{name}:" for name in labels)]
    return "\n".join([*room, f"\t.zero\t{DYNAMIC_ROOM}", ""]) + (
        "" if is_macho else '\t.section\t.note.GNU-stack,"",@progbits\n'
    )


def _without_comments(text: str) -> str:
    return re.sub(r"//[^\n]*|/\*.*?\*/", lambda found: re.sub(r"[^\n]", " ", found[0]), text, flags=re.DOTALL)


def _run(command: list[str], folder: Path, source: str) -> None:
    """Run a compiler in `folder`, or raise its first complaint."""
    env = {**environment(), "TMPDIR": str(folder)}
    try:
        code, log = run_bounded(command, timeout_s=COMPILE_LIMIT_S, env=env, cwd=str(folder))
    except OSError as error:
        raise BuildError(f"{command[0]} could not be started: {error.strerror}.", shlex.join(command), "") from error
    if code == 0:
        return
    if code is None:
        text = f"the compiler took longer than {COMPILE_LIMIT_S:g} s for {source} and was stopped; try again."
        raise BuildError(text, shlex.join(command), log)
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    # A linker's last words are that it failed; what it misses it says before.
    wanted = (r"\bundefined (?:reference|symbol)|\(undefined\)", r"\berror\b", "")
    found = (line for pattern in wanted for line in lines if re.search(pattern, line, re.IGNORECASE))
    first = next(found, f"exit code {code}")
    first = re.sub(r"\s+", " ", first.replace(f"{folder}{os.sep}", ""))
    raise BuildError(f"{source} does not compile for the CPU: {first}", shlex.join(command), log)


__all__ = ["HEADER", "NATIVE", "Mode", "Program", "build"]
