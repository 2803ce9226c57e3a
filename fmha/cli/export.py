"""`python -m fmha export`: a run as a file that others open."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, NamedTuple

from fmha import FmhaError, Inputs, Run, export, simulate
from fmha.cli.files import file_to_write
from fmha.cli.options import Parser, add_problem, add_tiling, tiling_from, whole
from fmha.cli.simulate import TILES, add_inputs, inputs_from
from fmha.errors import InputError
from fmha.hardware import DEFAULT_GPU, GPUS
from fmha.units import format_bytes


class Format(NamedTuple):
    """What a file holds, what writing it needs, the endings of its name, the usual one first, and who opens it."""

    what: str
    needs: str
    endings: tuple[str, ...]
    then: str

    def __str__(self) -> str:
        return f"{self.what} ({self.needs})" if self.needs else self.what


_LOOK = "any browser shows it"
FORMATS = {
    "html": Format(
        "the player as one file that plays in any browser and needs nothing else", "", ("html", "htm"),
        "open it in a browser",
    ),
    "gif": Format("the whole run as an animated picture", "drawn by a Chromium or Chrome", ("gif",), _LOOK),
    "webm": Format("the whole run as a video", "the same", ("webm",), _LOOK),
    "mp4": Format("the whole run as a video", "the same, where that browser can write it", ("mp4",), _LOOK),
    "png": Format("the moment at which the player opens", "the same", ("png",), _LOOK),
    "npz": Format("results and event table for NumPy", "", ("npz",), "numpy.load reads it"),
    "parquet": Format(
        "the event table for pandas, Polars, DuckDB", "needs pyarrow", ("parquet", "pq"), "pandas.read_parquet reads it"
    ),
    "perfetto": Format(
        "the event table as a trace: open it at ui.perfetto.dev or chrome://tracing", "", ("json", "perfetto"),
        "open it at ui.perfetto.dev",
    ),
}  # fmt: skip
PLAYED = ("html", "gif", "webm", "mp4", "png")
_KIND_OF = {ending: kind for kind, known in FORMATS.items() for ending in known.endings}

_WHAT = "Write a run as a file: the player, a film of it, or its event table."
_EPILOG = f"""formats:
{chr(10).join(f"  {name:<10}{what}" for name, what in FORMATS.items())}

The player and films take q-outer and kv-outer and show what can be animated: 4,096 tiles in all, one batch entry.
A film needs Chromium or Chrome; FMHA_CHROMIUM names one that is not on the PATH. A video takes as long as it lasts.

examples:
  python -m fmha export --format html --N 128 --d 32 --Br 8 --Bc 8 --sms 16 --out run.html
  python -m fmha export --format gif --input sentence --seconds 8 --out run.gif
  python -m fmha export --format perfetto --N 1024 --d 64 --order naive --out trace.json
