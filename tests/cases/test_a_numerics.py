"""Group A, numerics and meaning: A01, A02, A04, A05, A07, A08, A10. Numbers are those of the cases."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from fmha import Problem, Tiling, reference, simulate, traffic
from fmha.errors import ProblemError
from fmha.mask import keep
from fmha.problem import cast
from fmha.reference import weights
from fmha.schedule import ORDERS
from tests.cases.support import TILES, by_cli, check, column, runs, save
from tests.core.yardstick import gen

INF = math.inf
Capture = pytest.CaptureFixture[str]


# --- A01: rows that see no key --------------------------------------------------------------------------------------

A01A_O = [[0, 0], [0, 0], [0.295520, 0.398609], [0.364759, 0.464126]]
A01A_LSE = [-INF, -INF, 1.182468, 1.158768]
A01B_O = [[0, 0], [0, 0], [0, 0], [0.819192, 0.877201], [0.867813, 0.915776]]
A01B_LSE = [-INF, -INF, -INF, -0.724996, 0.707093]


@pytest.mark.parametrize("dtype", ["fp32", "fp16", "bf16"])
def test_a01_causal_with_more_queries_than_keys(dtype: str) -> None:
    p = Problem(Nq=4, Nk=2, d=2, causal="bottom-right", dtype=dtype)
    for run in runs(p, *gen(1, 1, 4, 2, 2)):
        check(run, A01A_O, A01A_LSE)
        assert (run.O[0, 0, :2] == 0).all() and np.isneginf(run.m[0, 0, :2]).all() and (run.l[0, 0, :2] == 0).all()


@pytest.mark.parametrize("dtype", ["fp32", "fp16", "bf16"])
def test_a01_left_padding_and_causal(dtype: str) -> None:
    p = Problem(N=5, d=2, causal=True, left_pad=(3,), dtype=dtype)
    for run in runs(p, *gen(1, 1, 5, 5, 2)):
        check(run, A01B_O, A01B_LSE)
        assert (run.O[0, 0, :3] == 0).all() and np.isneginf(run.m[0, 0, :3]).all() and (run.l[0, 0, :3] == 0).all()


@pytest.mark.parametrize("order", ORDERS)
def test_a01_by_command(order: str, capsys: Capture, tmp_path: Path) -> None:
    Q, K, V = gen(1, 1, 4, 2, 2)
    out = by_cli(capsys, f"simulate --file {save(tmp_path / 'a.npz', Q, K, V)} --causal --order {order}")
    np.testing.assert_allclose(out["O"][0][0], A01A_O, atol=1e-6)
    np.testing.assert_allclose(out["LSE"][0][0], A01A_LSE, atol=1e-6)
    single = [x.astype(np.float32) for x in gen(1, 1, 5, 5, 2)]
    path = save(tmp_path / "b.npz", *single, left_pad=np.array([3]))
    out = by_cli(capsys, f"simulate --file {path} --causal --order {order}")
    np.testing.assert_allclose(out["O"][0][0], A01B_O, atol=1e-6)
    np.testing.assert_allclose(out["LSE"][0][0], A01B_LSE, atol=1e-6)


# --- A02: causal alignment ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("causal", "O", "LSE", "seen"),
    [
        ("bottom-right", [1.5, 2.0], [1.386294, 1.609438], [4, 5]),
        ("top-left", [0, 0.5], [0, math.log(2)], [1, 2]),
    ],
)
def test_a02_alignment(causal: str, O: list[float], LSE: list[float], seen: list[int]) -> None:
    p = Problem(Nq=2, Nk=5, d=1, causal=causal)  # type: ignore[arg-type]
    assert keep(p)[0].sum(axis=1).tolist() == seen
    for run in runs(p, column(0, 0), column(0, 0, 0, 0, 0), column(0, 1, 2, 3, 4)):
        check(run, O, LSE)


@pytest.mark.parametrize(
    ("causal", "O"),
    [
        ("br", [[0.520712, 0.607282], [0.510064, 0.593958]]),
        ("tl", [[0.295520, 0.398609], [0.349996, 0.450157]]),
    ],
)
def test_a02_with_numbers(causal: str, O: list[list[float]], capsys: Capture, tmp_path: Path) -> None:
    Q, K, V = gen(1, 1, 2, 5, 2)
    for run in runs(Problem(Nq=2, Nk=5, d=2, causal=causal), Q, K, V):  # type: ignore[arg-type]
        check(run, O)
    out = by_cli(capsys, f"simulate --file {save(tmp_path / 'a.npz', Q, K, V)} --causal {causal}")
    np.testing.assert_allclose(out["O"][0][0], O, atol=1e-6)
    assert out["problem"]["causal"] == {"br": "bottom-right", "tl": "top-left"}[causal]


# --- A04: no finite "minus infinity" --------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["fp32", "fp16"])
@pytest.mark.parametrize("low", [-20000.0, -60000.0, -65504.0])
def test_a04_masked_key_never_wins(dtype: str, low: float, capsys: Capture, tmp_path: Path) -> None:
    p = Problem(N=2, d=1, scale=1, lens_k=(1,), dtype=dtype)
    Q, K, V = column(low, 0), column(1, 0), column(1, 100)
    for run in runs(p, Q, K, V):
        check(run, [1, 1], [low, 0])
        assert (run.O == 1).all()
    assert (weights(p, Q, K)[..., 1] == 0).all()
    kind = {"fp32": np.float32, "fp16": np.float16}[dtype]
    path = save(tmp_path / "a.npz", *(x.astype(kind) for x in (Q, K, V)), lens_k=np.array([1]))
    out = by_cli(capsys, f"simulate --file {path} --scale 1 --precision dtype")
    assert out["O"] == [[[[1.0], [1.0]]]] and out["LSE"] == [[[low, 0.0]]] and out["problem"]["dtype"] == dtype


def test_a04_scores_far_beyond_any_sentinel() -> None:
    """-1e30 is a score like any other; a masked key beside it still weighs nothing."""
    p = Problem(N=2, d=1, scale=1, lens_k=(1,))
    for run in runs(p, column(-1e30, -1e38), column(1, 1e5), column(1, 100)):
        assert (run.O == 1).all()


# --- A05: True means "may look" -------------------------------------------------------------------------------------


def test_a05_keep_mask() -> None:
    p = Problem(N=4, d=1, causal=True)
    np.testing.assert_array_equal(keep(p)[0], np.tri(4, dtype=bool))
    for run in runs(p, column(0, 0, 0, 0), column(0, 0, 0, 0), column(0, 1, 2, 3)):
        check(run, [0, 0.5, 1, 1.5])


# --- A07: lengths 0 and 1, bad lengths ------------------------------------------------------------------------------

A07_O = [[[[0, 0], [0, 0]]], [[[0.744977, 0.812708], [0.743958, 0.811824]]]]
A07_LSE = [-INF, -INF, -0.441600, 0.007295]


def test_a07_length_zero(capsys: Capture, tmp_path: Path) -> None:
    p = Problem(B=2, N=2, d=2, lens_k=(0, 2))
    Q, K, V = gen(2, 1, 2, 2, 2)
    for run in runs(p, Q, K, V):
        check(run, A07_O, A07_LSE)
        assert (run.O[0] == 0).all()
    one = Problem(N=2, d=2)
    for t in TILES:
        for order in ("q-outer", "kv-outer"):  # batch entry 0 loads no key and no value
            both, alone = traffic(p, t, order), traffic(one, t, order)
            assert both.by_tensor["K"] == alone.by_tensor["K"] and both.by_tensor["V"] == alone.by_tensor["V"]
            none = traffic(p.replace(lens_k=(0, 0)), t, order)
            assert "K" not in none.by_tensor and "V" not in none.by_tensor and none.flops == 0
    path = save(tmp_path / "a.npz", Q, K, V)
    out = by_cli(capsys, f"simulate --file {path} --lens-k 0,2")
    np.testing.assert_allclose(out["O"], A07_O, atol=1e-6)
    np.testing.assert_allclose(np.ravel(out["LSE"]), A07_LSE, atol=1e-6)


def test_a07_length_one() -> None:
    for run in runs(Problem(N=1, d=2), *gen(1, 1, 1, 1, 2)):
        check(run, [0.295520, 0.398609], [0.307820])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"N": 0}, "N=0"),
        ({"N": 4, "B": 0}, "B=0"),
        ({"N": 4, "B": 2, "lens_k": (2, -1)}, r"lens_k\[1\]=-1"),
        ({"N": 4, "B": 2, "lens_k": (2, 5)}, r"lens_k\[1\]=5"),
        ({"N": 4, "B": 3, "lens_k": (2, 5)}, "lens_k has 2 entries for B=3"),
        ({"N": 4, "left_pad": (5,)}, r"left_pad\[0\]=5"),
    ],
)
def test_a07_bad_lengths_are_named(arguments: dict[str, object], words: str) -> None:
    with pytest.raises(ProblemError, match=words):
        Problem(**arguments)  # type: ignore[arg-type]


# --- A08: fp16 overflow before the scale ----------------------------------------------------------------------------


@pytest.mark.parametrize(("d", "size", "score"), [(64, 40.0, 12800.0), (128, 256.0, 741455.2001)])
@pytest.mark.parametrize("dtype", ["fp16", "bf16", "fp32"])
def test_a08_raw_products_beyond_fp16(d: int, size: float, score: float, dtype: str) -> None:
    p = Problem(N=4, d=d, dtype=dtype)
    Q = np.full((1, 1, 4, d), size)
    V = np.broadcast_to(np.arange(1.0, 5).reshape(1, 1, 4, 1), Q.shape)
    assert size * size * d > 65504
    for run in runs(p, Q, Q, V):
        check(run, np.full(Q.shape, 2.5))
        np.testing.assert_allclose(run.LSE, score + math.log(4), rtol=1e-6)


def test_a08_by_command(capsys: Capture, tmp_path: Path) -> None:
    Q = np.full((1, 1, 4, 64), 40, np.float16)
    V = np.repeat(np.arange(1, 5, dtype=np.float16), 64).reshape(Q.shape)
    path = save(tmp_path / "a.npz", Q, Q, V)
    for order in ORDERS:
        out = by_cli(capsys, f"simulate --file {path} --precision dtype --order {order} --Bc 2")
        assert (np.array(out["O"]) == 2.5).all() and out["problem"]["dtype"] == "fp16"
        np.testing.assert_allclose(out["LSE"], 12801.386, atol=1e-2)


# --- A10: odd head dimensions, the scale ----------------------------------------------------------------------------


def test_a10_five_columns(capsys: Capture, tmp_path: Path) -> None:
    p = Problem(N=3, d=5)
    assert p.scale == pytest.approx(0.447214, abs=1e-6)
    Q, K, V = gen(1, 1, 3, 3, 5)
    for run in runs(p, Q, K, V):
        np.testing.assert_allclose(run.O[0, 0, 0], [0.797111, 0.838208, 0.869174, 0.889633, 0.899338], atol=2e-6)
        np.testing.assert_allclose(run.LSE[0, 0], [1.408306, 1.573556, 1.284271], atol=2e-6)
    out = by_cli(capsys, f"simulate --file {save(tmp_path / 'a.npz', Q, K, V)}")
    assert out["O"][0][0][0][0] == pytest.approx(0.797111, abs=1e-6)


def test_a10_eighty_columns() -> None:
    p = Problem(H=2, N=40, d=80)
    Q, K, V = gen(1, 2, 40, 40, 80)
    for run in runs(p, Q, K, V):
        np.testing.assert_allclose(run.O[0, 0, 0, :3], [-0.001939, -0.001876, -0.001790], atol=1e-6)
        assert run.LSE[0, 0, 0] == pytest.approx(3.693050, abs=2e-6)
    # the scale of a padded d would show: these shifts are what fp32's tolerance of 1e-5 must catch
    truth = reference(p, Q, K, V).O
    for padded, shift in ((96, 1.6e-4), (128, 3.9e-4)):
        wrong = reference(p.replace(scale=1 / math.sqrt(padded)), Q, K, V).O
        assert np.abs(wrong - truth).max() == pytest.approx(shift, rel=0.05)


@pytest.mark.parametrize("d", [1, 33, 63, 72, 96, 192, 256, 257])
@pytest.mark.parametrize("order", ORDERS)
def test_a10_any_d(d: int, order: str) -> None:
    p = Problem(H=2, N=10, d=d)
    Q, K, V = gen(1, 2, 10, 10, d)
    truth = reference(p, Q, K, V)
    assert p.scale == 1 / math.sqrt(d)
    assert np.abs(simulate(p, Tiling(4, 3), Q, K, V, order).O - truth.O).max() < 1e-12
    single = simulate(p, Tiling(4, 3), cast(Q, "fp32"), cast(K, "fp32"), cast(V, "fp32"), order, precision="dtype")
    assert np.abs(single.O - truth.O).max() < 1e-5


def test_a10_custom_scale(capsys: Capture) -> None:
    p = Problem(N=6, d=3, scale=0)
    Q, K, V = gen(1, 1, 6, 6, 3)
    for run in runs(p, Q, K, V):
        check(run, np.broadcast_to(V.mean(axis=2, keepdims=True), V.shape), [math.log(6)] * 6)
    assert by_cli(capsys, "traffic --N 8 --d 16")["problem"]["scale"] == 0.25
    assert by_cli(capsys, "traffic --N 8 --d 16 --scale 0")["problem"]["scale"] == 0
