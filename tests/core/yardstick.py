"""Attention and its traffic once more, in plain Python loops: independent of fmha, slow, for small problems."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
from hypothesis import strategies as st

from fmha import Problem, Tiling

INF = math.inf


def sees(p: Problem, b: int, row: int, key: int) -> bool:
    """Whether a query row may look at a key, from the definitions of the masks."""
    if p.lens_k is not None and key >= p.lens_k[b]:
        return False
    if p.left_pad is not None and key < p.left_pad[b]:
        return False
    if p.causal == "bottom-right":
        return key - (p.Nk - p.Nq) <= row
    if p.causal == "top-left":
        return key <= row
    return True


def scores_of(p: Problem, Q: Any, K: Any, b: int, h: int, row: int) -> list[float]:
    """The masked scores of one row."""
    head = h // (p.H // p.Hk)
    return [
        p.scale * math.fsum(float(Q[b, h, row, c]) * float(K[b, head, key, c]) for c in range(p.d))
        if sees(p, b, row, key)
        else -INF
        for key in range(p.Nk)
    ]


def attention(p: Problem, Q: Any, K: Any, V: Any) -> tuple[np.ndarray, np.ndarray]:
    """O [B, H, Nq, d], LSE [B, H, Nq] by the definition, row by row."""
    O, LSE = np.zeros((p.B, p.H, p.Nq, p.d)), np.full((p.B, p.H, p.Nq), -INF)
    for b, h, row in np.ndindex(p.B, p.H, p.Nq):
        S = scores_of(p, Q, K, b, h, row)
        top = max(S)
        if top == -INF:
            continue
        weight = [math.exp(s - top) for s in S]
        total = math.fsum(weight)
        head = h // (p.H // p.Hk)
        for c in range(p.d):
            O[b, h, row, c] = math.fsum(w * float(V[b, head, key, c]) for key, w in enumerate(weight)) / total
        LSE[b, h, row] = top + math.log(total)
    return O, LSE


def visited(p: Problem, t: Tiling, b: int, i: int, j: int) -> bool:
    """Whether any row of Q tile i sees any key of K/V tile j."""
    rows, keys = tile_rows(p, t, i), range(j * t.Bc, min((j + 1) * t.Bc, p.Nk))
    return any(sees(p, b, row, key) for row in rows for key in keys)


def tile_rows(p: Problem, t: Tiling, i: int) -> range:
    """The real rows of Q tile i."""
    return range(i * t.Br, min((i + 1) * t.Br, p.Nq))


def tile_keys(p: Problem, t: Tiling, b: int, j: int) -> list[int]:
    """The real keys of K/V tile j: padding is not loaded."""
    low = 0 if p.left_pad is None else p.left_pad[b]
    high = p.Nk if p.lens_k is None else p.lens_k[b]
    return [key for key in range(j * t.Bc, min((j + 1) * t.Bc, p.Nk)) if low <= key < high]


def running(p: Problem, t: Tiling, Q: Any, K: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """m, l, alpha [B, H, Nq, Tc] after each K/V tile."""
    m, l, alpha = (np.zeros((p.B, p.H, p.Nq, t.Tc(p))) for _ in range(3))
    for b, h, row in np.ndindex(p.B, p.H, p.Nq):
        S, m_now, l_now = scores_of(p, Q, K, b, h, row), -INF, 0.0
        for j in range(t.Tc(p)):
            part = S[j * t.Bc : (j + 1) * t.Bc]
            m_new = max([m_now, *part])
            factor = 1.0 if m_new == m_now else math.exp(m_now - m_new)
            l_now = factor * l_now + math.fsum(math.exp(s - m_new) for s in part if s > -INF)
            m_now = m_new
            m[b, h, row, j], l[b, h, row, j], alpha[b, h, row, j] = m_now, l_now, factor
    return m, l, alpha


def moved(p: Problem, t: Tiling, order: str, write_lse: bool = False) -> dict[str, Any]:
    """Requested bytes by (tensor, "read" or "write"), initialisation and FLOPs, tile by tile, in Python integers."""
    item, nbytes, init, flops = p.itemsize, Counter[tuple[str, str]](), 0, 0
    Tr, Tc = t.Tr(p), t.Tc(p)
    for b in range(p.B):
        for _ in range(p.H):
            if order == "naive":
                nbytes["Q", "read"] += p.Nq * p.d * item
                nbytes["O", "write"] += p.Nq * p.d * item
                for name in "KV":
                    nbytes[name, "read"] += p.Nk * p.d * item
                for name in "SP":
                    nbytes[name, "read"] += p.Nq * p.Nk * item
                    nbytes[name, "write"] += p.Nq * p.Nk * item
                flops += 4 * p.Nq * p.Nk * p.d
                continue
            seen = {(i, j) for i in range(Tr) for j in range(Tc) if visited(p, t, b, i, j)}
            flops += sum(4 * len(tile_rows(p, t, i)) * len(tile_keys(p, t, b, j)) * p.d for i, j in seen)
            if order == "q-outer":
                for i in range(Tr):
                    rows = len(tile_rows(p, t, i))
                    nbytes["Q", "read"] += rows * p.d * item
                    nbytes["O", "write"] += rows * p.d * item
                    nbytes["LSE", "write"] += rows * 4 * write_lse
                for _, j in seen:
                    for name in "KV":
                        nbytes[name, "read"] += len(tile_keys(p, t, b, j)) * p.d * item
                continue
            init += p.Nq * (p.d * item + 8)
            for j in {j for _, j in seen}:
                for name in "KV":
                    nbytes[name, "read"] += len(tile_keys(p, t, b, j)) * p.d * item
            for i, _ in seen:
                rows = len(tile_rows(p, t, i))
                nbytes["Q", "read"] += rows * p.d * item
                for direction in ("read", "write"):
                    nbytes["O", direction] += rows * p.d * item
                    nbytes["l", direction] += rows * 4
                    nbytes["m", direction] += rows * 4
    return {"nbytes": {key: n for key, n in nbytes.items() if n}, "init": init, "flops": flops}


def gen(B: int, H: int, Nq: int, Nk: int, d: int, Hk: int | None = None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Q, K, V in closed form: sines of the flat index."""

    def wave(shape: tuple[int, ...], step: float, start: float, function: Any) -> np.ndarray:
        return function(step * np.arange(math.prod(shape)) + start).reshape(shape)

    keys = (B, Hk or H, Nk, d)
    return wave((B, H, Nq, d), 0.37, 0.1, np.sin), wave(keys, 0.53, 0.2, np.cos), wave(keys, 0.11, 0.3, np.sin)


