"""The pictures of kernels: source, who does what when, recorded times, the ladder. See `fmha.picture.book`."""

from __future__ import annotations

import html
from collections.abc import Iterator
from typing import Any

from fmha import ladder
from fmha.errors import LimitError
from fmha.events import emit, most_events
from fmha.figures.gantt import gantt
from fmha.figures.kernel_times import kernel_times, timed
from fmha.figures.ladder_bars import NAMES, ladder_bars
from fmha.gantt_map import gantt_map, whole
from fmha.hardware import GPUS
from fmha.kernels import kernel
from fmha.lecture.quantities import CAUSAL, problem_of, tiling_of
from fmha.measurement import nearest, shipped
from fmha.phases import phases
from fmha.picture.parts import Chart, Drawing, Note, Origin, Part, Words, setting
from fmha.problem import Problem, Tiling
from fmha.spans import blocks_of, idle_areas, shares_of, waves_of
from fmha.timeline import clock
from fmha.units import format_number, format_ratio, format_time_us

SIXTEEN = "bf16"  # in which the kernels of the ladder that compute in 16 bits are shown
MOST_EVENTS = 700_000  # of a timeline: a third of a second
_ABOVE, _BELOW = 9, 22  # lines of a source shown around the phase that is marked
_CODE_STYLE = """<style>
.lecture-code { margin: 0; padding: 0.6rem 0; border: 1px solid var(--st-border-color, #8884); border-radius: 8px;
  overflow-x: auto; font-family: var(--st-code-font, monospace); font-size: 0.86rem; line-height: 1.42; }
.lecture-code div { padding: 0 0.8rem; white-space: pre; width: max-content; min-width: 100%; box-sizing: border-box; }
.lecture-code .now { background: rgba(43, 142, 234, 0.17); border-left: 4px solid #2b8eea;
  padding-left: calc(0.8rem - 4px); }
.lecture-code i { font-style: normal; opacity: 0.7; display: inline-block; width: 2.6em; }
</style>"""
Settings = dict[str, Any]


def source_picture(s: Settings) -> Iterator[Part]:
    """A kernel's source around one phase, which is marked."""
    source = kernel(s["kernel"])
    lines, found = source.source().splitlines(), phases(source.source())
    now = found[min(s["part"], len(found)) - 1]
    first, last = max(1, now.first - _ABOVE), min(len(lines), now.first + _BELOW)
    yield Words(f"Part {min(s['part'], len(found))} of {len(found)}: `{now.maths}`")
    rows = "".join(
        f'<div class="{"now" if now.first <= n <= now.last else ""}"><i>{n}</i>{html.escape(lines[n - 1])}</div>'
        for n in range(first, last + 1)
    )
    yield Drawing(f'{_CODE_STYLE}<div class="lecture-code" role="region" aria-label="Source" tabindex="0">{rows}</div>')
    yield Words(f"`{source.file}`, source {source.source_hash()}, lines {first} to {last} of {len(lines)}", quiet=True)


def timeline_picture(s: Settings) -> Iterator[Part]:
    """Which SM does what when, by the simple cost.

    Raises:
        LimitError: too many events.
    """
    problem, tiling, gpu = problem_of(s), tiling_of(s), GPUS[s["gpu"]]
    most = most_events(problem, tiling, s["order"])
    if most > MOST_EVENTS:
        raise LimitError(
            f"this timeline has up to {most:,} events, and a picture of a lecture shows {MOST_EVENTS:,}: try a smaller "
            "N or H, or larger tiles."
        )
    events = clock(emit(problem, tiling, s["order"]), gpu, problem.dtype, gpu.sms, copy=False)
    blocks = blocks_of(events, gpu.sms)
    said = f"{len(blocks.worker):,} blocks on {gpu.sms} SMs, {format_time_us(blocks.span)} in all"
    idle = shares_of(events, blocks).idle
    yield Words(f"**{said}**; of SMs x time {idle:.0%} has no block.")
    cells = gantt_map(events, blocks, whole(blocks))
    drawn = gantt(cells, blocks, idle_areas(blocks), waves_of(blocks))
    yield Chart(drawn, "timeline", f"{said}; {idle:.0%} of SMs x time has no block.")
    if cells.how == "blocks":
        together = "A block's visits are too narrow to be seen apart: each phase of a bar stands for all of its kind. "
    else:
        together = ""
    yield setting(problem, Br=tiling.Br, Bc=tiling.Bc, causal=problem.causal or "none", GPU=gpu.name)
    yield Words(
        f"{together}Times follow a simple cost, bytes and FLOPs over an SM's share: they are no measurement.",
        quiet=True,
    )


