"""The kernel language that the header brings: warps, barriers, shared memory, templates, arithmetic, atomics."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from tests.trace.snippets import Access, Snippet

WIDTHS = (2, 4, 8, 16, 32)

WARPS = r"""
extern "C" __global__ void shuffles(const int* in, int* out) {  // out [5 widths][32 arguments][4 kinds][threads]
    const int mine = in[threadIdx.x], n = blockDim.x;
    out += threadIdx.x;
    for (int width = 2; width <= 32; width *= 2)
        for (int by = 0; by < 32; ++by, out += 4 * n) {
            out[0 * n] = __shfl_sync(0xffffffffu, mine, by, width);
            out[1 * n] = __shfl_up_sync(0xffffffffu, mine, by, width);
            out[2 * n] = __shfl_down_sync(0xffffffffu, mine, by, width);
            out[3 * n] = __shfl_xor_sync(0xffffffffu, mine, by, width);
        }
}

template <class T> __device__ T total(T value) {
    for (int step = warpSize / 2; step > 0; step /= 2) value += __shfl_xor_sync(0xffffffffu, value, step);
    return value;
}
extern "C" __global__ void types(const float* in, float* f, double* d, long long* l, unsigned* u) {
    const int t = threadIdx.x;
    f[t] = total(in[t]);
    d[t] = total((double)in[t]);
    l[t] = total((long long)t << 40);
    u[t] = total(1u) + __shfl_sync(~0u, 100u + t, -1);
}

extern "C" __global__ void votes(const int* in, unsigned* out) {  // out [10][threads]
    const int t = threadIdx.x, lane = t % warpSize, n = blockDim.x;
    const bool p = in[t] != 0;
    out[0 * n + t] = __ballot_sync(0xffffffffu, p);
    out[1 * n + t] = __any_sync(0xffffffffu, p);
    out[2 * n + t] = __all_sync(0xffffffffu, p);
    if (lane < 8) {
        out[3 * n + t] = __ballot_sync(0x000000ffu, !p);
        out[4 * n + t] = __any_sync(0x000000ffu, in[t] == 5);
        out[5 * n + t] = __all_sync(0x000000ffu, in[t] != 5);
    } else {
        out[3 * n + t] = __ballot_sync(0xffffff00u, p);
        out[4 * n + t] = __shfl_sync(0xffffff00u, t, 9);
        out[5 * n + t] = 7;
    }
    __syncwarp();
    out[6 * n + t] = __syncthreads_or(t == 33);
    out[7 * n + t] = __syncthreads_and(t >= 0);
    out[8 * n + t] = __syncthreads_count(p);
    out[9 * n + t] = __popc(__ballot_sync(0xffffffffu, 1));
}

