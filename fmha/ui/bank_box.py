"""The box of shared memory's banks: one access of a warp drawn on the 32 banks, and what a whole run needs."""

from __future__ import annotations

import streamlit as st

from fmha.bank_kernels import smem_use
from fmha.bank_sites import Site, SmemUse
from fmha.banks import BANK_BYTES, BANKS, WARP, BankPicture, picture
from fmha.figures.bank_picture import bank_picture
from fmha.hardware import Gpu
from fmha.kernels import KERNELS
from fmha.problem import Problem, Tiling
from fmha.ui import charts, controls
from fmha.ui.sentences import percent
from fmha.units import format_count, format_ratio, format_time_us

NAIVE = "01"
OWN_STRIDE = "stride"


@st.cache_data(max_entries=128, show_spinner=False)
def banks(number: str, problem: Problem, tiling: Tiling, gpu: Gpu, pad: int) -> SmemUse:
    """All accesses to shared memory."""
    return smem_use(KERNELS[number], problem, tiling, gpu, pad=pad)


def bank_box(number: str, problem: Problem, tiling: Tiling, gpu: Gpu) -> None:
    """Banks: one access, and the whole run."""
    st.header("Shared memory: 32 banks", anchor=False)
    st.markdown(
        f"Word w of shared memory lies in bank w mod {BANKS}. In one turn, a *wavefront*, each bank delivers one word "
        f"of {BANK_BYTES} bytes to all lanes that want it. Lanes that want different words of one bank wait for one "
        "another."
    )
    left, right = st.columns([3, 2], gap="medium")
    with right:
        pad = 0
        if number != NAIVE:
            pad = controls.slider(
                "pad", "Padding: floats after each row of Kj", options=[0, 1, 2, 3, 4, 8, 16], default=0
            )
        use = banks(number, problem, tiling, gpu, pad)
        sites = sorted((s for s in use.sites if s.requests), key=lambda s: (-s.conflicts, s.line, s.text, s.store))
        names = {place(site): label(site) for site in by_line(sites)}
        names[OWN_STRIDE] = "a stride of your own"
        worst = place(banks(number, problem, tiling, gpu, 0).worst() or sites[0])
        which = controls.choice(f"site{number}", "Access", names, default=worst)
        if which == OWN_STRIDE:
            stride = controls.slider("stride", "Floats from lane to lane", lo=1, hi=64, default=32)
            drawn, site = picture([BANK_BYTES * stride * lane for lane in range(WARP)]), None
        else:
            site = next(s for s in sites if place(s) == which)
            drawn = picture(site.example, site.width)
        turn = controls.slider("turn", "Wavefront", lo=0, hi=max(drawn.wavefronts, 1) - 1, default=0)
        st.markdown(this_access(drawn, site, turn, use))
    with left:
        charts.show(
            bank_picture(drawn, turn, role="K" if site is None or site.text.startswith("K") else "S"), key="banks",
            alt=f"{drawn.wavefronts} wavefronts; {drawn.least} would do without conflicts.",
        )  # fmt: skip
    whole_run(number, problem, tiling, gpu, use, pad)
    with st.expander("All accesses to shared memory"):
        st.dataframe(
            [
                {
                    "function": s.function, "line": s.line, "expression": s.text, "": "store" if s.store else "load",
                    "how often": s.often, "bytes a lane": s.width, "wavefronts": f"{s.wavefronts:,}",
                    "without conflicts": f"{s.least:,}", "ways": f"{s.ways:.3g}", "as compiled": s.compiled,
                }
                for s in sites
            ],
            hide_index=True,
        )  # fmt: skip


def by_line(sites: list[Site]) -> list[Site]:
    """In the order of the source."""
    return sorted(sites, key=lambda s: (s.line, s.text, s.store))


def place(site: Site) -> str:
    """A name for a link: the line, the expression, and whether it stores."""
    letters = "".join(c for c in site.text if c.isalnum() or c == "_")
    return f"{site.line}-{letters}{'-store' if site.store else ''}"


def label(site: Site) -> str:
    """For the list."""
    is_call = site.text.endswith(")")
    what = (" stores" if site.store else " loads") if is_call else " =" if site.store else ""
    return f"line {site.line}: {site.text}{what} ({site.ways:.3g}-way)"


def this_access(drawn: BankPicture, site: Site | None, turn: int, use: SmemUse) -> str:
    """The access in the picture, in words."""
    served = drawn.lanes_in(turn)
    lanes = sum(len(who) for who in served.values())
    text = (
        f"**{drawn.wavefronts} {'wavefront' if drawn.wavefronts == 1 else 'wavefronts'}** for this access of one warp; "
        f"without conflicts {drawn.least}. In number {turn}, {len(served)} of {BANKS} banks "
        f"{'delivers' if len(served) == 1 else 'deliver'} to {lanes} {'lane' if lanes == 1 else 'lanes'}."
    )
    if site is not None and use.wavefronts:
        text += (
            f" Over the run `{site.text}` (line {site.line}) takes {format_count(site.wavefronts)} wavefronts, "
            f"{percent(site.wavefronts / use.wavefronts)} of all."
        )
    return text


def whole_run(number: str, problem: Problem, tiling: Tiling, gpu: Gpu, use: SmemUse, pad: int) -> None:
    """Wavefronts of the whole run, with padding and without."""
    clock_us = gpu.sms * gpu.boost_ghz * 1e3
    plain_use = banks(number, problem, tiling, gpu, 0)
    lost = percent(use.conflicts / use.wavefronts) if use.conflicts else "none"
    text = (
        f"**The whole run needs {format_count(use.wavefronts)} wavefronts,** "
        f"{lost} of them because of conflicts. An SM has one a clock, so they take "
        f"at least {format_time_us(use.wavefronts / clock_us)} on {gpu.sms} SMs at {gpu.boost_ghz:g} GHz."
    )
    if number != NAIVE:
        cured = banks(number, problem, tiling, gpu, 1)
        if pad:
            text += f" Without padding it would be {format_count(plain_use.wavefronts)}."
        elif cured.wavefronts < plain_use.wavefronts:
            text += (
                f" With one float of padding after each row of Kj it would be {format_count(cured.wavefronts)}, "
                f"{format_ratio(plain_use.wavefronts / cured.wavefronts)} fewer."
            )
    st.markdown(text)
