"""What `python -m fmha` does: one module per command, one list of commands.

A request that cannot be met ends in one line on stderr and exit code 2.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from fmha import FmhaError, __version__
from fmha.cli import bench, export, kernels, simulate, site, trace, traffic, words
from fmha.cli.options import Parser, joined_negatives

COMMANDS = (traffic, simulate, export, site, kernels, trace, bench, words)

_WHAT = """Attention, tile by tile: results, and the bytes that they cost.

O = softmax(Q K^T / sqrt(d)) V for N tokens, H heads of d numbers each. A worker keeps Br rows of
Q and streams K and V past them in tiles of Bc rows. No GPU is needed, but for bench.
`python -m fmha words alpha` explains a symbol; COMMAND --help explains a command."""
_EPILOG = """begin here:
  python -m fmha traffic --N 4096 --d 64      how many bytes, for which tensor
  python -m fmha traffic --N 4096 --d 64 --order naive    the same without tiles: compare
  python -m fmha simulate --N 8 --d 4 --Br 2 --Bc 2       every number of a small run

more examples:
  python -m fmha simulate --input sentence --layer 3 --head 1
  python -m fmha export --format html --N 128 --d 32 --Br 8 --Bc 8 --out run.html
  python -m fmha site
  python -m fmha kernels
  python -m fmha trace --N 256 --d 64
  python -m fmha bench --N 4096 --H 16 --d 64
  python -m fmha traffic --help
"""


def main(arguments: Sequence[str]) -> int:
    """Run one command and return the exit code: 0, or 2 for a request that cannot be met."""
    parser = Parser(prog="python -m fmha", description=_WHAT, epilog=_EPILOG)
    parser.add_argument("--version", action="version", version=f"fmha {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", parser_class=Parser)
    for command in COMMANDS:
        command.add_to(commands)
    options, stray = parser.parse_known_args(joined_negatives(arguments))
    if stray:  # said by the command, whose help has what there is
        commands.choices.get(options.command, parser).error(f"unrecognized arguments: {' '.join(stray)}")
    if options.command is None:
        parser.error(
            "no command was given: use "
            + ", ".join(command.__name__.rpartition(".")[2] for command in COMMANDS)
            + ", for example python -m fmha traffic --N 4096 --d 64"
        )
    name = f"python -m fmha {options.command}"
    try:
        options.run(options)
        sys.stdout.flush()
    except FmhaError as error:
        return _refuse(name, str(error))
    except MemoryError:
        return _refuse(name, "this machine has not enough memory for it: use a smaller N or fewer heads.")
    except BrokenPipeError:
        # The reader (head, less) has what it wanted. Python would complain once more while closing stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141  # what a shell reports for a program ended by SIGPIPE
    return 0


def _refuse(name: str, text: str) -> int:
    print(f"{name}: {' '.join(text.split())}", file=sys.stderr)
    return 2
