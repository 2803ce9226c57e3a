"""The kernel language that the header brings: arithmetic, its counts by line, atomics."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from tests.trace.snippets import Access, Snippet

ARITHMETIC = r"""
#include <cuda_runtime.h>
#include <math_constants.h>
#include <math.h>
#include <cmath>
#include <limits>
extern "C" __global__ void numbers(const float* a, const float* b, float* out, int* whole) {  // [18][n], [14][n]
    const int t = blockIdx.x * blockDim.x + threadIdx.x, n = gridDim.x * blockDim.x;
    const float x = a[t], y = b[t];
    const float made[] = {
        __expf(x), exp2f(x), __logf(fabsf(x)), rsqrtf(fabsf(y)), __fdividef(x, y), __frcp_rn(y),
        __fmaf_rn(x, y, 1.0f), max(x, y), min(x, y), max(x, 0.0f), __int_as_float(__float_as_int(x) ^ 1),
        __uint_as_float(__float_as_uint(y)), x > y ? CUDART_INF_F : -CUDART_INF_F, fmaxf(x, CUDART_NAN_F), tanhf(x),
        __saturatef(x), floorf(x) + ceilf(y), powf(fabsf(x), y)};
    for (int k = 0; k < 18; ++k) out[k * n + t] = made[k];
    const int i = __float2int_rz(100 * x);
    const unsigned u = (unsigned)t * 2654435761u;
    const int made_whole[] = {i, __float2int_rn(x), max(i, t), min(i, t), __popc(u), __ffs(i), __clz(i), (int)__brev(u),
                              (int)__umulhi(u, u), max(1u, u) == u, (int)gridDim.x, (int)blockIdx.x, (int)blockDim.x,
                              isinf(x / 0.0f) + isnan(y)};
    for (int k = 0; k < 14; ++k) whole[k * n + t] = made_whole[k];
}

// Overloads of C++, under the names of C++.
extern "C" __global__ void overloaded(const float* in, float* out) {
    const float x = in[threadIdx.x];
    float y = exp(x) + sqrt(abs(x)) + pow(abs(x), 2.0f) + fmax(x, 1.0f) + log(fabs(x) + 1);  // @plain
    y += rsqrt(2 + abs(x));
    y += isnan(y) + isinf(x / 0.0f) + std::isnan((double)in[0]) + (int)abs((int)x) + std::numeric_limits<int>::digits;
    out[threadIdx.x] = y + FLT_MIN;
}

extern "C" __global__ void counted(const float* in, float* out) {
    const float x = in[threadIdx.x];
    float y = x * x + 1;  // @two
    y -= 2 * x / y;  // @three
    y = fmaf(x, y, 3.0f);  // @fma
    y = max(expf(y), logf(x)) + sqrtf(-y < 0 ? 1.0f : x);  // @special
    for (int k = 0; k < 5; ++k) y = fminf(y, k + x);  // @loop
    out[threadIdx.x] = y;
}

