"""What was measured on real GPUs, as tables; and the papers' claims beside what is computed here."""

from __future__ import annotations

from html import escape
from itertools import groupby
from pathlib import Path

from fmha import ladder
from fmha.figures.byte_levels import dram_measured, requested_measured
from fmha.figures.kernel_times import kernel_times, timed
from fmha.measurement import SHIPPED, Entry, Recording, Run, shipped
from fmha.paper_ratios import all_claims
from fmha.papers import Claim
from fmha.problem import Problem
from fmha.site import as_run, show
from fmha.site.frame import page, table
from fmha.speeds import peak_tflops, tflops
from fmha.units import format_bytes, format_number, format_time_us

FOLDER = "recordings"
_HEAD = [
    "implementation", "type", "tiles", "median", "10th to 90th", "TFLOP/s", "of the peak", "largest error",
    "requested, predicted", "requested, counted", "DRAM, counted",
]  # fmt: skip
_NUMBERS = set(range(3, 11))


def files() -> dict[str, str]:
    """The pages, and the recordings themselves as they are in the app, by path."""
    made = {"recorded.html": _recorded(), "papers.html": _papers()}
    return made | {f"{FOLDER}/{path.name}": path.read_text(encoding="utf-8") for path in _paths()}


def _paths() -> list[Path]:
    return [*sorted(SHIPPED.glob("*.json")), *sorted(ladder.SHIPPED.glob("*.json"))]


def _recordings() -> tuple[Recording, ...]:
    """All that come with the app."""
    return (*shipped(), *ladder.shipped())


def _recorded() -> str:
    parts = [
        "<h1>Recorded on GPUs</h1>",
        '<p class="idea">Each result was checked against attention in float64 before it was timed; a wrong one has no '
        "time. Medians of many runs, the L2 cache flushed before each. Counted bytes are Nsight Compute's; predicted "
        "ones are computed from tile sizes alone.</p>",
    ]
    for recording in shipped():
        parts.append(_recording(recording))
    for recording in ladder.shipped():
        parts.append(_recording(recording, "the ladder, "))
    parts.append(as_run.section())
    links = ", ".join(f'<a href="{FOLDER}/{escape(p.name)}" download>{escape(p.name)}</a>' for p in _paths())
    parts.append(f"<h2>The recordings themselves</h2><p>{links}: JSON, with every counter.</p>")
    return page("recorded.html", "Recorded on GPUs", "\n".join(parts))


def _recording(recording: Recording, what: str = "") -> str:
    device = recording.device
    heads = sorted({run.problem.d for run in recording.runs})
    made = f"Driver {device.driver}, CUDA {device.cuda}, torch {device.torch or 'none'}, made {recording.made[:10]}."
    head = f"<h2>{escape(device.facts.name)}, {what}d = {', '.join(map(str, heads))}</h2><p>{escape(made)}</p>"
    return head + "".join(_run(recording, run) for run in recording.runs)


def _run(recording: Recording, run: Run) -> str:
    """One problem: the bars, and the table."""
    bars = timed(run)
    own = next((bar.entry for bar in bars if bar.entry.is_kernel), None)
    drawn = ""
    if own is not None:
        fastest = min(bars, key=lambda bar: bar.median_us)
        time = format_time_us(fastest.median_us)
        alt = f"{len(bars)} results; the fastest is {fastest.title} in {fastest.dtype}, {time}."
        drawn = show.figure(kernel_times(run, bars, own, recording.device.gpu), alt, "")
    rows = [_row(entry, run, recording) for entry in run.entries if entry.time is not None and not entry.absent]
    missing = "".join(
        f"<li>{escape(entry.title)}, {escape(entry.dtype)}: {escape(entry.absent or 'not timed')}</li>"
        for entry in run.entries
        if entry.absent or entry.time is None
    )
    if missing:
        drawn = f"{drawn}<details><summary>What has no result</summary><ul>{missing}</ul></details>"
    return f"<details><summary>{escape(_said(run.problem))}</summary>{drawn}{table(_HEAD, rows, _NUMBERS)}</details>"


def _said(p: Problem) -> str:
    mask = "no mask" if p.causal is None else f"causal, {p.causal}"
    return f"N = {p.Nq:,}, d = {p.d}, H = {p.H}, B = {p.B}, {mask}"


def _row(entry: Entry, run: Run, recording: Recording) -> list[str]:
    tiles = f"{entry.tiling[0]} x {entry.tiling[1]}" if entry.tiling else ""
    name = f"{entry.name} {entry.title}" if entry.is_kernel else entry.title
    assert entry.time is not None
    speed, peak = tflops(run.problem, entry.time.median_us), peak_tflops(recording.device.gpu, entry.dtype, entry.name)
    counted, dram = requested_measured(entry), dram_measured(entry)
    return [
        name + (" (its source has changed since)" if entry.stale else ""),
        entry.dtype,
        tiles,
        format_time_us(entry.time.median_us),
        f"{format_time_us(entry.time.p10_us)} to {format_time_us(entry.time.p90_us)}",
        format_number(speed),
        f"{100 * speed / peak:.1f} %" if peak else "",
        f"{entry.check.max_abs:.2g}" if entry.check else "",
        f"{entry.requested_bytes:,} B" if entry.requested else "",
        "" if counted is None else f"{counted:,} B",
        "" if dram is None else format_bytes(dram),
    ]


def _papers() -> str:
    made = all_claims(_recordings())
    parts = [
        "<h1>Paper check</h1>",
        '<p class="idea">Claims of the papers, computed again: the paper\'s number, ours, and a verdict with its '
        "reason.</p>",
    ]
    for paper, claims in groupby(made, key=lambda claim: claim.paper):
        parts.append(f"<h2>{escape(paper)}</h2>" + "".join(_claim(claim) for claim in claims))
    return page("papers.html", "Paper check", "\n".join(parts))


def _claim(claim: Claim) -> str:
    found = claim.check()
    return (
        f'<div class="box"><h3>{escape(claim.place)}: {escape(claim.text)}</h3><p><b>{escape(found.verdict)}.</b> The '
        f"paper: {escape(found.theirs)}. Here: {escape(found.ours)}.</p><p>{escape(found.why)}</p></div>"
    )


__all__ = ["FOLDER", "files"]
