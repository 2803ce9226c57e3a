"""The fastest tiles of each kernel by dtype and head dimension, found by `python -m fmha bench --ladder --tune`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import lru_cache

from fmha.errors import LimitError
from fmha.hardware import Gpu
from fmha.kernels import SOURCES, Kernel
from fmha.problem import Problem, Tiling

FILE = SOURCES / "tiles.json"
Sides = tuple[int, int]  # Br, Bc
Table = dict[str, dict[str, dict[int, tuple[Sides, ...]]]]  # kernel -> dtype -> d -> tiles, the fastest first
_ANY = Tiling(32, 32)  # of kernels that choose their own


@lru_cache(maxsize=1)
def table() -> Table:
    """What the file says; nothing where it is missing."""
    return read(FILE.read_text(encoding="utf-8")) if FILE.is_file() else {}


def read(text: str) -> Table:
    """A table from the text of its file."""
    return {
        number: {
            dtype: {int(d): tuple((int(Br), int(Bc)) for Br, Bc in tiles) for d, tiles in dims.items()}
            for dtype, dims in dtypes.items()
        }
        for number, dtypes in json.loads(text)["tiles"].items()
    }


def written(found: Mapping[tuple[str, str, int], Iterable[Sides]], device: str, made: str) -> str:
    """The text of a file. found: tiles by (kernel, dtype, d), the fastest first."""
    kernels: dict[str, dict[str, dict[str, list[list[int]]]]] = {}
    for (number, dtype, d), tiles in sorted(found.items()):
        kernels.setdefault(number, {}).setdefault(dtype, {})[str(d)] = [list(sides) for sides in tiles]
    lines = [
        f'    "{number}": {{\n'
        + ",\n".join(f'      "{dtype}": {json.dumps(dims)}' for dtype, dims in dtypes.items())
        + "\n    }"
        for number, dtypes in kernels.items()
    ]
    head = f'{{\n  "device": {json.dumps(device)},\n  "made": {json.dumps(made)},\n  "tiles": {{\n'
    return head + ",\n".join(lines) + "\n  }\n}\n"


def candidates(kernel: Kernel, problem: Problem, gpu: Gpu) -> list[Tiling]:
    """All tiles worth trying that this GPU can run, those that were fastest first."""
    if not kernel.tiled:
        return [_ANY]
    known = table().get(kernel.number, {}).get(problem.dtype, {})
    d = min((d for d in known if d >= problem.d), default=max(known, default=0))
    sides = dict.fromkeys([*known.get(d, ()), *kernel.tiles])
    return [t for t in (Tiling(*pair) for pair in sides) if kernel.can(problem, t, gpu)]


def best(kernel: Kernel, problem: Problem, gpu: Gpu) -> Tiling:
    """The fastest known tiles that this GPU can run.

    Raises:
        ProblemError, LimitError: the kernel cannot run this problem, or not on this GPU.
    """
    fine = candidates(kernel, problem, gpu)
    if fine:
        return fine[0]
    kernel.plan(problem, Tiling(*kernel.tiles[-1]), gpu)
    raise LimitError(f"kernel {kernel.number} ({kernel.name}) has no tiles for d={problem.d} on this GPU: use d=64.")


__all__ = ["FILE", "best", "candidates", "read", "table", "written"]