extern "C" __global__ void atomics(const int* in, int* out, unsigned* out_unsigned, float* sum) {
    const int mine = in[blockIdx.x * blockDim.x + threadIdx.x];
    __shared__ int tickets;
    if (threadIdx.x == 0) tickets = 0;
    __syncthreads();
    const int before = atomicAdd(&tickets, 1);  // @shared
    __syncthreads();
    if (before == 0) atomicAdd(out + 6, tickets);
    atomicAdd(out, mine);  // @global
    atomicSub(out + 1, mine);
    atomicMax(out + 2, mine);
    atomicMin(out + 3, mine);
    atomicExch(out + 4, 77);
    atomicCAS(out + 5, 0, 1 + blockIdx.x);
    atomicOr(out_unsigned, 1u << (mine & 31));
    atomicAnd(out_unsigned + 1, ~(1u << (mine & 31)));
    atomicXor(out_unsigned + 2, (unsigned)mine);
    atomicMax(out_unsigned + 3, (unsigned)mine);
    atomicMin(out_unsigned + 4, (unsigned)mine);
    atomicAdd(sum, 0.5f * mine);
}
"""


@pytest.fixture(scope="module")
def arithmetic(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Snippet:
    return Snippet(tmp_path_factory.mktemp("arithmetic"), ARITHMETIC, cache)


@pytest.mark.parametrize("mode", ["trace", "flops"])
def test_numbers(arithmetic: Snippet, mode: str) -> None:
    rng = np.random.default_rng(8)
    n = 192
    a, b = (rng.uniform(-3, 3, n).astype(np.float32) for _ in range(2))
    a[0], b[1] = np.nan, np.nan
    made = arithmetic(
        "numbers", {"a": a, "b": b}, {"out": ((18, n), np.float32), "whole": ((14, n), np.int32)}, grid=3, block=64,
        mode=mode,
    )  # fmt: skip
    with np.errstate(all="ignore"):
        x, y = a.astype(np.float64), b.astype(np.float64)
        expected = [
            np.exp(x), 2**x, np.log(abs(x)), 1 / np.sqrt(abs(y)), x / y, 1 / y, x * y + 1, np.fmax(x, y), np.fmin(x, y),
            np.fmax(x, 0), (a.view(np.int32) ^ 1).view(np.float32), y, np.where(x > y, np.inf, -np.inf),
            x, np.tanh(x), np.clip(np.nan_to_num(x), 0, 1), np.floor(x) + np.ceil(y), abs(x) ** y,
        ]  # fmt: skip
        for index, wanted in enumerate(expected):
            assert np.allclose(made["out"][index], wanted, rtol=3e-6, atol=1e-6, equal_nan=True), index
    whole, t = made["whole"][:, 2:], np.arange(n)[2:]  # not the NaNs: as integers they are anything
    i = (np.float32(100) * a[2:]).astype(np.int32)
    u = t.astype(np.uint64) * 2654435761 % 2**32
    bits = [format(v, "032b") for v in u.tolist()]
    exact = [
        i, np.rint(a[2:]), np.maximum(i, t), np.minimum(i, t), [s.count("1") for s in bits],
        [0 if v == 0 else (v & -v).bit_length() for v in i.tolist()],
        [0 if v < 0 else 32 - v.bit_length() for v in i.tolist()],
        np.array([int(s[::-1], 2) for s in bits], np.uint32).view(np.int32),
        (u * u >> 32).astype(np.uint32).view(np.int32), np.ones(n - 2), np.full(n - 2, 3), t // 64, np.full(n - 2, 64),
        np.ones(n - 2),
    ]  # fmt: skip
    for index, numbers in enumerate(exact):
        assert np.array_equal(whole[index], numbers), index
    assert not made.findings


def test_names_of_cpp_and_headers_of_the_system(arithmetic: Snippet) -> None:
    values = np.linspace(-3, 3, 32).astype(np.float32)
    x, size = values.astype(np.float64), np.abs(values.astype(np.float64))
    expected = np.exp(x) + np.sqrt(size) + size**2 + np.fmax(x, 1) + np.log(size + 1) + 1 / np.sqrt(2 + size)
    expected += 1 + np.trunc(size) + 31
    for mode in ("trace", "flops"):
        made = arithmetic("overloaded", {"in": values}, {"out": ((32,), np.float32)}, mode=mode)
        assert np.allclose(made["out"], expected, rtol=1e-6)
    assert made.flops["plain"] == {"add": 5 * 32, "special": 4 * 32, "max": 32}


def test_arithmetic_is_counted_by_line(arithmetic: Snippet) -> None:
    values = np.linspace(0.5, 2, 32).astype(np.float32)
    outputs = {"out": ((32,), np.float32)}
    made = arithmetic("counted", {"in": values}, outputs, mode="flops")
    each = {
        "two": {"mul": 1, "add": 1},
        "three": {"mul": 1, "div": 1, "add": 1},
        "fma": {"mul": 1, "add": 1},
        "special": {"special": 3, "max": 1, "add": 1},
        "loop": {"add": 5, "max": 5},
    }
    assert made.flops == {mark: {kind: 32 * n for kind, n in kinds.items()} for mark, kinds in each.items()}
    assert np.array_equal(made["out"], arithmetic("counted", {"in": values}, outputs)["out"])


def test_atomic_operations(arithmetic: Snippet) -> None:
    """Outputs begin as all bits set, which is -1."""
    values = np.random.default_rng(9).integers(-100, 100, 256).astype(np.int32)
    outputs = {"out": ((7,), np.int32), "out_unsigned": ((5,), np.uint32), "sum": ((1,), np.float32)}
    made = arithmetic("atomics", {"in": values}, outputs, grid=8, processes=2)
    unsigned = values.view(np.uint32)
    every = np.bitwise_or.reduce(np.uint32(1) << (unsigned & 31))
    assert made["out"].tolist() == [
        values.sum() - 1, -1 - values.sum(), max(-1, values.max()), min(-1, values.min()), 77, -1, 8 * 32 - 1
    ]  # fmt: skip
    assert made["out_unsigned"].tolist() == [
        2**32 - 1, 2**32 - 1 - int(every), (2**32 - 1) ^ int(np.bitwise_xor.reduce(unsigned)), 2**32 - 1,
        unsigned.min(),
    ]  # fmt: skip
    assert math.isnan(made["sum"][0])
    assert {f.kind for f in made.findings} <= {"read of what nothing wrote"}
    assert made.accesses["shared"] == [Access("tickets", True, 4, 8)]
    assert made.accesses["global"] == [Access("out", True, 4, 8)]
