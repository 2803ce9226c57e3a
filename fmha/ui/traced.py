"""Kernels run on this machine's CPU for a page: settings, what is too large, and traces that are shared and bounded."""

from __future__ import annotations

import functools
import hashlib
from dataclasses import dataclass

import streamlit as st

from fmha.check import Check, check
from fmha.errors import FmhaError, LimitError
from fmha.figures.byte_levels import CONFLICTS
from fmha.hardware import DEFAULT_GPU, GPUS
from fmha.inputs import INPUTS, Inputs, load
from fmha.kernels import ALIASES, KERNELS, Kernel
from fmha.measurement import Found, shipped
from fmha.model_errors import measured
from fmha.problem import Problem, Tiling
from fmha.trace import Detail, Trace, trace
from fmha.trace.breaking import Change, changes, hard_case
from fmha.trace.walk import Stop, walk
from fmha.ui import controls
from fmha.units import format_count

LENGTHS = [1, 2, 4, 8, 16, 31, 32, 33, 50, 64, 65, 100, 128, 200, 256, 512]
HEAD_DIMS = [1, 4, 8, 16, 32, 33, 40, 64, 128]
TILES = [1, 2, 4, 8, 16, 24, 32, 48, 64]
MOST = 1 << 24  # N x N x d x H that are traced: about a second
MOST_VISITS = 4096
NOTHING = "nothing"  # is taken out
TIMEOUT_S = 20.0


@dataclass(frozen=True)
class Asked:
    """What is to be run. take: the key of what is taken out of the source (`fmha.trace.breaking`), or `NOTHING`."""

    number: str
    problem: Problem
    tiling: Tiling
    input: str
    take: str = NOTHING

    @property
    def kernel(self) -> Kernel:
        return KERNELS[self.number]

    @property
    def change(self) -> Change | None:
        """What is taken out."""
        return next((c for c in changes(self.kernel.source()) if c.key == self.take), None)

    @property
    def text(self) -> str:
        """The source that is run."""
        source = self.kernel.source()
        return self.change.apply(source) if self.change else source

    @property
    def digest(self) -> str:
        """Changes when the source that is run does, or a header of it."""
        return hashlib.sha256(f"{self.kernel.source_hash()}\0{self.text}".encode()).hexdigest()

    def inputs(self) -> Inputs:
        """Q, K, V."""
        return _inputs(self.input, self.problem)


@functools.lru_cache(maxsize=8)
def _inputs(name: str, problem: Problem) -> Inputs:
    return load(name, problem)


def settings() -> Asked:
    """The controls, but for what is taken out."""
    above = st.columns(4)
    with above[0]:
        number = controls.choice(
            "kernel", "Kernel", {n: f"{n} {k.name}" for n, k in KERNELS.items()}, default="02", aliases=ALIASES,
            help="01: naive attention in three functions. 02: the tutorial's kernel. Each later one changes one thing.",
        )  # fmt: skip
    with above[1]:
        titles = {name: source.title for name, source in INPUTS.items()}
        name = controls.choice("input", "Input", titles, default="random", help="Where Q, K and V come from.")
    source = INPUTS[name]
    with above[2]:
        lengths = sorted({n for n in LENGTHS if n <= (source.N or n)} | ({source.N} if source.N else set()))
        N = controls.slider("N", "Tokens N", options=lengths, default=min(128, source.N or 128))
    with above[3]:
        dims = [source.d] if source.d else HEAD_DIMS
        d = controls.slider("d", "Head dim d", options=dims, default=source.d or 64)
    chosen = KERNELS[number]
    below = st.columns(5 if len(chosen.dtypes) > 1 else 4)
    dtype, tiling = chosen.dtypes[0], Tiling(32, 32)
    if len(chosen.dtypes) > 1:
        with below[2]:
            dtype = controls.choice(
                "dtype", "Data type", chosen.dtypes, default=dtype, help="How Q, K, V and O are stored; sums are fp32."
            )
    if chosen.tiled:
        fine = [t for t in (*chosen.tiles, (32, 32)) if max(t) <= TILES[-1]]
        usual = (32, 32) if (32, 32) in chosen.tiles else fine[0]
        with below[0]:
            Br = controls.slider("Br", "Q tile rows Br", options=TILES, default=usual[0])
        with below[1]:
            Bc = controls.slider("Bc", "K/V tile rows Bc", options=TILES, default=usual[1])
        tiling = Tiling(Br, Bc)
    else:
        tile = chosen.tile
        below[0].markdown(f":small[Tiles of this kernel]  \n**{tile[0].upper()}{tile[1:]}**")
    with below[-2]:
        H = controls.slider("H", "Heads H", options=[1] if source.H == 1 else [1, 2], default=1)
    with below[-1]:
        causal = controls.causal()
    problem = Problem(N=N, H=H, d=d, causal=causal, dtype=dtype)  # type: ignore[arg-type]
    return Asked(number, problem, tiling, name)


