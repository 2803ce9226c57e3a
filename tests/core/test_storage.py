"""How tensors lie in a kernel's memory: 16-bit numbers there and back, strides, and what is copied instead."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fmha.problem import cast
from fmha.storage import decode, dense, encode, finite, lay, span, strides_table, taken

DTYPES = ("fp32", "fp16", "bf16")
every_dtype = pytest.mark.parametrize("dtype", DTYPES)


@every_dtype
@given(st.lists(st.floats(width=64, allow_nan=False), min_size=1, max_size=50))
def test_stored_numbers_are_the_rounded_ones(dtype: str, values: list[float]) -> None:
    array = np.array(values)
    raw = encode(array, dtype)
    assert raw.itemsize == (4 if dtype == "fp32" else 2)
    assert np.array_equal(decode(raw, dtype).view(np.uint32), cast(array, dtype).view(np.uint32))
    assert np.array_equal(encode(decode(raw, dtype), dtype), raw)
    odd = encode(np.array([*values, np.nan, np.inf, -np.inf, 1e39]), dtype)
    assert finite(odd, dtype) == finite(odd.view(np.uint8), dtype) == np.isfinite(decode(odd, dtype)).sum()


@every_dtype
def test_all_ones_is_nan_so_that_what_is_not_written_is_seen(dtype: str) -> None:
    assert np.isnan(decode(np.full(8, 0xFF, np.uint8), dtype)).all()


AXES = [(0, 1, 2), (0, 2, 1), (1, 0, 2), (2, 0, 1), (1, 2, 0), (2, 1, 0)]


@every_dtype
@given(
    st.tuples(st.integers(1, 3), st.integers(1, 3), st.integers(1, 5), st.sampled_from([8, 16, 24])),
    st.sampled_from(AXES), st.sampled_from([0, 8, 40]),
)  # fmt: skip
def test_strided_tensors_lie_as_they_were_and_come_back(
    dtype: str, shape: tuple[int, int, int, int], axes: tuple[int, int, int], gap: int
) -> None:
    """Any order of the axes, and rows that are parts of longer ones, as in a packed tensor of Q, K and V."""
    rng = np.random.default_rng(1)
    whole = rng.standard_normal((*(shape[a] for a in axes), shape[3] + gap), np.float32)
    view = whole[..., : shape[3]].transpose(*np.argsort(axes), 3)
    assert view.shape == shape
    laid = lay(view, dtype, strided=True)
    assert len(laid.flat.ravel()) == span(shape, laid.strides)
    for axis in range(3):
        if shape[axis] > 1:
            assert laid.strides[axis] == view.strides[axis] // 4
    assert np.array_equal(taken(laid.flat, shape, laid.strides, dtype), cast(view, dtype))
    untouched = decode(laid.flat.ravel(), dtype)
    assert np.isnan(untouched).sum() == untouched.size - view.size  # gaps
    plain = lay(view, dtype, strided=False)
    assert plain.is_dense and np.array_equal(taken(plain.flat, shape, plain.strides, dtype), cast(view, dtype))


def test_what_a_kernel_cannot_walk_becomes_dense() -> None:
    array = np.arange(2 * 3 * 4 * 8, dtype=np.float32).reshape(2, 3, 4, 8)
    doubled = np.concatenate([array, array], 3)
    broken = {
        "d apart": np.swapaxes(array, 2, 3).copy().swapaxes(2, 3),
        "backwards": array[:, ::-1],
        "one row for all": np.broadcast_to(array[:, :, :1], (2, 3, 4, 8)),
        "rows that begin anywhere": np.concatenate([array, array], 3)[..., 0:9].copy()[..., :8],
    }
    for name, view in broken.items():
        laid = lay(view, "bf16", strided=True)
        assert laid.strides == dense(view.shape), name
        assert np.array_equal(taken(laid.flat, view.shape, laid.strides, "bf16"), cast(view, "bf16")), name
    fine = lay(doubled[..., :8], "bf16", strided=True)
    assert fine.strides == (192, 64, 16) and not fine.is_dense
    table = strides_table({"Q": fine, "K": lay(array, "bf16", strided=True), "V": fine})
    assert table.tolist() == [[192, 64, 16], [96, 32, 8], [192, 64, 16], [192, 64, 16]] and table.dtype == np.int64
