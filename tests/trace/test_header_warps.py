"""The kernel language that the header brings: shuffles, votes, barriers of warps."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.trace.snippets import Snippet

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
