"""A run in a notebook: the player in a frame of its own, without Streamlit and without the network."""

from __future__ import annotations

import html as markup
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fmha.errors import FmhaError
from fmha.units import format_bytes, format_time_us

if TYPE_CHECKING:
    from fmha.player.scene import Played
    from fmha.simulation import Run

HEIGHT = 860  # pixels; the player at the width of a notebook's cell, its buttons and its notes


@dataclass(frozen=True)
class Shown:
    """What `show` returns: a notebook displays it. `page` is the player's file, `frame` the HTML around it."""

    page: str
    height: int

    @property
    def frame(self) -> str:
        """The page in an <iframe>: its scripts run apart from the notebook's, and may save files."""
        rights = 'sandbox="allow-scripts allow-downloads allow-forms" allow="fullscreen"'
        style = f"width: 100%; height: {self.height}px; border: 0"
        page = markup.escape(self.page)
        return f'<iframe title="FlashAttention player" {rights} style="{style}" srcdoc="{page}"></iframe>'

    def _repr_html_(self) -> str:
        return self.frame

    def __repr__(self) -> str:
        return f"<the player, {len(self.page):,} characters of HTML; a notebook shows it>"


def show(run: Run | Played, *, height: int = HEIGHT, **look: Any) -> Shown:
    """The player of a run, for the last line of a notebook's cell (Jupyter, VS Code, Colab).

        show(run, race=True)

    Args:
        height: of the frame, in pixels.
        look: as for `fmha.export.html`: inputs, gpu, sms, l2_bytes, race, event, row, col, title, theme.

    Raises:
        ProblemError, LimitError: a run that cannot be animated: of naive attention, or with too many tiles.
    """
    from fmha.export.player_file import html  # here: `import fmha` needs none of it

    return Shown(html(run, **look), height)


def repr_html(run: Run) -> str:
    """What a notebook displays of a run: its numbers in a line, and the player; a sentence where it cannot play."""
    p, t = run.problem, run.tiling
    from fmha.traffic import count

    moved = count(run.events, run.order)
    words = (
        f"{run.order}: B={p.B} H={p.H} Nq={p.Nq} Nk={p.Nk} d={p.d} {p.dtype}, Br={t.Br} Bc={t.Bc}, "
        f"{format_bytes(moved.requested_bytes)} requested in {len(run.events):,} events, "
        f"{format_time_us(float(run.events['t1'].max(initial=0)))}"
    )
    head = f"<p>{markup.escape(words)}</p>"
    try:
        return head + show(run).frame
    except FmhaError as error:
        text = str(error)
        return f"{head}<p>{markup.escape(text[:1].upper() + text[1:])}</p>"


__all__ = ["Shown", "repr_html", "show"]
