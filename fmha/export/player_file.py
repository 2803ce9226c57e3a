"""The player as one HTML file that needs nothing else: no server, no network, no Python.

The file holds the app's own player (its modules in one script), its data, and a content policy that lets nothing be
loaded and no other script run. Python is not there to send the numbers of another worker when it comes into focus; so
they are all in the file, as many as fit, and the file says which are missing.
"""

from __future__ import annotations

import base64
import hashlib
import html as markup
import zlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from fmha.errors import InputError
from fmha.export.animated import animated
from fmha.export.bundle import bundle
from fmha.hardware import Gpu
from fmha.inputs import Inputs
from fmha.player.payload import Scene, build, exact_tile_bytes
from fmha.player.scene import Played, opening_event
from fmha.problem import check_whole
from fmha.simulation import Run
from fmha.units import format_bytes

MOST_BYTES = 1_900_000  # of a file, where that can be kept
_HERE = Path(__file__).resolve().parent / "frontend"
_PLAYER = Path(__file__).resolve().parent.parent / "player" / "frontend"

# The page's grounds and inks, as in the app's theme (.streamlit/config.toml; a test compares them).
COLOURS = {
    "light": {
        "background-color": "#ffffff", "secondary-background-color": "#f1f4f8", "text-color": "#0d131c",
        "border-color": "#c9d2de", "primary-color": "#1f5fbf",
    },
    "dark": {
        "background-color": "#10151c", "secondary-background-color": "#1b232e", "text-color": "#e6ebf2",
        "border-color": "#38434f", "primary-color": "#7db3ff",
    },
}  # fmt: skip


def html(
    run: Run | Played,
    *,
    inputs: Inputs | None = None,
    gpu: Gpu | None = None,
    sms: int | None = None,
    l2_bytes: float | None = None,
    race: bool = False,
    event: int | None = None,
    row: int = 0,
    col: int = 0,
    title: str = "Tiles in motion",
    most_bytes: int = MOST_BYTES,
    theme: str | None = None,
    job: str | None = None,
    about: str = "",
    links: Sequence[tuple[str, str]] = (),
    times: str = "",
) -> str:
    """The player of `run` as the text of one HTML file. It plays, steps and scrubs as in the app, and saves films.

    Args:
        inputs, gpu, sms: as for `fmha.export.animated.animated`.
        l2_bytes: what L2 holds; None: the L2 of the GPU.
        race: naive attention beside flash.
        event: row of the event table at which the player opens; None: a moment with something to see.
        row, col: row and column of the score tile that are selected.
        most_bytes: how long the file may be; real numbers of Q tiles are left out for it, but at least one has its own.
        theme: "light" or "dark"; None: as the reader's system has it.
        job: a script that the page runs too, allowed to reach the server that it came from.
        about: a sentence or two below the title, plain text.
        links: (words, address) of pages beside this one, above the title.
        times: where the times are from, a sentence or two in plain text; by default they are those of the simple cost.

    Raises:
        ProblemError, LimitError: what cannot be animated; see `fmha.export.animated`.
        InputError: no such event.
    """
    now = animated(run, inputs=inputs, gpu=gpu, sms=sms)
    events = now.run.events
    opened = opening_event(now.run, 0) if event is None else check_whole("event", event, 0, len(events) - 1, InputError)
    what = events[opened]
    tile = (int(what["h"]), int(what["i"])) if what["i"] >= 0 else None
    scene = Scene(
        now.gpu, now.sms, int(what["sm"]), tile, race, (opened, row, col, event is None),
        now.inputs.heads, now.inputs.tokens,
    )  # fmt: skip
    served = now.served(l2_bytes)

    def page(tiles: int) -> str:
        """The file with the real numbers of so many Q tiles."""
        room = replace(scene, exact_bytes=tiles * exact_tile_bytes(now.run))
        payload = build(now.run, now.naive_events, served, room)
        head = _head(title, _setting(now, l2_bytes), about, links)
        return _page(payload, title, head, _note(now, tiles, times), theme, job)

    return _longest_within(page, now.run.problem.H * now.run.tiling.Tr(now.run.problem), most_bytes, now.run)


