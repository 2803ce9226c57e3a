"""A sentence whose words carry their weight: HTML, for a page that lets words wrap as words do."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from fmha.figures import theme

_STYLE = """<style>
.fmha-words{display:flex;flex-wrap:wrap;gap:.35rem .3rem;margin:.4rem 0 .6rem}
.fmha-word{display:inline-flex;flex-direction:column;align-items:center;min-width:2.6rem;
 padding:.25rem .4rem 0;border-radius:.4rem;border:3px solid transparent;font-size:1.25rem;line-height:1.5}
.fmha-word small{font-size:.95rem;font-variant-numeric:tabular-nums}
.fmha-bar{height:.4rem;width:100%;margin:.1rem 0 .3rem;border-radius:.2rem;background:rgba(128,136,150,.2)}
.fmha-bar i{display:block;height:100%;border-radius:.2rem}
</style>"""


def weighted_words(tokens: Sequence[str], weights: Sequence[float], query: int) -> str:
    """One box a word: its ground is as strong as its weight, a bar and a number say it again.

    Args:
        tokens: N words; escaped here.
        weights: N numbers in [0, 1], the query's row of P.
        query: index of the query word, which is framed.
    """
    boxes, described = [], []
    for index, (token, weight) in enumerate(zip(tokens, weights, strict=True)):
        ground = theme.color("S", round(0.04 + 0.5 * float(weight), 3))
        border = theme.color("Q") if index == query else "transparent"
        bar = f'<i style="width:{100 * float(weight):.1f}%;background:{theme.color("S")}"></i>'
        boxes.append(
            f'<span class="fmha-word" style="background:{ground};border-color:{border}">{escape(token)}'
            f'<span class="fmha-bar">{bar}</span><small>{_percent(float(weight))}</small></span>'
        )
        described.append(f"{escape(token)} {_percent(float(weight))}")
    text = escape(f"Weights of the words for the query {tokens[query]}: ") + "; ".join(described)
    return f'{_STYLE}<div class="fmha-words" role="img" aria-label="{text}">{"".join(boxes)}</div>'


def _percent(weight: float) -> str:
    return f"{100 * weight:.0f} %" if weight >= 0.01 else "&lt; 1 %"
