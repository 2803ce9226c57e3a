"""Headers of a source of one's own: found where nvcc would find them, and missed in a sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from fmha.cli import main
from fmha.errors import BuildError, InputError
from fmha.kernels import KERNELS, SOURCES
from fmha.trace.build import build
from fmha.trace.headers import gathered
from tests.trace.test_build import result

KERNEL = 'extern "C" __global__ void first(float* out) {{ out[threadIdx.x] = {value}; }}\n'


def put(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_each_header_is_looked_for_beside_the_file_that_includes_it(cache: Path, tmp_path: Path) -> None:
    mine = put(
        tmp_path / "mine" / "first.cu",
        '#include <math.h>\n#include "one.cuh"\n  #  include "sub/two.cuh"\n#include "../above.cuh"\n'
        '#include "string.h"\n' + KERNEL.format(value="ONE + TWO + OTHER_ONE + ABOVE + MINUS_INFINITY * 0.0f"),
    )
    put(tmp_path / "mine" / "one.cuh", "#pragma once\n#define ONE 1.0f\n#include <common.cuh>\n")
    put(tmp_path / "mine" / "sub" / "two.cuh", '#include "one.cuh"\n#define TWO 20.0f\n')  # its own neighbour
    put(tmp_path / "mine" / "sub" / "one.cuh", "#pragma once\n#define OTHER_ONE 300.0f\n")
    put(tmp_path / "above.cuh", '#include "mine/one.cuh"\n#define ABOVE 4000.0f\n')
    with pytest.raises(BuildError) as caught:  # a name in angle brackets is one of the compiler's
        build(mine, ["first"], {}, cache=cache)
    assert (
        "one.cuh, line 3: the header common.cuh is looked for among the compiler's headers only: write #include \""
        in (str(caught.value))
    )
    put(tmp_path / "mine" / "one.cuh", '#pragma once\n#define ONE 1.0f\n#include "common.cuh"\n')
    put(mine, mine.read_text().replace(" + MINUS_INFINITY * 0.0f", " + (MINUS_INFINITY < 0.0f)"))
    program = build(mine, ["first"], {}, cache=cache)  # common.cuh: of cuda_src
    assert result(program) == 4322
    put(tmp_path / "mine" / "common.cuh", "#define MINUS_INFINITY 1.0f\n")  # goes before
    assert result(build(mine, ["first"], {}, cache=cache)) == 4321
    put(tmp_path / "mine" / "sub" / "one.cuh", "#pragma once\n#define OTHER_ONE 500.0f\n")
    assert result(build(mine, ["first"], {}, cache=cache)) == 4521


def test_names_that_meet_and_headers_that_are_no_text(tmp_path: Path) -> None:
    put(tmp_path / "a" / "Same.cuh", '#include "../mine.cu"\n')
    put(tmp_path / "same.cuh", '#include "a/Same.cuh"\n#include "same.cuh"\n')
    (tmp_path / "mine.cu").write_bytes(b"// \xb5s\n")
    put(tmp_path / "program", "int x;")
    text = '#include "same.cuh"\n#include "program"\n// #include "none.cuh"\n#include "none.cuh"\n'
    made = gathered("mine.cu", text, tmp_path)
    assert list(made) == ["mine.cu", "same.cuh", "program_2", "Same_2.cuh", "mine_2.cu"]
    assert made["mine.cu"] == text.replace('"program"', '"program_2"')
    assert made["same.cuh"] == '#include "Same_2.cuh"\n#include "same.cuh"\n'
    assert made["Same_2.cuh"] == '#include "mine_2.cu"\n' and made["mine_2.cu"].startswith("// ")
    (tmp_path / "same.cuh").chmod(0)
    try:
        (tmp_path / "same.cuh").read_bytes()
    except PermissionError:
        with pytest.raises(InputError, match=r"^the header .*same.cuh cannot be read \(Permission denied\): choose"):
            gathered("mine.cu", text, tmp_path)


def test_the_kernels_of_the_app_are_taken_as_they_are() -> None:
    for chosen in KERNELS.values():
        files = gathered(chosen.file, chosen.source(), SOURCES)
        assert files == {name: (SOURCES / name).read_text() for name in files} and "common.cuh" in files


def test_the_command_finds_a_header_beside_the_source(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FMHA_CACHE", str(cache))
    text = KERNELS["02"].source().replace("float score = 0.0f;", "float score = ZERO;")
    put(tmp_path / "mine" / "my.cu", f'#include "my.cuh"\n{text}')
    put(tmp_path / "mine" / "my.cuh", "#define ZERO 0.0f\n")
    words = "trace --N 16 --d 4 --Br 8 --Bc 8 --source".split()
    assert main([*words, str(tmp_path / "mine" / "my.cu")]) == 0
    monkeypatch.chdir(tmp_path / "mine")
    assert main([*words, "my.cu"]) == 0
    assert "faults    none" in capsys.readouterr().out
    put(tmp_path / "mine" / "my.cu", f'\n#include "your.cuh"\n{text}')
    assert main([*words, "my.cu"]) == 2
    out, err = capsys.readouterr()
    assert not out and err == (
        f"python -m fmha trace: my.cu, line 2: the header your.cuh is not in {tmp_path / 'mine'} or {SOURCES}: "
        "put it there, or correct its name.\n"
    )
