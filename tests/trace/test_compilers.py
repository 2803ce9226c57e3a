"""Which compiler runs kernels on the CPU, flags of each family, and programs that bring a start of their own."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from fmha import Problem, Tiling
from fmha.errors import TraceError
from fmha.kernels import KERNELS
from fmha.trace import compilers
from fmha.trace.compilers import CppCompiler, compiler, environment, machine
from fmha.trace.order import program_order
from tests.tools import need
from tests.trace.snippets import Snippet
from tests.trace.support import traced

APPLE = "Apple clang version 15.0.0 (clang-1500.3.9.4)\nTarget: arm64-apple-darwin23.4.0\n"
DEBIAN = "g++ (Debian 12.2.0-14+deb12u1) 12.2.0\nCopyright (C) 2022 Free Software Foundation, Inc.\n"


@pytest.fixture(autouse=True)
def no_compilers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is found but what a test puts into `tmp_path / "bin"`."""
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    compilers._asked.cache_clear()


def install(folder: Path, name: str, said: str, code: int = 0) -> Path:
    """A program that says `said`, whatever it is asked."""
    path = folder / "bin" / name
    path.write_text(f"#!/bin/sh\nprintf '%s' '{said}'\nexit {code}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


def test_without_a_compiler_a_sentence_says_what_to_install() -> None:
    with pytest.raises(TraceError, match=r"^no C\+\+ compiler was found.*install g\+\+ or clang\+\+.*ziglang.*\.$"):
        compiler()


def test_the_first_that_answers_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, "c++", APPLE)
    assert compiler() == CppCompiler(("c++",), "clang", "Apple clang version 15.0.0 (clang-1500.3.9.4)")
    install(tmp_path, "clang++", "clang version 18.1.3\n")
    assert compiler().command == ("clang++",)
    install(tmp_path, "g++", "", code=1)  # it is there, and does not work
    assert compiler().command == ("clang++",)
    compilers._asked.cache_clear()
    install(tmp_path, "g++", DEBIAN)
    assert compiler() == CppCompiler(("g++",), "gcc", "g++ (Debian 12.2.0-14+deb12u1) 12.2.0")
    other = install(tmp_path, "other", DEBIAN)
    monkeypatch.setenv("CXX", f"{other} -m64")
    assert compiler().command == (str(other), "-m64")
    monkeypatch.setenv("CXX", "not-there")
    assert compiler().command == ("g++",)


def test_zig_is_known_as_such(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    zig = install(tmp_path, "zig", "clang version 22.1.8\n")
    monkeypatch.setenv("CXX", f"{zig} c++")
    found = compiler()
    assert found.family == "zig" and found.for_c[:2] == (str(zig), "cc")
    monkeypatch.delenv("CXX")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name == "ziglang")
    monkeypatch.setattr(sys, "executable", str(install(tmp_path, "python", "clang version 22.1.8\n")))
    assert compiler().command[1:] == ("-m", "ziglang", "c++")
    assert compiler().family == "zig"


def test_zig_needs_no_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It refuses to answer at all if it has no folder to keep things in."""
    zig = tmp_path / "bin" / "zig"
    zig.write_text('#!/bin/sh\n[ -n "$ZIG_GLOBAL_CACHE_DIR" ] && echo clang version 22.1.8\n', encoding="utf-8")
    zig.chmod(0o755)
    monkeypatch.setenv("CXX", f"{zig} c++")
    monkeypatch.delenv("ZIG_GLOBAL_CACHE_DIR", raising=False)
    assert compiler().family == "zig"
    monkeypatch.setenv("ZIG_GLOBAL_CACHE_DIR", "/chosen")
    assert environment()["ZIG_GLOBAL_CACHE_DIR"] == "/chosen"


@pytest.mark.parametrize("version, is_new", [("g++ (GCC) 11.4.0", False), ("g++ (Ubuntu 13.2.0-4) 13.2.0", True)])
def test_flags_that_an_older_compiler_would_refuse(version: str, is_new: bool) -> None:
    assert ("-fno-move-loop-stores" in CppCompiler(("g++",), "gcc", version).hooks) == is_new


def test_other_machines_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("aarch64", "arm64"):
        monkeypatch.setattr(platform, "machine", lambda name=name: name)
        assert machine() == "arm64"
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    with pytest.raises(TraceError, match=r"x86-64 and arm64 machines only, and this one is riscv64\.$"):
        machine()
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(TraceError, match=r"not under Windows: use WSL\.$"):
        machine()


def test_a_jump_to_a_function_is_no_part_of_its_order() -> None:
    """clang ends the way into a kernel by jumping there, and lays it out behind all kernels."""
    rows = [
        "first:",
        "\tcall\t__tsan_write4",
        "\tret",
        "second:",
        "\tcall\t__tsan_write4",
        "\tret",
        "enter:",
        "\tjmp\tfirst",
    ]
    places = program_order(rows, "x86_64")
    assert places == sorted(places)


# ---- with real compilers ---------------------------------------------------------------------------------------------
STAND_IN = """#!{python}
import os, sys
language, given, made = sys.argv[1], sys.argv[2:], []
skipped = ("-mcpu=baseline", "-fno-sanitize=undefined", "-fno-vectorize", "-fno-slp-vectorize")
while given:
    word = given.pop(0)
    if word in ("-mllvm", "-Xclang"):
        given.pop(0)
    elif word not in skipped:
        made.append(word)
