"""What a question may ask for: a fixed list of numbers, each computed from a picture's settings by the core."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import numpy as np

from fmha.capacity import largest_n
from fmha.hardware import DEFAULT_GPU, GPUS
from fmha.inputs import sentence
from fmha.lecture.pictures import OWN_GPU, Settings
from fmha.memory import smem_bytes
from fmha.problem import Problem, Tiling
from fmha.reference import weights
from fmha.simulation import Run, simulate
from fmha.softmax import safe
from fmha.traffic import Traffic, traffic
from fmha.units import ceil_div, format_bytes, format_flops, format_ratio

Unit = Literal["bytes", "times", "count", "tokens", "flops", "number"]
HEADS_SHAPE = (2, 3, 4, 4)  # B, H, N, d of the picture `heads`
CAUSAL = {"none": None, "br": "bottom-right", "tl": "top-left"}


@dataclass(frozen=True)
class Quantity:
    """what: the number in words, as the subject of a sentence; needs: settings that the picture must have."""

    what: str
    unit: Unit
    needs: tuple[str, ...]
    of: Callable[[Settings], float]


def problem_of(settings: Settings) -> Problem:
    """The problem that the settings describe; what they do not name is 1, fp32 and unmasked."""
    s: dict[str, Any] = dict(settings)
    causal: Any = CAUSAL[str(s.get("causal", "none"))]
    return Problem(
        B=s.get("B", 1), H=s.get("H", 1), N=s["N"], d=s.get("d", 64), dtype=s.get("dtype", "fp32"), causal=causal
    )


def tiling_of(settings: Settings) -> Tiling:
    """Br and Bc of the settings; 32 where they have none (naive traffic does not depend on them)."""
    s: dict[str, Any] = dict(settings)
    return Tiling(s.get("Br", 32), s.get("Bc", 32))


def row_scores(settings: Settings) -> list[float]:
    """The scores of the picture `row`."""
    text = str(settings["scores"]).replace(";", " ").replace(",", " ")
    return [float(part) for part in text.split()]


@lru_cache(maxsize=32)
def _row_run(scores: tuple[float, ...], Bc: int) -> Run:
    problem = Problem(Nq=1, Nk=len(scores), d=1, scale=1.0)
    column = [[[[x] for x in scores]]]
    return simulate(problem, Tiling(1, Bc), [[[[1.0]]]], column, column)


def row_run(settings: Settings) -> Run:
    """The row of the picture `row`, run by the core in tiles of Bc keys: d = 1, q = 1, k = score, scale = 1."""
    s: dict[str, Any] = dict(settings)
    return _row_run(tuple(row_scores(settings)), s["Bc"])


def row_tile(settings: Settings) -> int:
    """The tile that arrives, from 0; the last one where the setting is beyond it."""
    s: dict[str, Any] = dict(settings)
    return min(s["tile"], ceil_div(len(row_scores(settings)), s["Bc"])) - 1


def softmax_scores(settings: Settings) -> list[float]:
    """The four scores of the picture `softmax`."""
    s: dict[str, Any] = dict(settings)
    return [float(s[f"s{k}"]) for k in range(1, 5)]


def _flash(settings: Settings) -> Traffic:
    return traffic(problem_of(settings), tiling_of(settings), str(settings.get("order", "q-outer")))


def _naive(settings: Settings) -> Traffic:
    return traffic(problem_of(settings), tiling_of(settings), "naive")


def _loaded(settings: Settings, *names: str) -> float:
    moved = _flash(settings).by_tensor
    return float(sum(moved[name][0] for name in names))


def _matrix(settings: Settings) -> float:
    p = problem_of(settings)
    return float(2 * p.B * p.H * p.Nq * p.Nk * p.itemsize)


def _state(name: str) -> Callable[[Settings], float]:
    return lambda settings: float(getattr(row_run(settings), name)[0, 0, 0, row_tile(settings)])


def _longest(order: str) -> Callable[[Settings], float]:
    def tokens(settings: Settings) -> float:
        gpu = str(settings["gpu"])
        return float(largest_n(problem_of(settings), order, GPUS[DEFAULT_GPU if gpu == OWN_GPU else gpu].hbm_bytes))

    return tokens


def _rises(settings: Settings) -> float:
    m = row_run(settings).m[0, 0, 0]
    return float((m[1:] > m[:-1]).sum())


def _word_weight(settings: Settings) -> float:
    s: dict[str, Any] = dict(settings)
    data = sentence(s["layer"], s["head"])
    return float(weights(data.problem, data.Q, data.K)[0, 0, s["word"]].max())


def _place(settings: Settings) -> float:
    s: dict[str, Any] = dict(settings)
    return float(np.ravel_multi_index((s["b"], s["h"], s["n"], s["k"]), HEADS_SHAPE))


def _workers(settings: Settings) -> float:
    p, t = problem_of(settings), tiling_of(settings)
    return float(p.B * p.H * (1 if settings.get("order") == "kv-outer" else t.Tr(p)))


def _visits(settings: Settings) -> float:
    p, t = problem_of(settings), tiling_of(settings)
    return float(p.B * p.H * t.Tr(p) * t.Tc(p))


def _smem(settings: Settings) -> float:
    p = problem_of(settings)
    return float(smem_bytes(tiling_of(settings), p.d, p.itemsize))


_SIZES, _TILES = ("N", "d"), ("N", "d", "Br", "Bc")
QUANTITIES: dict[str, Quantity] = {
    "requested_bytes": Quantity("What flash requests", "bytes", _TILES, lambda s: float(_flash(s).requested_bytes)),
    "kv_bytes": Quantity("What flash requests of K and V", "bytes", _TILES, lambda s: _loaded(s, "K", "V")),
    "q_bytes": Quantity("What flash requests of Q", "bytes", _TILES, lambda s: _loaded(s, "Q")),
    "naive_bytes": Quantity("What naive attention requests", "bytes", _SIZES,
                            lambda s: float(_naive(s).requested_bytes)),
    "matrix_bytes": Quantity("The size of S and P together", "bytes", _SIZES, _matrix),
    "saving": Quantity(
        "Naive bytes over flash bytes", "times", _TILES, lambda s: _naive(s).requested_bytes / _flash(s).requested_bytes
    ),
    "flops": Quantity("The arithmetic of the two matrix products", "flops", _SIZES, lambda s: float(_naive(s).flops)),
    "smem_bytes": Quantity("The shared memory of a worker", "bytes", _TILES, _smem),
    "workers": Quantity("The number of workers", "count", _TILES, _workers),
    "visits": Quantity("The number of tiles of scores", "count", _TILES, _visits),
    "longest_naive": Quantity("The longest N of naive attention", "tokens", ("N", "d", "gpu"), _longest("naive")),
    "longest_flash": Quantity("The longest N of flash", "tokens", ("N", "d", "gpu"), _longest("q-outer")),
    "m": Quantity("The running maximum m", "number", ("scores", "Bc", "tile"), _state("m")),
    "l": Quantity("The running sum l", "number", ("scores", "Bc", "tile"), _state("l")),
    "alpha": Quantity("The rescale factor alpha", "number", ("scores", "Bc", "tile"), _state("alpha")),
    "rises": Quantity("The number of tiles that raise the maximum", "count", ("scores", "Bc"), _rises),
    "weight": Quantity("The largest weight", "number", ("s1", "s2", "s3", "s4"),
                       lambda s: float(safe(softmax_scores(s)).weights.max())),
    "word_weight": Quantity("The largest weight of the word", "number", ("layer", "head", "word"), _word_weight),
    "offset": Quantity("The offset of the element", "count", ("b", "h", "n", "k"), _place),
}  # fmt: skip


def said(value: float, unit: Unit) -> str:
    """The number as it is read: "4.0 MiB", "2.0x", "1,024 tokens"."""
    if not math.isfinite(value):
        return "no finite number"
    if unit == "bytes":
        return format_bytes(value)
    if unit == "flops":
        return format_flops(value)
    if unit == "times":
        return format_ratio(value)
    if unit == "tokens":
        return f"{value:,.0f} tokens"
    return f"{value:,.0f}" if unit == "count" else f"{value:.4g}"


__all__ = [
    "CAUSAL",
    "HEADS_SHAPE",
    "QUANTITIES",
    "Quantity",
    "Unit",
    "problem_of",
    "row_run",
    "row_scores",
    "row_tile",
    "said",
    "softmax_scores",
    "tiling_of",
]
