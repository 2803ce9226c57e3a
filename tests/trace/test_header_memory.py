"""The kernel language that the header brings: shared memory, templates, vectors."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.trace.snippets import Access, Snippet

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

extern "C" __global__ void hardly_written(float* out) {
    __shared__ float once[1], never[32];
    if (threadIdx.x == 3) once[0] = 2.0f;  // @once
    __syncthreads();
    out[threadIdx.x] = once[0];  // @read_once
    if (threadIdx.x == 7)
        out[7] = never[7];  // @read_never
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
    for (int k = 0; k < rounds; ++k)
        #pragma unroll
        for (int i = 0; i < 2; ++i)
            sum += 0 * tile[t * i];  // @unrolled
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


def test_shared_memory_is_there_even_if_a_compiler_could_do_without(memory: Snippet) -> None:
    made = memory("hardly_written", {}, {"out": ((32,), np.float32)})
    assert (np.delete(made["out"], 7) == 2).all()
    assert [f.kind for f in made.findings] == ["read of what nothing wrote"]
    assert made.accesses["once"] == [Access("once", True, 4, 1)]
    assert made.accesses["read_once"] == [Access("once", False, 4, 1), Access("out", True, 4, 1)]
    assert made.accesses["read_never"] == [Access("never", False, 4, 1), Access("out", True, 4, 1)]


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
        "unrolled": [Access("tile", False, 4, 6)],
        "ldg": [Access("in", False, 4, 3)],
        "pair": [Access("tile", False, 8, 1)],
        "mixed": [Access("mixed", False, 16, 1)],
        "tag": [Access("mixed", False, 4, 1)],
        "store": [Access("out", True, 16, 1)],
    }
    counted = memory("casts", {"in": values}, {"out": ((32, 4), np.float32)}, 3, mode="flops")
    assert np.array_equal(counted["out"], expected)
    assert counted.flops["none"] == {"add": 3 * 4 * 32} and counted.flops["ldg"] == {"add": 3 * 32}