def times_picture(s: Settings) -> Iterator[Part]:
    """Recorded times of our kernels and of libraries, at these settings or the nearest."""
    asked = Problem(N=s["N"], d=s["d"], H=16, causal=CAUSAL[s["causal"]])  # type: ignore[arg-type]
    found = nearest(shipped(), kernel("02"), asked, Tiling(32, 32))
    if found is None:
        yield Note("No recording comes with the app.")
        return
    bars = [  # of our own kernels the tiles asked for; of the 16-bit types one
        b for b in timed(found.run)
        if b.entry is found.entry or (b.dtype != "bf16" and (not b.entry.is_kernel or b.entry.name != found.entry.name))
    ]  # fmt: skip
    fastest = min(bars, key=lambda bar: bar.median_us)
    own = next((bar for bar in bars if bar.entry is found.entry), None)
    if own is not None:
        yield Words(
            f"Our kernel takes **{format_time_us(own.median_us)}**, the fastest here "
            f"**{format_time_us(fastest.median_us)}**, {format_ratio(own.median_us / fastest.median_us)} less."
        )
    names = {(bar.title, bar.dtype) for bar in bars}
    yield Chart(
        kernel_times(found.run, bars, found.entry, found.recording.device.gpu), "times",
        alt=f"{len(names)} implementations; the fastest is {fastest.title} in {fastest.dtype} with "
        f"{format_time_us(fastest.median_us)}.",
    )  # fmt: skip
    yield Origin(found)


def ladder_picture(s: Settings) -> Iterator[Part]:
    """Recorded speed of all kernels beside libraries; a note where these settings were not recorded."""
    known = ladder.shipped()
    causal: Any = CAUSAL[s["causal"]]
    steps = ladder.rungs(known, s["N"], s["d"], causal, SIXTEEN)
    timed_steps = [step for step in steps if step.measured is not None and step.tflops is not None]
    if not timed_steps:
        yield Note("No recording of the ladder with these settings comes with the app.")
        return
    first = next((step for step in timed_steps if step.kernel.number == ladder.TUTORIAL), timed_steps[0])
    last = max(timed_steps, key=lambda step: step.tflops or 0.0)
    assert first.measured is not None and first.tflops is not None and last.tflops is not None
    peers = [m for dtype in dict.fromkeys(step.dtype for step in steps)
             for m in ladder.peers(known, s["N"], s["d"], causal, dtype)]  # fmt: skip
    rivals = [(speed, NAMES[m.entry.name]) for m in peers if m.entry.dtype == last.dtype and (speed := m.tflops)]
    fastest, name = max(rivals, default=(0.0, ""))
    beside = f"; the fastest library, {name}, has {format_number(fastest)}" if rivals else ""
    yield Words(
        f"From **{first.kernel.number} {first.kernel.name}** with {format_number(first.tflops)} TFLOP/s to "
        f"**{last.kernel.number} {last.kernel.name}** with **{format_number(last.tflops)}**, "
        f"{format_ratio(last.tflops / first.tflops)} as many{beside}."
    )
    recording, run = first.measured.recording, first.measured.run
    yield Chart(
        ladder_bars(steps, peers, recording.device.gpu, last.kernel.number), "ladder",
        "TFLOP/s of each kernel: "
        + "; ".join(f"{r.kernel.number} {r.kernel.name} {format_number(r.tflops)}" for r in timed_steps if r.tflops)
        + ".",
    )  # fmt: skip
    yield setting(run.problem.replace(dtype=last.dtype), causal=run.problem.causal or "none")
    yield Words(
        f"Recorded on {recording.device.facts.name}, {recording.made[:10]}; hatched: {SIXTEEN}, else fp32. Lines "
        "are libraries, timed in turns with the kernels of their type.", quiet=True,
    )  # fmt: skip


__all__ = ["MOST_EVENTS", "ladder_picture", "source_picture", "timeline_picture", "times_picture"]
