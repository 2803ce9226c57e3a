"""Problem, Tiling and rounding: what is accepted, what is filled in, what is refused and how."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fmha import FmhaError, Problem, Tiling
from fmha.errors import LimitError, ProblemError, TilingError
from fmha.problem import DTYPES, MAX_TOKENS, cast, check_memory


def test_defaults_are_filled_in() -> None:
    p = Problem(N=128, H=4)
    assert (p.B, p.H, p.Hk, p.Nq, p.Nk, p.d) == (1, 4, 4, 128, 128, 64)
    assert p.scale == 0.125 and p.dtype == "fp32" and p.itemsize == 4 and p.causal is None
    assert Problem(N=128, Nk=5).Nk == 5
    assert Problem(Nq=3).Nk == 3


@pytest.mark.parametrize(
    ("given_name", "name"),
    [(True, "bottom-right"), ("br", "bottom-right"), ("tl", "top-left"), (False, None), ("none", None), (None, None)],
)
def test_causal_names(given_name: object, name: str | None) -> None:
    assert Problem(N=4, causal=given_name).causal == name  # type: ignore[arg-type]


@pytest.mark.parametrize(("name", "short"), [("float32", "fp32"), ("half", "fp16"), ("bfloat16", "bf16")])
def test_dtype_names(name: str, short: str) -> None:
    assert Problem(N=4, dtype=name).dtype == short


def test_numpy_integers_become_python_integers() -> None:
    p = Problem(N=np.int64(8), H=np.uint8(2), d=np.int16(3), lens_k=np.array([5]))  # type: ignore[arg-type]
    assert all(type(value) is int for value in (p.Nq, p.Nk, p.H, p.d, p.lens_k[0]))  # type: ignore[index]
    assert type(Tiling(np.int32(4), np.int64(2)).Br) is int


def test_frozen_and_hashable() -> None:
    p = Problem(N=8, lens_k=[3])  # type: ignore[arg-type]
    assert hash(p) == hash(Problem(N=8, lens_k=(3,))) and p == Problem(N=8, lens_k=(3,))
    with pytest.raises(AttributeError):
        p.d = 3  # type: ignore[misc]


REFUSED = [
    ({}, ["sequence length", "N=128"]),
    ({"N": 0}, ["N=0", "1 to 16,777,216"]),
    ({"N": -5}, ["N=-5"]),
    ({"N": MAX_TOKENS + 1}, ["N=16777217", "out of range"]),
    ({"N": 10**5000}, ["thousands of digits"]),
    ({"N": 128.5}, ["N=128.5", "not a whole number", "for example N=32"]),
    ({"N": "abc"}, ["'abc'", "not a whole number"]),
    ({"N": True}, ["True", "not a whole number"]),
    ({"N": 4, "Nq": 5}, ["N=4", "Nq=5", "one of them"]),
    ({"Nq": 0}, ["Nq=0"]),
    ({"N": 4, "Nk": 0}, ["Nk=0"]),
    ({"N": 4, "B": 0}, ["B=0"]),
    ({"N": 4, "H": 0}, ["H=0"]),
    ({"N": 4, "Hk": 0}, ["Hk=0"]),
    ({"N": 4, "d": 0}, ["d=0"]),
    ({"N": 4, "d": 5000}, ["d=5000", "4,096"]),
    ({"N": 4, "H": 4, "Hk": 3}, ["H=4", "Hk=3", "multiple", "Hk=1", "Hk=4"]),
    ({"N": 4, "H": 6, "Hk": 4}, ["H=6", "Hk=4", "Hk=2"]),
    ({"N": 4, "H": 2, "Hk": 4}, ["H=2", "Hk=4"]),
    ({"N": 4, "dtype": "fp8"}, ["'fp8'", "fp32, fp16, bf16"]),
    ({"N": 4, "dtype": None}, ["None", "fp32, fp16, bf16"]),
    ({"N": 4, "dtype": "<b>" * 100}, ["...", "fp32"]),
    ({"N": 4, "scale": math.nan}, ["scale=nan", "1/sqrt(d)"]),
    ({"N": 4, "scale": math.inf}, ["scale=inf"]),
    ({"N": 4, "scale": "big"}, ["'big'"]),
    ({"N": 4, "scale": 10**400}, ["not a finite number"]),
    ({"N": 4, "causal": "diagonal"}, ["'diagonal'", "bottom-right", "top-left"]),
    ({"N": 4, "causal": [1]}, ["[1]"]),
    ({"N": 4, "lens_k": (1, 2)}, ["lens_k", "2 entries", "B=1"]),
    ({"N": 4, "lens_k": (5,)}, ["lens_k[0]=5", "0 to 4", "lens_k[0]=4"]),
    ({"N": 4, "B": 2, "lens_k": (1, -2)}, ["lens_k[1]=-2"]),
    ({"N": 4, "left_pad": ("x",)}, ["left_pad[0]='x'"]),
    ({"N": 4, "left_pad": 5}, ["left_pad[0]=5"]),
]


@pytest.mark.parametrize(("arguments", "words"), REFUSED)
def test_refused_in_one_sentence(arguments: dict[str, object], words: list[str]) -> None:
    with pytest.raises(ProblemError) as caught:
        Problem(**arguments)  # type: ignore[arg-type]
    text = str(caught.value)
    assert all(word in text for word in words), text
    assert "\n" not in text and len(text) < 200 and text.endswith(".")
    assert isinstance(caught.value, FmhaError) and isinstance(caught.value, ValueError)


@pytest.mark.parametrize("size", [0, -1, 1.5, "a", None, True, MAX_TOKENS + 1])
def test_tiles_refused(size: object) -> None:
    for arguments in ((size, 4), (4, size)):
        with pytest.raises(TilingError, match=r"B[rc]="):
            Tiling(*arguments)  # type: ignore[arg-type]


def test_tiles_are_counted() -> None:
    p = Problem(Nq=33, Nk=64)
    assert (Tiling(32, 16).Tr(p), Tiling(32, 16).Tc(p)) == (2, 4)
    assert (Tiling(64, 100).Tr(p), Tiling(64, 100).Tc(p)) == (1, 1)


def test_replace_keeps_what_followed() -> None:
    p = Problem(N=128, H=4, d=64)
    assert p.replace(N=16).Nk == 16
    assert p.replace(H=2).Hk == 2
    assert p.replace(d=16).scale == 0.25
    assert p.replace(d=16, scale=3).scale == 3
    assert Problem(Nq=8, Nk=16).replace(Nq=4).Nk == 16
    assert Problem(N=8, scale=0.5, d=16).replace(d=64).scale == 0.5
    assert p.replace(causal=True).causal_offset == 0 and p.causal_offset is None


def test_padding_and_offsets() -> None:
    p = Problem(B=3, Nq=4, Nk=10, lens_k=(10, 3, 0), left_pad=(2, 5, 0), causal="br")
    assert [p.key_range(b) for b in range(3)] == [(2, 10), (3, 3), (0, 0)]
    assert p.causal_offset == 6 and p.replace(causal="tl").causal_offset == 0


def test_memory_is_refused_with_both_numbers() -> None:
    check_memory(4 << 30, "it")
    with pytest.raises(LimitError, match=r"^it needs about 5.00 GiB of memory, and 4.00 GiB is allowed: "):
        check_memory(5 << 30, "it")


# --- rounding -------------------------------------------------------------------------------------------------------

FLOATS = st.floats(allow_nan=False, width=64)


def nearest_bf16(x: float) -> float:
    """Round by searching the two neighbours among all bf16 values; ties to the even bit pattern."""
    if x == 0 or math.isinf(x):
        return x
    sign, size = math.copysign(1, x), abs(x)
    exponent = max(math.floor(math.log2(size)) if size >= 2**-1074 else -1074, -126)
    while size >= 2.0 ** min(exponent + 1, 1023) and exponent < 1023:
        exponent += 1
    step = math.ldexp(1.0, exponent - 7)
    low = math.floor(size / step)
    below, above = size - low * step, (low + 1) * step - size
    steps = low if below < above or (below == above and low % 2 == 0) else low + 1
    value = steps * step
    return sign * (math.inf if value > DTYPES["bf16"].max_finite else value)


@settings(max_examples=300)
@given(st.lists(FLOATS, min_size=1, max_size=20))
def test_fp16_rounds_as_numpy_does(values: list[float]) -> None:
    with np.errstate(over="ignore"):
        expected = np.array(values).astype(np.float16)
    got = cast(values, "fp16")
    assert got.dtype == np.float32
    np.testing.assert_array_equal(got, expected.astype(np.float32))


@settings(max_examples=500)
@given(st.floats(-1e38, 1e38) | st.floats(width=32, allow_nan=False) | st.floats(-1e-37, 1e-37))
def test_bf16_rounds_to_the_nearest(value: float) -> None:
    assert float(cast(value, "bf16")) == nearest_bf16(value)


@settings(max_examples=200)
@given(st.integers(0, 0x7F7F), st.sampled_from([-1, 0, 1]), st.sampled_from([np.float32, np.float64]))
def test_bf16_ties_go_to_even(upper: int, nudge: int, kind: type) -> None:
    """Halfway between two neighbours, and one tiny step to either side of it, in float32 and in float64."""
    middle = np.array([(upper << 16) | 0x8000], np.uint32).view(np.float32)[0]
    value = kind(middle)
    if nudge:
        value = np.nextafter(value, kind(nudge * np.inf))
    chosen = upper + 1 if nudge > 0 or (nudge == 0 and upper % 2) else upper
    expected = np.array([chosen << 16], np.uint32).view(np.float32)[0]
    assert cast(value, "bf16") == expected and cast(-value, "bf16") == -expected


def test_no_double_rounding() -> None:
    """Through float32 these would land on a tie and be pulled down."""
    assert cast(1 + 2**-11 + 2**-40, "fp16") == 1 + 2**-10
    assert cast(1 + 2**-8 + 2**-40, "bf16") == 1 + 2**-7
    assert cast(1 + 2**-8 - 2**-40, "bf16") == 1


@pytest.mark.parametrize("dtype", DTYPES)
def test_special_values(dtype: str) -> None:
    values = np.array([np.inf, -np.inf, 0.0, -0.0, np.nan, 1e300, -1e300])
    got = cast(values, dtype)
    np.testing.assert_array_equal(got, [np.inf, -np.inf, 0, 0, np.nan, np.inf, -np.inf])
    assert not np.signbit(got[2]) and np.signbit(got[3])
    assert cast(DTYPES[dtype].max_finite, dtype) == DTYPES[dtype].max_finite
    kept = cast(np.array([1.5, -2.25], np.float32), dtype)
    np.testing.assert_array_equal(kept, [1.5, -2.25])
    np.testing.assert_array_equal(cast(cast([0.1, 3e-5, 7e4 / 3], dtype), dtype), cast([0.1, 3e-5, 7e4 / 3], dtype))


def test_cast_never_writes_to_its_argument_and_keeps_shapes() -> None:
    given_values = np.array([[1.1, 2.2]], np.float32)
    for dtype in DTYPES:
        out = cast(given_values, dtype)
        out += 1
        assert out.shape == (1, 2) and cast(3.0, dtype).shape == ()
    np.testing.assert_array_equal(given_values, np.array([[1.1, 2.2]], np.float32))
