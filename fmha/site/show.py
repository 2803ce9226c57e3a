"""Parts of pictures (`fmha.picture.parts`) as HTML: figures with their data beside them, players in frames."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from html import escape
from typing import TYPE_CHECKING, Any

from fmha.chart import MENU as SAVE
from fmha.figures import theme
from fmha.picture.parts import Beside, Chart, Drawing, Maths, Note, Origin, Part, Player, Words
from fmha.site.frame import ASSETS
from fmha.site.maths import mathml
from fmha.site.text import html_of

if TYPE_CHECKING:
    import plotly.graph_objects as go

_HEIGHT = 380  # pixels, of a figure that does not say
PlayerPage = Callable[[Player], str]  # makes the player's own page and returns its address, relative to the page here


def shown(parts: Iterable[Part], up: str, player: PlayerPage) -> str:
    """Parts from above to below. up: the way from this page to the site's folder, "" or "../"."""
    return "\n".join(_one(part, up, player) for part in parts)


def figure(fig: go.Figure, alt: str, up: str) -> str:
    """A figure: drawn when it comes into view, saved by its menu. alt: what it shows, in words."""
    own: Any = fig.layout.height
    height = int(own) if own else _HEIGHT
    data = json.dumps({"alt": alt, "height": height})[:-1] + f', "figure": {fig.to_json(validate=False)}}}'
    return (
        f'<figure><div class="fmha-chart" role="img" aria-label="{escape(alt)}" style="height: {height}px" '
        f'data-plotly="{up}{ASSETS}/plotly.min.js" data-swaps="{escape(json.dumps(theme.swaps()))}"></div>{SAVE}'
        # A closing tag in the data would end the script.
        f'<script type="application/json">{data.replace("<", chr(92) + "u003c")}</script></figure>'
    )


def frame(address: str, title: str) -> str:
    """A player in the page, and the way to see it alone."""
    return (
        f'<div class="player"><iframe src="{escape(address)}" title="{escape(title)}" loading="lazy" '
        'allow="fullscreen"></iframe></div>'
        f'<p class="small"><a href="{escape(address)}">The player alone</a>, in the whole window.</p>'
    )


def _one(part: Part, up: str, player: PlayerPage) -> str:
    match part:
        case Words(text, quiet):
            return f'<div class="small">{html_of(text)}</div>' if quiet else html_of(text)
        case Note(text):
            return f'<p class="box">{escape(text)}</p>'
        case Maths(latex):
            return mathml(latex, display=True)
        case Drawing(html):
            return html
        case Chart(fig, _, alt):
            return figure(fig, alt, up)
        case Player():
            return frame(player(part), "The player, with the settings of this step")
        case Origin(found):
            device = found.recording.device
            said = (
                f"Recorded on {device.facts.name}, driver {device.driver}, CUDA {device.cuda}, {found.run.made[:10]}."
            )
            return f'<p class="small">{escape(said)}</p>'
        case Beside(inside):
            return f'<div class="beside">{"".join(f"<div>{_one(one, up, player)}</div>" for one in inside)}</div>'


__all__ = ["PlayerPage", "figure", "frame", "shown"]
