"""From source to program: what is taken from the cache and what is made anew, and what a person reads when it fails."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from fmha import Problem, Tiling
from fmha.errors import BuildError, TraceError
from fmha.kernels import KERNELS, Launch
from fmha.trace.build import Program, build
from fmha.trace.compilers import compiler
from fmha.trace.run import run
from tests.trace.support import traced

TEXT = """// {note}
#include "mine.cuh"
extern "C" __global__ void first(float* out) {{ out[threadIdx.x] = VALUE + SHIFT; }}
extern "C" __global__ void second(float* out) {{ out[threadIdx.x] = -VALUE; }}
"""
HEADER = "#pragma once\n#define VALUE 2.0f\n#ifndef SHIFT\n#define SHIFT 0\n#endif\n"


def source(folder: Path, note: str) -> Path:
    """A .cu file that no other test has, and its header."""
    folder.mkdir(exist_ok=True)
    (folder / "mine.cuh").write_text(HEADER)
    path = folder / "mine.cu"
    path.write_text(TEXT.format(note=note))
    return path


def result(program: Program, function: str = "first") -> float:
    launch = Launch(function, 1, 4, 0, ("out",), ())
    out = run(program, [launch], {}, {"out": 16}, processes=1).outputs["out"]
    assert (out == out[0]).all()
    return float(out[0])


def test_the_second_time_it_is_there_and_damage_is_repaired(cache: Path, tmp_path: Path) -> None:
    path, folder = source(tmp_path, "damage"), tmp_path / "kept"
    made = build(path, ["first"], {}, cache=folder)
    assert not made.is_cached and result(made) == 2
    again = build(path, ["first"], {}, cache=folder)
    assert again.is_cached and (again.binary, again.sites, again.compiler) == (made.binary, made.sites, made.compiler)
    # Kernels that are not called are compiled too.
    assert [(s.file, s.line, s.is_write, s.nbytes) for s in made.sites[1:]] == [
        ("mine.cu", 3, True, 4),
        ("mine.cu", 4, True, 4),
    ]
    runtime, program = sorted(folder.iterdir(), key=lambda entry: b'"functions"' in entry.read_bytes())
    whole = program.read_bytes()
    for damage in (b"", whole[:40], whole[:-1], whole[:-1] + bytes([whole[-1] ^ 1])):
        program.write_bytes(damage)
        repaired = build(path, ["first"], {}, cache=folder)
        assert not repaired.is_cached and result(repaired) == 2
        assert build(path, ["first"], {}, cache=folder).is_cached
    for entry in (runtime, program):
        entry.write_bytes(entry.read_bytes()[:100])
    assert result(build(path, ["first"], {}, cache=folder)) == 2
    assert build(path, ["first"], {}, cache=folder).is_cached


def test_a_folder_that_cannot_be_written_costs_time_only(cache: Path, tmp_path: Path) -> None:
    path = source(tmp_path, "no folder")
    (tmp_path / "file").write_text("this is no folder")
    program = build(path, ["first"], {}, cache=tmp_path / "file" / "traces")
    assert not program.is_cached and result(program) == 2
    assert (tmp_path / "file").read_text() == "this is no folder"


def test_whatever_changes_is_compiled_again(cache: Path, tmp_path: Path) -> None:
    path = source(tmp_path, "changes")

    def made(functions: tuple[str, ...] = ("first",), text: str | None = None, **defines: int) -> Program:
        program = build(path, functions, defines, text=text, cache=cache)
        assert build(path, functions, defines, text=text, cache=cache).is_cached
        return program

    plain = made()
    shifted = made(SHIFT=3)
    assert not shifted.is_cached and (result(plain), result(shifted)) == (2, 5)
    both = made(("first", "second"))
    assert not both.is_cached and both.functions == ("first", "second")
    assert (result(both), result(both, "second")) == (2, -2)
    other = made(text=path.read_text().replace("VALUE +", "3.0f * VALUE +"))
    assert not other.is_cached and result(other) == 6 and made().is_cached
    (tmp_path / "mine.cuh").write_text(HEADER.replace("2.0f", "7.0f"))
    changed = made()
    assert not changed.is_cached and result(changed) == 7
    counting = build(path, ["first"], {}, "flops", cache=cache)
    assert not counting.is_cached and result(counting) == 7 and len(counting.sites) == 1
    (tmp_path / "mine.cuh").write_text(HEADER)
    assert made().is_cached


def test_builds_side_by_side_do_not_disturb_one_another(cache: Path, tmp_path: Path) -> None:
    path, folder = source(tmp_path, "side by side"), tmp_path / "shared"
    script = (
        "import sys; from pathlib import Path; from fmha.trace.build import build; "
        f"print(len(build(Path({str(path)!r}), ['first'], {{}}, cache=Path({str(folder)!r})).binary))"
    )
    command = [sys.executable, "-c", script]
    root = Path(__file__).resolve().parents[2]
    process = subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    with ThreadPoolExecutor(3) as pool:
        jobs = [pool.submit(build, path, ["first"], {"SHIFT": shift}, cache=folder) for shift in (0, 1, 0)]
        programs = [job.result() for job in jobs]
    said, _ = process.communicate(timeout=120)
    assert process.returncode == 0, said
    assert int(said) == len(programs[0].binary)
    assert [result(program) for program in programs] == [2, 3, 2]
    assert all(build(path, ["first"], {"SHIFT": shift}, cache=folder).is_cached for shift in (0, 1))
    assert {entry.suffix for entry in folder.iterdir()} == {".fmha-build"}


def test_a_compiler_that_is_not_there_or_is_none(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CXX", raising=False)
    usual = compiler()
    for wish in ("/no/such/compiler", "false", " "):
        monkeypatch.setenv("CXX", wish)
        assert compiler() == usual
    monkeypatch.setenv("CXX", f"{usual.command[0]} -O1" if usual.family != "zig" else "")
    assert compiler().command[: len(usual.command)] == usual.command


def test_without_a_compiler_a_sentence_says_what_to_install(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(TraceError) as caught:
        traced(KERNELS["02"], Problem(N=4, d=4), Tiling(2, 2), cache)
    assert str(caught.value) == (
        "no C++ compiler was found, so kernels cannot be run on the CPU: install g++ or clang++, or run "
        "`pip install ziglang`, which brings one."
    )


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("out[0] = missing;", "mine.cu:2:"),
        ("__device__ float elsewhere(float); out[0] = elsewhere(1.0f);", "elsewhere"),
        ("out[0] = 1.0f", "mine.cu:2:"),
    ],
)
def test_what_cannot_be_compiled_or_linked_is_told_in_a_line(body: str, said: str, cache: Path, tmp_path: Path) -> None:
    path = tmp_path / "mine.cu"
    path.write_text(f'extern "C" __global__ void first(float* out) {{\n    {body}\n}}\n')
    for _ in range(2):  # a failure is not kept
        with pytest.raises(BuildError) as caught:
            build(path, ["first"], {}, cache=cache)
        text = str(caught.value)
        assert text.startswith("mine.cu does not compile for the CPU: ") and said in text and "\n" not in text
        assert caught.value.command and caught.value.output
        assert str(tmp_path) not in text


def test_dynamic_shared_memory_has_one_place_whatever_its_names(cache: Path, tmp_path: Path) -> None:
    path = tmp_path / "names.cu"
    path.write_text(
        """
// extern __shared__ int commented[];
extern __shared__ float everywhere[];
__device__ void fill() { extern __shared__ __align__(16) int whole[]; whole[threadIdx.x] = threadIdx.x; }
extern "C" __global__ void first(int* out) {
    extern __shared__ int here[];
    fill();
    __syncthreads();
    out[threadIdx.x] = here[31 - threadIdx.x] + (everywhere[0] == 0.0f);
}
"""
    )
    program = build(path, ["first"], {}, cache=cache)
    raw = run(program, [Launch("first", 1, 32, 128, ("out",), ())], {}, {"out": 128}, processes=1)
    assert len(raw.findings) == 0
    assert np.array_equal(raw.outputs["out"].view(np.int32), 32 - np.arange(32))
