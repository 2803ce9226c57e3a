"""Traced beside measured, source line by source line: what an H200's profiler counted of the same run."""

from __future__ import annotations

from functools import lru_cache

import streamlit as st

from fmha.line_counts import LineCounts, shipped
from fmha.trace import Trace
from fmha.trace.against import Compared, compare
from fmha.ui import controls, sentences
from fmha.ui.traced import Asked


@lru_cache(maxsize=1)
def _shipped() -> tuple[LineCounts, ...]:
    return shipped()


def of_kernel(asked: Asked) -> list[LineCounts]:
    """The counted runs of this kernel as its source is now."""
    source = asked.kernel.source_hash()
    return [one for one in _shipped() if one.facts["kernel"] == asked.number and one.facts["source"] == source]


def counted(asked: Asked) -> LineCounts | None:
    """The counted run of these settings. What Q, K and V hold does not matter to it."""
    for one in of_kernel(asked):
        if one.problem == asked.problem and (not asked.kernel.tiled or one.tiling == asked.tiling):
            return one
    return None


def measured_lines(asked: Asked, run: Trace) -> None:
    """The comparison, or which settings have one."""
    there = of_kernel(asked)
    if not there or asked.change is not None:
        return
    st.header("The same lines on a GPU", anchor=False)
    found = counted(asked)
    if found is None:
        st.markdown("An H200 has counted this kernel line by line with other settings; choose them to compare:")
        for column, one in zip(st.columns(max(3, len(there))), there, strict=False):
            column.button(
                settings_in_words(one), on_click=controls.assign, kwargs=wanted(one, asked.kernel.tiled),
                key=f"counted-{one.title}",
            )  # fmt: skip
        return
    compared = compare(run, found)
    text = run.text.splitlines()
    st.markdown(summary(compared, str(found.facts["device"])))
    st.markdown(differences(compared, text))
    st.dataframe(
        [as_row(row, text) for row in compared], hide_index=True, height=35 * min(len(compared), 14) + 38,
        column_config={
            "line": st.column_config.NumberColumn(width=50), "source": st.column_config.TextColumn(width="large"),
            "traced": st.column_config.NumberColumn(format="localized", width="small"),
            "GPU": st.column_config.NumberColumn(format="localized", width="small"),
        },
    )  # fmt: skip
    facts, said = found.facts, sentences.said
    st.caption(
        f"Counted by {said(facts['profiler'], 40)} on {said(facts['device'], 40)}, driver {said(facts['driver'], 20)}, "
        f"{said(facts['compiler'], 20)}, {said(facts['made'][:10])}. Sectors of 32 bytes for device memory, wavefronts "
        "for shared memory. On both sides, what an inlined function does, of this file or of a header, counts on the "
        "kernel's line that calls it, and a statement over several lines as its first."
    )


def wanted(one: LineCounts, tiled: bool) -> dict[str, str | int]:
    """The controls' values of a counted run."""
    p, t = one.problem, one.tiling
    mask = {None: "none", "bottom-right": "br", "top-left": "tl"}[p.causal]
    tiles: dict[str, str | int] = {"Br": t.Br, "Bc": t.Bc} if tiled else {}
    return {"N": p.Nq, "d": p.d, "H": p.H, "causal": mask, "input": "random", **tiles}


def settings_in_words(one: LineCounts) -> str:
    """N = 256, d = 64, 32 x 32."""
    p, t = one.problem, one.tiling
    heads = f", {p.H} heads" if p.H > 1 else ""
    tiles = f", {t.Br} x {t.Bc}" if one.facts["kernel"] != "01" else ""
    return f"N = {p.Nq}, d = {p.d}{heads}{tiles}{', causal' if p.causal else ''}"


def summary(compared: tuple[Compared, ...], device: str) -> str:
    """How the two sides compare, in sentences (Markdown)."""
    device = sentences.said(device.removeprefix("NVIDIA "), 40)
    memory = [row for row in compared if row.space == "global"]
    shared = [row for row in compared if row.space == "shared"]
    same = sum(row.traced.sectors == row.measured.sectors for row in memory)
    sectors = sum(row.measured.sectors for row in memory)
    text = f"**Device memory:** {same} of {len(memory)} lines have equal sectors on the {device}, {sectors:,} in all. "
    written = [row for row in shared if row.is_as_written]
    equal = sum(row.is_equal for row in written)
    text += (
        f"**Shared memory:** {len(written)} of {len(shared)} were compiled as they are written, and {equal} of those "
        "have equal wavefronts"
    )
    if off := [row for row in written if not row.is_equal]:
        worst = max(abs(row.measured.wavefronts / (row.traced.wavefronts or 1) - 1) for row in off)
        text += f", the rest within {100 * worst:.1f} %"
    ours, theirs = (sum(side.wavefronts for side in sides) for sides in (
        [row.traced for row in shared], [row.measured for row in shared]))  # fmt: skip
    text += f". In all {ours:,} are traced, and {theirs:,} were counted"
    text += "." if ours == theirs else f": {100 * theirs / ours:.3g} % of what the source asks for."
    return text


def differences(compared: tuple[Compared, ...], text: list[str]) -> str:
    """Why lines differ, one a list item (Markdown); "" where none does."""
    items = []
    for row in compared:
        if not (row.is_as_written and row.is_equal):
            found = as_row(row, text)
            items.append(f"- line {row.line}, `{_code(row, text)}`, {found['access']}: {found['as compiled']}")
    return "\n".join(items)


def _code(row: Compared, text: list[str]) -> str:
    """The source of a line, short."""
    if not row.file.endswith(".cu") or row.line > len(text):
        return row.file
    return text[row.line - 1].split("//")[0].strip()[:60]


def as_row(row: Compared, text: list[str]) -> dict[str, object]:
    """A row of the table."""
    ours, theirs = row.traced, row.measured
    values = (ours.sectors, theirs.sectors) if row.space == "global" else (ours.wavefronts, theirs.wavefronts)
    note = row.why_not
    if not note and not row.is_equal:
        note = f"{100 * (values[1] / (values[0] or 1) - 1):+.1f} %"
    return {
        "line": row.line, "source": _code(row, text),
        "access": f"{'device' if row.space == 'global' else 'shared'}, {'store' if row.is_write else 'load'}"
        + (f", {row.how}" if row.how else ""),
        "traced": values[0], "GPU": values[1], "as compiled": note or "as written, equal",
    }  # fmt: skip


__all__ = ["as_row", "counted", "differences", "measured_lines", "of_kernel", "settings_in_words", "summary", "wanted"]