def _longest_within(page: Callable[[int], str], tiles: int, most_bytes: int, run: Run) -> str:
    """`page(n)` with n, 1 to `tiles`, nearly as large as it can be for a text of `most_bytes`; at least `page(1)`."""
    each = exact_tile_bytes(run) * 4 / 3  # of text, if packing saved nothing
    n = min(tiles, max(1, int(most_bytes / each / 1.5)))
    best = page(n)
    if len(best) > most_bytes and n > 1:
        n, best = 1, page(1)
    for _ in range(3):
        more = min(tiles, n + int((most_bytes - len(best)) / each))
        if more <= n:
            break
        text = page(more)
        if len(text) > most_bytes:
            break
        each = 1.02 * (len(text) - len(best)) / (more - n)
        n, best = more, text
    return best


def _head(title: str, setting: str, about: str, links: Sequence[tuple[str, str]]) -> str:
    """What stands above the player."""
    anchors = "".join(f'<a href="{markup.escape(target)}">{markup.escape(words)}</a>' for words, target in links)
    nav = f'<nav aria-label="Pages">{anchors}</nav>\n' if links else ""
    said = f'\n<p class="about">{markup.escape(about)}</p>' if about else ""
    head = f'<h1>{markup.escape(title)}</h1><p class="setting">{markup.escape(setting)}</p>'
    return f"{nav}<header>{head}</header>{said}"


def _page(payload: bytes, title: str, head: str, note: str, theme: str | None, job: str | None) -> str:
    scripts = [bundle([_HERE / "alone.mjs"]), *([job] if job else [])]
    style = "\n".join([variables(theme), *(_read(p) for p in (_PLAYER / "player.css", _HERE / "alone.css"))])
    hashes = " ".join(f"'sha256-{_base64(hashlib.sha256(text.encode()).digest())}'" for text in scripts)
    reach = "connect-src 'self'; " if job else ""
    policy = f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; {reach}img-src data: blob:"
    packed = _base64(zlib.compress(payload))
    tags = "\n".join(f"<script>{text}</script>" for text in scripts)
    return f"""<!DOCTYPE html>
<html lang="en"{f' class="{theme}"' if theme else ""}>
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{markup.escape(title)} - FMHA Lab</title>
<style>
{style}
</style>
</head>
<body>
{head}
<main id="stage">
{_read(_PLAYER / "player.html")}
</main>
<p class="note">{markup.escape(note)}</p>
<noscript>The player needs JavaScript.</noscript>
<script type="text/plain" id="payload">{packed}</script>
{tags}
</body>
</html>
"""


def _setting(now: Played, l2_bytes: float | None) -> str:
    problem, tiling = now.run.problem, now.run.tiling
    tokens = f"N = {problem.Nq}" if problem.Nq == problem.Nk else f"Nq = {problem.Nq} · Nk = {problem.Nk}"
    l2 = now.gpu.l2_bytes if l2_bytes is None else l2_bytes
    parts = [
        tokens, f"d = {problem.d}", f"Br = {tiling.Br}", f"Bc = {tiling.Bc}", f"H = {problem.H}", problem.dtype,
        f"causal {problem.causal}" if problem.causal else "no mask", now.run.order, now.inputs.title,
        f"{now.sms} {'SM' if now.sms == 1 else 'SMs'} of {now.gpu.name}", f"L2 holds {format_bytes(int(l2))}",
    ]  # fmt: skip
    return " · ".join(part for part in parts if part)


def _note(now: Played, have: int, times: str) -> str:
    """What is in the file, what is not, and what its times are."""
    problem, tiling = now.run.problem, now.run.tiling
    of = problem.H * tiling.Tr(problem)
    numbers = (
        "S, P, m, l, alpha and O are here for every Q tile."
        if have == of
        else f"S, P, m, l, alpha and O are here for {have} of {of} Q tiles; of the others this file has pictures only."
    )
    cost = (
        f"Times follow a simple cost: bytes and FLOPs of each phase over one SM's share of the {now.gpu.name}, without "
        "latency or overlap. They order the picture and are no measurement."
    )
    return (
        f"{numbers} Press ? for the keys, s to save a picture or a film. {times or cost} Requested bytes: what workers "
        "load and store beyond their shared memory. Made with FMHA Lab."
    )


def variables(theme: str | None) -> str:
    """The page's colours as CSS; None: as the reader's system has it."""

    def block(mode: str) -> str:
        return "; ".join(f"--st-{name}: {value}" for name, value in COLOURS[mode].items())

    if theme in COLOURS:
        return f":root {{ {block(theme)}; }}\n:root.{theme} {{ color-scheme: {theme}; }}"
    return f":root {{ {block('light')}; }}\n@media (prefers-color-scheme: dark) {{ :root {{ {block('dark')}; }} }}"


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


__all__ = ["COLOURS", "MOST_BYTES", "html", "variables"]
