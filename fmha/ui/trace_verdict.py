"""The verdict on a traced run: right, clean, equal to the closed form; what it cost; what a GPU counted."""

from __future__ import annotations

import streamlit as st

from fmha.kernels import SECTOR
from fmha.trace import Trace
from fmha.ui import cards, traced
from fmha.ui.page import plain
from fmha.ui.trace_words import clean, flops, right, share, total
from fmha.ui.traced import Asked, Beside
from fmha.units import format_bytes, format_count, format_flops

AS_WRITTEN = (
    "Counted on this machine's CPU, as written in the source: nvcc may join accesses, and then a GPU needs fewer "
    "wavefronts. What an inlined function does counts on the kernel's line that calls it. No "
    "time is said here: a CPU's says nothing about a GPU's."
)


def verdict(asked: Asked, run: Trace) -> None:
    """What the run comes to, in a few lines."""
    found = traced.checked(asked, run)
    if asked.change is not None:
        pass  # what came of it is said beside the change
    elif found.ok and not found.not_finite and not run.findings:
        st.success(f"**Right, and clean.** {right(found)}. {clean(run)}")
    else:
        wrong = "" if found.ok else f"{plain(found.verdict[:1].upper() + found.verdict[1:])}. "
        faults = " ".join(plain(finding.text) for finding in run.findings[:5])
        st.error(f"**Something is wrong with this kernel.** {wrong}{faults}")
    numbers(run)
    there = traced.beside(asked)
    if there is not None:
        counted_there(run, there)
    st.caption(AS_WRITTEN)
    with st.expander("Bytes by tensor, beside the closed form"):
        st.dataframe(tensors(run), hide_index=True)


def numbers(run: Trace) -> None:
    """Four numbers, each with what it is held against."""
    asked, moved = run.requested_bytes, run.sector_bytes
    plan = run.plan.requested
    wavefronts, conflicts = total(run.counts, "wavefronts"), total(run.counts, "conflicts")
    all_flops = flops(run.flops)
    same = equal(run)
    boxes = (
        (
            "Requested of device memory", format_bytes(asked),
            "equal to the closed form, tensor by tensor" if same else f"closed form: {plan.requested_bytes:,} B",
        ),
        ("Useful bytes of moved sectors", share(asked, moved), f"{moved // SECTOR:,} sectors of {SECTOR} bytes"),
        ("Shared memory, wavefronts", format_count(wavefronts), f"bank conflicts: {share(conflicts, wavefronts)}"),
        ("Arithmetic", format_flops(all_flops), f"4 B H N² d is {format_flops(plan.flops)}"),
    )  # fmt: skip
    for column, (label, value, note) in zip(st.columns(4), boxes, strict=True):
        column.metric(label, value)
        column.caption(note)


def equal(run: Trace) -> bool:
    """Whether every tensor's bytes, read and written, are those of the closed form."""
    return all(row["read"] == row["closed form"] and row["written"] == row["closed form "] for row in tensors(run))


def tensors(run: Trace) -> list[dict[str, str]]:
    """Counted and predicted bytes of each tensor."""
    counted, said = run.global_bytes, run.plan.requested.by_tensor
    names = [name for name in dict.fromkeys([*said, *counted]) if name not in ("key_range", "strides")]
    rows = []
    for name in names:
        (read, written), (may_read, may_write) = counted.get(name, (0, 0)), said.get(name, (0, 0))
        if read or written or may_read or may_write:
            rows.append(
                {
                    "tensor": name, "read": f"{read:,}", "closed form": f"{may_read:,}", "written": f"{written:,}",
                    "closed form ": f"{may_write:,}",
                }
            )  # fmt: skip
    return rows


def counted_there(run: Trace, there: Beside) -> None:
    """The same counts by a GPU's counters."""
    heads = f", which ran {there.heads} times as many heads: divided by {there.heads}" if there.heads > 1 else ""
    bytes_here, wavefronts = run.sector_bytes, total(run.counts, "wavefronts")
    off = there.wavefronts / wavefronts - 1 if wavefronts else 0.0
    same = "the same to the byte" if there.sector_bytes == bytes_here else f"here {bytes_here:,}"
    conflicts = ""
    if there.conflicts is not None:
        conflicts = f", {share(round(there.conflicts), round(there.wavefronts))} conflicts"
    cards.provenance(there.found, "Counted by a GPU")
    st.markdown(
        f"**Its counters say{heads}:** {there.sector_bytes:,.0f} bytes in sectors, {same}; "
        f"{format_count(there.wavefronts)} wavefronts{conflicts}, {100 * off:+.1f} % from here."
    )


__all__ = ["equal", "tensors", "verdict"]
