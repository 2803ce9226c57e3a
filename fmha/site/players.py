"""Players of prepared runs: what is worth seeing, from small to large, each a file of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from fmha.export.player_file import html
from fmha.picture.moment import asked, prepared
from fmha.picture.parts import Player
from fmha.player.scene import Played, prepare
from fmha.problem import Problem, Tiling
from fmha.site.frame import page

FOLDER = "players"


@dataclass(frozen=True)
class Preset:
    """A run to watch. about: what to look at. l2_kib: what L2 holds; None: the GPU's."""

    name: str
    title: str
    about: str
    problem: Problem
    tiling: Tiling
    sms: int
    order: str = "q-outer"
    input: str = "random"
    race: bool = False
    l2_kib: int | None = None

    def played(self) -> Played:
        """Simulate it."""
        return prepare(self.problem, self.tiling, self.order, self.input, sms=self.sms)


PRESETS = (
    Preset(
        "first-look", "A first look",
        "Eight workers, one for each Q tile, stream eight K/V tiles past it. Watch the score tile in the middle: it is "
        "made, used and forgotten. The shaded square is the N x N matrix that is never stored.",
        Problem(N=64, d=8), Tiling(8, 8), 8,
    ),
    Preset(
        "four-by-four", "Every number of a 4 x 4 case",
        "The worked example: two workers, two tiles each. Step with the right arrow and check each number by hand: m, "
        "l, alpha, and O before and after the division.",
        Problem(N=4, d=4), Tiling(2, 2), 2, input="worked",
    ),
    Preset(
        "rising", "The maximum rises at every tile",
        "Every key scores higher than the one before it, so alpha is below 1 at each visit: see l and O shrink before "
        "the new tile is added.",
        Problem(N=32, d=8), Tiling(8, 4), 4, input="rising",
    ),
    Preset(
        "sentence", "A real sentence",
        "Q, K and V of one head of a language model over sixteen tokens. Choose a row of the score tile: which word "
        "does it look at?",
        Problem(N=16, d=32), Tiling(4, 4), 4, input="sentence",
    ),
    Preset(
        "causal", "A causal mask",
        "Tiles above the diagonal are never loaded: workers of the first tokens are done early, and their SMs stand "
        "idle. The tiles on the diagonal are cut.",
        Problem(N=128, d=16, causal="bottom-right"), Tiling(8, 8), 16,
    ),
    Preset(
        "race", "Race: naive attention beside flash",
        "One clock for both. Naive has to finish all of S before the softmax starts and all of P before PV; each of "
        "their bytes goes out to HBM and comes back. Compare the two meters.",
        Problem(N=128, d=16), Tiling(16, 16), 8, race=True,
    ),
    Preset(
        "kv-outer", "The other loop order: kv-outer",
        "FlashAttention-1 has K and V outside: Q is read and O, m and l are read and written again for every K/V tile. "
        "Watch the write meter.",
        Problem(N=64, d=16, H=4), Tiling(8, 8), 4, order="kv-outer",
    ),
    Preset(
        "waves", "Waves and a tail",
        "Forty workers on sixteen SMs: two full waves and half a one. The strip of SMs by time shows who waits at the "
        "end.",
        Problem(N=80, d=16, H=4), Tiling(8, 16), 16,
    ),
    Preset(
        "small-l2", "When L2 is too small",
        "L2 holds 6 KiB here, less than K and V together: the same tile comes from HBM again and again. Loads that L2 "
        "answers are drawn apart from those that it does not.",
        Problem(N=96, d=16), Tiling(8, 8), 6, l2_kib=6,
    ),
    Preset(
        "ragged", "A ragged end",
        "N = 100 is no multiple of 16: the last Q tile and the last K/V tile are short. Only real rows are loaded, "
        "and keys that do not exist get no weight.",
        Problem(N=100, d=16), Tiling(16, 16), 7,
    ),
)  # fmt: skip


def files(more: Sequence[tuple[str, str, str]] = ()) -> dict[str, str]:
    """The players by path, and the page that lists them.

    more: other players that it lists: address, title, what to look at.
    """
    made: dict[str, str] = {}
    for k, preset in enumerate(PRESETS):
        links = [("All players", "../players.html")]
        if k:
            links.append((f"‹ {PRESETS[k - 1].title}", f"{PRESETS[k - 1].name}.html"))
        if k + 1 < len(PRESETS):
            links.append((f"{PRESETS[k + 1].title} ›", f"{PRESETS[k + 1].name}.html"))
        l2 = None if preset.l2_kib is None else 1024 * preset.l2_kib
        made[f"{FOLDER}/{preset.name}.html"] = html(
            preset.played(), l2_bytes=l2, race=preset.race, title=preset.title, about=preset.about, links=links,
        )  # fmt: skip
    own = [(f"{FOLDER}/{p.name}.html", p.title, p.about) for p in PRESETS]
    cards = "".join(
        f'<li><a href="{address}"><b>{k}. {escape(title)}</b>{escape(about)}</a></li>'
        for k, (address, title, about) in enumerate([*own, *more], 1)
    )
    body = (
        '<h1>Players</h1><p class="idea">Each is a whole run, tile by tile, with its real numbers: Space plays, the '
        "arrow keys step, <code>?</code> shows all keys, <code>s</code> saves a picture or a film. A player is one "
        f'file that needs no other; send it on as it is.</p><ol class="cards">{cards}</ol>'
    )
    made["players.html"] = page("players.html", "Players", body)
    return made


def of_step(part: Player, title: str) -> str:
    """The player that a step of a lecture shows, as a page."""
    wanted = asked(part.settings)
    now = wanted.played()
    stands = prepared(now.run, part.settings)
    where = {"event": 0} if stands is None else {"event": stands.event, "row": stands.row, "col": stands.col}
    return html(now, race=bool(part.settings["race"]), title=title, **where)  # type: ignore[arg-type]


__all__ = ["FOLDER", "PRESETS", "files", "of_step"]
