"""How long a sequence fits: the largest N whose tensors lie in a given memory at once."""

from __future__ import annotations

import math

from fmha.memory import hbm_held
from fmha.problem import Problem


def held_bytes(problem: Problem, order: str) -> int:
    """Bytes in device memory at once: Q, K, V, O and what the order keeps beside them."""
    return sum(hbm_held(problem, order).values())


def largest_n(problem: Problem, order: str, capacity_bytes: int) -> int:
    """Largest N (= Nq = Nk) for which everything fits in `capacity_bytes`; 0 when not even one token does.

    What is held is a polynomial a N^2 + b N, whose integers a and b follow from N = 1 and N = 2; so any
    size is solved exactly, also beyond the longest sequence that `Problem` allows.
    """
    one = held_bytes(problem.replace(Nq=1, Nk=1, lens_k=None, left_pad=None), order)
    two = held_bytes(problem.replace(Nq=2, Nk=2, lens_k=None, left_pad=None), order)
    a, b = (two - 2 * one) // 2, (4 * one - two) // 2
    if a == 0:
        return capacity_bytes // b
    return (math.isqrt(b * b + 4 * a * capacity_bytes) - b) // (2 * a)
