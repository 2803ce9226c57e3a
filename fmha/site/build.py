"""All files of the site, and the folder that holds them."""

from __future__ import annotations

import shutil
from html import escape
from pathlib import Path

from fmha.errors import InputError
from fmha.export.bundle import bundle
from fmha.export.player_file import variables
from fmha.site import as_run, figures, lecture, players, recorded, show, words
from fmha.site.frame import ASSETS, page

MARK = ".fmha-site"  # a folder with this file was made here, and may be written again
_HERE = Path(__file__).resolve().parent / "frontend"
_CHART = Path(__file__).resolve().parent.parent / "chart" / "frontend"

LEFT_OUT = (
    "Left out is what needs Python or a GPU at hand: sliders that compute anew, your own Q, K and V, running the .cu "
    "files on a CPU or a GPU, Under the hood of HBM, Inside the kernel and Kernel lab with their controls, and decks "
    "of your own. For these start the app: make run."
)


def files() -> dict[str, str]:
    """Every page and file of text, by its path in the site."""
    made = {"index.html": _start()}
    for part in (lecture, as_run, figures, recorded, words):
        made |= part.files()
    made |= players.files(as_run.cards(made))
    style = "\n".join(
        [variables(None), *(p.read_text(encoding="utf-8") for p in (_HERE / "site.css", _CHART / "chart.css"))]
    )
    return made | {f"{ASSETS}/site.css": style, f"{ASSETS}/site.js": bundle([_HERE / "site.mjs"])}


def build(folder: Path) -> list[Path]:
    """Write the site into `folder`, which is made, or was made by an earlier call. Returns what was written.

    Raises:
        InputError: the folder holds something else, or cannot be written.
    """
    if folder.exists() and (not folder.is_dir() or (any(folder.iterdir()) and not (folder / MARK).exists())):
        raise InputError(f"{str(folder)[:80]} holds something else: name an empty folder, or one that does not exist.")
    made = files()
    written = [folder / MARK, *(folder / name for name in made), folder / ASSETS / "plotly.min.js"]
    try:
        if folder.exists():
            for old in (ASSETS, lecture.FOLDER, players.FOLDER, recorded.FOLDER):
                shutil.rmtree(folder / old, ignore_errors=True)
        for path in written:
            path.parent.mkdir(parents=True, exist_ok=True)
        written[0].write_text("Made by `python -m fmha site`, which may write this folder again.\n", encoding="utf-8")
        for name, text in made.items():
            (folder / name).write_text(text, encoding="utf-8")
        shutil.copyfile(_plotly(), written[-1])
    except OSError as error:
        raise InputError(f"{str(folder)[:80]} cannot be written: {error.strerror or error}.") from None
    return written


def _plotly() -> Path:
    """The library that draws figures: Plotly's own package brings the one that its figures are written for."""
    import plotly

    return Path(plotly.__file__).resolve().parent / "package_data" / "plotly.min.js"


def _start() -> str:
    cards = [
        ("lecture/01.html", "The lecture", "The whole story in steps, from a lookup to a CUDA kernel, with questions "
         "to predict. Page Down reveals and goes on."),
        ("players.html", "Players", "Runs, tile by tile, with their real numbers; one has the times of a GPU."),
        ("figures.html", "Figures", "Bytes against N, tile sizes, SMs by time, a row in tiles: to zoom and to save."),
        ("recorded.html", "Recorded on GPUs", "Our kernels and libraries on an H200: checked, timed, counted."),
        ("papers.html", "Paper check", "Claims of the attention papers, computed again."),
        ("glossary.html", "Glossary", "Every symbol and word, with unit and source, and the formulas with numbers."),
    ]  # fmt: skip
    items = "".join(
        f'<li><a href="{target}"><b>{escape(title)}</b>{escape(about)}</a></li>' for target, title, about in cards
    )
    first = players.PRESETS[0]
    body = (
        '<h1>Watch FlashAttention move data</h1><p class="idea">Workers stream K/V tiles through shared memory, '
        "running maxima move and byte meters tick. Every number here was computed by a simulator of the tiles, or "
        f"measured on a real GPU. Press play.</p>{show.frame(f'{players.FOLDER}/{first.name}.html', first.title)}"
        f'<ul class="cards">{items}</ul><p class="small">{escape(LEFT_OUT)}</p>'
    )
    return page("index.html", "Watch FlashAttention move data", body)


__all__ = ["LEFT_OUT", "MARK", "build", "files"]
