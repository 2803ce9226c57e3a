"""Where Q, K, V come from: a worked example, a real model's heads, random numbers, crafted score patterns."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fmha.errors import InputError
from fmha.problem import Problem, check_memory, check_whole
from fmha.units import format_count

Array = NDArray[np.float64]
_RECORDED = Path(__file__).parent / "recorded"


@dataclass(frozen=True)
class InputSource:
    """One entry of the input menu. `N`, `d`, `H` are what the source has; None: any size is made to order."""

    name: str
    title: str
    note: str
    N: int | None = None
    d: int | None = None
    H: int | None = None


INPUTS: dict[str, InputSource] = {
    source.name: source
    for source in (
        InputSource("random", "Random numbers", "Standard normal Q, K, V from a seed."),
        InputSource("rising", "Max rises at every tile", "Every key scores higher than the one before it."),
        InputSource("flat", "Max never rises", "The first key scores highest; later tiles only add to l."),
        InputSource("last", "Max rises once, at the very end", "The last key outscores all others by far."),
        InputSource("sink", "Attention sink", "Key 0 takes most of every row's weight, as in many trained models."),
        InputSource(
            "sentence",
            "A real sentence",
            '"The animal didn\'t cross the street because it was too tired.", a layer of all-MiniLM-L6-v2.',
            16,
            32,
            12,
        ),
        InputSource(
            "passage",
            "A real passage",
            "512 tokens of text, layer 3 of all-MiniLM-L6-v2, four heads.",
            512,
            32,
            4,
        ),
        InputSource("worked", "Worked example", "4 x 4 with d = 4 and V = I: every number fits on a page.", 4, 4, 1),
    )
}


@dataclass(frozen=True)
class Inputs:
    """Q [B, H, Nq, d], K and V [B, Hk, Nk, d] in float64, with the words they stand for where there are any.

    heads: the numbers that these heads have in the model they were recorded from.
    """

    Q: Array
    K: Array
    V: Array
    title: str
    tokens: tuple[str, ...] | None = None
    heads: tuple[int, ...] | None = None

    @property
    def problem(self) -> Problem:
        """The problem these arrays fit, in fp32, without a mask."""
        B, H, Nq, d = self.Q.shape
        return Problem(B=B, H=H, Hk=self.K.shape[1], Nq=Nq, Nk=self.K.shape[2], d=d)


def load(name: str, problem: Problem, *, seed: int = 0, layer: int = 3, head: int = 0) -> Inputs:
    """Inputs named `name`, cut or made to fit `problem`.

    Args:
        seed: of random and crafted inputs.
        layer: of the sentence (0 to 5).
        head: first head of a recorded input that is used; further heads follow it and wrap around.

    Raises:
        InputError: an unknown name, or a recorded input that has no such layer, head, length or d.
    """
    source = INPUTS.get(name) if isinstance(name, str) else None
    if source is None:
        raise InputError(f"input={str(name)[:40]!r} is not known: use one of {', '.join(INPUTS)}.")
    if source.N is None:
        return _made(source, problem, seed)
    longest = max(problem.Nq, problem.Nk)
    if longest > source.N or problem.d != source.d:
        raise InputError(
            f'the input "{source.title.lower()}" has N={source.N}, d={source.d}, but N={longest}, d={problem.d} was '
            f'asked: use d={source.d} and N up to {source.N}, or the input "random".'
        )
    if problem.B != 1 or problem.group != 1:
        raise InputError(f'the input "{source.title.lower()}" has B=1 and as many K/V heads as query heads.')
    if name == "worked":
        whole = worked_example()
        return _cut(whole, problem, [0] * problem.H)
    whole = sentence(layer) if name == "sentence" else passage()
    heads = whole.Q.shape[1]
    head = check_whole("head", head, 0, heads - 1, InputError)
    return _cut(whole, problem, [(head + h) % heads for h in range(problem.H)])


def worked_example() -> Inputs:
    """The 4 x 4 example: d = 4, K = 2 I, V = I, so S = Q K^T / 2 is Q itself and O is the softmax of its rows.

    With tiles of 2 x 2: S_11 = [[1, 2], [2, 1]], S_12 = [[3, 4], [0, -1]]. Rows 3 and 4 are an even row and a
    row whose max rises by two.
    """
    Q = np.array([[1, 2, 3, 4], [2, 1, 0, -1], [0, 0, 0, 0], [-1, 0, 2, 1]], np.float64)
    return Inputs(Q[None, None], 2 * np.eye(4)[None, None], np.eye(4)[None, None], INPUTS["worked"].title)


def sentence(layer: int = 3, head: int | None = None) -> Inputs:
    """Q, K, V of one layer (0 to 5) for the sentence: [1, 12, 16, 32], or [1, 1, 16, 32] for one head (0 to 11)."""
    Q, K, V, tokens, heads = _recorded("sentence_qkv.npz")
    layer = check_whole("layer", layer, 0, Q.shape[0] - 1, InputError)
    return _one_head(Inputs(Q[[layer]], K[[layer]], V[[layer]], INPUTS["sentence"].title, tokens, heads), head)


def passage(head: int | None = None) -> Inputs:
    """Q, K, V of layer 3 for the passage: [1, 4, 512, 32], or [1, 1, 512, 32] for one of the four heads kept."""
    Q, K, V, tokens, heads = _recorded("passage_qkv.npz")
    return _one_head(Inputs(Q, K, V, INPUTS["passage"].title, tokens, heads), head)


def _one_head(inputs: Inputs, head: int | None) -> Inputs:
    if head is None:
        return inputs
    head = check_whole("head", head, 0, inputs.Q.shape[1] - 1, InputError)
    return _cut(inputs, inputs.problem, [head])


@functools.lru_cache(maxsize=4)
def _recorded(filename: str) -> tuple[Array, Array, Array, tuple[str, ...], tuple[int, ...]]:
    with np.load(_RECORDED / filename, allow_pickle=False) as file:
        Q, K, V = (file[name].astype(np.float64) for name in "QKV")
        tokens = tuple(str(token) for token in file["tokens"])
        heads = tuple(int(head) for head in file["heads"])
    for array in (Q, K, V):
        array.flags.writeable = False
    return Q, K, V, tokens, heads


def _cut(whole: Inputs, problem: Problem, heads: list[int]) -> Inputs:
    return Inputs(
        whole.Q[:, heads, : problem.Nq],
        whole.K[:, heads, : problem.Nk],
        whole.V[:, heads, : problem.Nk],
        whole.title,
        whole.tokens[: max(problem.Nq, problem.Nk)] if whole.tokens else None,
        tuple(whole.heads[h] for h in heads) if whole.heads else None,
    )


def _made(source: InputSource, problem: Problem, seed: int) -> Inputs:
    seed = check_whole("seed", seed, 0, 2**32 - 1, InputError)
    values = (problem.B * problem.d) * (problem.H * problem.Nq + 2 * problem.Hk * problem.Nk)
    check_memory(3 * 8 * values, f"an input of {format_count(values)} numbers")
    rng = np.random.default_rng(seed)
    query_shape = (problem.B, problem.H, problem.Nq, problem.d)
    key_shape = (problem.B, problem.Hk, problem.Nk, problem.d)
    Q, K, V = (rng.standard_normal(shape) for shape in (query_shape, key_shape, key_shape))
    if source.name != "random":
        Q, K = _with_scores(_score_pattern(source.name, problem.Nk), Q, K, problem, rng)
    return Inputs(Q, K, V, source.title)


def _score_pattern(name: str, Nk: int) -> Array:
    """What every key scores, before a row's own factor: [Nk]."""
    position = np.arange(Nk) / max(Nk - 1, 1)
    if name == "rising":
        return 6.0 * position
    if name == "flat":
        return 3.0 - 3.0 * position
    # Ripple keeps the crowd from looking like a ruler; it stays below the score of key 0.
    crowd = 0.5 * np.sin(np.arange(Nk) * 2.4)
    # The sink grows with the crowd: exp(0.8 x crowd[0]), its least weight, stays 7 times the sum of the others.
    crowd[0] = (math.log(Nk) + 2.0) / 0.8 if name == "sink" else 1.0
    if name == "last":
        crowd[-1] = 7.0
    return crowd


def _with_scores(pattern: Array, Q: Array, K: Array, problem: Problem, rng: np.random.Generator) -> tuple[Array, Array]:
    """Q and K for which scale * q_i . k_j = pattern_j * a_i with a_i in [0.8, 1.2].

    One direction carries the scores; the rest of Q and the rest of K are noise in two subspaces that are
    orthogonal to it and to each other, so that they do not disturb the pattern.
    """
    d = problem.d
    basis = np.linalg.qr(rng.standard_normal((d, d)))[0]
    half = 1 + (d - 1) // 2
    row_factor = rng.uniform(0.8, 1.2, Q.shape[:3])
    scale = problem.scale or 1.0  # with scale 0 every score is 0, whatever Q and K are
    strength = abs(scale) ** 0.5
    query, key = 0.5 * Q, 0.5 * K
    query[..., half:] = 0.0
    key[..., 1:half] = 0.0
    query[..., 0] = row_factor / strength
    key[..., 0] = pattern * np.sign(scale) / strength
    return query @ basis.T, key @ basis.T
