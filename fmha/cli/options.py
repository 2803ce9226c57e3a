"""Options that the commands share, and a parser that answers a mistake with one line."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from typing import Any, NoReturn

from fmha import FmhaError, Problem, Tiling, best_tiles
from fmha.hardware import Gpu
from fmha.kernels import Kernel
from fmha.problem import DTYPES
from fmha.schedule import ORDERS

SHAPE = ("B", "H", "Hk", "N", "Nq", "Nk", "d")
_CAUSAL = ("bottom-right", "br", "top-left", "tl", "none")


class Parser(argparse.ArgumentParser):
    """argparse with exact option names, examples kept as written, and errors of one line and exit code 2."""

    def __init__(self, **settings: Any) -> None:
        settings.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        super().__init__(allow_abbrev=False, **settings)

    def error(self, message: str) -> NoReturn:
        """One line: what is wrong, and where help is."""
        line = " ".join(message.split())
        self.exit(2, f"{self.prog}: {line if len(line) <= 300 else line[:297] + '...'}; see {self.prog} --help\n")


def joined_negatives(arguments: Sequence[str]) -> list[str]:
    """`--scale -1e-3` as `--scale=-1e-3`: argparse would take some negative numbers for options."""
    out: list[str] = []
    for argument in arguments:
        if out and re.match(r"-[\d.]|-inf|-nan", argument) and re.fullmatch(r"--[A-Za-z][\w-]*", out[-1]):
            out[-1] += f"={argument}"
        else:
            out.append(argument)
    return out


def whole(text: str) -> int:
    """An option's whole number."""
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a whole number, such as 128") from None


def real(text: str) -> float:
    """An option's real number."""
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a number, such as 0.125") from None


def wholes(text: str) -> tuple[int, ...]:
    """An option's list of whole numbers."""
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a list of whole numbers, such as 0,2") from None


def add_problem(parser: Parser, *, dtype_default: str = "fp32", d_default: str = "64", several: bool = False) -> None:
    """The options that describe a `Problem`. several: N, d and dtype may be lists, and causal both (`one_of_each`)."""
    many: dict[str, Any] = {"nargs": "+"} if several else {}
    group = parser.add_argument_group("the problem")
    add = group.add_argument
    add("--B", type=whole, help="batch size (default 1)")
    add("--H", type=whole, help="query heads (default 1)")
    add("--Hk", type=whole, help="key/value heads, of which H is a multiple (default H)")
    add("--N", type=whole, help="sequence length in tokens, of queries and of keys", **many)
    add("--Nq", type=whole, help="query length, where it differs from N")
    add("--Nk", type=whole, help="key length, where it differs from N (default Nq)")
    add("--d", type=whole, help=f"head dimension (default {d_default})", **many)
    add("--dtype", help=f"{', '.join(DTYPES)}: how Q, K, V, O are stored (default {dtype_default})", **many)
    add("--scale", type=real, help="factor on Q K^T (default 1/sqrt(d))")
    add(
        "--causal",
        nargs="?",
        const="bottom-right",
        choices=(*_CAUSAL, *(("both",) if several else ())),
        metavar="ALIGNMENT",
        help="causal mask, bottom-right (br) when nothing follows, or top-left (tl), or none (default)",
    )
    add("--lens-k", type=wholes, metavar="L,L,...", help="real keys of each batch entry; the rest is padding")
    add("--left-pad", type=wholes, metavar="L,L,...", help="padded keys at the front of each batch entry")


def one_of_each(options: argparse.Namespace, heeded_by: str) -> None:
    """Make single values of options that could be lists.

    Raises:
        FmhaError: there are several; they are for the option `heeded_by`.
    """
    for name in ("N", "d", "dtype"):
        given = getattr(options, name)
        if isinstance(given, list):
            if len(given) > 1:
                raise FmhaError(f"--{name} has {len(given)} values: give one, or add {heeded_by}, which takes several.")
            setattr(options, name, given[0])
    if options.causal == "both":
        raise FmhaError(f"--causal both is for {heeded_by}: use --causal, or leave it out.")


def add_tiles(parser: Parser, default: str = "32") -> Any:
    """Br and Bc; returns their group."""
    group = parser.add_argument_group("tiles")
    group.add_argument("--Br", type=whole, help=f"rows of a Q tile (default {default})")
    group.add_argument("--Bc", type=whole, help=f"rows of a K/V tile (default {default})")
    return group


def add_tiling(parser: Parser, default: str = "32") -> None:
    """Br, Bc and the loop order."""
    group = add_tiles(parser, default)
    group.add_argument("--order", default="q-outer", help=f"{', '.join(ORDERS)} (default q-outer)")


def problem_from(options: argparse.Namespace, **defaults: Any) -> Problem:
    """The Problem that was asked for; `defaults` fill what was left out."""
    given = {name: getattr(options, name) for name in (*SHAPE, "dtype", "scale", "causal", "lens_k", "left_pad")}
    if options.Nq is not None:
        defaults.pop("N", None)
    return Problem(**{**defaults, **{name: value for name, value in given.items() if value is not None}})


def tiling_from(options: argparse.Namespace, default: int = 32) -> Tiling:
    """The Tiling that was asked for."""
    return Tiling(*(default if size is None else size for size in (options.Br, options.Bc)))


def kernel_tiling(options: argparse.Namespace, chosen: Kernel, problem: Problem, gpu: Gpu) -> Tiling:
    """The Tiling that was asked for; what was left out is 32, or the kernel's fastest where 32 x 32 cannot be."""
    usual = Tiling(32, 32)
    if not chosen.can(problem, usual, gpu):
        usual = next(iter(best_tiles.candidates(chosen, problem, gpu)), usual)
    return Tiling(
        *(size if given is None else given for given, size in ((options.Br, usual.Br), (options.Bc, usual.Bc)))
    )


def describe(problem: Problem, tiling: Tiling) -> list[str]:
    """A problem and its tiles in two lines."""
    p, t = problem, tiling
    shape = f"B={p.B} H={p.H} Hk={p.Hk} Nq={p.Nq} Nk={p.Nk} d={p.d}, {p.dtype}, scale {p.scale:.6g}"
    masks = [f"causal {p.causal}"] if p.causal else []
    masks += [f"{name} {','.join(map(str, value))}" for name, value in lengths_of(p) if value is not None]
    return [
        f"problem   {shape}, {', '.join(masks) if masks else 'no mask'}",
        f"tiles     Br={t.Br} Bc={t.Bc}: {_tiles('Q', t.Tr(p))} x {_tiles('K/V', t.Tc(p))}, for each head",
    ]


def _tiles(kind: str, count: int) -> str:
    return f"{count:,} {kind} tile{'' if count == 1 else 's'}"


def lengths_of(problem: Problem) -> tuple[tuple[str, tuple[int, ...] | None], ...]:
    """The padding of a problem by option name."""
    return (("lens-k", problem.lens_k), ("left-pad", problem.left_pad))
