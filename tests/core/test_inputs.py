"""Inputs: every name loads, crafted ones do to the running max what their title says, recordings are real."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fmha import Problem, Tiling, load, simulate
from fmha.errors import InputError, LimitError
from fmha.inputs import INPUTS, passage, sentence, worked_example
from fmha.reference import scores, weights
from tests.core.yardstick import problems

MADE = [name for name, source in INPUTS.items() if source.N is None]


@pytest.mark.parametrize("name", INPUTS)
def test_every_name_loads_and_fits(name: str) -> None:
    source = INPUTS[name]
    p = Problem(H=source.H or 2, N=source.N or 20, d=source.d or 6)
    inputs = load(name, p)
    assert inputs.Q.shape == (1, p.H, p.Nq, p.d) and inputs.K.shape == inputs.V.shape == inputs.Q.shape
    assert inputs.title == source.title and inputs.Q.dtype == np.float64
    assert (inputs.problem.Nq, inputs.problem.d) == (p.Nq, p.d)
    run = simulate(p, Tiling(4, 4), inputs.Q, inputs.K, inputs.V)
    assert np.isfinite(run.O).all()
    assert inputs.tokens is None or len(inputs.tokens) == p.Nq


@settings(max_examples=60)
@given(problems(), st.sampled_from(MADE), st.integers(0, 2**32 - 1))
def test_made_inputs_fit_any_problem_and_follow_the_seed(p: Problem, name: str, seed: int) -> None:
    one, two = load(name, p, seed=seed), load(name, p, seed=seed)
    assert one.Q.shape == (p.B, p.H, p.Nq, p.d) and one.K.shape == one.V.shape == (p.B, p.Hk, p.Nk, p.d)
    for a, b in zip((one.Q, one.K, one.V), (two.Q, two.K, two.V), strict=True):
        assert np.isfinite(a).all() and (a == b).all()
    if p.d > 1 or name == "random":
        assert (load(name, p, seed=seed ^ 1).Q != one.Q).any()


@pytest.mark.parametrize("Bc", [1, 3, 8, 16, 50])
@pytest.mark.parametrize("d", [1, 2, 7, 64])
@pytest.mark.parametrize("scale", [None, 0.5, -2.0])
def test_crafted_running_max(Bc: int, d: int, scale: float | None) -> None:
    p, t = Problem(B=2, H=4, Hk=2, Nq=10, Nk=100, d=d, scale=scale), Tiling(5, Bc)
    rises = {}
    for name in ("rising", "flat", "last"):
        i = load(name, p)
        rises[name] = np.diff(simulate(p, t, i.Q, i.K, i.V).m, axis=-1) > 0
    assert rises["rising"].all()
    assert not rises["flat"].any()
    assert rises["last"][..., -1].all() and not rises["last"][..., :-1].any()


@pytest.mark.parametrize("N", [2, 16, 100, 2000])
def test_sink_takes_most_of_every_row(N: int) -> None:
    p = Problem(H=2, Nq=5, Nk=N, d=8)
    i = load("sink", p)
    assert weights(p, i.Q, i.K)[..., 0].min() > 0.8


def test_scores_of_crafted_inputs_are_moderate() -> None:
    """They must survive fp16."""
    p = Problem(N=4096, d=64)
    for name in MADE:
        i = load(name, p.replace(Nq=4))
        assert np.abs(scores(p.replace(Nq=4), i.Q, i.K)).max() < 30


def test_worked_example() -> None:
    w = worked_example()
    S = scores(w.problem, w.Q, w.K)[0, 0]
    np.testing.assert_array_equal(S[:2], [[1, 2, 3, 4], [2, 1, 0, -1]])
    run = simulate(w.problem, Tiling(2, 2), w.Q, w.K, w.V)
    rising = [0.0321, 0.0871, 0.2369, 0.6439]
    np.testing.assert_array_equal(run.O[0, 0, :2].round(4), [rising, rising[::-1]])
    assert run.alpha[0, 0, :2, 1].round(4).tolist() == [0.1353, 1]
    np.testing.assert_allclose(run.m[0, 0, :2], [[2, 4], [2, 2]])
    np.testing.assert_allclose(run.l[0, 0, :2, 0], 1 + np.exp(-1))


def test_sentence_is_the_real_one() -> None:
    heads = sentence(3)
    assert heads.Q.shape == (1, 12, 16, 32) and heads.tokens is not None
    one = sentence(3, 1)
    assert one.Q.shape == (1, 1, 16, 32) and (one.Q[0, 0] == heads.Q[0, 1]).all()
    it, animal = heads.tokens.index("it"), heads.tokens.index("animal")
    row = weights(one.problem, one.Q, one.K)[0, 0, it]
    assert round(float(row[animal]), 3) == 0.677 and row.argmax() == animal
    by_name = load("sentence", Problem(N=16, d=32), layer=3, head=1)
    assert (by_name.K == one.K).all()


def test_recordings_differ_by_layer_and_head_and_wrap_around() -> None:
    p = Problem(H=3, N=16, d=32)
    i = load("sentence", p, layer=0, head=11)
    assert (i.Q[0, 1] == sentence(0, 0).Q[0, 0]).all() and (i.Q[0, 0] != i.Q[0, 1]).any()
    assert (sentence(0).Q != sentence(5).Q).any()
    assert passage().Q.shape == (1, 4, 512, 32) and passage(3).Q.shape == (1, 1, 512, 32)
    short = load("passage", Problem(H=4, N=100, d=32))
    assert (passage().V[:, :, :100] == short.V).all() and len(short.tokens or ()) == 100


def test_recordings_cannot_be_changed_by_a_caller() -> None:
    before = sentence(3).Q.copy()
    load("sentence", Problem(N=16, d=32)).Q[:] = 0
    sentence(3).Q[:] = 0
    assert (before == sentence(3).Q).all() and (passage(0).Q != 0).any()
    with pytest.raises(ValueError, match="read-only"):
        passage().Q[:] = 0


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: load("nothing", Problem(N=4)), "'nothing' is not known: use one of random"),
        (lambda: load(None, Problem(N=4)), "is not known"),
        (lambda: load([1], Problem(N=4)), "is not known"),
        (lambda: load("<b>" * 99, Problem(N=4)), "is not known"),
        (lambda: load("sentence", Problem(N=17, d=32)), "has N=16, d=32, but N=17, d=32"),
        (lambda: load("sentence", Problem(N=16, d=64)), "d=64 was asked: use d=32"),
        (lambda: load("passage", Problem(Nq=4, Nk=513, d=32)), "N up to 512"),
        (lambda: load("passage", Problem(B=2, N=4, d=32)), "B=1"),
        (lambda: load("passage", Problem(H=2, Hk=1, N=4, d=32)), "as many K/V heads"),
        (lambda: load("sentence", Problem(N=16, d=32), layer=6), "layer=6 is out of range: use 0 to 5"),
        (lambda: load("sentence", Problem(N=16, d=32), layer=-1), "layer=-1"),
        (lambda: load("sentence", Problem(N=16, d=32), layer=1.5), "layer=1.5 is not a whole"),
        (lambda: load("sentence", Problem(N=16, d=32), head=12), "head=12 is out of range: use 0 to 11"),
        (lambda: load("passage", Problem(N=16, d=32), head=4), "use 0 to 3"),
        (lambda: sentence(3, 12), "head=12"),
        (lambda: passage(-1), "head=-1"),
        (lambda: load("random", Problem(N=4), seed=-1), "seed=-1"),
        (lambda: load("random", Problem(N=4), seed=2**32), "seed=4294967296"),
        (lambda: load("random", Problem(N=4), seed="x"), "seed='x'"),
    ],
)
def test_refusals(call: object, words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        call()  # type: ignore[operator]
    assert len(str(caught.value)) < 200


def test_huge_inputs_are_refused_before_they_are_made() -> None:
    with pytest.raises(LimitError, match="numbers needs about"):
        load("random", Problem(N=1 << 24, d=1 << 12))
