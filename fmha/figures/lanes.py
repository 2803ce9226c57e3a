"""The 32 lanes of a warp in a row, and what each asks for: HTML, so that a narrow page can wrap the row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from fmha.figures import theme

# Wide: one row of 32 with the names of the lines in front; narrow: four or two rows, and each lane says its own names.
_STYLE = """<style>
.fmha-lanes{container-type:inline-size;margin:.2rem 0 .6rem}
.fmha-lanes ol{display:grid;grid-template-columns:repeat(4,1fr);gap:2px;margin:0;padding:0;list-style:none}
.fmha-lanes li{display:grid;grid-auto-rows:1.35rem;margin:0;padding:0 1px;border-radius:3px;text-align:center;
 min-width:0;font-size:.8rem;line-height:1.35rem;font-variant-numeric:tabular-nums;white-space:nowrap;overflow:hidden;
 background:var(--lane);border:1px solid transparent}
.fmha-lanes li.first{display:none}
.fmha-lanes li b{font-size:.85rem}
.fmha-lanes li.out{background:repeating-linear-gradient(45deg,rgba(128,136,150,.22) 0 4px,transparent 4px 8px);
 border-color:rgba(128,136,150,.45)}
.fmha-lanes li.none{background:none;border:1px dashed rgba(128,136,150,.45);opacity:.6}
.fmha-lanes li span::before{content:attr(data-name) " ";opacity:.7;font-size:.72rem}
.fmha-lanes li b::before{content:"["}
.fmha-lanes li b::after{content:"]"}
.fmha-lanes li.out b::before,.fmha-lanes li.out b::after{content:none}
@container (min-width:34rem){.fmha-lanes ol{grid-template-columns:repeat(8,1fr)}}
@container (min-width:66rem){
 .fmha-lanes ol{grid-template-columns:5.4rem repeat(32,minmax(0,1fr));gap:1px}
 .fmha-lanes li{font-size:.72rem;padding:0}
 .fmha-lanes li b{font-size:.76rem}
 .fmha-lanes li.first{display:grid;background:none;text-align:right;padding-right:.5rem;font-size:.8rem}
 .fmha-lanes li span::before,.fmha-lanes li b::before,.fmha-lanes li b::after{content:none}
}
</style>"""


@dataclass(frozen=True)
class Lane:
    """One lane. values: what it asks for, one for each of the picture's names; None: it sits out. thread: its number in
    the block; None: there is no such thread. is_strong: shaded, such as the lanes that are served first."""

    thread: int | None
    values: tuple[str, ...] | None
    is_strong: bool = True


def lanes(row: Sequence[Lane], names: Sequence[str], role: str, label: str) -> str:
    """The picture.

    Args:
        row: 32 lanes. names: of the values of each lane, from above to below; the thread's number comes first and is
            not named. role: whose colour the lanes have (`theme.ROLES`). label: the picture in words, for those who
            cannot see it.
    """
    first = "".join(f"<span>{escape(name)}</span>" for name in ("thread", *names))
    cells = [f'<li class="first" aria-hidden="true">{first}</li>', *(_cell(lane, names, role) for lane in row)]
    return f'{_STYLE}<div class="fmha-lanes"><ol role="img" aria-label="{escape(label)}">{"".join(cells)}</ol></div>'


def _cell(lane: Lane, names: Sequence[str], role: str) -> str:
    if lane.thread is None:
        return '<li class="none" title="the block has no such thread"><b>–</b></li>'
    number = f'<span data-name="t">{lane.thread}</span>'
    if lane.values is None:
        return f'<li class="out" title="thread {lane.thread} sits out">{number}<b>out</b></li>'
    ground = theme.color(role, 0.5 if lane.is_strong else 0.14)
    values = [
        f"<span><b>{escape(value)}</b></span>"
        if index == 0
        else f'<span data-name="{escape(name)}">{escape(value)}</span>'
        for index, (name, value) in enumerate(zip(names, lane.values, strict=True))
    ]
    said = ", ".join(f"{name} {value}" for name, value in zip(names, lane.values, strict=True))
    title = escape(f"thread {lane.thread}: {said}")
    return f'<li style="--lane:{ground}" title="{title}">{number}{"".join(values)}</li>'


__all__ = ["Lane", "lanes"]