"""


def add_to(commands: Any) -> None:
    """Add the command's parser."""
    parser: Parser = commands.add_parser(
        "export", help="the player as one file, films, event tables", description=_WHAT, epilog=_EPILOG
    )
    parser.add_argument(
        "--format", metavar="FORMAT", help=f"{', '.join(FORMATS)} (default: what the ending of --out says)"
    )
    parser.add_argument("--out", metavar="FILE", help="where to write it (default fmha-run and the format's ending)")
    add_inputs(parser)
    add_problem(parser, dtype_default="that of the file, or fp32", d_default="that of the input, or 32")
    add_tiling(parser, "32; worked 2, sentence 4")
    group = parser.add_argument_group("the run")
    group.add_argument("--gpu", default=DEFAULT_GPU, help=f"whose speed the event times follow: {', '.join(GPUS)}")
    group.add_argument("--sms", type=whole, help="run on this many of its SMs (default all; in the player at most 64)")
    group.add_argument("--l2-kib", type=whole, metavar="KIB", help="what L2 holds (default: the GPU's)")
    group = parser.add_argument_group("player and films")
    group.add_argument("--race", action="store_true", help="naive attention beside flash")
    group.add_argument("--event", type=whole, help="row of the event table at which it opens")
    group.add_argument("--seconds", type=whole, default=12, help="length of a film (default 12)")
    group.add_argument("--width", type=whole, default=1280, help="of a film, in pixels (default 1280)")
    group.add_argument("--theme", choices=("light", "dark"), help="default: the reader's; light in films")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Make the file and say what was written."""
    kind = _kind(options)
    if kind in PLAYED and options.order == "naive":
        raise FmhaError(
            "naive attention has no player of its own: leave out --order naive, and add --race, which shows it beside."
        )
    if options.gpu not in GPUS:
        raise FmhaError(f"gpu={options.gpu[:40]!r} is not known: use one of {', '.join(GPUS)}.")
    if options.l2_kib is not None and options.l2_kib < 0:
        raise FmhaError(f"--l2-kib {options.l2_kib} was given: it must be 0 or more.")
    usual = f"fmha-run.{FORMATS[kind].endings[0]}"
    endings = [f".{ending}" for ending in FORMATS[kind].endings]
    path = Path(usual) if options.out is None else file_to_write(options.out, usual, endings=endings)
    problem, made = inputs_from(options)
    tiling = tiling_from(options, TILES.get(options.input, 32) if options.file is None else 32)
    done = simulate(
        problem,
        tiling,
        made.Q,
        made.K,
        made.V,
        options.order,
        precision="dtype",
        gpu=GPUS[options.gpu],
        sms=options.sms,
    )
    written = _contents(kind, done, made, options)
    try:
        path.write_bytes(written)
    except OSError as error:
        raise InputError(f"{str(path)[:80]} cannot be written: {error.strerror or error}.") from None
    tiles = "" if done.order == "naive" else f"{tiling.Tr(problem)} x {tiling.Tc(problem)} tiles, "
    print(f"written   {path}: {tiles}{len(done.events):,} events, {format_bytes(len(written))}; {FORMATS[kind].then}")


def _kind(options: argparse.Namespace) -> str:
    """The format that was asked for, or that the file's ending names.

    Raises:
        FmhaError: neither is known, or they are two.
    """
    ending = Path(options.out or "").suffix.lstrip(".").lower()
    named = _KIND_OF.get(ending)
    kind = options.format or named or ending
    if kind not in FORMATS:
        if options.format:
            asked = f"--format {kind[:20]!r} is not known"
        elif ending:
            asked = f"no format was given, and none ends in .{ending[:20]}"
        else:
            asked = f"no format was given{'' if options.out is None else ', and --out has no ending that names one'}"
        raise FmhaError(f"{asked}: use --format with one of {', '.join(FORMATS)}.")
    if named not in (None, kind):
        raise FmhaError(
            f"--format {kind} writes {FORMATS[kind].what}, and {Path(options.out).name[:60]} ends as {named} does: "
            f"name a .{FORMATS[kind].endings[0]} file, or leave out --format."
        )
    return str(kind)


def _contents(kind: str, done: Run, made: Inputs, options: argparse.Namespace) -> bytes:
    l2_bytes = None if options.l2_kib is None else options.l2_kib * 1024
    if kind in PLAYED:
        look: dict[str, Any] = {
            "inputs": made, "gpu": GPUS[options.gpu], "sms": options.sms, "l2_bytes": l2_bytes, "race": options.race,
            "event": options.event,
        }  # fmt: skip
        if kind == "html":
            return export.html(done, theme=options.theme, **look).encode()
        return export.film(
            done, kind, seconds=options.seconds, width=options.width, theme=options.theme or "light", **look
        )
    if kind == "perfetto":
        return export.perfetto(done, GPUS[options.gpu].l2_bytes if l2_bytes is None else l2_bytes, made.title).encode()
    return export.npz(done, made.title) if kind == "npz" else export.parquet(done, made.title)