if "--version" in made:
    print("clang version 22.1.8")
    sys.exit()
more = {inlining!r} if "-S" in made else []
more += ["--param=tsan-instrument-func-entry-exit=0", "-fno-thread-jumps"] if "-fsanitize=thread" in made else []
os.execv({gxx!r}, [{gxx!r}, *["-x", "c"] * (language == "cc" and "-c" in made), *made, *more])
"""

INITIALIZED = """
__device__ __noinline__ float later(float x) { volatile float y = x; return 2 * y; }
__constant__ float made_at_start[2] = {later(1.5f), later(4.0f)};
extern "C" __global__ void read(float* out) { out[threadIdx.x] = made_at_start[threadIdx.x % 2]; }
"""


@pytest.fixture
def gxx() -> str:
    """g++ of this machine, which the other tests hide."""
    found = need("cxx", shutil.which("g++", path=os.defpath))
    asked = compilers._asked((found,), found)
    if asked is None or asked.family != "gcc":
        pytest.skip("g++ is another compiler here")
    return found


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere zig links as it likes")
def test_a_program_can_do_without_the_compilers_own_start(
    gxx: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What zig would have to build first, runtime.c brings: here g++ in its place links with -nostdlib."""
    zig = tmp_path / "bin" / "zig"
    inlining = [*CppCompiler((gxx,), "gcc", "").inlining]
    zig.write_text(STAND_IN.format(python=sys.executable, gxx=gxx, inlining=inlining), encoding="utf-8")
    zig.chmod(0o755)
    monkeypatch.setenv("CXX", f"{zig} c++")
    monkeypatch.setenv("PATH", os.defpath)  # g++ finds its parts
    cpp = compiler()
    assert cpp.family == "zig" and "-nostdlib" in cpp.for_linking and "libc" in cpp.libraries[0]
    cache = tmp_path / "cache"
    made = Snippet(tmp_path / "initialized", INITIALIZED, cache)("read", {}, {"out": ((32,), np.float32)})
    assert np.array_equal(made["out"], [3.0, 8.0] * 16)
    p, t = Problem(N=40, d=16, H=2), Tiling(16, 8)
    here = traced(KERNELS["02"], p, t, cache, processes=2)
    assert str(zig) in here.program.compiler
    monkeypatch.setenv("CXX", gxx)
    plain = traced(KERNELS["02"], p, t, cache)
    assert here.counts == plain.counts and here.flops == plain.flops and np.array_equal(here.O, plain.O)


@pytest.mark.parametrize("command", ["clang++", "zig"])
def test_compilers_agree(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What each line does to memory does not depend on who compiled it. Skipped where there is only one compiler."""
    monkeypatch.undo()
    gxx = need("cxx", shutil.which("g++"))
    if command == "zig" and importlib.util.find_spec("ziglang") is None:
        pytest.skip("the ziglang package is not installed")
    if command == "clang++" and shutil.which(command) is None:
        pytest.skip("clang++ is not installed")
    words = command if command == "clang++" else f"{sys.executable} -m ziglang c++"
    p = Problem(N=70, d=24, H=2, causal="top-left")
    for number in ("01", "02"):
        found = []
        for cxx in (gxx, words):
            monkeypatch.setenv("CXX", cxx)
            trace = traced(KERNELS[number], p, Tiling(16, 8), tmp_path / "cache")
            assert not trace.findings
            sums: Counter[tuple[str, int, str, bool]] = Counter()
            for c in trace.counts:
                sums[c.function, c.line, c.array, c.is_write] += c.nbytes + c.sectors + c.wavefronts
            found.append((sums, trace.flops, trace.requested_bytes))
        assert found[0] == found[1]
