"""What the tests of the tracer share: problems of every kind, a traced run, the visits of a kernel in plain loops."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st

from fmha import Problem, Tiling
from fmha.hardware import DEFAULT_GPU, GPUS
from fmha.kernels import Kernel
from fmha.mask import row_bounds
from fmha.trace import Trace, trace

DIMS = (1, 2, 5, 8, 12, 16, 24, 31, 33, 40)
LENGTHS = (1, 2, 3, 7, 8, 15, 16, 17, 31, 32, 33, 40, 65)
# Sides that divide a warp and that do not; more rows than a warp, more keys than a warp; one of each.
H200 = GPUS[DEFAULT_GPU]
TILINGS = ((1, 1), (4, 4), (5, 7), (16, 8), (8, 16), (3, 64), (48, 1), (1, 100), (16, 16), (32, 32))


def tilings_of(kernel: Kernel) -> list[tuple[int, int]]:
    """Tiles for random problems: the odd ones where the kernel takes them, else its smallest and two larger ones."""
    p = kernel.fitting(Problem(N=1, d=max(DIMS)))
    odd = [t for t in TILINGS if kernel.complaint(p, Tiling(*t), H200) is None]
    if len(odd) > 2:
        return odd
    sides = [(Br, Bc) for Br in (16, 32, 64) for Bc in (16, 32, 64)]
    fine = [t for t in sides if kernel.complaint(p, Tiling(*t), H200) is None]
    return [fine[0], fine[len(fine) // 2], fine[-1]]


@st.composite
def problems(draw: st.DrawFn, most: int = 4000, kernel: Kernel | None = None) -> Problem:
    """Ragged lengths, Nq != Nk, grouped heads, both causal alignments, padding on both sides, odd d and scales.

    most: B H Nq Nk, so that a traced run stays short. kernel: whose dtypes and head dimensions are drawn from.
    """
    dims = [d for d in DIMS if kernel is None or d % kernel.d_step == 0]
    B, Hk, group = draw(st.integers(1, 2)), draw(st.integers(1, 2)), draw(st.integers(1, 2))
    Nq = draw(st.sampled_from(LENGTHS))
    Nk = draw(st.just(Nq) | st.sampled_from(LENGTHS))
    while B * Hk * group * Nq * Nk > most:
        B, Hk, group, Nq, Nk = (1, 1, 1, Nq, Nk) if B * Hk * group > 1 else (1, 1, 1, Nq - Nq // 3, Nk - Nk // 3)
    lengths = st.none() | st.tuples(*[st.integers(0, Nk)] * B)
    return Problem(
        B=B, H=Hk * group, Hk=Hk, Nq=Nq, Nk=Nk, d=draw(st.sampled_from(dims)),
        scale=draw(st.none() | st.floats(-2, 2)), causal=draw(st.sampled_from([None, "br", "tl"])),
        lens_k=draw(lengths), left_pad=draw(lengths),
        dtype=draw(st.sampled_from(kernel.dtypes)) if kernel else "fp32",
    )  # fmt: skip


def inputs(p: Problem, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Q, K, V in float32, normally distributed."""
    rng = np.random.default_rng(seed)
    shapes = ((p.B, p.H, p.Nq, p.d), (p.B, p.Hk, p.Nk, p.d), (p.B, p.Hk, p.Nk, p.d))
    Q, K, V = (rng.standard_normal(shape).astype(np.float32) for shape in shapes)
    return Q, K, V


def traced(kernel: Kernel, p: Problem, t: Tiling, cache: Path, **settings: Any) -> Trace:
    """The kernel's run over `inputs(p)`."""
    return trace(kernel, p, t, *inputs(p), cache=cache, **settings)


@functools.cache
def line_of(kernel: Kernel, snippet: str) -> int:
    """The number of the one source line that holds `snippet`."""
    (found,) = [n for n, line in enumerate(kernel.source().splitlines(), 1) if snippet in line]
    return found


@dataclass(frozen=True)
class SeenTile:
    """One visit of a tiled kernel: rows of the Q tile, keys of the K/V tile (padding left out), and how many of their
    pairs the mask lets see each other. b, h: batch entry and query head."""

    b: int
    h: int
    rows: range
    keys: range
    pairs: int


def visits(p: Problem, t: Tiling) -> Iterator[SeenTile]:
    """Every visit, from the masks alone: a tile of keys is visited if the last row of the Q tile can see up to it."""
    for b in range(p.B):
        low, high = row_bounds(p, b)
        start, stop = p.key_range(b)
        for h in range(p.H):
            for first in range(0, p.Nq, t.Br):
                rows = range(first, min(first + t.Br, p.Nq))
                end = int(high[rows[-1]])
                for j in range(start // t.Bc, -(-end // t.Bc) if end > start else 0):
                    keys = range(max(start, j * t.Bc), min(stop, (j + 1) * t.Bc))
                    pairs = sum(int(low[r]) <= c < int(high[r]) for r in rows for c in keys)
                    yield SeenTile(b, h, rows, keys, pairs)
