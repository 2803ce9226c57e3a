"""16-bit floats of the header: every bit pattern, rounding to nearest even, and one access for a pair."""

from __future__ import annotations

import bisect
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from tests.trace.snippets import Access, Snippet

SOURCE = r"""
#include <cuda_fp16.h>
#include <cuda_bf16.h>

template <class H> __device__ H from_bits(unsigned short raw);
template <> __device__ __half from_bits<__half>(unsigned short raw) { return __ushort_as_half(raw); }
template <> __device__ __nv_bfloat16 from_bits<__nv_bfloat16>(unsigned short raw) { return __ushort_as_bfloat16(raw); }
__device__ unsigned short bits_of(__half h) { return __half_as_ushort(h); }
__device__ unsigned short bits_of(__nv_bfloat16 h) { return __bfloat16_as_ushort(h); }

extern "C" __global__ void decode(float* half_out, float* bf16_out) {
    for (int i = blockIdx.x * 1024 + threadIdx.x; i < (blockIdx.x + 1) * 1024; i += blockDim.x) {
        half_out[i] = __half2float(__ushort_as_half((unsigned short)i));
        bf16_out[i] = __bfloat162float(__ushort_as_bfloat16((unsigned short)i));
    }
}

extern "C" __global__ void encode(const float* in, unsigned short* half_out, unsigned short* bf16_out, int n) {
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        half_out[i] = __half_as_ushort(__float2half_rn(in[i]));
        __nv_bfloat16 b = in[i];
        bf16_out[i] = __bfloat16_as_ushort(b);
    }
}

extern "C" __global__ void encode_double(const double* in, unsigned short* half_out, unsigned short* bf16_out, int n) {
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        half_out[i] = __half_as_ushort(__double2half(in[i]));
        bf16_out[i] = __bfloat16_as_ushort(__double2bfloat16(in[i]));
    }
}

template <class H>
__device__ void compute(const unsigned short* a, const unsigned short* b, const unsigned short* c, unsigned short* out,
                        int n) {
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        const H x = from_bits<H>(a[i]), y = from_bits<H>(b[i]), z = from_bits<H>(c[i]);
        H updated = x;
        updated += y;
        const H made[] = {__hadd(x, y), x - y, __hmul(x, y), x / y, __hfma(x, y, z), __hmax(x, y), __hmin(x, y),
                          updated, -x, __habs(x)};
        for (int k = 0; k < 10; ++k) out[k * n + i] = bits_of(made[k]);
        out[10 * n + i] = (x < y) | (x <= y) << 1 | (x > y) << 2 | (x >= y) << 3 | (x == y) << 4 | (x != y) << 5 |
                          __hisnan(x) << 6 | (__hisinf(x) != 0) << 7 | __hlt(x, y) << 8;
    }
}
extern "C" __global__ void compute_half(const unsigned short* a, const unsigned short* b, const unsigned short* c,
                                        unsigned short* out, int n) { compute<__half>(a, b, c, out, n); }
extern "C" __global__ void compute_bf16(const unsigned short* a, const unsigned short* b, const unsigned short* c,
                                        unsigned short* out, int n) { compute<__nv_bfloat16>(a, b, c, out, n); }

extern "C" __global__ void pairs(const __half2* a, const __half* b, const __nv_bfloat162* c, __half2* out,
                                 __nv_bfloat162* out_bf16, float* sum) {
    __shared__ __half2 tile[32];
    __shared__ __half single[64];
    const int t = threadIdx.x;
    tile[t] = a[t];  // @fill
    single[t] = b[t];  // @single
    single[t + 32] = b[t + 32];
    __syncthreads();
    const __half2 mine = tile[t ^ 1];  // @mine
    out[t] = __hfma2(mine, tile[t], __half2half2(single[63 - t]));  // @fma
    const uint4 eight = *reinterpret_cast<const uint4*>(b + t % 8 * 8);  // @eight
    __nv_bfloat162 d = c[t];  // @bf16
    d = d * d + __floats2bfloat162_rn(1.0f, 2.0f);  // @arithmetic
    out_bf16[t] = d;
    const float2 wide = __half22float2(mine);
    sum[t] = wide.x + wide.y + __low2float(d) + float(eight.x & 0xffffu);
    for (int k = 0; k < 4; ++k)
        sum[t] += __half2float(single[(t + k) % 64]);  // @loop
}
"""


