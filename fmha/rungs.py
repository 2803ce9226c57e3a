"""The text of each rung of the ladder, and its claims held against a recording.

`cuda_src/rungs.toml` says what a kernel is to bring, and whether that was written before anything of it was timed. What
was measured is never written down there: it is computed from a recording, and so is whether a claim held.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from fmha.errors import InputError
from fmha.kernels import SOURCES, Kernel, previous
from fmha.ladder import PEERS, Measured, counted, peers, rungs
from fmha.measurement import Recording
from fmha.problem import Causal

FILE = SOURCES / "rungs.toml"
Measure = Literal["tflops", "speedup", "counter", "registers", "spills", "blocks"]
MEASURES: tuple[Measure, ...] = ("tflops", "speedup", "counter", "registers", "spills", "blocks")

# Counters worth showing, with their name in words and whether fewer is better (None: neither).
COUNTERS: dict[str, tuple[str, bool | None]] = {
    "smsp__inst_executed.sum": ("instructions of warps", True),
    "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum": ("wavefronts of shared memory", True),
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum": ("bank conflicts", True),
    "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum": ("sectors loaded", True),
    "lts__t_sectors_srcunit_tex.sum": ("sectors asked of L2", True),
    "dram__bytes_read.sum": ("bytes read from DRAM", True),
    "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active": ("tensor cores at work, % of the time", None),
    "sm__warps_active.avg.pct_of_peak_sustained_active": ("warps at work, % of the most", None),
}


@dataclass(frozen=True)
class Claim:
    """What was expected of a kernel, and where. low, high: what confirms it; None: no limit on that side."""

    text: str
    measure: Measure
    low: float | None = None
    high: float | None = None
    counter: str | None = None
    of: str | None = None
    N: int = 4096
    d: int = 64
    dtype: str | None = None
    causal: bool = False

    @property
    def mask(self) -> Causal | None:
        """The mask of the problem."""
        return "bottom-right" if self.causal else None


@dataclass(frozen=True)
class Outcome:
    """A claim beside what was measured. held: None where it was not measured."""

    claim: Claim
    measured: float | None

    @property
    def held(self) -> bool | None:
        """Whether the claim was confirmed."""
        value, low, high = self.measured, self.claim.low, self.claim.high
        return None if value is None else (low is None or value >= low) and (high is None or value <= high)


@dataclass(frozen=True)
class Text:
    """What is to be said of a rung. watch: the counter that should move most; after: what was learned; is_prediction:
    whether the claims were written before the kernel had been timed at all."""

    idea: str
    watch: str
    after: str
    claims: tuple[Claim, ...]
    is_prediction: bool = True


@lru_cache(maxsize=1)
def texts() -> dict[str, Text]:
    """The texts by the name of the kernel."""
    return read(FILE.read_text(encoding="utf-8"))


def read(text: str) -> dict[str, Text]:
    """Texts of a TOML file.

    Raises:
        InputError: not TOML, something missing or unknown; the sentence says where.
    """
    try:
        raw = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{FILE.name} is not TOML: {error}.") from None
    made = {}
    for name, entry in raw.items():
        missing = [key for key in ("idea", "watch", "after") if not isinstance(entry.get(key), str)]
        if missing:
            raise InputError(f"{FILE.name}: [{name}] needs a text {missing[0]}.")
        claims = tuple(_claim(name, claim) for claim in entry.get("claims", ()))
        is_prediction = entry.get("is_prediction", True)
        if not isinstance(is_prediction, bool):
            raise InputError(f"{FILE.name}: [{name}] has is_prediction={is_prediction!r}: use true or false.")
        made[name] = Text(entry["idea"], entry["watch"], entry["after"], claims, is_prediction)
    return made


def _claim(name: str, raw: dict[str, Any]) -> Claim:
    try:
        claim = Claim(**raw)
    except TypeError as error:
        raise InputError(f"{FILE.name}: a claim of {name} has a wrong field: {error}.") from None
    if claim.measure not in MEASURES:
        raise InputError(f"{FILE.name}: a claim of {name} measures {claim.measure!r}: use {', '.join(MEASURES)}.")
    if claim.low is None and claim.high is None:
        raise InputError(f"{FILE.name}: a claim of {name} has neither low nor high, so nothing could refute it.")
    if (claim.measure == "counter") != (claim.counter is not None):
        raise InputError(f"{FILE.name}: a claim of {name} names a counter exactly if it measures one.")
    return claim


# --- what was measured ------------------------------------------------------------------------------------------------


def outcomes(chosen: Kernel, recordings: Iterable[Recording]) -> list[Outcome]:
    """The claims of a kernel, each held against the recordings."""
    found = texts().get(chosen.name)
    recordings = tuple(recordings)
    return [Outcome(claim, _value(chosen, claim, recordings)) for claim in found.claims] if found else []


def _value(chosen: Kernel, claim: Claim, recordings: tuple[Recording, ...]) -> float | None:
    dtype = claim.dtype or chosen.dtypes[0]
    if claim.measure == "counter":
        return _counter(chosen, claim, dtype, recordings)
    mine = _measured(chosen.name, claim, dtype, recordings)
    if mine is None or mine.entry.time is None:
        return None
    if claim.measure == "tflops":
        return mine.tflops
    if claim.measure in ("registers", "spills", "blocks"):
        return _of_build(mine, claim.measure)
    below = previous(chosen)
    name = claim.of or (below.name if below else "")
    other = _measured(name, claim, dtype, recordings)
    if other is None:
        return None
    theirs = other.tflops
    return mine.tflops / theirs if mine.tflops and theirs else None


def _counter(chosen: Kernel, claim: Claim, dtype: str, recordings: tuple[Recording, ...]) -> float | None:
    """A counter over that of the rung below, or of another one."""
    below = previous(chosen)
    names = chosen.name, claim.of or (below.name if below else "")
    steps = {rung.kernel.name: rung.measured for rung in counted(recordings, claim.d, dtype)}
    here, there = (m.entry.counter(claim.counter or "") if (m := steps.get(name)) else None for name in names)
    return here / there if here is not None and there else None


def _measured(name: str, claim: Claim, dtype: str, recordings: tuple[Recording, ...]) -> Measured | None:
    """A kernel by name, in its own dtype if it has not this one, or a peer, where the claim is made."""
    if name in PEERS:
        found = peers(recordings, claim.N, claim.d, claim.mask, dtype)
        return next((m for m in found if m.entry.name == name), None)
    steps = rungs(recordings, claim.N, claim.d, claim.mask, dtype)
    return next((r.measured for r in steps if r.kernel.name == name), None)


def _of_build(mine: Measured, what: str) -> float | None:
    uses = mine.entry.build.functions if mine.entry.build else ()
    values = {
        "registers": [use.registers for use in uses],
        "spills": [use.local_bytes for use in uses],
        "blocks": [use.blocks_per_sm for use in uses if use.blocks_per_sm is not None],
    }[what]
    return float(max(values)) if values else None


@dataclass(frozen=True)
class Moved:
    """A counter of a rung beside that of the rung below; None where it was not read."""

    metric: str
    name: str
    here: float | None
    below: float | None

    @property
    def ratio(self) -> float | None:
        """here / below; None for shares, which say nothing about one another."""
        is_share = COUNTERS[self.metric][1] is None
        return self.here / self.below if self.here is not None and self.below and not is_share else None


def moved(mine: Measured | None, below: Measured | None) -> list[Moved]:
    """Counters that were read for a rung or for the one below."""
    rows = []
    for metric, (name, _) in COUNTERS.items():
        here, there = (_read(m, metric) if m else None for m in (mine, below))
        if here is not None:
            rows.append(Moved(metric, name, here, there))
    return rows


def _read(measured: Measured, metric: str) -> float | None:
    """A counter of a kernel; of several functions the sum, but shares cannot be added up."""
    is_share = COUNTERS[metric][1] is None
    return None if is_share and len(measured.entry.counters) > 1 else measured.entry.counter(metric)


# --- what it costs ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Lines:
    """Lines of code of a kernel's file (neither blank nor only a comment), and how many came and went."""

    code: int
    added: int
    removed: int


def lines(chosen: Kernel) -> Lines:
    """The cost of a rung in lines. Headers that kernels share are not counted."""
    here, below = code_lines(chosen.source()), previous(chosen)
    there = code_lines(below.source()) if below else []
    changed = list(difflib.ndiff(there, here)) if below else []
    added, removed = (sum(line.startswith(sign) for line in changed) for sign in "+-")
    return Lines(len(here), added, removed)


def code_lines(text: str) -> list[str]:
    """Lines that hold code, without what stands behind it as a comment."""
    kept = []
    for line in text.splitlines():
        code = line.split("//")[0].strip()
        if code:
            kept.append(code)
    return kept


__all__ = [
    "COUNTERS",
    "FILE",
    "MEASURES",
    "Claim",
    "Lines",
    "Moved",
    "Outcome",
    "Text",
    "code_lines",
    "lines",
    "moved",
    "outcomes",
    "read",
    "texts",
]
