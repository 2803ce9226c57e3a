"""`python -m fmha words`: the glossary on the command line."""

from __future__ import annotations

import argparse
import textwrap
from typing import Any

from fmha import FmhaError
from fmha.cli.options import Parser
from fmha.glossary import Term, lookup, search

_WIDTH = 88
_EPILOG = """examples:
  python -m fmha words               all of them, by subject
  python -m fmha words alpha         one word or symbol; m and M are two
  python -m fmha words bank conflict
  python -m fmha words alpha SMEM    several
"""


def add_to(commands: Any) -> None:
    """Add the command's parser."""
    parser: Parser = commands.add_parser(
        "words",
        help="what a symbol or a word means",
        description="The glossary: meaning, unit, source.",
        epilog=_EPILOG,
    )
    parser.add_argument("word", nargs="*", help="a word, a symbol, or words to look for (default: everything)")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Print the entry that is called so, else all entries that hold the words, else those that are called as each."""
    wanted = " ".join(options.word)
    exact = lookup(wanted) if wanted else None
    found = {"": [exact]} if exact is not None else search(wanted)
    each = [term for word in options.word if (term := lookup(word)) is not None]
    if not found and len(each) == len(options.word):
        found = {"": each}
    if not found:
        raise FmhaError(f"{wanted[:40]!r} is not in the glossary: try a shorter word, or no word for all of them.")
    lines: list[str] = []
    for group, terms in found.items():
        lines += ([group.upper(), ""] if group else []) + [line for term in terms for line in (*_entry(term), "")]
    print("\n".join(lines).rstrip())


def _entry(term: Term) -> list[str]:
    also = f" ({', '.join(term.also)})" if term.also else ""
    facts = [f"unit: {term.unit}"] if term.unit else []
    facts += [f"from {term.source}"] if term.source != "this app" else []
    text = textwrap.wrap(term.meaning, _WIDTH - 2)
    return [f"{term.name}{also}", *(f"  {line}" for line in text), *([f"  [{'; '.join(facts)}]"] if facts else [])]
