"""`simulate` against plain loops: O, LSE, and m, l, alpha after every visit; rounding; what must be refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fmha import Problem, Tiling, reference, simulate
from fmha.errors import InputError, LimitError, ProblemError, SimulationError
from fmha.events import emit
from fmha.problem import cast
from fmha.reference import scores, weights
from fmha.schedule import ORDERS
from fmha.state import online_update, replay
from tests.core.yardstick import attention, normal, problems, running, sees, tilings

orders = st.sampled_from(ORDERS)
FLASH = ("q-outer", "kv-outer")


def assert_close(got: np.ndarray, expected: np.ndarray, tolerance: float = 1e-12) -> None:
    """Equal infinities, no NaN, finite values within the tolerance (relative above 1)."""
    assert not np.isnan(got).any() and got.shape == expected.shape
    np.testing.assert_array_equal(np.isinf(got), np.isinf(expected))
    np.testing.assert_allclose(got, expected, rtol=tolerance, atol=tolerance)


@settings(max_examples=100)
@given(problems(), tilings(), st.integers(0, 99))
def test_every_order_equals_the_definition(p: Problem, t: Tiling, seed: int) -> None:
    Q, K, V = normal(p, seed)
    O, LSE = attention(p, Q, K, V)
    truth = reference(p, Q, K, V)
    assert_close(truth.O, O)
    assert_close(truth.LSE, LSE)
    for order in ORDERS:
        run = simulate(p, t, Q, K, V, order)
        assert_close(run.O, O)
        assert_close(run.LSE, LSE)
        assert run.order == order and len(run.events)


@settings(max_examples=100)
@given(problems(), tilings(), st.sampled_from(FLASH), st.integers(0, 99))
def test_running_state_after_every_visit(p: Problem, t: Tiling, order: str, seed: int) -> None:
    Q, K, V = normal(p, seed)
    run = simulate(p, t, Q, K, V, order)
    for got, expected in zip((run.m, run.l, run.alpha), running(p, t, Q, K), strict=True):
        assert_close(got, expected)
    with np.errstate(divide="ignore"):
        last = np.where(run.l[..., -1] > 0, np.log(run.l[..., -1]) + np.maximum(run.m[..., -1], -1e300), -np.inf)
    assert_close(run.LSE, last)


def test_naive_has_one_state_a_row() -> None:
    p = Problem(N=5, d=2)
    run = simulate(p, Tiling(2, 2), *normal(p), "naive")
    assert run.m.shape == run.l.shape == run.alpha.shape == (1, 1, 5, 1)
    assert_close(run.m[..., 0] + np.log(run.l[..., 0]), run.LSE)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("tile", [(1, 1), (7, 1 << 24), (1 << 24, 7), (1 << 24, 1 << 24)])
def test_smallest_problem_and_tiles_larger_than_it(order: str, tile: tuple[int, int]) -> None:
    for p in (Problem(N=1, d=1), Problem(Nq=3, Nk=2, d=5, H=2, Hk=1), Problem(Nq=1, Nk=9, d=3, causal=True)):
        Q, K, V = normal(p)
        assert_close(simulate(p, Tiling(*tile), Q, K, V, order).O, reference(p, Q, K, V).O)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("precision", ["float64", "dtype"])
def test_rows_without_keys(order: str, precision: str) -> None:
    p = Problem(B=3, Nq=6, Nk=4, d=2, causal="br", lens_k=(4, 0, 3), left_pad=(0, 0, 2))
    run = simulate(p, Tiling(2, 3), *normal(p), order, precision=precision)
    for array in (run.O, run.LSE, run.m, run.l, run.alpha):
        assert not np.isnan(array).any()
    blind = np.array([[not any(sees(p, b, i, j) for j in range(4)) for i in range(6)] for b in range(3)])
    assert blind[1].all() and blind[0].sum() == 2
    assert (run.O[:, 0][blind] == 0).all() and np.isneginf(run.LSE[:, 0][blind]).all()
    assert np.isneginf(run.m[:, 0][blind]).all() and (run.l[:, 0][blind] == 0).all()
    assert (run.alpha[:, 0][blind] == 1).all() and np.isfinite(run.LSE[:, 0][~blind]).all()


# --- extreme numbers ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("size", [1e15, 1e30, -1e30, 1e150])
def test_huge_scores_pick_one_key(order: str, size: float) -> None:
    p = Problem(Nq=1, Nk=4, d=1, scale=1.0)
    Q, K, V = np.ones((1, 1, 1, 1)), np.array([1.0, 3, 2, -5]).reshape(1, 1, 4, 1), np.arange(4.0).reshape(1, 1, 4, 1)
    run = simulate(p, Tiling(1, 1), size * Q, K, V, order)
    assert run.O.item() == (1 if size > 0 else 3) and run.LSE.item() == max(3 * size, -5 * size)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("scale", [0.0, -0.0])
def test_scale_zero_is_the_average_of_what_is_seen(order: str, scale: float) -> None:
    p = Problem(N=5, d=3, scale=scale, causal=True)
    Q, K, V = normal(p)
    run = simulate(p, Tiling(2, 2), Q, K, V, order)
    assert_close(run.O[0, 0], np.cumsum(V[0, 0], axis=0) / np.arange(1, 6)[:, None])
    assert_close(run.LSE[0, 0], np.log(np.arange(1, 6)))


def test_negative_scale_turns_the_order_round() -> None:
    p = Problem(N=6, d=3, scale=-2.0)
    Q, K, V = normal(p)
    assert_close(
        simulate(p, Tiling(4, 4), Q, K, V).O, simulate(p.replace(scale=2.0), Tiling(4, 4), -Q, K, V, "kv-outer").O
    )


@pytest.mark.parametrize("order", ORDERS)
def test_overflow_is_told_not_drawn(order: str) -> None:
    """+inf scores would give NaN, scores that are all -inf a row of zeros: both are refused."""
    p, ones = Problem(N=3, d=1), np.ones((1, 1, 3, 1))
    for size, precision, named in ((1e30, "dtype", "fp32"), (1e200, "float64", "float64")):
        for sign in (1, -1):
            with pytest.raises(InputError, match=rf"row 0 .*exceed what {named} can hold"):
                simulate(p, Tiling(2, 2), sign * size * ones, size * ones, ones, order, precision=precision)
    V = np.array([3e38, 3e38, 3e38]).reshape(1, 1, 3, 1)
    if order != "naive":  # P V is summed before it is divided by l
        with pytest.raises(InputError, match="exceed what fp32"):
            simulate(p, Tiling(2, 2), ones, ones, V, "q-outer", precision="dtype")
    with pytest.raises(InputError, match="exceed what float64"):
        reference(p, 1e200 * ones, 1e200 * ones, ones)
    with pytest.raises(InputError, match="exceed what float64"):
        weights(p, -1e200 * ones, 1e200 * ones)


@pytest.mark.parametrize(("dtype", "limit"), [("fp16", "65504"), ("bf16", "3.38953e+38"), ("fp32", "3.40282e+38")])
def test_inputs_beyond_the_dtype_are_refused(dtype: str, limit: str) -> None:
    p, ones = Problem(N=2, d=1, dtype=dtype), np.ones((1, 1, 2, 1))
    large = {"fp16": 1e5, "bf16": 1e39, "fp32": 1e39}[dtype]
    simulate(p, Tiling(1, 1), ones, ones, large * ones)  # float64 holds it
    for k, name in enumerate("QKV"):
        arrays = [ones, ones, ones]
        arrays[k] = large * ones
        with pytest.raises(InputError, match=rf"^{name} holds 1e\+?\d+|^{name} holds 100000") as caught:
            simulate(p, Tiling(1, 1), *arrays, precision="dtype")
        assert limit in str(caught.value) and dtype in str(caught.value)


# --- rounding -------------------------------------------------------------------------------------------------------


def plain(p: Problem, Q: np.ndarray, K: np.ndarray, V: np.ndarray) -> np.ndarray:
    """Attention as a dense kernel of that dtype computes it: fp32 scores and sums, rounded P and O."""
    q, k, v = (cast(x, p.dtype) for x in (Q, K, V))
    k, v = (np.repeat(x, p.group, axis=1) for x in (k, v))
    S = np.where(np.isneginf(scores(p, Q, K)), np.float32(-np.inf), (q @ k.swapaxes(-1, -2)) * np.float32(p.scale))
    E = np.exp(S - S.max(axis=-1, keepdims=True))
    P = cast(E / E.sum(axis=-1, keepdims=True), p.dtype)
    return cast(P @ v, p.dtype).astype(np.float64)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("dtype", ["fp32", "fp16", "bf16"])
@pytest.mark.parametrize("tile", [(32, 16), (16, 64), (200, 200)])
def test_rounding_error_is_at_most_twice_that_of_the_plain_computation(
    order: str, dtype: str, tile: tuple[int, int]
) -> None:
    p = Problem(H=2, Hk=1, N=130, d=32, dtype=dtype, causal=True)
    for seed in range(2):
        Q, K, V = (cast(x, dtype).astype(np.float64) for x in normal(p, seed))
        truth = reference(p, Q, K, V).O
        run = simulate(p, Tiling(*tile), Q, K, V, order, precision="dtype")
        allowed = plain(p, Q, K, V) - truth
        error = run.O.astype(np.float64) - truth
        assert np.abs(error).max() <= 2 * np.abs(allowed).max()
        assert np.linalg.norm(error) <= 2 * np.linalg.norm(allowed)
        np.testing.assert_array_equal(cast(run.O, dtype), run.O)  # what is stored is a number of the dtype


def test_precision_is_checked() -> None:
    p = Problem(N=2, d=1)
    with pytest.raises(ProblemError, match='use "float64" or "dtype"'):
        simulate(p, Tiling(1, 1), *normal(p), precision="fp16")


# --- one step -------------------------------------------------------------------------------------------------------


@settings(max_examples=100)
@given(st.lists(st.floats(-30, 30) | st.just(-np.inf), min_size=1, max_size=12), st.integers(1, 12))
def test_online_update_in_pieces_equals_one_piece(row: list[float], piece: int) -> None:
    m, l = np.array([-np.inf]), np.array([0.0])
    for first in range(0, len(row), piece):
        S = np.array([row[first : first + piece]])
        before = m
        m, alpha, P, l = online_update(m, l, S)
        assert 0 <= alpha[0] <= 1 and (P >= 0).all() and (P <= 1).all() and m >= before
    whole = online_update(np.array([-np.inf]), np.array([0.0]), np.array([row]))
    assert m == whole[0] and l == pytest.approx(whole[3], rel=1e-13)
    assert l[0] == 0 or 1 <= l[0] <= len(row)  # the bound of a sum shifted by its own max


# --- what is refused ------------------------------------------------------------------------------------------------


def test_inputs_that_do_not_fit() -> None:
    p, t = Problem(H=2, Hk=1, N=3, d=2), Tiling(2, 2)
    Q, K, V = normal(p)
    for arrays, words in (
        ((Q[0], K, V), r"^Q has shape \(2, 3, 2\), but this problem needs \(1, 2, 3, 2\)"),
        ((Q, Q, V), r"^K has shape"),
        ((Q, K, V[..., :1]), r"^V has shape"),
        ((Q, K, "abc"), r"^V is not an array of real numbers"),
        ((Q, 1j * K, V), r"^K is not an array of real numbers"),
        ((Q, [[1], [1, 2]], V), r"^K is not an array of real numbers"),
        ((np.where(Q > 0, np.nan, Q), K, V), r"^Q holds NaN or infinity"),
        ((Q, K, np.full_like(V, np.inf)), r"^V holds NaN or infinity"),
    ):
        for call in (lambda a=arrays: simulate(p, t, *a), lambda a=arrays: reference(p, *a)):
            with pytest.raises(InputError, match=words):
                call()


@pytest.mark.parametrize("order", ORDERS)
def test_too_large_is_refused_before_memory_is_eaten(order: str) -> None:
    p = Problem(N=100_000, d=1)
    zeros = np.zeros((1, 1, p.Nq, 1))
    for tile in ((32, 32), (1, 100_000), (100_000, 1), (100_000, 100_000)):
        with pytest.raises(LimitError, match="counting bytes alone has no such limit"):
            simulate(p, Tiling(*tile), zeros, zeros, zeros, order)
    with pytest.raises(LimitError, match="of memory"):
        simulate(Problem(N=60_000, d=1), Tiling(60_000, 60_000), *[zeros[:, :, :60_000]] * 3, order)
    with pytest.raises(LimitError):
        reference(p, zeros, zeros, zeros)


def test_replay_refuses_tiles_that_do_not_exist() -> None:
    p, t = Problem(N=8, d=2), Tiling(2, 2)
    for name in "bhij":
        for value in (-1, 99):
            events = emit(p, t)
            events[name] = value
            with pytest.raises(SimulationError, match=f"visits {name}={value}, but {name} runs from 0 to"):
                replay(events, p, t, *normal(p))


# --- what a run remembers -------------------------------------------------------------------------------------------


def test_recorded_tiles_are_the_ones_that_were_computed() -> None:
    p, t = Problem(N=8, d=3, causal=True), Tiling(4, 2)
    Q, K, V = normal(p)
    run = simulate(p, t, Q, K, V, record_columns=2)
    assert run.tiles is not None and run.tiles.S.shape == (1, 1, 2, 4, 4, 2) and run.tiles.O.shape[-1] == 2
    dense = scores(p, Q, K)[0, 0]
    for i, j in np.ndindex(2, 4):
        tile = run.tiles.S[0, 0, i, j]
        if i == 0 and j > 1:
            assert np.isnan(tile).all()
        else:
            np.testing.assert_allclose(tile, dense[4 * i : 4 * i + 4, 2 * j : 2 * j + 2], rtol=1e-6)
    last = run.tiles.O[0, 0, 1, 3] / run.l[0, 0, 4:, 3][:, None]
    np.testing.assert_allclose(last, run.O[0, 0, 4:, :2], rtol=1e-5)
