"""Cards for kernels and measurements: where a number comes from, a check's verdict, source, changes, build, tables."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence

import streamlit as st

from fmha.check import Check
from fmha.figures import byte_levels
from fmha.figures.byte_levels import Level
from fmha.figures.kernel_times import Bar
from fmha.gpu.diagnosis import Diagnosis
from fmha.hardware import Gpu
from fmha.kernels import Kernel, Launch
from fmha.measurement import Build, Entry, Found, Recording, Run, State
from fmha.problem import Problem
from fmha.speeds import peak_tflops
from fmha.ui.sentences import differences, gigabytes, one_line, percent, said
from fmha.units import format_bytes, format_number, format_time_us


def provenance(found: Found, origin: str) -> None:
    """Where a result was made, when, with which source, and how it differs from what was asked.

    origin: the beginning of the line (Markdown), such as "Recorded" or "Your run".
    """
    device, entry = found.recording.device, found.entry
    parts = [
        f"**{origin}** on {said(device.facts.name, 60)}",
        f"driver {said(device.driver, 30)}",
        f"CUDA {said(device.cuda, 20)}",
        said(found.run.made[:16].replace("T", " ") + " UTC", 24),
        f"source {said(entry.source_hash or 'unknown', 16)}",
    ]
    st.markdown(":small[" + " · ".join(parts) + "]")
    if found.differs:
        st.info(f"This is the nearest recording: {differences(found.differs)}.")
    if entry.stale:
        st.warning(
            "Made with an older version of this kernel: its source has changed since, so the numbers may have too."
        )


def is_right(check: Check | None) -> bool:
    """Whether a result was checked and found right."""
    return check is not None and check.ok and not check.not_finite


def verdict(check: Check | None) -> None:
    """Say whether the result is right, with the numbers."""
    if check is None:
        st.error("This result was not checked, so no speed is shown for it.")
        return
    over = "all" if check.rows_checked == check.rows else f"{check.rows_checked:,} of {check.rows:,}"
    lse = "" if check.lse_max_abs is None else f" LSE is off by {check.lse_max_abs:.2g} at most."
    numbers = (
        f"Against float64, O is off by **{check.max_abs:.2g}** at most ({check.max_abs_allowed:.2g} allowed; the plain "
        f"computation in this precision reaches {check.plain_max_abs:.2g}) and by {check.relative:.2g} of its norm "
        f"({check.relative_allowed:.2g} allowed; plain {check.plain_relative:.2g}), over {over} rows.{lse}"
    )
    if is_right(check):
        st.success(f"**Right.** {numbers}")
    else:
        st.error(f"**Wrong result, so no speed is shown:** {said(check.verdict.removeprefix('wrong: '))}. {numbers}")


def findings(diagnosis: Diagnosis) -> None:
    """What stands between this machine and a live run, one line each."""
    with st.container(border=True):
        lines = [f"- {said(f.what, 300)} {f.remedy}" for f in diagnosis.findings]
        st.markdown("**No live runs on this machine:** recordings from a GPU are shown instead.\n" + "\n".join(lines))


def notes(diagnosis: Diagnosis) -> None:
    """What is worth knowing about a machine that can run kernels."""
    for finding in diagnosis.findings:
        st.markdown(f":small[{said(finding.what, 300)} {finding.remedy}]")


def times_table(run: Run, bars: Sequence[Bar], gpu: Gpu) -> None:
    """Every time with its spread, what was not run and why, and the GPU before and after."""
    rows = []
    for bar in bars:
        peak = peak_tflops(gpu, bar.dtype, bar.entry.name)
        moved, time = bar.entry.requested_bytes, bar.entry.time
        rows.append(
            {
                "what": one_line(bar.entry.title, 60) if not bar.entry.is_kernel else bar.title,
                "dtype": bar.dtype,
                "median": format_time_us(bar.median_us),
                "p10 to p90": f"{format_time_us(bar.p10_us)} to {format_time_us(bar.p90_us)}",
                "TFLOP/s": format_number(bar.tflops),
                "of peak": percent(bar.tflops / peak) if peak else "unknown",
                "requested, GB/s": gigabytes(moved / bar.median_us / 1e3) if moved else "not counted",
                "repeats": f"{time.repeats} after {time.warmups}" if time else "",
            }
        )
    if rows:
        st.dataframe(rows, hide_index=True)
    absent = [e for e in run.entries if e.absent or (e.check is not None and not e.check.ok)]
    if absent:
        why = {
            f"- {said(e.title, 60)} ({said(e.dtype, 10)}): "
            f"{said(e.absent or (e.check.verdict if e.check else ''), 220)}"
            for e in absent
        }
        st.markdown("**Without a time:**\n" + "\n".join(sorted(why)))
    st.markdown(
        f"Before the timing: {_state(run.before)}. After: {_state(run.after)}. Times are of one execution, from CUDA "
        "events, warm-up excluded, the L2 cache flushed before each, all candidates in turns."
    )


def _state(state: State) -> str:
    parts = [
        (state.sm_mhz, "SMs at {:,} MHz"),
        (state.memory_mhz, "memory at {:,} MHz"),
        (state.temperature_c, "{} °C"),
        (state.power_w, "{:.0f} W"),
    ]
    known = [text.format(value) for value, text in parts if value is not None]
    return ", ".join(known) if known else "clocks and temperature were not read"


def bytes_table(rows: Sequence[Level], entry: Entry) -> None:
    """Every level in bytes with the counter behind it, and the counters of each function."""
    st.dataframe(
        [
            {
                "level": level.name,
                "bytes": "not read" if level.nbytes is None else f"{level.nbytes:,.0f}",
                "": "" if level.nbytes is None else format_bytes(level.nbytes),
                "from": level.source,
            }
            for level in rows
        ],
        hide_index=True,
    )
    if entry.counters:
        names = {
            byte_levels.WAVEFRONTS: "shared-memory wavefronts",
            byte_levels.CONFLICTS: "bank conflicts",
            byte_levels.INSTRUCTIONS: "instructions (warps)",
            byte_levels.DURATION: "time under the profiler, ns",
            byte_levels.WARPS: "active warps, % of the most",
        }
        st.dataframe(
            [
                {"function": one_line(function, 40)}
                | {name: _count(metrics[m]) if m in metrics else "not read" for m, name in names.items()}
                for function, metrics in entry.counters.items()
            ],
            hide_index=True,
        )


def _count(value: float) -> str:
    return f"{value:,.1f}" if value < 1000 and value != int(value) else f"{value:,.0f}"


def smem_table(launches: Sequence[Launch]) -> None:
    """What lies at which offset."""
    st.dataframe(
        [
            {
                "function": launch.function,
                "name": slot.name,
                "shape": " x ".join(f"{n:,}" for n in slot.shape),
                "offset": f"{slot.offset:,}",
                "bytes": f"{slot.nbytes:,}",
            }
            for launch in launches
            for slot in launch.smem
        ],
        hide_index=True,
    )


def source(kernel: Kernel) -> None:
    """The source file with its hash, to read and to save."""
    text = kernel.source()
    st.markdown(f"`{kernel.file}`, source {kernel.source_hash()}, {len(text.splitlines())} lines. {kernel.changed}")
    st.download_button(
        f"Download {kernel.file}", text, file_name=kernel.file, mime="text/plain", key="save-source", on_click="ignore"
    )
    st.code(text, language="cpp", line_numbers=True, height=560)


def difference(kernel: Kernel, before: Kernel | None) -> None:
    """What changed from the kernel below."""
    if before is None:
        st.markdown(f"`{kernel.file}` is the first kernel: there is nothing before it to compare with.")
        return
    lines = list(
        difflib.unified_diff(
            before.source().splitlines(), kernel.source().splitlines(), before.file, kernel.file, lineterm="", n=2
        )
    )
    added = sum(line.startswith("+") and not line.startswith("+++") for line in lines)
    removed = sum(line.startswith("-") and not line.startswith("---") for line in lines)
    st.markdown(
        f"From `{before.file}` to `{kernel.file}`: **{added} lines added, {removed} removed.** {kernel.changed}"
    )
    st.code("\n".join(lines), language="diff", height=560)


def build(made: Build | None) -> None:
    """How the shown result was compiled, and what each function takes."""
    if made is None:
        st.markdown("How this kernel was compiled is not known: no result of it is shown.")
        return
    took = (
        "from the cache of compiled kernels" if made.cached else f"in {made.seconds:.2g} s, which is in no time above"
    )
    st.markdown(f"Compiled by {said(made.compiler)} for {said(made.arch, 12)}, {took}. Options:")
    st.code(" ".join(one_line(option, 200) for option in made.options[:40]) or "(none)", language=None, wrap_lines=True)
    if made.functions:
        st.dataframe(
            [
                {
                    "function": one_line(use.function, 40),
                    "registers a thread": use.registers,
                    "spills, bytes a thread": use.local_bytes,
                    "static shared memory": use.static_smem_bytes,
                    "blocks an SM, by the driver": "unknown" if use.blocks_per_sm is None else str(use.blocks_per_sm),
                }
                for use in made.functions
            ],
            hide_index=True,
        )


def file_name(recording: Recording) -> str:
    """A name for a recording with one run that says kernel, N, d and device."""
    run = recording.runs[0]
    p: Problem = run.problem
    length = f"N{p.Nq}" if p.Nq == p.Nk else f"Nq{p.Nq}-Nk{p.Nk}"
    parts = ["fmha", run.entries[0].name, length, f"d{p.d}", recording.device.facts.name]
    return re.sub(r"[^A-Za-z0-9]+", "-", "-".join(parts)).strip("-")[:80] + ".json"


__all__ = [
    "build",
    "bytes_table",
    "difference",
    "file_name",
    "findings",
    "is_right",
    "notes",
    "provenance",
    "smem_table",
    "source",
    "times_table",
    "verdict",
]
