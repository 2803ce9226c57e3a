"""What inlined functions do belongs to the kernel's line that calls them: in assembly texts, and once compiled."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fmha import Problem, Tiling
from fmha.kernels import KERNELS, Launch, included
from fmha.trace.assembly import Site, prepare
from fmha.trace.build import build
from fmha.trace.findings import findings
from fmha.trace.inlining import callers, described
from fmha.trace.run import CHECK, TRACE, run
from tests.trace.snippets import Snippet
from tests.trace.support import line_of, traced

# What g++ -g1 -dA writes of a kernel whose line 20 loads through a header's function, at an index that line 5 computes;
# line 21 calls a helper of the same file, which loads in line 9 and was split in two.
GCC = """
	.text
kernel:
	.file 1 "work.cu"
	.loc 1 20 5	# work.cu:20:5
.LBB7:
.LBI7:
	.loc 1 5 40	# work.cu:5:40
	xorl	%eax, %ebx
.LBE7:
.LBB8:
	.file 2 "/x/header.h"
	.loc 2 60 3	# /x/header.h:60:3
	call	__tsan_read16
.LBE8:
	.loc 1 21 5	# work.cu:21:5
.LBB9:
	.loc 1 9 12	# work.cu:9:12
	call	__tsan_read4
.LBB10:
	.loc 2 61 3	# /x/header.h:61:3
	call	__tsan_write4
.LBE10:
.LBE9:
	.loc 1 22 5	# work.cu:22:5
	call	__tsan_write8
.LBB11:
	.loc 1 9 12	# work.cu:9:12
	call	__tsan_read2
.LBE11:
	.size	kernel, .-kernel
	.section	.debug_info,"",@progbits
	.uleb128 0x7	# (DIE (0x36) DW_TAG_subprogram)
	.quad	.LFB3	# DW_AT_low_pc
	.uleb128 0x3	# (DIE (0x54) DW_TAG_inlined_subroutine)
	.quad	.LBB7	# DW_AT_low_pc
	.quad	.LBE7-.LBB7	# DW_AT_high_pc
	.byte	0x1	# DW_AT_call_file (work.cu)
	.byte	0x14	# DW_AT_call_line
	.byte	0x9	# DW_AT_call_column
	.uleb128 0x4	# (DIE (0x6b) DW_TAG_inlined_subroutine)
	.quad	.LBB8	# DW_AT_low_pc
	.quad	.LBE8-.LBB8	# DW_AT_high_pc
			# DW_AT_call_file (1, /y/work.cu)
			# DW_AT_call_line (0x14)
	.uleb128 0x4	# (DIE (0x7c) DW_TAG_inlined_subroutine)
	.long	.LLRL1	# DW_AT_ranges
			# DW_AT_call_file (1, work.cu)
	.value	0x15	# DW_AT_call_line
	.uleb128 0x4	# (DIE (0x8d) DW_TAG_inlined_subroutine)
	.quad	.LBB10	# DW_AT_low_pc
	.quad	.LBE10-.LBB10	# DW_AT_high_pc
			# DW_AT_call_file (1, work.cu)
			# DW_AT_call_line (0x9)
	.byte	0	# end of children of DIE 0x7c
	.byte	0	# end of children of DIE 0x36
	.section	.debug_rnglists,"",@progbits
.LLRL1:
	.byte	0x4	# DW_RLE_offset_pair (*.LLRL1)
	.uleb128 .LBB9-.Ltext0	# Range begin address (*.LLRL1)
	.uleb128 .LBE9-.Ltext0	# Range end address (*.LLRL1)
	.byte	0x4	# DW_RLE_offset_pair (*.LLRL1)
	.uleb128 .LBB11-.Ltext0	# Range begin address (*.LLRL1)
	.uleb128 .LBE11-.Ltext0	# Range end address (*.LLRL1)
	.byte	0	# DW_RLE_end_of_list (*.LLRL1)
"""
CLANG = """
kernel:
	.file	1 "/build" "work.cu"
	.loc	1 5 40 is_stmt 1                // work.cu:5:40 @[ work.cu:20:12 ]
	eor	w0, w0, w1
	.loc	1 9 12                          // work.cu:9:12 @[ work.cu:15:5 @[ work.cu:21:3 ] ]
	bl	__tsan_read4
	.loc	1 0 12                          // work.cu:0:12 @[ work.cu:15:5 @[ work.cu:21:3 ] ]
	bl	__tsan_write4
	.loc	1 22 5                          // work.cu:22:5
	bl	__tsan_write8
	.loc	1 9 12                          // work.cu:9:12 @[ work.cu:23 ]
	bl	__tsan_read4
	.loc	1 9 12                          // work.cu:9:12 @[ work.cu:15 @[ work.cu:24:3 ] ]
	bl	__tsan_read4
