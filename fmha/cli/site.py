"""`python -m fmha site`: the app as a folder of pages for any static host, or for a memory stick."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from fmha.cli.options import Parser
from fmha.errors import FmhaError
from fmha.units import format_bytes

_WHAT = "Write a folder of pages that play, step and show without a server, without a network and without Python."
_EPILOG = """In it: players of prepared runs, the lecture with its questions answered, figures, recorded measurements,
claims of the papers, glossary and references. Open index.html, or put the folder on any static host.

examples:
  python -m fmha site
  python -m fmha site --out /tmp/fmha-site
"""


def add_to(commands: Any) -> None:
    """Add the command's parser."""
    parser: Parser = commands.add_parser(
        "site", help="the app as a folder of static pages", description=_WHAT, epilog=_EPILOG
    )
    parser.add_argument("--out", metavar="FOLDER", default="site", help="where to write it (default site)")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Build the folder and say what was written."""
    try:
        from fmha.site.build import build
    except ImportError as missing:
        raise FmhaError(
            f"the site needs {missing.name}, which is not installed: pip install -r requirements.txt."
        ) from None
    if not options.out:
        raise FmhaError("--out is empty: name a folder, such as --out site, or leave it out.")
    written = build(Path(options.out))
    total = sum(path.stat().st_size for path in written)
    print(
        f"written   {options.out}: {len(written)} files, {format_bytes(total)}; open {Path(options.out) / 'index.html'}"
    )
