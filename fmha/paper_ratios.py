"""The papers' claims about speed, held against recordings: FlashAttention-2's and -3's headline ratios.

Forward passes only, 16-bit types, time with a cold L2; the papers measured other GPUs and clocks, so a check says which
device its own numbers are from. What was never recorded is said to be missing, not guessed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from fmha import ladder
from fmha.measurement import Recording, shipped
from fmha.papers import CLAIMS, Claim, Finding, Verdict, near
from fmha.problem import Problem
from fmha.speeds import peak_tflops, tflops

FA2 = "FlashAttention-2 (2023)"
FA3 = "FlashAttention-3 (2024)"
FLASH2, CUDNN, EAGER = "sdpa-flash", "sdpa-cudnn", "torch-eager"
FLASH3 = ("fa3", "flash-attention-3")  # names that an entry with FlashAttention-3 would have
HALF = ("fp16", "bf16")


@dataclass(frozen=True)
class Speed:
    """A recorded time of a 16-bit forward pass. peak: of the device for that type, TFLOP/s."""

    problem: Problem
    dtype: str
    name: str
    tflops: float
    peak: float


def speeds(recordings: Iterable[Recording], *names: str) -> list[Speed]:
    """All 16-bit times of implementations with these names."""
    return [
        Speed(
            run.problem, entry.dtype, entry.name, tflops(run.problem, entry.time.median_us),
            peak_tflops(recording.device.gpu, entry.dtype),
        )
        for recording in recordings for run in recording.runs for entry in run.entries
        if entry.name in names and entry.dtype in HALF and entry.time is not None and entry.absent is None
    ]  # fmt: skip


def ratios(recordings: Iterable[Recording], fast: str, slow: str, least_n: int = 512) -> list[float]:
    """Speed of `fast` over that of `slow` wherever both were recorded on one problem, from `least_n` tokens on."""
    known = tuple(recordings)
    slower = {(s.problem, s.dtype): s.tflops for s in speeds(known, slow)}
    return [
        s.tflops / slower[s.problem, s.dtype]
        for s in speeds(known, fast)
        if (s.problem, s.dtype) in slower and s.problem.Nq >= least_n
    ]


def _where(recordings: tuple[Recording, ...]) -> str:
    """The devices and days of recordings, for a reader."""
    names = dict.fromkeys(f"{r.device.facts.name}, driver {r.device.driver}, {r.made[:10]}" for r in recordings)
    return "; ".join(names)


def _missing(theirs: str, what: str) -> Finding:
    why = f"{what} was not recorded here, so there is nothing to hold against it."
    return Finding(theirs, "no recording", "not tested", why)


def _inside(values: list[float], low: float, high: float) -> Verdict:
    """Whether all (reproduced) or some (shape only) ratios lie in the paper's range."""
    count = sum(low <= value <= high for value in values)
    return "reproduced" if count == len(values) else "shape only" if count else "not reproduced"


def _range(values: list[float]) -> str:
    return f"{min(values):.2f}x to {max(values):.2f}x"


def _fa2_standard(recordings: tuple[Recording, ...]) -> Finding:
    theirs, found = "3x to 10x, forward and backward, A100", ratios(recordings, FLASH2, EAGER)
    if not found:
        return _missing(theirs, "FlashAttention-2 beside standard attention")
    inside = sum(3 <= value <= 10 for value in found)
    return Finding(
        theirs, f"{_range(found)}, forward ({_where(recordings)})", _inside(found, 3, 10),
        f"{inside} of {len(found)} recorded settings lie in the paper's range. The ratio grows with N and is largest "
        "with a causal mask, whose upper half standard attention computes too; the least ratios are at 512 tokens.",
    )  # fmt: skip


def _fa2_peak(recordings: tuple[Recording, ...]) -> Finding:
    theirs, found = "35 % of the peak of an H100", speeds(recordings, FLASH2)
    if not found:
        return _missing(theirs, "FlashAttention-2")
    best = max(found, key=lambda s: s.tflops / s.peak)
    share = 100 * best.tflops / best.peak
    return Finding(
        theirs, f"{share:.0f} % at best: {best.tflops:.0f} of {best.peak:.0f} TFLOP/s ({_where(recordings)})",
        "reproduced" if abs(share - 35) <= 4 else "not reproduced",
        "FlashAttention-2 uses neither Hopper's asynchronous matrix instructions nor its tensor memory accelerator; "
        "an H200 has the peaks of the H100 that the paper used.", share, 35.0,
    )  # fmt: skip


