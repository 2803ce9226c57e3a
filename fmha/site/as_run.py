"""Runs that a GPU stamped with times: as timelines above what was predicted, and one in the player."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

from fmha.as_run import AsRun, as_run, predicted
from fmha.errors import FmhaError
from fmha.export.player_file import html
from fmha.figures.gantt import gantt
from fmha.gantt_map import View, gantt_map
from fmha.player.as_run import play
from fmha.site import show
from fmha.site.players import FOLDER
from fmha.spans import Blocks, blocks_of, idle_areas, waves_of
from fmha.stamp_files import open_stamps, shipped
from fmha.units import format_ratio, format_time_us

PLAYED = "h200-02-n2048-h1"  # 64 workers, an SM for each
TIMELINES = ("h200-02-n1024-h16", "h200-02-n1024-h16-causal", "h200-06-n1024-h16")
PLAYER = f"{FOLDER}/as-run.html"
TITLE = "As run on an H200"
ABOUT = (
    "64 workers, an SM for each, with the times that the GPU wrote down in place of a model's: watch them drift apart."
)
_TALL = 300  # pixels of all SMs


def opened(name: str) -> AsRun | None:
    """A recording that comes with the app; None where it does not."""
    path = shipped().get(name)
    return None if path is None else as_run(open_stamps(path))


def files() -> dict[str, str]:
    """The player of a recorded run, by path; nothing where that recording is not there."""
    run = opened(PLAYED)
    if run is None:
        return {}
    now, said = play(run)
    links = [("All players", "../players.html"), ("Recorded timelines", "../recorded.html#as-run")]
    return {PLAYER: html(now, title=TITLE, about=ABOUT, links=links, times=f"{said} {run.origin}")}


def cards(made: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """What the list of players says of it, if it was made: address, title, what to look at."""
    return [(PLAYER, TITLE, ABOUT)] if PLAYER in made else []


def section() -> str:
    """The timelines as HTML, each with what the model says of the same blocks; "" without recordings."""
    found = [run for name in TIMELINES if (run := opened(name)) is not None]
    if not found:
        return ""
    head = (
        '<h2 id="as-run">As run: which SM did what when</h2><p>Each block wrote down when its phases began. Below each '
        "run is what the simple cost predicts of the same blocks, on the same axis of time; where the two differ, the "
        "model leaves something out: bank conflicts, latency, what neighbours do to one another.</p>"
    )
    return head + "".join(_timeline(run) for run in found)


def _timeline(run: AsRun) -> str:
    try:
        events = predicted(run)
        model = blocks_of(events, run.sms)
    except FmhaError as error:
        return f"<h3>{escape(run.title)}</h3><p>{escape(str(error))}</p>"
    until = max(run.blocks.end, model.end)
    took, said = run.blocks.span, model.span
    words = (
        f"The GPU took {format_time_us(took)}, the simple cost says {format_time_us(said)}: "
        f"{format_ratio(took / said)}. {run.origin}"
    )
    figures = "".join(
        f"<p><b>{name}</b></p>{_drawn(events, blocks, until, f'{name}, {run.title}: {format_time_us(blocks.span)}.')}"
        for name, events, blocks in (("As run", run.events, run.blocks), ("Predicted", events, model))
    )
    return f"<h3>{escape(run.title)}</h3><p>{escape(words)}</p>{figures}"


def _drawn(events: object, blocks: Blocks, until: float, alt: str) -> str:
    cells = gantt_map(events, blocks, View(0, blocks.sms, blocks.begin, until))  # type: ignore[arg-type]
    rows = cells.cells.shape[0]
    fig = gantt(cells, blocks, idle_areas(blocks), waves_of(blocks), height=max(1, _TALL // rows) * rows)
    return show.figure(fig, alt, "")


__all__ = ["PLAYER", "files", "section"]
