"""Correct programs of the kinds that fool a race detector: nothing is found, in either order, and results are right."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.trace.little import Snippets

SOUND = r"""
__constant__ float weights[4] = {1.0f, 2.0f, 4.0f, 8.0f};

// A warp sums 32 numbers through shared memory, with __syncwarp alone, and passes the sum on.
extern "C" __global__ void warp_sums(const float* in, float* out) {
    __shared__ float word[64];
    const int tid = threadIdx.x, lane = tid % 32, first = tid - lane;
    word[tid] = in[tid];
    __syncwarp();
    for (int step = 16; step > 0; step /= 2) {
        float other = word[first + (lane + step) % 32];
        __syncwarp();
        word[tid] += other;
        __syncwarp();
    }
    out[tid] = word[first];
}
extern "C" __global__ void shuffled_sums(const float* in, float* out) {
    float x = in[threadIdx.x];
    for (int step = 16; step > 0; step /= 2) x += __shfl_down_sync(0xffffffffu, x, step);
    out[threadIdx.x] = __shfl_sync(0xffffffffu, x, 0);
}
// Halves of a warp go their own ways.
extern "C" __global__ void half_warps(const float* in, float* out) {
    float x = in[threadIdx.x];
    if (threadIdx.x % 32 < 16) {
        for (int step = 8; step > 0; step /= 2) x += __shfl_xor_sync(0x0000ffffu, x, step, 16);
    } else {
        for (int step = 4; step > 0; step /= 2) x += __shfl_xor_sync(0xffff0000u, x, step, 8);
    }
    out[threadIdx.x] = x;
}
extern "C" __global__ void votes(const float* in, int* out) {
    const float x = in[threadIdx.x];
    const unsigned big = __ballot_sync(0xffffffffu, x > 20.0f);
    const int some = __syncthreads_or(x == 3.0f), all = __syncthreads_and(x >= 0.0f);
    const int how_many = __syncthreads_count(x < 10.0f);
    out[threadIdx.x] = __popc(big) + 100 * some + 1000 * all + 10000 * how_many + 1000000 * __any_sync(~0u, x == 1.0f) +
                       2000000 * __all_sync(~0u, x < 32.0f);
}
// A count and a maximum in shared memory.
extern "C" __global__ void atomic_counts(int* place) {
    __shared__ int mine, largest;
    if (threadIdx.x == 0) mine = largest = 0;
    __syncthreads();
    atomicAdd(&mine, 1);
    atomicMax(&largest, (int)threadIdx.x);
    __syncthreads();
    if (threadIdx.x == 0) place[blockIdx.x] = mine * 1000 + largest;
}
// Three launches: nothing, sums over all blocks, and what they were.
extern "C" __global__ void zero(float* total, int* count, int* last) {
    *total = 0.0f;
    *count = *last = 0;
}
extern "C" __global__ void add(const float* in, float* total, int* count, int* last) {
    atomicAdd(total, in[threadIdx.x]);
    if (atomicAdd(count, 1) == 32 * 7 - 1) atomicCAS(last, 0, int(blockIdx.x) + 1);
}
extern "C" __global__ void tell(const float* total, const int* count, const int* last, float* out) {
    out[0] = *total + 10000.0f * *count + 1e7f * (*last > 0);
}
extern "C" __global__ void peek(const float* in, float* total, float* out) {
    atomicAdd(total, in[threadIdx.x]);  // at added
    if (blockIdx.x == 1 && threadIdx.x == 7) out[0] = *total;  // at peeked
}
// A tile that is used again: filled, read by all, filled again; and what a block leaves behind belongs to no one.
extern "C" __global__ void tile_again(const float* in, float* out, int turns) {
    extern __shared__ float row[];
    float sum = 0.0f;
    for (int turn = 0; turn < turns; ++turn) {
        row[threadIdx.x] = in[(threadIdx.x + turn) % 32];
        __syncthreads();
        for (int k = 0; k < 32; ++k) sum += row[k] * (k == turn);
        __syncthreads();
    }
    out[blockIdx.x * 32 + threadIdx.x] = sum;
}
// Read by several lanes, then by several warps; written by one thread behind a barrier; read again.
extern "C" __global__ void one_writes(float* out) {
    __shared__ float word;
    if (threadIdx.x == 63) word = 1.0f;
    __syncthreads();
    const float before = word;
    __syncthreads();
    if (threadIdx.x == 5) word = word + 1.0f;
    __syncthreads();
    out[threadIdx.x] = before + 10.0f * word;
}
// A block exchanges numbers through device memory; lanes do so with __syncwarp.
extern "C" __global__ void through_device(float* out) {
    out[threadIdx.x] = threadIdx.x;
    __syncthreads();
    const float other = out[63 - threadIdx.x];
    __syncthreads();
    out[threadIdx.x] = other;
    __syncwarp();
    const float lane = out[threadIdx.x ^ 1];
    __syncwarp();
    out[threadIdx.x] += lane;
}
__device__ inline float pick(const float (&kept)[8], int n) { return kept[n % 8]; }
extern "C" __global__ void own_arrays(const float* in, float* out) {
    float kept[8];
    for (int k = 0; k < 8; ++k) kept[k] = in[(threadIdx.x + k) % 32] * weights[k % 4];
    out[threadIdx.x] = pick(kept, threadIdx.x);
}
extern "C" __global__ void vectors(const float4* in, float4* out, float2* halves) {
    __shared__ float4 tile[8];
    tile[threadIdx.x] = in[threadIdx.x];
    __syncthreads();
    float4 x = tile[7 - threadIdx.x];
    x.w += 1.0f;
    out[threadIdx.x] = x;
    halves[threadIdx.x] = make_float2(x.x, x.y);
}
"""


@pytest.fixture(scope="module")
def sound(cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Snippets:
    return Snippets(SOUND, tmp_path_factory.mktemp("sound"), cache, "sound.cu")


IN = np.arange(64, dtype=np.float32)
LOW = IN[:32]
SUMS = np.repeat([LOW.sum(), IN[32:].sum()], 32)
HALVES = np.concatenate([np.full(16, LOW[:16].sum()), np.full(8, LOW[16:24].sum()), np.full(8, LOW[24:].sum())])
EXCHANGED = (63 - IN) + (63 - (np.arange(64) ^ 1))
QUADS = np.array([0.0, 0.0, 0.0, 1.0]) + LOW.reshape(8, 4)[::-1]
PICKED = np.array([LOW[(t + t % 8) % 32] * 2.0 ** (t % 8 % 4) for t in range(32)])

CASES: list[tuple[str, tuple[Any, ...], dict[str, Any], dict[str, Any]]] = [
    ("warp_sums", ("in", "out"), {"block": 64, "inputs": {"in": IN}, "outputs": {"out": 64}}, {"out": SUMS}),
    ("shuffled_sums", ("in", "out"), {"block": 64, "inputs": {"in": IN}, "outputs": {"out": 64}}, {"out": SUMS}),
    ("half_warps", ("in", "out"), {"inputs": {"in": LOW}, "outputs": {"out": 32}}, {"out": HALVES}),
    ("votes", ("in", "out"), {"inputs": {"in": LOW}, "outputs": {"out": 32}},
     {"out": np.full(32, 11 + 100 + 1000 + 100_000 + 1_000_000 + 2_000_000, np.int32).view(np.float32)}),
    ("atomic_counts", ("place",), {"block": 96, "grid": 5, "outputs": {"place": 5}},
     {"place": np.full(5, 96_095, np.int32).view(np.float32)}),
    ("tile_again", ("in", "out", 5), {"grid": 4, "smem": 128, "inputs": {"in": LOW}, "outputs": {"out": 128}},
     {"out": np.full(128, sum((k + k) % 32 for k in range(5)))}),
    ("one_writes", ("out",), {"block": 64, "outputs": {"out": 64}}, {"out": np.full(64, 21.0)}),
    ("through_device", ("out",), {"block": 64, "outputs": {"out": 64}}, {"out": EXCHANGED}),
    ("own_arrays", ("in", "out"), {"inputs": {"in": LOW}, "outputs": {"out": 32}}, {"out": PICKED}),
    ("vectors", ("in", "out", "halves"),
     {"block": 8, "inputs": {"in": LOW}, "outputs": {"out": 32, "halves": 16}},
     {"out": QUADS.ravel(), "halves": QUADS[:, :2].ravel()}),
]  # fmt: skip


@pytest.mark.parametrize("is_reversed", [False, True], ids=["first thread first", "last thread first"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0])
def test_nothing_is_found(case: Any, is_reversed: bool, sound: Snippets) -> None:
    function, arguments, settings, expected = case
    ran = sound.call(function, arguments, is_reversed=is_reversed, **settings)
    assert [f.text for f in ran.findings] == []
    for name, numbers in expected.items():
        wanted = np.asarray(numbers, np.float32)
        assert np.array_equal(ran.outputs[name].view(np.uint32), wanted.view(np.uint32)), name


TOTALS: dict[str, Any] = {"inputs": {"in": LOW}, "outputs": {"total": 1, "count": 1, "last": 1, "out": 1}}


@pytest.mark.parametrize("processes", [1, 3])
def test_atomics_of_many_blocks_and_launches_one_after_another(processes: int, sound: Snippets) -> None:
    launches = (
        sound.launch("zero", ("total", "count", "last"), block=1),
        sound.launch("add", ("in", "total", "count", "last"), grid=7),
        sound.launch("tell", ("total", "count", "last", "out"), block=1),
    )
    ran = sound.run(*launches, processes=processes, **TOTALS)
    assert [f.text for f in ran.findings] == []
    assert ran.outputs["out"][0] == np.float32(7 * LOW.sum() + 10000 * 32 * 7 + 1e7)


def test_a_plain_look_at_what_others_add_to_is_a_race(sound: Snippets) -> None:
    launches = (sound.launch("zero", ("total", "count", "last"), block=1),)
    launches += (sound.launch("peek", ("in", "total", "out"), grid=2),)
    ran = sound.run(*launches, processes=1, **TOTALS)
    added, peeked = sound.line("added"), sound.line("peeked")
    assert [(f.kind, f.line, f.other_line, f.block) for f in ran.findings] == [
        ("race", added, peeked, 1),  # of the threads that add after it
        ("race", peeked, added, 1),
    ]
    assert ran.findings[1].thread == 7 and "several blocks wrote" in ran.findings[1].text
