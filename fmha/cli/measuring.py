"""What commands that measure on a GPU share: asking its worker, lines of results, counters added to a recording."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from fmha.errors import GpuError
from fmha.kernels import kernel
from fmha.measurement import Entry, Recording, Run
from fmha.problem import Problem, Tiling
from fmha.speeds import peak_tflops, tflops
from fmha.units import format_time_us

_COUNTER_SECONDS = 60.0  # for each run that is counted


def need_gpu(device: int) -> None:
    """Refuse, with the reason and the remedy, where this machine cannot run kernels on that GPU."""
    from fmha.gpu.diagnosis import diagnose

    found = diagnose()
    if not found.ready:
        raise GpuError(" ".join(f"{finding.what} {finding.remedy}" for finding in found.findings))
    if not 0 <= device < len(found.gpus):
        raise GpuError(f"device={device} is not there: this machine shows {len(found.gpus)} GPU(s), from 0.")


def joined(recordings: list[Recording]) -> Recording:
    """One recording with the runs of all."""
    return replace(recordings[0], runs=tuple(run for recording in recordings for run in recording.runs))


def counted(recording: Recording, device: int, timeout_s: float) -> Recording:
    """The recording with hardware counters in every entry of a kernel that has a time."""
    from fmha.gpu import counters

    wanted = [
        (r, e, counters.Counted(kernel(entry.name), run.problem, Tiling(*(entry.tiling or (32, 32)))))
        for r, run in enumerate(recording.runs)
        for e, entry in enumerate(run.entries)
        if entry.is_kernel and entry.time is not None
    ]
    say(f"reading hardware counters of {len(wanted)} runs")
    answers = counters.count(
        [item for _, _, item in wanted], device=device, timeout_s=max(timeout_s, _COUNTER_SECONDS * len(wanted))
    )
    runs = [list(run.entries) for run in recording.runs]
    for (r, e, _), answer in zip(wanted, answers, strict=True):
        runs[r][e] = replace(runs[r][e], counters=answer)
    return replace(
        recording,
        runs=tuple(replace(run, entries=tuple(runs[r])) for r, run in enumerate(recording.runs)),
    )


def table(recording: Recording) -> list[str]:
    """The last run in lines."""
    run, gpu = recording.runs[-1], recording.device.gpu
    lines = []
    for entry in run.entries:
        tiles = f" {entry.tiling[0]}x{entry.tiling[1]}" if entry.tiling else ""
        name = f"  {entry.name + tiles:<16}{entry.dtype:<6}"
        lines.append(
            name + (_result(run, entry, peak_tflops(gpu, entry.dtype, entry.name)) if entry.time else _why_not(entry))
        )
    return lines


def _result(run: Run, entry: Entry, peak: float) -> str:
    assert entry.time is not None
    speed = tflops(run.problem, entry.time.median_us)
    share = f" {100 * speed / peak:5.1f} % of peak" if peak else ""
    verdict = f"  {entry.check.verdict}" if entry.check and entry.is_kernel else ""
    return f"{format_time_us(entry.time.median_us):>10} {speed:8.2f} TFLOP/s{share}{verdict}"


def _why_not(entry: Entry) -> str:
    if entry.absent:
        return entry.absent
    return entry.check.verdict if entry.check else "not timed"


def title_of(payload: Mapping[str, Any]) -> str:
    """The problem of a request in a few words."""
    p: Problem = payload["problem"]
    return f"B={p.B} H={p.H} N={p.Nq} d={p.d}{f' causal {p.causal}' if p.causal else ''}"


def wait(service: Any, op: str, payload: Mapping[str, Any], timeout_s: float, title: str) -> Any:
    """The answer; meanwhile what is going on, on stderr where that is a terminal."""
    ticket = service.submit(op, payload, timeout_s=timeout_s)
    last = ""
    while not ticket.wait(0.2):
        text = ticket.progress[0]
        if text != last and sys.stderr.isatty():
            print(f"\r\033[K{title}: {text}", end="", file=sys.stderr, flush=True)
            last = text
    if last:
        print("\r\033[K", end="", file=sys.stderr)
    return ticket.result()


def say(text: str) -> None:
    """A line for the person, beside the results."""
    print(text, file=sys.stderr, flush=True)
