"""A source of one's own that does not compile: what a person reads is about that file, and says what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from fmha import Problem, Tiling
from fmha.errors import BuildError
from fmha.kernels import KERNELS, SOURCES
from fmha.trace import trace
from fmha.trace.complaints import called_with, missing
from tests.trace.support import inputs

SOURCE = KERNELS["02"].source()
PROBLEM, TILES = Problem(N=8, d=4), Tiling(4, 4)
CALLED = (
    "02_fmha101.cu: fmha101 is called with (pointer Q, pointer K, pointer V, pointer O, pointer LSE, pointer "
    "key_range, int, int, int, int, int, float, int) and takes others: give it parameters for these."
)
HOST = """
int main() {
    float* q;  // kernel<<<1, 1>>>
    if (cudaMalloc(&q, 1024) != cudaSuccess) return 1;
    fmha101<<<1, 1024, 4096>>>(q, q, q, q, nullptr, nullptr, 1, 1, 32, 32, 8, 1.0f, 32);
    return cudaDeviceSynchronize() != cudaSuccess;
}
"""


def refused(text: str, cache: Path) -> str:
    with pytest.raises(BuildError) as caught:
        trace(KERNELS["02"], PROBLEM, TILES, *inputs(PROBLEM), text=text, cache=cache)
    return str(caught.value)


@pytest.mark.parametrize(
    ("log", "line"),
    [
        ("In file included from kernels.cpp:2:\nmine.cu:3:10: fatal error: a b.cuh: No such file or directory\n", 3),
        ("./mine.cu:12:10: fatal error: 'a b.cuh' file not found\n   12 | #include \"a b.cuh\"\n", 12),
    ],
)
def test_what_compilers_say_of_a_missing_header(log: str, line: int, tmp_path: Path) -> None:
    what = f"is not in {tmp_path} or {SOURCES}: put it there, or correct its name."
    assert missing(log, [tmp_path, SOURCES]) == f"mine.cu, line {line}: the header a b.cuh {what}"
    assert "a b.cuh is not in one: put" in str(missing(log, [Path("one"), Path("one")]))
    assert missing("mine.cu:3:10: error: 'x' was not declared", [tmp_path]) is None


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("        int causal_offset)", "        int causal_offset, int more)"),
        ("        float scale,", "        double scale,"),
        ("        const int* key_range,  // [B, 2], or null\n", ""),
        ("        int Nk,", "        float* Nk,"),
    ],
)
def test_other_parameters_than_it_is_called_with(before: str, after: str, cache: Path) -> None:
    assert before in SOURCE
    changed = SOURCE.replace(before, after).replace("real_keys(key_range,", "real_keys(nullptr,")
    assert refused(changed.replace("rows = min(Br, Nq", "rows = min(Br, (int)Nq"), cache) == CALLED


def test_parameters_of_another_name_or_without_a_sign_are_fine(cache: Path) -> None:
    text = SOURCE.replace("        int H,", "        const unsigned H,").replace(
        "const float* Q,  ", "const float *Q,  "
    )
    assert trace(KERNELS["02"], PROBLEM, TILES, *inputs(PROBLEM), text=text, cache=cache).findings == ()
    assert called_with(("Q", 1, 2.0)) == ("pif", "pointer Q, int, float")


def test_a_kernel_of_another_name(cache: Path) -> None:
    text = SOURCE.replace("fmha101(", "forward_kernel(") + "// fmha101(Q)\n"
    assert (
        refused(text, cache)
        == "02_fmha101.cu has no function fmha101, which is launched here: give your kernel that name."
    )


def test_host_code_is_left_out(cache: Path) -> None:
    line = SOURCE.count("\n") + 5
    assert refused(SOURCE + HOST, cache) == (
        f"02_fmha101.cu, line {line}: the app launches the kernels, so the file need not: put its host code between "
        "#ifndef FMHA_ON_CPU and #endif."
    )
    text = f"#include <stdio.h>\n{SOURCE}#ifndef FMHA_ON_CPU{HOST}#endif\n"
    assert trace(KERNELS["02"], PROBLEM, TILES, *inputs(PROBLEM), text=text, cache=cache).findings == ()
