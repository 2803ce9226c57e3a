"""`python -m fmha kernels`: the kernels, and the launch plan of one of them."""

from __future__ import annotations

import argparse
import json
from typing import Any

from fmha import FmhaError
from fmha.cli.options import SHAPE, Parser, add_problem, add_tiles, describe, kernel_tiling, problem_from
from fmha.hardware import DEFAULT_GPU, GPUS
from fmha.kernels import KERNELS, Kernel, Plan, kernel
from fmha.units import format_bytes

_WHAT = "List the kernels in cuda_src/; with --kernel show what a run of one of them launches."
_EPILOG = """examples:
  python -m fmha kernels
  python -m fmha kernels --kernel 02 --N 4096 --d 128 --Br 32 --Bc 32 --gpu RTX4090
"""


def add_to(commands: Any) -> None:
    """Add the command's parser."""
    parser: Parser = commands.add_parser(
        "kernels", help="the kernels and their launches", description=_WHAT, epilog=_EPILOG
    )
    parser.add_argument("--kernel", help="number or name; without it: the list")
    add_problem(parser, dtype_default="the first that the kernel has")
    add_tiles(parser, "32, or the kernel's fastest where 32 x 32 cannot be")
    parser.add_argument("--gpu", default=DEFAULT_GPU, help=f"{', '.join(GPUS)}: whose limits (default {DEFAULT_GPU})")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Print the list, or a plan."""
    if options.gpu not in GPUS:
        raise FmhaError(f"gpu={options.gpu[:40]!r} is not known: use one of {', '.join(GPUS)}.")
    if options.kernel is None:
        given = [f"--{n}" for n in (*SHAPE, "dtype", "scale", "causal", "Br", "Bc") if getattr(options, n) is not None]
        if given:
            raise FmhaError(
                f"the list of kernels does not depend on {', '.join(given)}: add --kernel 02, or another, to see its "
                "launches."
            )
        if options.json:
            print(json.dumps([_facts(k) for k in KERNELS.values()], indent=2))
            return
        for k in KERNELS.values():
            print(f"{k.number}  {k.name:<12}{k.changed}\n    {'cuda_src/' + k.file}, source {k.source_hash()}")
        return
    chosen = kernel(options.kernel)
    problem = problem_from(options, N=4096, dtype=chosen.dtypes[0])
    tiling = kernel_tiling(options, chosen, problem, GPUS[options.gpu])
    plan = chosen.plan(problem, tiling, GPUS[options.gpu])
    if options.json:
        print(json.dumps({**_facts(chosen), "plan": _plan(plan)}, indent=2))
        return
    said = describe(problem, tiling)
    if not chosen.tiled:
        said[-1] = f"tiles     {chosen.tile.removeprefix('tiles ')}"
    print("\n".join([f"kernel    {chosen.number} {chosen.name}: {chosen.title}", *said, ""]))
    for launch in plan.launches:
        smem = launch.smem_bytes + launch.static_smem_bytes
        print(f"{launch.function:<16}{launch.grid:>12,} blocks x {launch.block} threads, shared memory {smem:,} B")
        for slot in launch.smem:
            print(f"    {slot.offset:>8}  {slot.name:<14}{' x '.join(map(str, slot.shape)):>12}  {slot.nbytes:>8} B")
    print(f"requested {plan.requested.requested_bytes:,} B; device memory {format_bytes(plan.device_bytes)}")


def _facts(k: Kernel) -> dict[str, Any]:
    return {
        "number": k.number,
        "name": k.name,
        "title": k.title,
        "changed": k.changed,
        "file": f"cuda_src/{k.file}",
        "source_hash": k.source_hash(),
        "dtypes": list(k.dtypes),
        "max_d": k.max_d,
        "tiled": k.tiled,
    }


def _plan(plan: Plan) -> dict[str, Any]:
    return {
        "launches": [
            {
                "function": launch.function,
                "grid": launch.grid,
                "block": launch.block,
                "smem_bytes": launch.smem_bytes + launch.static_smem_bytes,
                "smem": [
                    {"name": s.name, "shape": s.shape, "offset": s.offset, "nbytes": s.nbytes} for s in launch.smem
                ],
            }
            for launch in plan.launches
        ],
        "requested": plan.requested.as_dict(),
        "device_bytes": plan.device_bytes,
    }