extern "C" __global__ void parts(const int* in, int* out, int is_ordered) {  // the two halves of a warp go apart
    __shared__ int cell[32];
    const int t = threadIdx.x;
    if (t < 16) {
        cell[t] = in[t];
        if (is_ordered) __syncwarp(0x0000ffffu);
        out[t] = cell[15 - t];
    } else {
        cell[t] = 2 * in[t];
        if (is_ordered) __syncwarp(0xffff0000u);
        out[t] = cell[47 - t];
    }
}
"""


@pytest.fixture(scope="module")
def warps(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Snippet:
    return Snippet(tmp_path_factory.mktemp("warps"), WARPS, cache)


def test_shuffles_of_every_width(warps: Snippet) -> None:
    """As the CUDA C++ programming guide has them; xor may look into an earlier part of the warp, not into a later."""
    values = np.random.default_rng(1).integers(-1000, 1000, 64).astype(np.int32)
    made = warps("shuffles", {"in": values}, {"out": ((5, 32, 4, 64), np.int32)}, block=64)["out"]
    lane, warp = np.arange(64) % 32, np.arange(64) // 32 * 32
    for w, width in enumerate(WIDTHS):
        first = lane // width * width
        for by in range(32):
            wanted = (first + by % width, lane - by, lane + by, lane ^ by)
            allowed = (lane >= 0, lane - by >= first, lane + by < first + width, (lane ^ by) < first + width)
            for kind in range(4):
                source = np.where(allowed[kind], wanted[kind], lane)
                assert np.array_equal(made[w, by, kind], values[warp + source]), (width, by, kind)


def test_shuffles_of_every_size(warps: Snippet) -> None:
    values = np.random.default_rng(2).integers(-50, 50, 32).astype(np.float32)
    outputs = {"f": ((32,), np.float32), "d": ((32,), np.float64), "l": ((32,), np.int64), "u": ((32,), np.uint32)}
    for mode in ("trace", "flops"):
        made = warps("types", {"in": values}, outputs, mode=mode)
        assert (made["f"] == values.sum()).all() and (made["d"] == values.sum()).all()
        assert (made["l"] == sum(range(32)) << 40).all()
        assert (made["u"] == 32 + 100 + 31).all()


@pytest.mark.parametrize("block", [64, 40])
def test_votes(warps: Snippet, block: int) -> None:
    """Of whole warps and of parts; in a block of 40 threads the second warp has 8 lanes."""
    values = np.random.default_rng(3).integers(0, 3, block).astype(np.int32)
    values[5] = 5
    made = warps("votes", {"in": values}, {"out": ((10, block), np.uint32)}, block=block)
    out, t = made["out"], np.arange(block)
    lane, p = t % 32, values != 0
    bit = np.uint32(1) << lane.astype(np.uint32)
    for first in range(0, block, 32):
        warp = slice(first, min(block, first + 32))
        low, high = (warp, lane < 8), (warp, lane >= 8)
        assert (out[0, warp] == bit[warp][p[warp]].sum()).all()
        assert (out[1, warp] == p[warp].any()).all() and (out[2, warp] == p[warp].all()).all()
        for index, part, hit in ((0, low, ~p), (1, high, p)):
            chosen = np.flatnonzero((t >= warp.start) & (t < warp.stop) & part[1])
            if len(chosen):
                assert (out[3, chosen] == bit[chosen][hit[chosen]].sum()).all()
                expected = (values[chosen] == 5).any() if index == 0 else first + 9
                assert (out[4, chosen] == expected).all()
                assert (out[5, chosen] == ((values[chosen] != 5).all() if index == 0 else 7)).all()
        assert (out[9, warp] == warp.stop - warp.start).all()
    assert (out[6] == (block > 33)).all() and (out[7] == 1).all() and (out[8] == p.sum()).all()
    assert not made.findings


def test_syncwarp_orders_the_lanes_of_its_mask(warps: Snippet) -> None:
    values = np.arange(32, dtype=np.int32)
    made = warps("parts", {"in": values}, {"out": ((32,), np.int32)}, 1)
    assert made["out"].tolist() == [*range(15, -1, -1), *range(62, 30, -2)]
    assert not made.findings
    assert {f.kind for f in warps("parts", {"in": values}, {"out": ((32,), np.int32)}, 0).findings} <= {
        "race", "read of what nothing wrote"
    }  # fmt: skip
    assert any(f.kind == "race" for f in warps("parts", {"in": values}, {"out": ((32,), np.int32)}, 0).findings)


MEMORY = r"""
__constant__ float weights[4] = {0.5f, -1.0f, 2.0f, 0.25f};
struct Range { int first, end; };
struct Mixed { float4 value; int tag; };

__device__ void widen(Range& range, const int& by) { range.first -= by, range.end += by; }
__device__ void swap_cells(float& a, float& b) { float c = a; a = b; b = c; }

// Each instance has memory of its own.
template <int N> __device__ float* cells() {
    __shared__ float own[N];
    return own;
}

extern "C" __global__ void first_name(const float* in, float* out, int n) {
    extern __shared__ float first_smem[];
    __shared__ float fixed[3][33];
    const int t = threadIdx.x;
    float* back = first_smem + n;
    first_smem[t] = in[t];
    back[t] = 2 * in[t];
    for (int row = 0; row < 3; ++row) fixed[row][t] = row * in[t];
    __syncthreads();
    out[t] = first_smem[n - 1 - t] + back[n - 1 - t] + fixed[t % 3][n - 1 - t];
}

