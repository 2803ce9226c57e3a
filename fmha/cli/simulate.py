"""`python -m fmha simulate`: run attention tile by tile on given or made inputs."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmha import FmhaError, Problem, Run, Tiling, load, reference, simulate
from fmha.cli.arrays import read_npz
from fmha.cli.files import file_to_write
from fmha.cli.options import SHAPE, Parser, add_problem, add_tiling, describe, problem_from, tiling_from, whole
from fmha.errors import InputError, LimitError
from fmha.export.tables import RESULTS, about, npz
from fmha.hardware import DEFAULT_GPU, GPUS
from fmha.inputs import INPUTS, Inputs
from fmha.traffic import count
from fmha.units import format_bytes, format_count, format_time_us

Array = NDArray[Any]
MAX_JSON_VALUES = 5_000_000
TILES = {"worked": 2, "sentence": 4}  # so that the short inputs have tiles to watch
_MADE = {"N": 128, "d": 32}

_WHAT = "Run attention tile by tile on inputs that are made, recorded or read from a file."
_EPILOG = f"""inputs:
{chr(10).join(f"  {source.name:<10}{source.title}" for source in INPUTS.values())}

results, in JSON and in the .npz file:
  O      [B, H, Nq, d]    output
  LSE    [B, H, Nq]       m + ln l, natural logarithm
  m, l   [B, H, Nq, Tc]   running max and sum of each row after K/V tile j (naive: Tc = 1)
  alpha  [B, H, Nq, Tc]   exp(m_old - m_new) at tile j, 1 at a tile that was skipped
A row that sees no key has O = 0, l = 0 and LSE = m = -inf. In JSON that is -Infinity, as
Python's json module reads and writes it. NaN never occurs. The .npz file also has `events`
(the event table, see fmha.events) and `about` (problem and tiles, JSON).

--file takes Q [B, H, Nq, d], K and V [B, Hk, Nk, d]; and lens_k, left_pad [B] if it has them.

examples:
  python -m fmha simulate --input worked
  python -m fmha simulate --input sentence --layer 3 --head 1 --Br 4 --Bc 4
  python -m fmha simulate --N 200 --d 48 --Br 64 --Bc 32 --causal --order kv-outer --json
  python -m fmha simulate --file qkv.npz --dtype fp16 --precision dtype --npz run.npz
"""


def add_to(commands: Any) -> None:
    """Add the command's parser."""
    parser: Parser = commands.add_parser(
        "simulate", help="O, LSE and the running m, l, alpha", description=_WHAT, epilog=_EPILOG
    )
    add_inputs(parser, "see below")
    add_problem(parser, dtype_default="that of the file, or fp32", d_default="that of the input, or 32")
    add_tiling(parser, "32; worked 2, sentence 4")
    group = parser.add_argument_group("the run")
    group.add_argument(
        "--precision", default="float64", help="float64, or dtype to round as a kernel would (default float64)"
    )
    group.add_argument("--lse", action="store_true", help="q-outer also stores LSE to memory")
    group.add_argument("--gpu", default=DEFAULT_GPU, help=f"whose speed the event times follow: {', '.join(GPUS)}")
    group.add_argument("--sms", type=whole, help="run on this many of its SMs (default all)")
    parser.add_argument("--json", action="store_true", help="print one JSON object with nested lists")
    parser.add_argument("--npz", metavar="FILE", help="write the results and the event table to a file")
    parser.set_defaults(run=run)


def add_inputs(parser: Parser, where: str = ", ".join(INPUTS)) -> None:
    """The options that say where Q, K and V come from; `where` says where their names are listed."""
    group = parser.add_argument_group("inputs")
    group.add_argument("--input", metavar="NAME", help=f"where Q, K, V come from, {where} (default random)")
    group.add_argument("--seed", type=whole, default=0, help="of random and crafted inputs (default 0)")
    group.add_argument("--layer", type=whole, default=3, help="of the sentence, 0 to 5 (default 3)")
    group.add_argument("--head", type=whole, default=0, help="first head of a recorded input (default 0)")
    group.add_argument("--file", metavar="FILE.npz", help="take Q, K, V from a file")


def run(options: argparse.Namespace) -> None:
    """Simulate, then write what was asked for: JSON, an .npz file, or a summary."""
    if options.gpu not in GPUS:
        raise FmhaError(f"gpu={options.gpu[:40]!r} is not known: use one of {', '.join(GPUS)}.")
    if options.lse and options.order != "q-outer":
        raise FmhaError("--lse is for q-outer, which may store LSE: leave it out, or use --order q-outer.")
    if options.npz is not None:
        file_to_write(options.npz, "run.npz", "--npz")
    problem, made = inputs_from(options)
    tiling = tiling_from(options, TILES.get(options.input, 32) if options.file is None else 32)
    if options.json:
        _check_json_size(problem, tiling, options.order)
    done = simulate(
        problem, tiling, made.Q, made.K, made.V, options.order, precision=options.precision, write_lse=options.lse,
        gpu=GPUS[options.gpu], sms=options.sms,
    )  # fmt: skip
    if options.npz is not None:
        _write_npz(done, options.npz)
    if options.json:
        json.dump(_answer(done, made.title), sys.stdout)
        print()
    else:
        print("\n".join(_summary(done, made.title, options.npz)))


