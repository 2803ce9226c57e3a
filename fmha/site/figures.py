"""Figures of the app's pages at settings that show the point: each can be zoomed, read off and saved."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from fmha import ladder
from fmha.figures.tile_cells import NAMES, shown, tile_cells
from fmha.hardware import DEFAULT_GPU, GPUS
from fmha.lecture.pictures import PICTURES
from fmha.measurement import shipped
from fmha.picture.book import parts
from fmha.picture.parts import Chart, Part, Words
from fmha.problem import Problem
from fmha.site import show
from fmha.site.frame import page
from fmha.site.text import html_of
from fmha.tile_designs import presets
from fmha.tilemap import Metric, tile_map


class Section(NamedTuple):
    """A heading, what to look at (Markdown), and the parts below it."""

    title: str
    words: str
    parts: tuple[Part, ...]


def files() -> dict[str, str]:
    """The page, by path."""
    body = [
        "<h1>Figures</h1>",
        '<p class="idea">As the app draws them. Point at a figure for its numbers, drag to zoom, double-click to go '
        "back; “Save” at its upper right gives PNG, SVG or CSV. In the app each follows your own settings.</p>",
    ]
    for section in _sections():
        body.append(f"<h2>{section.title}</h2>{html_of(section.words)}{show.shown(section.parts, '', _no_player)}")
    return {"figures.html": page("figures.html", "Figures", "\n".join(body))}


def _no_player(_part: object) -> str:
    raise TypeError("the page of figures has no player")


def _picture(name: str, **changes: Any) -> tuple[Part, ...]:
    """One of the lecture's pictures, with some of its settings changed."""
    picture = PICTURES[name]
    settings = {key: setting.default for key, setting in picture.settings.items()} | changes
    if "gpu" in settings:
        settings["gpu"] = changes.get("gpu", DEFAULT_GPU)
    return tuple(parts(picture, settings))


def _sections() -> Iterator[Section]:
    yield Section(
        "Bytes against N",
        "Naive attention moves the N x N matrix; flash moves K and V once for each Q tile. With tall tiles its line "
        "lies lower: the second figure has Br = 128.",
        (*_picture("traffic", N=4096), *_picture("traffic", N=4096, Br=128, Bc=64)),
    )
    yield Section("What naive attention's kernels move", "Hatched is written, plain is read.", _picture("naive"))
    yield Section(
        "Memory held against N", "Where the matrix S and P no longer fit into a GPU's memory.", _picture("memory")
    )
    yield Section("Memories of a GPU", "Sizes and speeds, each on its own axis.", _picture("levels", gpu=DEFAULT_GPU))
    yield Section(
        "Which Br x Bc can be",
        "Kernel 02 on an H200: requested bytes, and occupancy. Grey cells cannot be and say why.",
        (*_tiles("requested"), *_tiles("occupancy")),
    )  # fmt: skip
    if ladder.shipped():
        yield Section(
            "The ladder",
            "Kernels with one new idea each, beside libraries: fp32 kernels first, then those on tensor cores.",
            (*_picture("ladder"), *_picture("ladder", d=128)),
        )
    yield Section(
        "Which SM does what when",
        "512 blocks on the 132 SMs of an H200, phase by phase, without a mask and with a causal one: waves, and the "
        "tail in which SMs have nothing left. Times follow a simple cost and are no measurement.",
        (*_picture("timeline"), *_picture("timeline", causal="br")),
    )
    yield Section(
        "A row of scores that arrives in tiles", "m, l and alpha after the third tile.", _picture("row", tile=3)
    )
    yield Section("Scores become weights", "Four scores.", _picture("softmax"))
    yield Section("Where a real model looks", "One head over a sentence.", _picture("words"))
    yield Section(
        "Where [B, H, N, d] lies in memory", "The number in a cell is its place.", _picture("heads", h=1, n=2, k=1)
    )


def _tiles(metric: Metric) -> Iterator[Part]:
    problem, gpu = Problem(N=4096, H=16, d=64), GPUS[DEFAULT_GPU]
    drawn = tile_map("02", problem, gpu, recordings=shipped())
    best = drawn.best(metric)
    assert best is not None
    said = f"Br = {best.tiling.Br}, Bc = {best.tiling.Bc} with {shown(best, metric)}"
    yield Words(f"**{NAMES[metric].capitalize()}**, best at {said}.")
    found = tile_cells(drawn, metric, (32, 32), presets(problem.d, False, gpu))
    yield Chart(found, f"tiles-{metric}", f"{NAMES[metric]} for each Br x Bc; best {said}.")


__all__ = ["files"]