extern "C" __global__ void second_name(const int* in, int* out) {
    extern __shared__ __align__(16) int second_smem[];  // a comment with a bracket [
    second_smem[threadIdx.x] = in[threadIdx.x];
    __syncthreads();
    out[threadIdx.x] = second_smem[blockDim.x - 1 - threadIdx.x] + blockIdx.x * gridDim.x;
}

extern "C" __global__ void language(const float* in, float* out) {
    const int t = threadIdx.x;
    float* few = cells<32>();
    float* many = cells<64>();
    few[t] = in[t];
    many[t] = -in[t];
    many[t + 32] = 10 * in[t];
    __syncthreads();
    Range range = {t, t + 1};
    widen(range, 1);
    float sum = 0;
    for (int k = max(range.first, 0); k < min(range.end, 32); ++k) sum += few[k] + many[k] + many[k + 32];
    for (int k = 0; k < 4; ++k) sum += weights[k] * k;  // @constant
    __syncthreads();
    if (t % 2 == 0) swap_cells(few[t], few[t + 1]);
    __syncthreads();
    out[t] = sum + 100 * few[t];
}

template <int STEP> struct Tree {
    static __device__ void add(float* cell, int t) {
        if (t < STEP) cell[t] += cell[t + STEP];
        __syncthreads();
        Tree<STEP / 2>::add(cell, t);
    }
};
template <> struct Tree<0> { static __device__ void add(float*, int) {} };
extern "C" __global__ void tree(const float* in, float* out) {
    __shared__ float cell[64];
    cell[threadIdx.x] = in[threadIdx.x];
    __syncthreads();
    Tree<32>::add(cell, threadIdx.x);
    if (threadIdx.x == 0) *out = cell[0];
}
template <int FACTOR> __global__ void scaled(const float* in, float* out) {
    out[threadIdx.x] = FACTOR * in[threadIdx.x];
}

template <class V> __device__ void through(const V* in, V* out, V* cell) {
    const int t = threadIdx.x;
    cell[t] = in[t];
    __syncthreads();
    out[t] = cell[blockDim.x - 1 - t];
}
extern "C" __global__ void vectors(const float2* f2, const float4* f4, const int2* i2, const int4* i4, const uint2* u2,
                                   const uint4* u4, float2* of2, float4* of4, int2* oi2, int4* oi4, uint2* ou2,
                                   uint4* ou4) {
    __shared__ float2 a[32];
    __shared__ float4 b[32];
    __shared__ int2 c[32];
    __shared__ int4 d[32];
    __shared__ uint2 e[32];
    __shared__ uint4 f[32];
    through(f2, of2, a);
    through(f4, of4, b);
    through(i2, oi2, c);
    through(i4, oi4, d);
    through(u2, ou2, e);
    through(u4, ou4, f);
}

