"""Colours of CUDA sources: no letter is lost, and each piece has the class that it should have."""

from __future__ import annotations

import pytest

from fmha.kernels import KERNELS
from fmha.source_view.highlight import highlight


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=lambda k: k.name)
def test_the_pieces_are_the_source(kernel) -> None:  # type: ignore[no-untyped-def]
    text = kernel.source()
    lines = highlight(text)
    assert "\n".join("".join(piece for _, piece in line) for line in lines) == text
    classes = {name for line in lines for name, _ in line}
    assert {"c", "k", "n", "p", "b"} <= classes


@pytest.mark.parametrize(
    ("line", "name", "piece"),
    [
        ("int a = 0xffffffffu;", "n", "0xffffffffu"), ("x = 1.0f;", "n", "1.0f"), ("x = .5f;", "n", ".5f"),
        ("return x;  // 5 is odd", "c", "// 5 is odd"), ("#include <a.h>  // why", "c", "// why"),
        ("#define BR 32", "p", "#define BR 32"),
        ('extern "C" void f();', "s", '"C"'), ("__syncthreads();", "b", "__syncthreads"),
        ("const int tid = threadIdx.x;", "b", "threadIdx"), ("const int tid = threadIdx.x;", "k", "const"),
        ("int a /* one */ = 2;", "c", "/* one */"), ("row_2d = a1b;", "", "row_2d"),
    ],
)  # fmt: skip
def test_pieces(line: str, name: str, piece: str) -> None:
    (pieces,) = highlight(line)
    assert (name, piece) in pieces


def test_a_comment_over_several_lines() -> None:
    lines = highlight("int a; /* one\n two\n\n three */ int b;")
    assert lines[1] == [("c", " two")] and lines[2] == []
    assert lines[3][0] == ("c", " three */") and ("k", "int") in lines[3]