"""


def test_of_gcc_the_description_says_who_called() -> None:
    sites = prepare(GCC, ["work.cu"], 30, "x86_64", is_macho=False).sites[1:]
    assert sites == (
        Site("work.cu", 20, False, 16, "work.cu", 20),  # and not line 5, where its index was computed last
        Site("work.cu", 21, False, 4, "work.cu", 9),
        Site("work.cu", 21, True, 4, "work.cu", 9),
        Site("work.cu", 22, True, 8, "work.cu", 22),
        Site("work.cu", 21, False, 2, "work.cu", 9),
    )


def test_of_clang_each_line_says_who_called() -> None:
    assert described(CLANG.splitlines()) == {}
    assert callers('\t.loc 1 3 1 ; "a b.h":3:1 @[ /x/work.cu:8:5 @[ work.cu:12:5 ] ]') == (
        ("work.cu", 8), ("work.cu", 12),
    )  # fmt: skip
    sites = prepare(CLANG, ["work.cu"], 30, "arm64", is_macho=False).sites[1:]
    assert sites == (
        Site("work.cu", 21, False, 4, "work.cu", 9),
        Site("work.cu", 21, True, 4, "work.cu", 15),  # of no line of its own: of the call's
        Site("work.cu", 22, True, 8, "work.cu", 22),
        Site("work.cu", 23, False, 4, "work.cu", 9),  # no column: two calls of line 23 became one
        Site("work.cu", 24, False, 4, "work.cu", 9),
    )


HEADER = """\
#pragma once
__device__ inline int from_header(const int* in, int i) { return in[i]; }
"""
TEXT = """\
#include "helper.cuh"
#define HALF 0
#include "mma_on_cpu.h"
__device__ inline int along(int place, int further) { return (place ^ (further & 7)) + (further & ~7); }
template <int EVERY>
__device__ inline int place(int row, int chunk) { return row * 2 + (chunk ^ (row & EVERY)); }
template <int EVERY>
__device__ void copy(Tile tile, const uint4* from) {
    for (int r = 0; r < 2; ++r) copy_async(tile, place<EVERY>(threadIdx.x, r), from + 2 * threadIdx.x + r, true);
    copies_issued();
}
__device__ inline void give(uint4* to, unsigned w) { to[32 + threadIdx.x].x = w; }
extern "C" __global__ void kernel(const uint4* in, const int* more, uint4* out) {
    extern __shared__ uint4 smem[];
    const Tile tile = tile_at(smem);
    auto twice = [&](int n) {
        copy<1>(tile, in + 64 * n);
    };
    twice(0);  // @first
    copies_done<0>();
    __syncthreads();
    twice(1);  // @second
    copies_done<0>();
    __syncthreads();
    unsigned w[4];
    load_matrices(w, tile, along(threadIdx.x, 2 * from_header(more, 0)));  // @matrices
    smem[64 + along(threadIdx.x, 8)] = make_uint4(w[0], w[1], w[2], w[3]);  // @stored
    __syncwarp();
    out[threadIdx.x] = smem[64 + along(threadIdx.x, 8) % 64];  // @back
    __syncwarp();
    if (threadIdx.x % 2) give(out, w[0]); else give(out, w[1]);  // @either
}
"""


def test_a_compiled_kernels_lines_have_all_that_helpers_do(tmp_path: Path, cache: Path) -> None:
    folder = tmp_path / "kernel"
    folder.mkdir()
    (folder / "helper.cuh").write_text(HEADER, encoding="utf-8")
    snippet = Snippet(folder, TEXT, cache)
    inputs = {"in": np.arange(128 * 4, dtype=np.uint32), "more": np.zeros(1, np.int32)}
    found = snippet("kernel", inputs, {"out": ((64, 4), np.uint32)}, smem=128 * 16)
    assert not found.findings
    did = {mark: [(a.array, a.is_write, a.nbytes, a.requests) for a in made] for mark, made in found.accesses.items()}
    assert did == {
        "first": [("?", True, 16, 2), ("in", False, 16, 2)],
        "second": [("?", True, 16, 2), ("in", False, 16, 2)],
        "matrices": [("?", False, 16, 1), ("more", False, 4, 1)],
        "stored": [("?", True, 16, 1)],
        "back": [("?", False, 16, 1), ("out", True, 16, 1)],
        "either": [("out", True, 4, did["either"][0][3])],  # one request where the compiler made one store of both
    }


ARITHMETIC = """\
#include "helper.cuh"
#include "mma_on_cpu.h"
#include <cuda_fp16.h>
__device__ inline float polynomial(float x) {
    return (x * x + 1.0f) * x
           - from_header(x, 2.0f);
}
template <int N>
__device__ inline float power(float x) {
    float y = 1.0f;
    for (int i = 0; i < N; ++i) y *= x;
    return y;
}
struct Sum {
    float v;
    __device__ inline Sum& operator+=(float x) { v += x; return *this; }
};
__device__ __noinline__ float apart(float x) { return x / 3.0f; }  // @apart
extern "C" __global__ void kernel(const float* in, float* out) {
    const float x = in[threadIdx.x];
    float y = polynomial(x);  // @polynomial
    for (int i = 0; i < 3; ++i)
        y = fmaxf(polynomial(y), power<2>(x));  // @looped
    Sum sum = {0.0f};
    auto twice = [&](float z) {
        sum += z;
        sum += expf(z);
    };
    twice(y);  // @lambda
    twice(power<5>(x));  // @nested
    sum += x > 3.0f ? x * 2.0f : from_header(x, 3.0f);  // @either
    __half h = __float2half(x);
    h = h * h + hexp(h);  // @half
    float4 acc = make_float4(0, 0, 0, 0);
    const unsigned a[4] = {0, 0, 0, 0};
    float s[4] = {acc.x, acc.y, acc.z, acc.w};
    mma(s, a, 0, 0);  // @mma
    out[threadIdx.x] = sum.v + apart(y) + s[0] + __half2float(h);  // @end
}
"""


def test_arithmetic_of_a_helper_counts_on_the_line_that_calls_it(tmp_path: Path, cache: Path) -> None:
    """As its loads do; what is not inlined stands for itself."""
    folder = tmp_path / "kernel"
    folder.mkdir()
    (folder / "helper.cuh").write_text(
        "__device__ inline float from_header(float a, float b) {\n    return a / b;\n}\n", encoding="utf-8"
    )
    snippet = Snippet(folder, ARITHMETIC, cache)
    found = snippet("kernel", {"in": np.arange(32, dtype=np.float32)}, {"out": ((32,), np.float32)}, mode="flops")
    once = {"add": 2, "mul": 2, "div": 1}
    wanted = {
        "polynomial": once,
        "looped": {k: 3 * n for k, n in (once | {"mul": 4, "max": 1}).items()},
        "lambda": {"add": 2, "special": 1},
        "nested": {"add": 2, "mul": 5, "special": 1},
        "half": {"add": 1, "mul": 1, "special": 1},
        "mma": {"add": 64, "mul": 64},
        "end": {"add": 3},
        "apart": {"div": 1},
    }
    either = found.flops.pop("either")
    assert found.flops == {mark: {k: 32 * n for k, n in kinds.items()} for mark, kinds in wanted.items()}
    assert either == {"add": 32, "mul": 28, "div": 4}


def test_a_fault_in_a_helper_is_told_where_it_is_written(tmp_path: Path, cache: Path) -> None:
    folder = tmp_path / "kernel"
    folder.mkdir()
    (folder / "helper.cuh").write_text(HEADER, encoding="utf-8")
    path = folder / "snippet.cu"
    path.write_text(
        '#include "helper.cuh"\nextern "C" __global__ void kernel(const int* in, int* out) {\n'
        "    out[threadIdx.x] = from_header(in, threadIdx.x + 1);\n}\n",
        encoding="utf-8",
    )
    program = build(path, ["kernel"], {}, cache=cache)
    launch = Launch("kernel", 1, 32, 0, ("in", "out"), ())
    raw = run(program, [launch], {"in": np.zeros(32, np.int32)}, {"out": 128}, flags=TRACE | CHECK)
    (fault,) = findings(raw, program, [launch])
    assert (fault.file, fault.line) == ("helper.cuh", 2) and "right behind its end" in fault.text
    sites = [program.sites[row["site"]] for row in raw.rows]
    assert {(site.file, site.line) for site in sites} == {("snippet.cu", 3)}


def test_every_access_of_the_rungs_is_on_a_line_of_the_kernel_itself(cache: Path) -> None:
    """And so in a phase: none is on a line of a helper, of this file or of another."""
    for number in ("07", "09", "10", "13"):
        kernel = KERNELS[number]
        p, t = Problem(N=32, d=16, dtype=kernel.dtypes[0]), Tiling(64, 32)
        done = traced(kernel, p, t, cache, flops=False)
        (first,) = [n for n, line in enumerate(kernel.source().splitlines(), 1) if line.startswith(f"{kernel.name}(")]
        assert {count.file for count in done.counts} == {kernel.file}
        assert all(count.line > first for count in done.counts), number
        lines = kernel.source().splitlines()
        for array in ("Q", "K", "V"):
            loads = [c for c in done.counts if c.array == array]
            assert loads and all("copy_" in lines[c.line - 1] and c.phase for c in loads), (number, array)
        assert len(included(kernel.path)) > 2
    assert line_of(KERNELS["13"], "load_matrices(w, Kj") in {c.line for c in done.counts}