def complaint(asked: Asked) -> str | None:
    """Why this is not traced here; None when it is."""
    p, t = asked.problem, asked.tiling
    if why := asked.kernel.complaint(p, t, GPUS[DEFAULT_GPU]):
        return why
    size = p.Nq * p.Nk * p.d * p.H
    if size > MOST:
        return (
            f"tracing goes through every access, and N x N x d x H = {format_count(size)} is more than the "
            f"{format_count(MOST)} that are traced here: use a smaller N, d or H."
        )
    visits = t.Tr(p) * t.Tc(p) * p.H
    if asked.kernel.tiled and visits > MOST_VISITS:
        return (
            f"every visit of a K/V tile is kept apart, and {visits:,} are more than the {MOST_VISITS:,} that are kept: "
            "use larger tiles, or a smaller N."
        )
    return None


def traced(asked: Asked) -> Trace:
    """The whole run, counted.

    Raises:
        LimitError: as `complaint` says. TraceError, BuildError: there is no compiler, or the kernel cannot be run.
    """
    if why := complaint(asked):
        raise LimitError(why)
    return _traced(asked, asked.digest)


@st.cache_resource(max_entries=16, show_spinner="Running the kernel on this machine's CPU, access by access")
def _traced(asked: Asked, digest: str) -> Trace:
    given = asked.inputs()
    return trace(
        asked.kernel, asked.problem, asked.tiling, given.Q, given.K, given.V, text=asked.text, timeout_s=TIMEOUT_S
    )


def hard(asked: Asked) -> Trace:
    """The same source and tiles over a problem in which every barrier and bound matters (`hard_case`); counts only
    what is wrong. Errors as `traced`."""
    return _hard(asked.number, asked.tiling, asked.problem.dtype, asked.text, asked.digest)


@st.cache_resource(max_entries=16, show_spinner="Trying a harder problem")
def _hard(number: str, tiling: Tiling, dtype: str, text: str, digest: str) -> Trace:
    problem = hard_case(tiling).replace(dtype=dtype)
    given = load("random", problem)
    return trace(
        KERNELS[number], problem, tiling, given.Q, given.K, given.V, text=text, flops=False, timeout_s=TIMEOUT_S
    )


@st.cache_data(max_entries=16, show_spinner="Taking out one after another")
def each(number: str, problem: Problem, tiling: Tiling, input_name: str, source: str) -> list[dict[str, str]]:
    """What is found when each of the changes of a source is made, one a row: with these settings and in `hard_case`."""
    rows = []
    for change in changes(source):
        asked = Asked(number, problem, tiling, input_name, change.key)
        given, hard_one = asked.inputs(), hard_case(tiling).replace(dtype=problem.dtype)
        there = load("random", hard_one)
        found = {
            name: _said(asked, p, arrays) for name, p, arrays in (("here", problem, given), ("harder", hard_one, there))
        }
        what = "barrier" if change.kind == "barrier" else change.taken.strip(" &")
        rows.append(
            {
                "line": str(change.line), "taken out": what, "it is there because": change.why,
                "found here": found["here"], "found in a harder problem": found["harder"],
            }
        )  # fmt: skip
    return rows