@pytest.fixture(scope="module")
def snippet(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Snippet:
    return Snippet(tmp_path_factory.mktemp("half"), SOURCE, cache)


def bf16_bits(values: np.ndarray) -> np.ndarray:
    """float32 rounded to bfloat16 by the well-known trick on its bits."""
    raw = values.astype(np.float32).view(np.uint32).astype(np.uint64)
    rounded = (raw + 0x7FFF + (raw >> 16 & 1)) >> 16
    return np.where(np.isnan(values), 0x7FFF, rounded).astype(np.uint16)


def bf16_values(raw: np.ndarray) -> np.ndarray:
    return (raw.astype(np.uint32) << 16).view(np.float32)


def half_bits(values: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        return np.where(np.isnan(values), 0x7FFF, values.astype(np.float16).view(np.uint16)).astype(np.uint16)


def awkward() -> np.ndarray:
    """Every value of both formats, what lies half-way between neighbours and just beside it, and random bits."""
    patterns = np.arange(1 << 16, dtype=np.uint16)
    found = [np.random.default_rng(1).integers(0, 1 << 32, 50_000, dtype=np.uint64).astype(np.uint32).view(np.float32)]
    for exact in (patterns.view(np.float16).astype(np.float32), bf16_values(patterns)):
        finite = np.unique(exact[np.isfinite(exact)])
        middle = ((finite[1:].astype(np.float64) + finite[:-1]) / 2).astype(np.float32)
        found += [exact, middle, np.nextafter(middle, np.float32(np.inf)), np.nextafter(middle, np.float32(-np.inf))]
    return np.concatenate(found)


def test_every_bit_pattern_has_its_value(snippet: Snippet) -> None:
    shapes = {"half_out": ((1 << 16,), np.float32), "bf16_out": ((1 << 16,), np.float32)}
    made = snippet("decode", {}, shapes, grid=64, block=64)
    patterns = np.arange(1 << 16, dtype=np.uint16)
    with np.errstate(invalid="ignore"):
        expected = patterns.view(np.float16).astype(np.float32)
    assert np.array_equal(made["half_out"], expected, equal_nan=True)
    assert np.array_equal(np.signbit(made["half_out"]), patterns >> 15 == 1)
    assert np.array_equal(made["bf16_out"].view(np.uint32), patterns.astype(np.uint32) << 16)


def test_conversions_round_to_nearest_even(snippet: Snippet) -> None:
    values = awkward()
    n = len(values) // 2 * 2
    shapes = {"half_out": ((n,), np.uint16), "bf16_out": ((n,), np.uint16)}
    made = snippet("encode", {"in": values[:n]}, shapes, n, block=64)
    assert np.array_equal(made["half_out"], half_bits(values[:n]))
    assert np.array_equal(made["bf16_out"], bf16_bits(values[:n]))


def test_a_double_is_rounded_once(snippet: Snippet) -> None:
    """1 + 2^-11 + 2^-40 lies above the middle of two halves; as a float it would be the middle."""
    tiny = 2.0**-40
    values = np.array([1 + 2.0**-11 + tiny, 1 + 2.0**-11, 1 + 2.0**-8 + tiny, 2.0**-25 + 2.0**-60, 2.0**-25, 1e300])
    shapes = {"half_out": ((6,), np.uint16), "bf16_out": ((6,), np.uint16)}
    made = snippet("encode_double", {"in": values}, shapes, 6)
    assert made["half_out"].tolist() == [0x3C01, 0x3C00, 0x3C04, 0x0001, 0x0000, 0x7C00]
    assert made["bf16_out"].tolist() == [0x3F80, 0x3F80, 0x3F81, 0x3300, 0x3300, 0x7F80]


def operands(is_half: bool) -> list[np.ndarray]:
    """Bits of three operands: random ones, and all pairs of special ones."""
    rng = np.random.default_rng(2)
    some = rng.integers(0, 1 << 16, (3, 3000)).astype(np.uint16)
    near = (0x3C00 if is_half else 0x3F80) + rng.integers(-40, 40, (3, 1000))  # about 1, where sums are interesting
    special = np.array(
        [0, 1, 0x8000, 0x8001, 0x03FF, 0x0400, 0x3C00, 0xBC00, 0x7BFF, 0x7C00, 0xFC00, 0x7E00, 0x7F80, 0xFF80, 0x7F7F]
    )
    a, b = (side.ravel() for side in np.meshgrid(special, special))
    extra = np.stack([a, b, np.roll(a, 7)])
    return list(np.concatenate([some, near, extra], axis=1).astype(np.uint16)[:, :4224])


@pytest.mark.parametrize("kind", ["half", "bf16"])
def test_arithmetic_is_rounded_correctly(snippet: Snippet, kind: str) -> None:
    a, b, c = operands(kind == "half")
    n = len(a)
    made = snippet(f"compute_{kind}", {"a": a, "b": b, "c": c}, {"out": ((11, n), np.uint16)}, n, block=32)["out"]

    def values(raw: np.ndarray) -> np.ndarray:
        with np.errstate(invalid="ignore"):
            return (raw.view(np.float16).astype(np.float64) if kind == "half" else bf16_values(raw)).astype(np.float64)

    def bits(wide: np.ndarray) -> np.ndarray:
        return np.array([nearest(value, kind) for value in wide], np.uint16)

    x, y, z = values(a), values(b), values(c)
    with np.errstate(all="ignore"):
        # Each is exact in float64, or rounded where it cannot change the result: 53 bits are more than 2 x 11 + 2.
        expected = [x + y, x - y, x * y, x / y]
    for index, wide in enumerate(expected):
        assert np.array_equal(made[index], bits(wide)), ("add sub mul div".split()[index], kind)
    assert np.array_equal(made[7], made[0])
    fused = [fused_sum(*triple) for triple in zip(x.tolist(), y.tolist(), z.tolist(), strict=True)]
    zeros = np.array([isinstance(f, Fraction) and f == 0 for f in fused])  # their sign is no number's
    with np.errstate(all="ignore"):
        wanted = np.where(zeros, bits(x * y + z), [nearest(f, kind) for f in fused])
    assert np.array_equal(made[4], wanted)
    largest, smallest = np.fmax(x, y), np.fmin(x, y)
    assert np.array_equal(values(made[5]), largest, equal_nan=True)
    assert np.array_equal(values(made[6]), smallest, equal_nan=True)
    assert np.array_equal(made[8], a ^ 0x8000)
    assert np.array_equal(made[9], a & 0x7FFF)
    flags = [x < y, x <= y, x > y, x >= y, x == y, x != y, np.isnan(x), np.isinf(x), x < y]
    assert np.array_equal(made[10], sum(flag.astype(np.uint16) << k for k, flag in enumerate(flags)))


def fused_sum(a: float, b: float, c: float) -> Fraction | float:
    """a b + c without any rounding; a float where it is no number."""
    if not all(np.isfinite([a, b, c])):
        with np.errstate(invalid="ignore"):
            return float(np.float64(a) * np.float64(b) + np.float64(c))
    return Fraction(a) * Fraction(b) + Fraction(c)


_VALUES: dict[str, list[Fraction]] = {}


def nearest(value: Fraction | float, kind: str) -> int:
    """The bits of the number of the format that is nearest to `value`, found by looking through all of them."""
    infinity = 0x7C00 if kind == "half" else 0x7F80
    if isinstance(value, float):
        if np.isnan(value):
            return 0x7FFF
        if np.isinf(value) or value == 0:
            return (infinity if value else 0) | 0x8000 * bool(np.signbit(value))
    if kind not in _VALUES:
        raw = np.arange(infinity, dtype=np.uint16)
        exact = raw.view(np.float16).astype(np.float64) if kind == "half" else bf16_values(raw).astype(np.float64)
        _VALUES[kind] = [Fraction(v) for v in exact.tolist()]
    table = _VALUES[kind]
    exact_value, sign = abs(Fraction(value)), 0x8000 * (value < 0)
    above = bisect.bisect_left(table, exact_value)
    if above == 0:
        return sign
    upper = table[above] if above < infinity else 2 * table[-1] - table[-2]  # where infinity begins to be nearer
    below_by, above_by = exact_value - table[above - 1], upper - exact_value
    is_above = above_by < below_by or (above_by == below_by and above % 2 == 0)
    return sign | min(infinity, above if is_above else above - 1)


def test_pairs_are_one_access_and_lines_are_kept(snippet: Snippet) -> None:
    rng = np.random.default_rng(3)
    a, b = rng.standard_normal((32, 2)).astype(np.float16), rng.standard_normal(64).astype(np.float16)
    c = bf16_bits(rng.standard_normal(64).astype(np.float32))
    outputs = {"out": ((32, 2), np.float16), "out_bf16": ((64,), np.uint16), "sum": ((32,), np.float32)}
    made = snippet("pairs", {"a": a, "b": b, "c": c}, outputs)
    t = np.arange(32)
    exact = a[t ^ 1].astype(np.float64) * a + b[63 - t].astype(np.float64)[:, None]
    assert np.array_equal(made["out"], exact.astype(np.float16))
    squares = bf16_values(bf16_bits(bf16_values(c) ** 2))
    expected = bf16_bits(squares + np.tile([1, 2], 32).astype(np.float32))
    assert np.array_equal(made["out_bf16"], expected)
    wide = a[t ^ 1].astype(np.float32).sum(axis=1) + bf16_values(expected[::2]) + b.view(np.uint16)[t % 8 * 8]
    rows = sum(b[(t + k) % 64].astype(np.float32) for k in range(4))
    assert np.allclose(made["sum"], wide + rows, rtol=1e-6)
    assert not made.findings
    assert made.accesses["fill"] == [Access("a", False, 4, 1), Access("tile", True, 4, 1)]
    assert made.accesses["single"] == [Access("b", False, 2, 1), Access("single", True, 2, 1)]
    assert made.accesses["mine"] == [Access("tile", False, 4, 1)]
    assert made.accesses["fma"] == [
        Access("out", True, 4, 1), Access("single", False, 2, 1), Access("tile", False, 4, 1)
    ]  # fmt: skip
    assert made.accesses["eight"] == [Access("b", False, 16, 1)]
    assert made.accesses["bf16"] == [Access("c", False, 4, 1)]
    assert Access("single", False, 2, 4) in made.accesses["loop"]


def test_arithmetic_on_halves_is_counted(snippet: Snippet) -> None:
    a, b = np.ones((32, 2), np.float16), np.ones(64, np.float16)
    outputs = {"out": ((32, 2), np.float16), "out_bf16": ((64,), np.uint16), "sum": ((32,), np.float32)}
    made = snippet("pairs", {"a": a, "b": b, "c": bf16_bits(np.ones(64))}, outputs, mode="flops")
    assert made.flops["fma"] == {"add": 64, "mul": 64}
    assert made.flops["arithmetic"] == {"add": 64, "mul": 64}
    assert made.flops["loop"] == {"add": 128}
    assert (made["out"] == 2).all()
