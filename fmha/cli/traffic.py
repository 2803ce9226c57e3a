"""`python -m fmha traffic`: requested bytes and FLOPs, no arrays needed."""

from __future__ import annotations

import argparse
import dataclasses
import json
from typing import Any

from fmha import FmhaError, traffic
from fmha.cli.options import Parser, add_problem, add_tiling, describe, problem_from, tiling_from
from fmha.memory import smem_bytes
from fmha.traffic import METHODS, compulsory_bytes
from fmha.units import format_bytes, format_flops, format_ratio

_WHAT = "Count the bytes and FLOPs of one forward pass, for any size, without arrays."
_EPILOG = """What is counted: bytes that thread blocks load and store beyond their registers and shared
memory, whether or not a cache serves them; only real rows of a ragged tile; only K/V tiles
that a mask leaves visible. FLOPs are those of the two matrix products, a multiply-add
counted as two. Initialisation (kv-outer) is kept apart.

examples:
  python -m fmha traffic --N 4096 --d 64
  python -m fmha traffic --B 1 --H 16 --N 4096 --d 64 --Br 32 --Bc 32 --dtype fp32 --order q-outer --json
  python -m fmha traffic --N 1000 --d 64 --Br 64 --Bc 16 --dtype fp16 --causal --lse
  python -m fmha traffic --B 2 --N 512 --lens-k 100,512 --order kv-outer
"""


def add_to(commands: Any) -> None:
    """Add the command's parser."""
    parser: Parser = commands.add_parser(
        "traffic", help="bytes and FLOPs of a forward pass", description=_WHAT, epilog=_EPILOG
    )
    add_problem(parser)
    add_tiling(parser)
    group = parser.add_argument_group("counting")
    group.add_argument("--lse", action="store_true", help="q-outer also stores LSE, 4 bytes a row")
    group.add_argument(
        "--method", default="auto", help=f"{', '.join(METHODS)}: add up events or use the closed form (default auto)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Count, and print a table or one JSON object."""
    problem, tiling = problem_from(options), tiling_from(options)
    if options.lse and options.order != "q-outer":
        raise FmhaError("--lse is for q-outer, which may store LSE: leave it out, or use --order q-outer.")
    counted = traffic(problem, tiling, options.order, write_lse=options.lse, method=options.method)
    least = compulsory_bytes(problem)
    smem = smem_bytes(tiling, problem.d, problem.itemsize)
    if options.json:
        answer = {
            "problem": dataclasses.asdict(problem),
            "tiling": {"Br": tiling.Br, "Bc": tiling.Bc, "Tr": tiling.Tr(problem), "Tc": tiling.Tc(problem)},
            **counted.as_dict(),
            "write_lse": options.lse,
            "compulsory_bytes": least,
            "smem_bytes": smem,
        }
        print(json.dumps(answer, indent=2))
        return

    def line(name: str, nbytes: int, note: str = "") -> str:
        return f"{name:<18}{nbytes:>26,} B {format_bytes(nbytes):>11}{note}"

    lines = [*describe(problem, tiling), f"order     {counted.order} (counted by {counted.method})", ""]
    lines.append(line("requested read", counted.requested_read_bytes))
    lines += [line(f"  {name}", read) for name, (read, _) in counted.by_tensor.items() if read]
    lines.append(line("requested written", counted.requested_write_bytes))
    lines += [line(f"  {name}", write) for name, (_, write) in counted.by_tensor.items() if write]
    if counted.init_write_bytes:
        lines.append(line("initialisation", counted.init_write_bytes, "  written before, counted apart"))
    ratio = format_ratio(counted.requested_bytes / least)
    lines += [
        line("requested in all", counted.requested_bytes, f"  {ratio} the compulsory bytes"),
        line("compulsory", least, "  Q, K, V read and O written once"),
        f"{'matrix FLOPs':<18}{counted.flops:>26,}   {format_flops(counted.flops):>11}",
        line("shared memory", smem, "  of one block of the tutorial's kernel"),
    ]
    print("\n".join(lines))