def _said(asked: Asked, problem: Problem, given: Inputs) -> str:
    """The kinds of what is found, with the lines."""
    arrays = (given.Q, given.K, given.V)
    try:
        run = trace(asked.kernel, problem, asked.tiling, *arrays, text=asked.text, flops=False, timeout_s=TIMEOUT_S)
    except FmhaError as error:
        return str(error)
    kinds: dict[str, list[str]] = {}
    for finding in run.findings:
        kinds.setdefault(finding.kind, []).append(str(finding.line))
    said = [f"{kind} ({', '.join(dict.fromkeys(lines))})" for kind, lines in kinds.items()]
    if not check(problem, *arrays, run.O).ok:
        said.append("wrong result")
    return ", ".join(said) or "nothing"


def checked(asked: Asked, run: Trace) -> Check:
    """The result held against float64."""
    return _checked(asked, asked.digest, run)


@st.cache_data(max_entries=64, show_spinner=False)
def _checked(asked: Asked, digest: str, _run: Trace) -> Check:
    given = asked.inputs()
    return check(asked.problem, given.Q, given.K, given.V, _run.O)


def stops(asked: Asked, launch: int, block: int, warp: int, first: int, last: int) -> tuple[Stop, ...]:
    """One warp of one block, lane by lane, from barrier interval `first` to `last`. Errors as `traced`."""
    return _stops(asked, asked.digest, launch, block, warp, first, last)


@st.cache_resource(max_entries=64, show_spinner=False)
def _stops(asked: Asked, digest: str, launch: int, block: int, warp: int, first: int, last: int) -> tuple[Stop, ...]:
    given = asked.inputs()
    run = trace(
        asked.kernel, asked.problem, asked.tiling, given.Q, given.K, given.V, text=asked.text, check=False,
        flops=False, blocks=[block], detail=Detail(block, warp, first, last, launch), timeout_s=TIMEOUT_S,
    )  # fmt: skip
    return walk(run, launch, first, last)


@dataclass(frozen=True)
class Beside:
    """What a GPU's counters said of the same problem with `heads` times as many heads, divided by `heads`: bytes in
    sectors, wavefronts of shared memory, and those that conflicts add (None: not read)."""

    found: Found
    heads: int
    sector_bytes: float
    wavefronts: float
    conflicts: float | None


def beside(asked: Asked) -> Beside | None:
    """The shipped recording of these settings, if there is one; heads are equal to one another, so more of them count
    as a multiple."""
    p, t = asked.problem, asked.tiling
    if asked.change is not None:
        return None
    for recording in shipped():
        for run in recording.runs:
            entry = run.entry(asked.number, t if asked.kernel.tiled else None)
            q = run.problem
            if entry is None or entry.stale or not entry.counters or q.B * q.H % (p.B * p.H) or q.Hk != q.H:
                continue
            if q.replace(B=p.B, H=p.H, Hk=p.Hk) != p or (asked.kernel.tiled and entry.tiling != (t.Br, t.Bc)):
                continue
            counted, heads = measured(entry), q.B * q.H // (p.B * p.H)
            if "requested" not in counted or "smem" not in counted:
                continue
            conflicts = entry.counter(CONFLICTS)
            return Beside(
                Found(recording, run, entry, {}), heads, counted["requested"] / heads, counted["smem"] / heads,
                None if conflicts is None else conflicts / heads,
            )  # fmt: skip
    return None


__all__ = [
    "MOST", "NOTHING", "Asked", "Beside", "beside", "checked", "complaint", "each", "hard", "settings", "stops",
    "traced",
]  # fmt: skip
