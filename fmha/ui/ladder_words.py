"""What the page *The ladder* says: the climb in a sentence, each rung's claims and costs, rows of its tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from fmha.figures.ladder_bars import NAMES
from fmha.hardware import Gpu
from fmha.kernels import Kernel, previous
from fmha.ladder import TUTORIAL, Measured, Rung
from fmha.measurement import Timing
from fmha.occupancy import occupancy
from fmha.problem import Causal
from fmha.rungs import COUNTERS, Claim, Moved, Outcome, lines
from fmha.speeds import peak_name, peak_tflops
from fmha.ui.page import plain
from fmha.ui.sentences import one_line, percent, said
from fmha.units import format_bytes, format_count, format_number, format_ratio, format_time_us

_COUNTERPARTS = ("sdpa-flash", "sdpa-cudnn", "fa3")  # of the 16-bit kernels; of the fp32 ones there is one
VERDICTS = {True: "✔ confirmed", False: "✘ not confirmed", None: "? not measured"}


def headline(rungs: Sequence[Rung], peers: Sequence[Measured], gpu: Gpu, dtype: str) -> str:
    """The climb in one sentence; where nothing of `dtype` has a time, it says which one it is about."""
    timed = [(speed, rung) for rung in rungs if (speed := rung.tflops) is not None]
    if not timed:
        return "No kernel has a time at this shape."
    top, best = max(timed, key=lambda pair: pair[0])
    start, first = next((pair for pair in timed if pair[1].kernel.number == TUTORIAL), timed[0])
    than = "the tutorial's kernel" if first.kernel.number == TUTORIAL else label(first.kernel)
    peak = peak_tflops(gpu, best.dtype, best.kernel.number)
    begin = "From" if any(rung.dtype == dtype for _, rung in timed) else f"In {best.dtype}, from"
    text = (
        f"{begin} {format_number(start)} to {format_number(top)} TFLOP/s: {best.kernel.number} ({best.kernel.name}) is "
        f"{format_ratio(top / start)} as fast as {than}"
    )
    text += f", {percent(top / peak)} of {peak_name(gpu, best.dtype, best.kernel.number)}" if peak else ""
    beside = compared(top, best.dtype, peers)
    return f"{text}; {beside}." if beside else f"{text}."


def elsewhere(rungs: Sequence[Rung], dtype: str, shapes: Sequence[tuple[int, int, Causal | None]]) -> str | None:
    """Where kernels were recorded in `dtype`, if none was at this shape. shapes: those at which some were."""
    if any(rung.dtype == dtype and rung.tflops is not None for rung in rungs):
        return None
    if not shapes:
        return f"No kernel is recorded in {dtype}: choose another data type, or record it with `bench --ladder`."
    lengths, dims, masks = (list(dict.fromkeys(column)) for column in zip(*shapes, strict=True))
    with_mask = " with and without the causal mask" if len(masks) == 2 else " with the causal mask" if masks[0] else ""
    return (
        f"No kernel is recorded in {dtype} at this shape. In {dtype} there are recordings at N = "
        f"{_listed(f'{N:,}' for N in lengths)}, d = {_listed(map(str, dims))},{with_mask or ' without a mask'}: "
        "choose one of these, or another data type."
    )


def _listed(parts: Iterable[str]) -> str:
    *most, last = parts
    return f"{', '.join(most)} and {last}" if most else last


def ceiling(measured: Measured, dtypes: Sequence[str], gpu: Gpu) -> str | None:
    """What mma.sync alone reaches on that device in each dtype, as recorded beside the rungs; None where it is not."""
    peak = measured.recording.mma_sync_peak
    if peak is None:
        return None
    named = dict.fromkeys("tf32" if dtype == "fp32" else dtype for dtype in dtypes)
    parts = []
    for dtype in sorted(named, key=lambda name: name == "tf32"):
        best, of = peak.best(dtype), gpu.tf32_tflops if dtype == "tf32" else peak_tflops(gpu, dtype)
        if best is not None:
            parts.append(
                f"{format_number(best)} TFLOP/s in {dtype}" + (f" ({percent(best / of)} of the peak)" if of else "")
            )
    if not parts:
        return None
    return f"[[mma.sync]], the instruction of kernels 08 to 13, alone and from registers: {', '.join(parts)}."


def compared(speed: float, dtype: str, peers: Sequence[Measured]) -> str:
    """How a kernel stands against the libraries that matter for its dtype."""
    known = {m.entry.name: t for m in peers if m.entry.dtype == dtype and (t := m.tflops) is not None}
    names = [n for n in (("sdpa-efficient",) if dtype == "fp32" else _COUNTERPARTS) if n in known]
    return ", ".join(f"{speed / known[n]:.2f}x {NAMES[n]}" for n in names)


def claim_line(outcome: Outcome) -> str:
    """A claim, where it was made, what was measured, and whether it held."""
    claim = outcome.claim
    where = f"N = {claim.N:,}, d = {claim.d}{', causal' if claim.causal else ''}"
    text = f"**{VERDICTS[outcome.held]}:** {plain(claim.text)} "
    if outcome.measured is None:
        return f"{text} :small[No recording tells it ({where}).]"
    return f"{text} :small[Measured: {_value(claim, outcome.measured)} ({where}).]"


def _value(claim: Claim, value: float) -> str:
    if claim.measure == "tflops":
        return f"{format_number(value)} TFLOP/s"
    if claim.measure == "speedup":
        over = NAMES.get(claim.of or "", claim.of) or "the rung below"
        return f"{value:.3g} times {over}"
    if claim.measure == "counter":
        name = COUNTERS.get(claim.counter or "", (claim.counter, None))[0]
        return f"{name}, {value:.3g} of the rung below"
    return f"{value:,.0f} {claim.measure}"


def rung_rows(rungs: Sequence[Rung], peers: Sequence[Measured], gpu: Gpu) -> list[dict[str, Any]]:
    """One row of the table a kernel."""
    rows, speeds = [], {rung.kernel.number: rung.tflops for rung in rungs}
    for rung in rungs:
        speed, entry = rung.tflops, rung.measured.entry if rung.measured else None
        before = previous(rung.kernel)
        below = speeds.get(before.number) if before else None
        cost, uses = lines(rung.kernel), entry.build.functions if entry and entry.build else ()
        check = entry.check if entry else None
        rows.append(
            {
                "rung": f"{rung.kernel.number} {rung.kernel.name}",
                "one idea": rung.kernel.title,
                "dtype": rung.dtype,
                "tiles": f"{entry.tiling[0]} x {entry.tiling[1]}" if entry and entry.tiling else "its own",
                "TFLOP/s": format_number(speed) if speed else "",
                "time": format_time_us(entry.time.median_us) if entry and entry.time else "",
                "runs": _runs(entry.time) if entry and entry.time else "",
                "× below": f"{speed / below:.2f}" if speed and below else "",
                "× libraries": compared(speed, rung.dtype, peers) if speed else "",
                "error / allowed": f"{check.max_abs:.1g} / {check.max_abs_allowed:.1g}" if check else "",
                "registers": str(max(u.registers for u in uses)) if uses else "",
                "spills, B": str(max(u.local_bytes for u in uses)) if uses else "",
                "SMEM a block": format_bytes(smem) if uses and (smem := _smem(uses)) is not None else "",
                "blocks an SM": " / ".join(str(u.blocks_per_sm) for u in uses if u.blocks_per_sm is not None),
                "lines of code": str(cost.code),
                "lines + / −": f"{cost.added} / {cost.removed}" if cost.added or cost.removed else "",
            }
        )
    return rows


def _runs(time: Timing) -> str:
    """How often it was timed, and how far apart the 10th and the 90th percentile lie."""
    return f"{time.repeats}, ± {50 * (time.p90_us - time.p10_us) / time.median_us:.2f} %"


def _smem(uses: Sequence[Any]) -> int | None:
    known = [u.static_smem_bytes + u.smem_bytes for u in uses if u.smem_bytes is not None]
    return max(known) if known else None


def costs(rung: Rung, below: Rung | None, gpu: Gpu) -> list[str]:
    """What the rung takes: lines, registers, shared memory, occupancy, each beside the rung below."""
    cost = lines(rung.kernel)
    said_lines = [
        f"**{cost.code} lines of code**"
        + (f": {cost.added} came, {cost.removed} went." if below is not None else ", and it is the first.")
    ]
    mine, other = _use(rung), _use(below) if below else None
    if mine is None:
        return [*said_lines, "Registers and shared memory are known once it was recorded."]

    def beside(now: str, before: str | None) -> str:
        return f"{now} (below: {before})" if before is not None else now

    said_lines.append("**Registers a thread:** " + beside(str(mine.registers), str(other.registers) if other else None)
                      + (f", {mine.local_bytes} bytes of spills" if mine.local_bytes else ", no spills"))  # fmt: skip
    if mine.smem_bytes is not None and mine.threads is not None:
        now = mine.static_smem_bytes + mine.smem_bytes
        before = other.static_smem_bytes + other.smem_bytes if other and other.smem_bytes is not None else None
        said_lines.append(
            "**Shared memory a block:** " + beside(format_bytes(now), None if before is None else format_bytes(before))
        )
        held = occupancy(gpu, threads=mine.threads, smem_bytes=now, registers=mine.registers)
        said_lines.append(
            f"**Occupancy:** {held.blocks} {'block' if held.blocks == 1 else 'blocks'} of {mine.threads} threads an "
            f"SM, {held.warps} of {held.max_warps} warps; {held.limited_by} "
            f"{'decide' if held.limited_by.endswith('s') else 'decides'}"
        )
    return said_lines


def _use(rung: Rung | None) -> Any:
    """The function that takes most registers; None where the rung was not recorded."""
    if rung is None or rung.measured is None or rung.measured.entry.build is None:
        return None
    return max(rung.measured.entry.build.functions, key=lambda use: use.registers, default=None)


def counter_rows(rows: Sequence[Moved], watch: str) -> list[dict[str, str]]:
    """Counters of a rung beside the rung below; the one to watch is marked."""
    return [
        {
            "": "watch" if row.metric == watch else "",
            "counter": row.name,
            "rung below": _counted(row.below),
            "this rung": _counted(row.here),
            "ratio": "" if row.ratio is None else f"{row.ratio:.3g}",
        }
        for row in rows
    ]


def _counted(value: float | None) -> str:
    return "not read" if value is None else format_count(value) if value >= 1000 else f"{value:.3g}"


def watched(rows: Sequence[Moved], watch: str) -> str | None:
    """The counter that should move, in one sentence."""
    row = next((r for r in rows if r.metric == watch), None)
    if row is None or row.ratio is None:
        return None
    if row.ratio > 1:
        how = f"grow to {format_ratio(row.ratio)} of"
    else:
        how = f"fall to {percent(row.ratio)} of" if row.ratio < 0.995 else "stay at"
    return f"**{row.name[0].upper()}{row.name[1:]}** {how} those of the rung below."


def absent(measured: Sequence[Measured], rungs: Sequence[Rung]) -> list[str]:
    """Why some kernels and peers have no time, one line each."""
    every = [*(m.entry for m in measured), *(r.measured.entry for r in rungs if r.measured)]
    return [
        f"- {said(e.title, 60)} ({said(e.dtype, 10)}): {said(e.absent or (e.check.verdict if e.check else ''), 220)}"
        for e in every
        if e.time is None
    ]


def provenance(measured: Measured) -> str:
    """Where and when a rung was measured."""
    device, entry = measured.recording.device, measured.entry
    parts = [
        f"**Recorded** on {said(device.facts.name, 60)}",
        f"driver {said(device.driver, 30)}",
        f"CUDA {said(device.cuda, 20)}",
        f"torch {said(device.torch, 20)}" if device.torch else "without torch",
        said(measured.run.made[:16].replace("T", " ") + " UTC", 24),
    ]
    if entry.source_hash:
        parts.append(f"source {said(entry.source_hash, 16)}")
    return ":small[" + " · ".join(parts) + "]"


def label(chosen: Kernel) -> str:
    """A kernel's number and name."""
    return f"{chosen.number} {one_line(chosen.name, 30)}"


__all__ = [
    "VERDICTS",
    "absent",
    "ceiling",
    "claim_line",
    "compared",
    "costs",
    "counter_rows",
    "elsewhere",
    "headline",
    "label",
    "provenance",
    "rung_rows",
    "watched",
]