extern "C" __global__ void casts(const float* in, float* out, int rounds) {
    __shared__ __align__(16) float tile[128];
    __shared__ Mixed mixed[32];
    const int t = threadIdx.x;
    reinterpret_cast<float4*>(tile)[t] = reinterpret_cast<const float4*>(in)[t];  // @fill
    mixed[t].value = make_float4(1, 2, 3, 4);  // @made
    mixed[t].tag = t;
    __syncthreads();
    float sum = 0;
    for (int k = 0; k < rounds; ++k) {
        const float4 v = *reinterpret_cast<const float4*>(tile + (t + k) % 32 * 4);  // @loop
        sum += v.x + v.y + v.z + v.w;  // @none
    }
    for (int k = 0; k < rounds; ++k)
        sum += __ldg(in + k);  // @ldg
    const float2 pair = *reinterpret_cast<const float2*>(&tile[2 * t]);  // @pair
    const float4 other = mixed[31 - t].value;  // @mixed
    float4 result = {sum, pair.x, pair.y, other.w + mixed[31 - t].tag};  // @tag
    result.x += 1;
    *reinterpret_cast<float4*>(out + 4 * t) = result;  // @store
}
"""


@pytest.fixture(scope="module")
def memory(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Snippet:
    return Snippet(tmp_path_factory.mktemp("memory"), MEMORY, cache)


def test_dynamic_and_static_shared_arrays_side_by_side(memory: Snippet) -> None:
    values = np.random.default_rng(4).standard_normal(32).astype(np.float32)
    made = memory("first_name", {"in": values}, {"out": ((32,), np.float32)}, 32, smem=256)
    assert np.allclose(made["out"], values[::-1] * (3 + np.arange(32) % 3))
    assert not made.findings
    numbers = np.arange(48, dtype=np.int32)
    made = memory("second_name", {"in": numbers}, {"out": ((48,), np.int32)}, block=48, smem=192)
    assert np.array_equal(made["out"], numbers[::-1])
    assert not made.findings


def test_templates_references_and_constants(memory: Snippet) -> None:
    values = np.random.default_rng(5).standard_normal(32).astype(np.float32)
    for mode in ("trace", "flops"):
        made = memory("language", {"in": values}, {"out": ((32,), np.float32)}, mode=mode)
        around = np.convolve(10 * values, [1, 1, 1], "same")
        swapped = values.reshape(16, 2)[:, ::-1].ravel()
        constant = np.dot([0.5, -1, 2, 0.25], range(4))
        assert np.allclose(made["out"], around + constant + 100 * swapped, atol=1e-4)
        assert not made.findings
    assert made.flops["constant"] == {"add": 4 * 32, "mul": 4 * 32}


def test_code_that_repeats_itself_over_a_template_parameter(memory: Snippet) -> None:
    values = np.arange(64, dtype=np.float32)
    made = memory("tree", {"in": values}, {"out": ((1,), np.float32)}, block=64)
    assert made["out"][0] == values.sum() and not made.findings
    for factor in (2, 3):
        made = memory(f"scaled<{factor}>", {"in": values}, {"out": ((64,), np.float32)}, block=64)
        assert np.array_equal(made["out"], factor * values)


def test_vectors(memory: Snippet) -> None:
    rng = np.random.default_rng(6)
    types = (np.float32, np.float32, np.int32, np.int32, np.uint32, np.uint32)
    names = ("f2", "f4", "i2", "i4", "u2", "u4")
    arrays = {n: rng.integers(0, 1000, (32, int(n[1]))).astype(t) for n, t in zip(names, types, strict=True)}
    outputs = {f"o{n}": (a.shape, a.dtype) for n, a in arrays.items()}
    for mode in ("trace", "flops"):
        made = memory("vectors", arrays, outputs, mode=mode)
        assert all(np.array_equal(made[f"o{n}"], a[::-1]) for n, a in arrays.items())
        assert not made.findings


def test_a_vector_is_one_access_on_its_own_line(memory: Snippet) -> None:
    values = np.random.default_rng(7).integers(-9, 9, 128).astype(np.float32)
    made = memory("casts", {"in": values}, {"out": ((32, 4), np.float32)}, 3)
    t = np.arange(32)
    rows = values.reshape(32, 4)
    sums = sum(rows[(t + k) % 32].sum(axis=1) for k in range(3)) + values[:3].sum() + 1
    expected = np.stack([sums, values[2 * t], values[2 * t + 1], 4.0 + 31 - t], axis=1)
    assert np.array_equal(made["out"], expected)
    assert not made.findings
    assert made.accesses == {
        "fill": [Access("in", False, 16, 1), Access("tile", True, 16, 1)],
        "made": [Access("mixed", True, 16, 1)],
        "loop": [Access("tile", False, 16, 3)],
        "ldg": [Access("in", False, 4, 3)],
        "pair": [Access("tile", False, 8, 1)],
        "mixed": [Access("mixed", False, 16, 1)],
        "tag": [Access("mixed", False, 4, 1)],
        "store": [Access("out", True, 16, 1)],
    }
    counted = memory("casts", {"in": values}, {"out": ((32, 4), np.float32)}, 3, mode="flops")
    assert np.array_equal(counted["out"], expected)
    assert counted.flops["none"] == {"add": 3 * 4 * 32} and counted.flops["ldg"] == {"add": 3 * 32}


ARITHMETIC = r"""
#include <cuda_runtime.h>
#include <math_constants.h>
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