def _fa2_fa1(recordings: tuple[Recording, ...]) -> Finding:
    theirs = "about 2x faster than FlashAttention-1, 50 to 73 % of the peak of an A100"
    return _missing(theirs, "FlashAttention-1, or any of this on an A100,")


def _fa3(recordings: tuple[Recording, ...]) -> Finding:
    theirs = "1.5x to 2.0x faster than FlashAttention-2, forward, H100"
    found = [value for name in FLASH3 for value in ratios(recordings, name, FLASH2)]
    if found:
        return Finding(
            theirs, f"{_range(found)} ({_where(recordings)})", _inside(found, 1.5, 2.0), "Same problems, same device."
        )
    stand_in = ratios(recordings, CUDNN, FLASH2)
    if not stand_in:
        return _missing(theirs, "FlashAttention-3")
    inside = sum(1.5 <= value <= 2.0 for value in stand_in)
    return Finding(
        theirs, f"FlashAttention-3 was not recorded; cuDNN instead: {_range(stand_in)} ({_where(recordings)})",
        "shape only" if inside else "not reproduced",
        "cuDNN's kernel for Hopper stands in for it, so this shows what Hopper gives over FlashAttention-2 and not "
        f"FlashAttention-3 itself: {inside} of {len(stand_in)} settings lie between 1.5x and 2.0x.",
    )  # fmt: skip


def _fa3_peak(recordings: tuple[Recording, ...]) -> Finding:
    theirs = "740 TFLOP/s with fp16, 75 % of the peak of an H100"
    found = speeds(recordings, *FLASH3)
    names = "FlashAttention-3"
    if not found:
        found, names = speeds(recordings, CUDNN), "FlashAttention-3 was not recorded; cuDNN"
    if not found:
        return _missing(theirs, "FlashAttention-3")
    best = max(found, key=lambda s: s.tflops)
    verdict: Verdict = "not tested" if best.name not in FLASH3 else near(best.tflops, 740, 0.08)
    return Finding(
        theirs, f"{names}: {best.tflops:.0f} TFLOP/s, {100 * best.tflops / best.peak:.0f} % ({_where(recordings)})",
        verdict,
        f"The best of the recorded settings is N={best.problem.Nq:,}, d={best.problem.d}; the paper's best has d=256.",
        best.tflops, 740.0,
    )  # fmt: skip


def speed_claims(recordings: Iterable[Recording] | None = None) -> tuple[Claim, ...]:
    """The claims about speed, held against `recordings` (those that come with the app, when none are given)."""
    known = (*shipped(), *ladder.shipped()) if recordings is None else tuple(recordings)

    def claim(id: str, paper: str, place: str, text: str, check: Callable[[tuple[Recording, ...]], Finding]) -> Claim:
        return Claim(id, paper, place, text, lambda: check(known))

    return (
        claim(
            "fa2-standard", FA2, "section 4.1", "FlashAttention-2 is 3 to 10 times as fast as standard attention.",
            _fa2_standard,
        ),
        claim("fa2-fa1", FA2, "abstract", "FlashAttention-2 is about twice as fast as FlashAttention-1.", _fa2_fa1),
        claim("fa2-hopper", FA3, "section 1", "FlashAttention-2 reaches 35 % of an H100's peak.", _fa2_peak),
        claim("fa3-speedup", FA3, "abstract", "FlashAttention-3 is 1.5 to 2 times as fast as FlashAttention-2.", _fa3),
        claim("fa3-peak", FA3, "abstract", "FlashAttention-3 reaches 740 TFLOP/s, 75 % of the peak.", _fa3_peak),
    )  # fmt: skip


def all_claims(recordings: Iterable[Recording] | None = None) -> tuple[Claim, ...]:
    """Every claim, in the order of the papers."""
    return (*CLAIMS, *speed_claims(recordings))