def normal(p: Problem, seed: int = 0, spread: float = 1.0) -> Iterator[np.ndarray]:
    """Q, K, V for a problem, normally distributed."""
    rng = np.random.default_rng(seed)
    for shape in ((p.B, p.H, p.Nq, p.d), (p.B, p.Hk, p.Nk, p.d), (p.B, p.Hk, p.Nk, p.d)):
        yield spread * rng.standard_normal(shape)


@st.composite
def problems(draw: st.DrawFn, longest: int = 14) -> Problem:
    """Problems of every kind: ragged, grouped heads, both causal alignments, padding on either side, odd d."""
    B, Hk, group = draw(st.integers(1, 2)), draw(st.integers(1, 2)), draw(st.integers(1, 2))
    Nq, Nk = draw(st.integers(1, longest)), draw(st.integers(1, longest))
    lengths = st.none() | st.tuples(*[st.integers(0, Nk)] * B)
    return Problem(
        B=B,
        H=Hk * group,
        Hk=Hk,
        Nq=Nq,
        Nk=Nk,
        d=draw(st.integers(1, 7)),
        dtype=draw(st.sampled_from(["fp32", "fp16", "bf16"])),
        scale=draw(st.none() | st.floats(-2, 2)),
        causal=draw(st.sampled_from([None, "br", "tl"])),
        lens_k=draw(lengths),
        left_pad=draw(lengths),
    )


def tilings() -> st.SearchStrategy[Tiling]:
    """Tiles of unequal sides, also larger than the problem."""
    return st.builds(Tiling, st.integers(1, 18), st.integers(1, 18))
