"""Figures on real core output: their traces are the core's numbers, and their JSON is fit for a browser."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import plotly.graph_objects as go
import pytest

from fmha import Problem, Tiling, load, simulate
from fmha.capacity import held_bytes, largest_n
from fmha.figures import layout_bhnd, overflow
from fmha.figures.accesses import accesses
from fmha.figures.heatmap import LIMIT, attention_map, reduce_map
from fmha.figures.matrices import matrix, number, step
from fmha.figures.memory_held import memory_held
from fmha.figures.memory_levels import levels, size_and_speed
from fmha.figures.memory_vs_n import memory_vs_n
from fmha.figures.naive_kernels import kernel_bytes, naive_kernels
from fmha.figures.running_softmax import row_in_tiles, running_state
from fmha.figures.softmax_bars import scores_to_weights
from fmha.figures.traffic_tiles import traffic_tiles
from fmha.figures.traffic_vs_n import ratio_vs_n, traffic_vs_n
from fmha.figures.words import weighted_words
from fmha.figures.worked_steps import ghost, worker_steps
from fmha.hardware import GPUS
from fmha.inputs import passage, sentence, worked_example
from fmha.memory import hbm_held
from fmha.reference import scores, weights
from fmha.softmax import ALGORITHMS
from fmha.traffic import closed_form, compulsory_bytes, theorem2_bytes

ORDERS = ("naive", "q-outer", "kv-outer")
LENGTHS = [2**e for e in range(7, 21)]


def check(fig: go.Figure) -> dict[str, Any]:
    """The figure as JSON that a browser can read: no NaN, no infinity, lettering of at least 14 px."""

    def refuse(word: str) -> None:
        raise AssertionError(f"{word} in a figure's JSON")

    data = json.loads(fig.to_json(), parse_constant=refuse)
    assert fig.layout.template.layout.font.size >= 14
    assert fig.layout.height
    for annotation in fig.layout.annotations:
        assert annotation.font.size is None or annotation.font.size >= 14
    return data


def titled(fig: go.Figure) -> None:
    for axis in (*fig.select_xaxes(), *fig.select_yaxes()):
        assert axis.visible is False or axis.title.text or axis.ticktext or axis.matches or axis.showticklabels is False


# --- attention ---------------------------------------------------------------------------------------------------


def test_attention_map_is_the_weights_with_their_words() -> None:
    data = sentence(3, 1)
    P = weights(data.problem, data.Q, data.K)[0, 0]
    fig = attention_map(P, tokens=data.tokens, row=10)
    check(fig)
    assert np.array_equal(fig.data[0].z, P)
    assert list(fig.layout.xaxis.ticktext) == list(data.tokens or ())
    assert P[10, 2] == pytest.approx(0.677, abs=5e-4)
    frame = fig.layout.shapes[0]
    assert (frame.y0, frame.y1) == (9.5, 10.5)


@pytest.mark.parametrize("how", ["max", "mean"])
@pytest.mark.parametrize("shape", [(513, 513), (1024, 700), (4096, 4096), (1537, 3)])
def test_large_maps_are_reduced_tile_by_tile(how: str, shape: tuple[int, int]) -> None:
    matrix = np.random.default_rng(0).random(shape)
    small = reduce_map(matrix, how=how)  # type: ignore[arg-type]
    assert max(small.values.shape) <= LIMIT
    assert small.is_reduced and how in small.note
    part = matrix[-1 - (shape[0] - 1) % small.rows :, : small.cols]
    assert small.values[-1, 0] == pytest.approx(part.max() if how == "max" else part.mean())


def test_reduced_map_says_so_and_stays_small() -> None:
    fig = attention_map(np.full((4096, 4096), 1 / 4096), row=4095)
    check(fig)
    assert "8 x 8" in fig.layout.xaxis.title.text
    assert len(fig.to_json()) < 6_000_000


def test_passage_map_is_not_reduced() -> None:
    data = passage(1)
    P = weights(data.problem, data.Q, data.K)[0, 0]
    fig = attention_map(P, tokens=data.tokens)
    check(fig)
    assert np.array_equal(fig.data[0].z, P)


def test_weights_of_words_are_shown_and_escaped() -> None:
    html = weighted_words(["<b>", "it"], [0.75, 0.25], 1)
    assert "&lt;b&gt;" in html and "<b>" not in html
    assert "75 %" in html and "width:75.0%" in html


def test_scores_and_weights_side_by_side() -> None:
    row = [2.0, 1.0, 0.0, -1.0]
    fig = scores_to_weights(list("abcd"), row, ALGORITHMS[1](row).weights)
    check(fig)
    assert np.round(fig.data[1].y, 2).tolist() == [0.64, 0.24, 0.09, 0.03]


def test_offsets_are_numpy_offsets() -> None:
    shape = (2, 3, 4, 5)
    flat = np.arange(np.prod(shape)).reshape(shape)
    other = np.arange(np.prod(shape)).reshape(2, 4, 3, 5).transpose(0, 2, 1, 3)
    for index in ((0, 0, 0, 0), (1, 2, 3, 4), (1, 0, 2, 3)):
        assert layout_bhnd.offset(shape, index) == flat[index]
        assert layout_bhnd.offset_bnhd(shape, index) == other[index]
    fig = layout_bhnd.memory_layout(shape, (1, 2, 3, 4))
    check(fig)
    assert sorted(int(text) for text in fig.data[1].text if "=" not in text) == list(range(120))


# --- memory ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("gpu", GPUS.values(), ids=lambda g: g.key)
def test_memory_levels_are_the_gpus_numbers(gpu: Any) -> None:
    fig = levels(gpu)
    check(fig)
    assert [bar.x[0] for bar in fig.data] == [
        gpu.hbm_bytes, gpu.l2_bytes, gpu.smem_bytes, gpu.register_bytes, gpu.hbm_gbps, gpu.smem_gbps,
    ]  # fmt: skip
    check(size_and_speed(GPUS.values(), gpu.key))


@pytest.mark.parametrize("dtype", ["fp32", "fp16"])
def test_memory_against_length_and_where_it_ends(dtype: str) -> None:
    problem = Problem(B=1, H=16, N=128, d=64, dtype=dtype)
    held = {order: [held_bytes(problem.replace(N=n), order) for n in LENGTHS] for order in ("naive", "q-outer")}
    cards = {g.key: g.hbm_bytes for g in GPUS.values()}
    full = largest_n(problem, "naive", cards["H200"])
    fig = memory_vs_n(LENGTHS, held, cards, "H200", full)
    check(fig)
    titled(fig)
    assert list(fig.data[0].y) == held["naive"]
    assert held_bytes(problem.replace(N=full), "naive") <= cards["H200"]
    assert held_bytes(problem.replace(N=full + 1), "naive") > cards["H200"]
    assert any(f"{full:,}" in str(a.text) for a in fig.layout.annotations)


def test_naive_kernels_show_every_byte() -> None:
    moved = closed_form(Problem(H=2, N=200, d=24, dtype="fp16"), Tiling(64, 64), "naive")
    parts = kernel_bytes(moved.by_tensor)
    assert sum(size for part in parts.values() for _, _, size in part) == moved.requested_bytes
    fig = naive_kernels(moved.by_tensor)
    check(fig)
    assert sum(bar.x[0] for bar in fig.data) == moved.requested_bytes


def test_memory_held_by_tensor() -> None:
    problem = Problem(H=3, N=200, d=24)
    parts = {order: hbm_held(problem, order) for order in ORDERS}
    fig = memory_held(parts)
    check(fig)
    assert sum(bar.x[0] for bar in fig.data) == sum(sum(sizes.values()) for sizes in parts.values())


# --- online softmax ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["rising", "flat", "last", "sink", "random"])
@pytest.mark.parametrize("tile", [0, 3, 6])
def test_running_state_is_the_runs_state(name: str, tile: int) -> None:
    problem = Problem(N=50, d=32)
    data = load(name, problem)
    run = simulate(problem, Tiling(16, 8), data.Q, data.K, data.V)
    m, l, alpha = run.m[0, 0, 5], run.l[0, 0, 5], run.alpha[0, 0, 5]
    seen = [min(8 * (j + 1), 50) for j in range(7)]
    fig = running_state(m, l, alpha, seen, tile)
    check(fig)
    titled(fig)
    shown = {trace.name: trace.y for trace in fig.data}
    assert np.array_equal(shown["max m"], m[: tile + 1])
    assert np.array_equal(shown["sum l"], l[: tile + 1])
    assert np.array_equal(shown["alpha"], alpha[: tile + 1])
    assert all(1 <= total <= keys for total, keys in zip(l, seen, strict=True))
    row = scores(problem, data.Q, data.K)[0, 0, 5]
    bars = row_in_tiles(row, 8, tile, m)
    check(bars)
    assert np.array_equal(np.concatenate([t.y for t in bars.data if t.type == "bar"]), row)


def test_masked_row_has_no_infinity_in_its_figure() -> None:
    problem = Problem(Nq=4, Nk=2, d=2, causal="bottom-right")
    data = load("random", problem)
    run = simulate(problem, Tiling(2, 1), data.Q, data.K, data.V)
    check(row_in_tiles(scores(problem, data.Q, data.K)[0, 0, 0], 1, 1, run.m[0, 0, 0]))
    check(running_state(run.m[0, 0, 0], run.l[0, 0, 0], run.alpha[0, 0, 0], [1, 2], 1))


def test_accesses_are_counted() -> None:
    runs = [algorithm([2.0, 1.0, 0.0, -1.0]) for algorithm in ALGORITHMS]
    fig = accesses(runs)
    check(fig)
    assert [bar.x[0] for bar in fig.data] == [3, 4, 3]


@pytest.mark.parametrize("top", [0.0, 12.0, 102.0])
def test_overflow_ends_where_the_types_end(top: float) -> None:
    assert overflow.last_finite(np.float16) == pytest.approx(np.log(65504), abs=0.011)
    assert overflow.last_finite(np.float32) == pytest.approx(np.log(np.finfo(np.float32).max), abs=0.011)
    check(overflow.overflow(top))


# --- worked example ----------------------------------------------------------------------------------------------


def test_worked_steps_hold_the_tutorials_numbers() -> None:
    data = worked_example()
    run = simulate(data.problem, Tiling(2, 2), data.Q, data.K, data.V)
    steps = worker_steps(run, 0)
    codes = [s.code for s in steps]
    visit = ["load_K", "load_V", "S", "m", "P", "O"]
    assert codes == ["load_Q", *visit, *visit, "normalize", "store_O"]
    assert "0.1353" in steps[codes.index("m", 6)].html
    assert "row 1: the max rises, α = 0.1353; row 2: the max stays, α = 1." in steps[codes.index("m", 6)].sentence
    for value in ("0.0321", "0.0871", "0.2369", "0.6439"):
        assert value in steps[-1].html
    assert len(worker_steps(run, 1)) == len(steps)


@pytest.mark.parametrize("done", [0, 1, 5, 13, 15, 99])
def test_ghost_shows_only_what_is_in_shared_memory(done: int) -> None:
    data = worked_example()
    run = simulate(data.problem, Tiling(2, 2), data.Q, data.K, data.V)
    fig = ghost(run, scores(data.problem, data.Q, data.K)[0, 0], done)
    check(fig)
    numbers = [text for text in fig.data[1].text if "<b>" in text]
    assert len(numbers) == (8 if done in (5, 13) else 0)


def test_small_matrices_as_html() -> None:
    assert [number(x) for x in (0.13533528, -1.0, -0.0, 2.5, -np.inf, np.nan)] == [
        "0.1353",
        "−1",
        "0",
        "2.5",
        "−∞",
        "NaN",
    ]
    html = step(matrix("<x>", [[1, 2], [3, 4]], "Q"), "<", matrix("y", [5], "m"))
    assert "&lt;x&gt;" in html and "&lt;</span>" in html
    assert html.count("<td") == 5


# --- traffic -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("causal", [None, "bottom-right"])
def test_traffic_curves_are_the_closed_forms(causal: Any) -> None:
    problem, tiling = Problem(H=4, N=128, d=64, dtype="fp16", causal=causal), Tiling(64, 32)
    moved = {
        order: [closed_form(problem.replace(N=n), tiling, order).requested_bytes for n in LENGTHS] for order in ORDERS
    }
    floor = [compulsory_bytes(problem.replace(N=n)) for n in LENGTHS]
    theorem = [theorem2_bytes(problem.replace(N=n), 232448) for n in LENGTHS]
    fig = traffic_vs_n(LENGTHS, moved, floor, theorem, 1000)
    check(fig)
    titled(fig)
    for trace, order in zip(fig.data, ORDERS, strict=False):
        assert list(trace.y) == moved[order]
        assert all(b >= c for b, c in zip(moved[order], floor, strict=True))
    ratios = {"q-outer": [a / b for a, b in zip(moved["naive"], moved["q-outer"], strict=True)]}
    fig = ratio_vs_n(LENGTHS, ratios, 1000)
    check(fig)
    assert list(fig.data[0].y) == ratios["q-outer"]


def test_known_bytes_of_the_traffic_page() -> None:
    problem = Problem(N=1024, d=64, dtype="fp16")

    def nbytes(order: str, Br: int = 64, Bc: int = 64, **changes: Any) -> int:
        return closed_form(problem.replace(**changes), Tiling(Br, Bc), order, write_lse=True).requested_bytes

    assert nbytes("naive") == 8_912_896
    assert nbytes("q-outer") == 4_460_544
    assert nbytes("q-outer", causal="br") == 2_494_464
    assert nbytes("q-outer", Bc=16) == nbytes("q-outer")
    assert nbytes("kv-outer", dtype="fp32") == 4 * 3_342_336


def test_tile_picture_holds_bytes_and_crosses() -> None:
    sizes = [8, 64, 256]
    problem = Problem(N=1000, d=64)
    nbytes = [[closed_form(problem, Tiling(r, c), "q-outer").requested_bytes for c in sizes] for r in sizes]
    fits = [[r * c < 64 * 256 for c in sizes] for r in sizes]
    fig = traffic_tiles(sizes, sizes, nbytes, fits, (64, 8), "q-outer")
    check(fig)
    titled(fig)
    assert np.allclose(fig.data[0].z, np.log2(nbytes))
    assert [("✕" in text) for text in fig.data[1].text] == [not ok for row in fits for ok in row]
    frame = fig.layout.shapes[0]
    assert (frame.x0, frame.y0) == (-0.5, 0.5)
    check(traffic_tiles(sizes, sizes, nbytes, fits, (48, 8), "q-outer"))
