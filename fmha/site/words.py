"""Glossary, formulas with numbers, and references as pages."""

from __future__ import annotations

from html import escape

from fmha import glossary, references
from fmha.formulas import compulsory, flops, matrix_bytes, requested, smem, tile_counts
from fmha.glossary import Term
from fmha.problem import Problem, Tiling
from fmha.references import Reference
from fmha.site.frame import page
from fmha.site.maths import mathml

EXAMPLE, TILES = Problem(H=16, N=4096, d=64), Tiling(32, 32)


def files() -> dict[str, str]:
    """The two pages, by path."""
    return {"glossary.html": _glossary(), "references.html": _references()}


def _glossary() -> str:
    groups = "".join(
        f'<h2>{escape(name)}</h2><dl class="columns">{"".join(_term(term) for term in terms)}</dl>'
        for name, terms in glossary.GROUPS.items()
    )
    made = [
        *tile_counts(EXAMPLE, TILES), *(requested(EXAMPLE, TILES, order) for order in ("naive", "q-outer", "kv-outer")),
        compulsory(EXAMPLE), matrix_bytes(EXAMPLE), flops(EXAMPLE, TILES), smem(TILES, EXAMPLE.d),
    ]  # fmt: skip
    formulas = "".join(
        f"<h3>{escape(f.title)}</h3>{mathml(f.latex, display=True)}"
        + (f'<p class="small">{escape(f.note)}</p>' if f.note else "")
        for f in made
    )
    return page(
        "glossary.html", "Glossary",
        f'<h1>Glossary</h1><p class="idea">{len(glossary.TERMS)} symbols and words, each used for one thing only. The '
        f"letters are those of the papers.</p>{groups}<h2>The symbols at work</h2><p>H = 16 heads, N = 4,096 tokens, "
        f"d = 64, Br = Bc = 32, fp32.</p>{formulas}"
    )  # fmt: skip


def _term(term: Term) -> str:
    also = f" ({escape(', '.join(term.also))})" if term.also else ""
    facts = [f"unit: {term.unit}"] if term.unit else []
    facts += [f"from {term.source}"] if term.source != glossary.HERE else []
    small = f' <span class="small">{escape("; ".join(facts))}</span>' if facts else ""
    return f"<div><dt>{escape(term.name)}{also}</dt><dd>{escape(term.meaning)}{small}</dd></div>"


def _references() -> str:
    groups = "".join(
        f"<h2>{escape(name)}</h2>{''.join(_reference(entry) for entry in entries)}"
        for name, entries in references.GROUPS.items()
    )
    return page(
        "references.html", "References",
        f'<h1>References</h1><p class="idea">{len(references.REFERENCES)} papers, manuals and sources, each with the '
        f"section that is used and what for.</p>{groups}"
    )  # fmt: skip


def _reference(reference: Reference) -> str:
    who = escape(", ".join(part for part in (reference.who, reference.year) if part))
    where = escape(reference.found)
    if reference.link:
        where = f'<a href="{escape(reference.link)}" rel="noopener">{where}</a>'
    places = "".join(f"<li>{escape(place.where)}: {escape(place.what)}</li>" for place in reference.places)
    return f"<p><b>{escape(reference.full)}.</b> {who}. {where}.</p><ul>{places}</ul>"


__all__ = ["files"]
