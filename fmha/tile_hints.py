"""Tiles that would do where others were refused: the nearest ones that a planner takes, found by asking it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from itertools import product

from fmha.errors import LimitError, TilesError
from fmha.plan import Plan
from fmha.problem import Problem, Tiling

_SIDES = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 256)
_DIMS = (256, 128, 64, 32, 16)


def hint(planned: Callable[[Problem, Tiling], Plan], problem: Problem, tiling: Tiling) -> str:
    """What to try in place of tiles that were refused, in a few words: "try Br=32, Bc=32"; planned is asked."""
    is_too_large = False  # whatever the tiles

    def fits(d: int, tiles: Tiling) -> bool:
        nonlocal is_too_large
        try:
            planned(problem.replace(d=d), tiles)
        except LimitError as error:
            is_too_large |= not isinstance(error, TilesError)
            return False
        return True

    near = list(_nearest(tiling))
    for d in (problem.d, *(smaller for smaller in _DIMS if smaller < problem.d)):
        found = next((tiles for tiles in near if fits(d, tiles)), None)
        if found is not None:
            return f"try {'' if d == problem.d else f'd={d}, '}Br={found.Br}, Bc={found.Bc}"
        if is_too_large:
            return "try a smaller N, fewer heads or a smaller batch"
    return "try another GPU"


def _nearest(tiling: Tiling) -> Iterable[Tiling]:
    """Tiles of usual sides, and those that keep a side of these, by how often a side is doubled or halved on the way
    there; of equals the squarer first."""
    sides = [dict.fromkeys((side, *_SIDES)) for side in (tiling.Br, tiling.Bc)]

    def far(Br: int, Bc: int) -> tuple[float, float, int]:
        steps = abs(math.log2(Br / tiling.Br)) + abs(math.log2(Bc / tiling.Bc))
        return round(steps, 6), round(abs(math.log2(Br / Bc)), 6), Br

    return (Tiling(*pair) for pair in sorted(product(*sides), key=lambda pair: far(*pair)))


__all__ = ["hint"]