def inputs_from(options: argparse.Namespace) -> tuple[Problem, Inputs]:
    """The problem, and Q, K, V that were asked for."""
    return _from_file(options) if options.file is not None else _from_source(options)


def _from_source(options: argparse.Namespace) -> tuple[Problem, Inputs]:
    """Q, K, V made to order or from a recording, which says what N and d are."""
    name = "random" if options.input is None else options.input
    source = INPUTS.get(name)
    size = _MADE if source is None or source.N is None else {"N": source.N, "d": source.d}
    problem = problem_from(options, **size)
    return problem, load(name, problem, seed=options.seed, layer=options.layer, head=options.head)


def _from_file(options: argparse.Namespace) -> tuple[Problem, Inputs]:
    """Q, K, V from a file, which says what the shapes are."""
    if options.input is not None:
        raise InputError("--input and --file were both given: give one of them.")
    held = read_npz(options.file)
    shape = held.shape
    for name in SHAPE:
        asked, has = getattr(options, name), shape["Nq" if name == "N" else name]
        if asked is not None and asked != has:
            raise InputError(f"--{name} {asked} was given, but the file has {name}={has}: leave --{name} out.")
    dtype = "fp16" if held.Q.dtype == np.float16 else "fp32"
    options.N = None
    problem = problem_from(options, **shape, dtype=dtype, lens_k=held.lens_k, left_pad=held.left_pad)
    Q, K, V = (np.asarray(array, np.float64) for array in (held.Q, held.K, held.V))
    return problem, Inputs(Q, K, V, Path(options.file).name)


def _check_json_size(problem: Problem, tiling: Tiling, order: str) -> None:
    tiles = 1 if order == "naive" else tiling.Tc(problem)
    values = problem.B * problem.H * problem.Nq * (problem.d + 1 + 3 * tiles)
    if values > MAX_JSON_VALUES:
        raise LimitError(
            f"--json would print {format_count(values)} numbers, and {format_count(MAX_JSON_VALUES)} are allowed: "
            "use --npz FILE, a smaller N or larger tiles."
        )


def _answer(done: Run, title: str) -> dict[str, Any]:
    arrays = {name: getattr(done, name) for name in RESULTS}
    return {
        **about(done, title),
        "shapes": {name: list(array.shape) for name, array in arrays.items()},
        **{name: array.tolist() for name, array in arrays.items()},
    }


def _write_npz(done: Run, filename: str) -> None:
    try:
        Path(filename).write_bytes(npz(done))
    except OSError as error:
        raise InputError(f"{filename[:80]} cannot be written: {error.strerror or error}.") from None


def _summary(done: Run, title: str, npz: str | None) -> list[str]:
    p, t = done.problem, done.tiling
    lines = [f"input     {title}", *describe(p, t), f"order     {done.order}, precision {done.precision}"]
    moved = count(done.events, done.order)
    end = format_time_us(float(done.events["t1"].max()))
    lines.append(f"moved     {format_bytes(moved.requested_bytes)} requested in {len(done.events):,} events, {end}")
    blind = int(np.isneginf(done.LSE).sum())
    if blind:
        lines.append(f"rows      {blind} of {done.LSE.size} see no key: their O is 0 and their LSE is -inf")
    try:
        truth = reference(p, done.Q, done.K, done.V)
        lines.append(f"error     max |O - dense float64 reference| = {np.abs(done.O - truth.O).max():.2g}")
    except LimitError:
        lines.append("error     not computed: the dense reference would need too much memory")
    row = p.Nq - 1
    after = "the whole row at once" if done.order == "naive" else "after each K/V tile"
    lines += ["", f"row {row}, batch entry 0, head 0, {after}:"]
    lines.append(f"{'tile':>6} {'m':>12} {'l':>12} {'alpha':>12}")
    tiles = done.m.shape[-1]
    shown = range(tiles) if tiles <= 12 else [*range(6), *range(tiles - 6, tiles)]
    for before, j in zip([-1, *shown], shown, strict=False):
        if j > before + 1:
            lines.append(f"{'...':>6}")
        lines.append(
            f"{j:>6} " + " ".join(f"{getattr(done, name)[0, 0, row, j]:>12.6g}" for name in ("m", "l", "alpha"))
        )
    numbers = ", ".join(f"{value:.4f}" for value in done.O[0, 0, row, :8])
    lines += ["", f"O = [{numbers}{', ...' if p.d > 8 else ''}]   LSE = {done.LSE[0, 0, row]:.6g}"]
    if npz is not None:
        lines.append(f"written   {npz}: {', '.join(RESULTS)}, events, about")
    return lines
