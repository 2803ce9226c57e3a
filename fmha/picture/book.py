"""The pictures of a lecture: one function for each name in `fmha.lecture.pictures`, which yields its parts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from fmha import Tiling, simulate, traffic
from fmha.capacity import held_bytes, largest_n
from fmha.figures.heatmap import attention_map
from fmha.figures.layout_bhnd import memory_layout, offset
from fmha.figures.matrices import STYLE
from fmha.figures.memory_levels import format_speed, levels
from fmha.figures.memory_vs_n import memory_vs_n
from fmha.figures.naive_kernels import naive_kernels
from fmha.figures.running_softmax import row_in_tiles, running_state
from fmha.figures.softmax_bars import scores_to_weights
from fmha.figures.traffic_vs_n import traffic_vs_n
from fmha.figures.words import weighted_words
from fmha.figures.worked_steps import ghost, worker_steps
from fmha.hardware import GPUS
from fmha.inputs import sentence, worked_example
from fmha.lecture.pictures import Picture
from fmha.lecture.quantities import (
    HEADS_SHAPE,
    problem_of,
    row_run,
    row_scores,
    row_tile,
    softmax_scores,
    tiling_of,
)
from fmha.picture.kernel_pictures import ladder_picture, source_picture, timeline_picture, times_picture
from fmha.picture.parts import Beside, Chart, Drawing, Maths, Part, Player, Words, setting
from fmha.problem import Problem
from fmha.reference import scores, weights
from fmha.softmax import safe
from fmha.traffic import closed_form, compulsory_bytes
from fmha.units import format_bytes, format_ratio

LENGTHS = [2**e for e in range(7, 21)]
Settings = dict[str, Any]


def parts(picture: Picture, settings: Settings) -> Iterator[Part]:
    """What a picture shows with these settings, from above to below. `gpu`, where it is one of them, is a real one.

    Raises:
        FmhaError: these settings cannot be.
    """
    return _PARTS[picture.name](settings)


def _none(_s: Settings) -> Iterator[Part]:
    """A step without a picture."""
    yield from ()


def _player(s: Settings) -> Iterator[Part]:
    yield Player(s)


def _sentence(s: Settings) -> tuple[list[str], Any, int, Problem]:
    data = sentence(s["layer"], s["head"])
    tokens = list(data.tokens or ())
    return tokens, weights(data.problem, data.Q, data.K)[0, 0], min(s["word"], len(tokens) - 1), data.problem


def _words(s: Settings) -> Iterator[Part]:
    tokens, P, word, _ = _sentence(s)
    yield Drawing(f'<div style="font-size: 1.25em">{weighted_words(tokens, P[word], word)}</div>')
    names = [f"{n}: {token}" for n, token in enumerate(tokens)]
    yield from _map(s, height=400)
    yield Words(f"Layer {s['layer']}, head {s['head']} of all-MiniLM-L6-v2; words: {', '.join(names)}.", quiet=True)


def _map(s: Settings, height: int = 560) -> Iterator[Part]:
    tokens, P, word, _ = _sentence(s)
    yield Chart(
        attention_map(P, tokens=tokens, row=word, title="All weights, a row a query", height=height),
        "map",
        alt=f"Weights of layer {s['layer']}, head {s['head']}; the row of {tokens[word]} is framed, its largest weight "
        f"is {P[word].max():.3f}, on {tokens[int(P[word].argmax())]}.",
    )


def _softmax(s: Settings) -> Iterator[Part]:
    values = softmax_scores(s)
    row = safe(values).weights
    yield Chart(
        scores_to_weights([f"key {k}" for k in range(1, 5)], values, row.tolist(), height=460),
        "softmax",
        alt=f"Scores {', '.join(f'{v:g}' for v in values)} become weights {', '.join(f'{w:.2f}' for w in row)}.",
    )
    mix = " + ".join(f"{w:.2f}\\,V_{k}" for k, w in enumerate(row, start=1))
    yield Maths(rf"O = {mix}")


def _heads(s: Settings) -> Iterator[Part]:
    index = (s["b"], s["h"], s["n"], s["k"])
    place = offset(HEADS_SHAPE, index)
    yield Chart(
        memory_layout(HEADS_SHAPE, index, height=500), "heads",
        alt=f"The element b={s['b']}, h={s['h']}, n={s['n']}, k={s['k']} has offset {place}.",
    )  # fmt: skip
    B, H, N, d = HEADS_SHAPE
    yield Maths(rf"((b \cdot H + h) \cdot N + n) \cdot d + k = {place}")
    yield Words(f"B = {B}, H = {H}, N = {N}, d = {d}", quiet=True)


def _memory(s: Settings) -> Iterator[Part]:
    problem, gpu = problem_of(s), GPUS[s["gpu"]]
    held = {order: [held_bytes(problem.replace(N=n), order) for n in LENGTHS] for order in ("naive", "q-outer")}
    naive_n, flash_n = (largest_n(problem, order, gpu.hbm_bytes) for order in ("naive", "q-outer"))
    here = {order: held_bytes(problem, order) for order in held}
    yield Words(
        f"At **N = {problem.Nq:,}** naive attention holds **{format_bytes(here['naive'])}**, flash "
        f"**{format_bytes(here['q-outer'])}**. One {gpu.name} is full at N = {naive_n:,}, with flash at {flash_n:,}."
    )
    yield Chart(
        memory_vs_n(LENGTHS, held, {g.key: g.hbm_bytes for g in GPUS.values()}, gpu.key, naive_n, height=500),
        "memory",
        alt=f"Bytes held against N. Naive fills the {gpu.name} at N = {naive_n:,}, flash at N = {flash_n:,}.",
    )
    yield setting(problem, GPU=gpu.name)


def _levels(s: Settings) -> Iterator[Part]:
    gpu = GPUS[s["gpu"]]
    yield Words(
        f"**{gpu.name}:** shared memory is **{format_ratio(gpu.smem_gbps / gpu.hbm_gbps)}** faster than device memory "
        f"and **{gpu.hbm_bytes / gpu.smem_bytes:,.0f}** times smaller."
    )
    yield Chart(
        levels(gpu, height=460), "levels",
        alt=f"{gpu.name}: device memory {format_bytes(gpu.hbm_bytes)} at {format_speed(gpu.hbm_gbps)}, L2 "
        f"{format_bytes(gpu.l2_bytes)}, shared memory {format_bytes(gpu.smem_bytes)} at {format_speed(gpu.smem_gbps)}.",
    )  # fmt: skip
    yield Words(
        f"Source: {gpu.source}. The speed of shared memory is derived from clocks, see The memory wall.", quiet=True
    )


def _naive(s: Settings) -> Iterator[Part]:
    problem = problem_of(s)
    moved = traffic(problem, Tiling(32, 32), "naive", method="closed")
    share = (sum(moved.by_tensor["S"]) + sum(moved.by_tensor["P"])) / moved.requested_bytes
    yield Words(f"**{format_bytes(moved.requested_bytes)}** in all, **{share:.0%}** of it S and P.")
    yield Chart(
        naive_kernels(moved.by_tensor, height=480), "naive",
        alt=f"The kernels move {format_bytes(moved.requested_bytes)}, {share:.0%} of it S and P.",
    )  # fmt: skip
    yield setting(problem)


def _row(s: Settings) -> Iterator[Part]:
    values, run, tile = row_scores(s), row_run(s), row_tile(s)
    m, l, alpha = run.m[0, 0, 0], run.l[0, 0, 0], run.alpha[0, 0, 0]
    seen = [min((j + 1) * s["Bc"], len(values)) for j in range(len(m))]
    drawn = row_in_tiles(values, s["Bc"], tile, m, height=420)
    state = running_state(m, l, alpha, seen, tile, height=420)
    told = f"Tile {tile + 1} of {len(m)} arrives; the running maximum is {m[tile]:.4g}."
    numbers = f"m = {m[tile]:.4g}, l = {l[tile]:.4g}, alpha = {alpha[tile]:.4g}."
    yield Beside((Chart(drawn, "row", told), Chart(state, "state", numbers)))
    old_m, old_l = (f"{m[tile - 1]:.4g}", f"{l[tile - 1]:.4f}") if tile else (r"-\infty", "0")
    yield Maths(rf"m = {m[tile]:.4g}, \quad \alpha = e^{{{old_m} - {m[tile]:.4g}}} = {alpha[tile]:.4f}")
    new = l[tile] - (alpha[tile] * l[tile - 1] if tile else 0)
    yield Maths(rf"l = {alpha[tile]:.4f} \cdot {old_l} + {new:.4f} = {l[tile]:.4f}")


def _worked(s: Settings) -> Iterator[Part]:
    data = worked_example()
    run = simulate(data.problem, Tiling(2, 2), data.Q, data.K, data.V)
    steps = worker_steps(run, s["worker"] - 1)
    at = min(s["at"], len(steps))
    yield Words(f"Step {at} of {len(steps)}, worker {s['worker']}: **{steps[at - 1].title}**")
    yield Drawing(f'{STYLE}<div style="min-height:12rem; font-size:1.12em">{steps[at - 1].html}</div>')
    yield Words(steps[at - 1].sentence, quiet=True)
    yield Chart(
        ghost(run, scores(data.problem, data.Q, data.K)[0, 0], at, height=300), "ghost",
        alt=f"The 4 x 4 score matrix after step {at}: numbers where a tile lies in shared memory.",
    )  # fmt: skip


def _traffic(s: Settings) -> Iterator[Part]:
    problem, tiling = problem_of(s), tiling_of(s)
    orders = ("naive", "q-outer")
    moved = {o: [closed_form(problem.replace(N=n), tiling, o).requested_bytes for n in LENGTHS] for o in orders}
    here = {o: closed_form(problem, tiling, o).requested_bytes for o in orders}
    floor = [compulsory_bytes(problem.replace(N=n)) for n in LENGTHS]
    yield Words(
        f"At **N = {problem.Nq:,}**, Br = {tiling.Br}: naive **{format_bytes(here['naive'])}**, flash "
        f"**{format_bytes(here['q-outer'])}**, that is {format_ratio(here['naive'] / here['q-outer'])} less."
    )
    yield Chart(
        traffic_vs_n(LENGTHS, moved, floor, None, problem.Nq, height=500), "traffic",
        alt=f"At N = {problem.Nq:,} naive requests {format_bytes(here['naive'])}, flash "
        f"{format_bytes(here['q-outer'])}.",
    )  # fmt: skip
    yield setting(problem, Br=tiling.Br, Bc=tiling.Bc)


_PARTS: Mapping[str, Callable[[Settings], Iterator[Part]]] = {
    "none": _none, "player": _player, "words": _words, "map": _map, "softmax": _softmax, "heads": _heads,
    "memory": _memory, "levels": _levels, "naive": _naive, "row": _row, "worked": _worked, "traffic": _traffic,
    "timeline": timeline_picture, "ladder": ladder_picture,
    "source": source_picture, "times": times_picture,
}  # fmt: skip

__all__ = ["parts"]
