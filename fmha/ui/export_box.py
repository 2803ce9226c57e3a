"""The box "Take it home" on Tiles in motion: the view as files, as a link, as Python, as a command."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import urlencode

import streamlit as st

from fmha import export
from fmha.inputs import INPUTS
from fmha.player.scene import Played
from fmha.problem import Problem, Tiling

LABEL = "Take it home"
KEY = "export-box"


@dataclass(frozen=True)
class Parcel:
    """What is on screen: the settings by which it was made, and the moment that was chosen."""

    problem: Problem
    tiling: Tiling
    order: str
    input_name: str
    sms: int
    seed: int
    layer: int
    head: int
    gpu: str
    kernel: str | None  # number of a traced kernel; None: the simulator
    l2_bytes: int
    race: bool
    event: int
    row: int
    col: int
    times: str = ""  # where they are from, if a GPU wrote them down: no command here makes them again


def export_box(parcel: Parcel, played: Callable[[], Played]) -> None:
    """The box. What is in it is made when it is open, a file when its button is pressed; `played` gives the run."""
    box = st.popover(LABEL, key=KEY, on_change="rerun")
    if not box.open:
        return
    name = file_stem(parcel)
    with box:
        st.markdown("**This animation.** It opens at the chosen moment.")
        _file("Player, one HTML file", lambda: _html(parcel, played()), f"{name}.html", "text/html")
        st.caption(
            "Plays anywhere, without network or server. GIF, WebM, MP4, PNG: press **s** in the player, here or there."
        )
        st.markdown("**Its event table**")
        left, middle, right = st.columns(3)
        with left:
            _file(
                "NumPy", lambda: export.npz(played().run, times=parcel.times), f"{name}.npz", "application/octet-stream"
            )
        with middle:
            _file(
                "Parquet", lambda: export.parquet(played().run, times=parcel.times), f"{name}.parquet",
                "application/octet-stream",
            )  # fmt: skip
        with right:
            _file(
                "Perfetto", lambda: export.perfetto(played().run, parcel.l2_bytes, times=parcel.times), f"{name}.json",
                "application/json",
            )  # fmt: skip
        st.caption("The last opens at ui.perfetto.dev: SMs as tracks, phases as slices, bytes as counters.")
        also = "" if parcel.times else ", in Python, on the command line"
        st.markdown(f"**This view** as a link{also}")
        if link := address():
            st.code(link, language=None, wrap_lines=True)
        if parcel.times:
            st.caption("The recorded times are in the files above; Python and commands compute the simulator's.")
            return
        shown = played().run.problem  # the heads that are animated
        st.code(_snippet(parcel, shown), language="python", wrap_lines=True)
        st.code(command(parcel, shown, f"{name}.html"), language="sh", wrap_lines=True)


def file_stem(parcel: Parcel) -> str:
    """A file name that says what was run, without its ending."""
    mask = "-causal" if parcel.problem.causal else ""
    return (
        f"fmha-{parcel.order}-N{parcel.problem.Nq}-d{parcel.problem.d}-Br{parcel.tiling.Br}-Bc{parcel.tiling.Bc}{mask}"
    )


def address() -> str | None:
    """The page's address with all settings that were touched; None where the browser has not told it."""
    url = st.context.url
    if not url:
        return None
    return url.split("?")[0].split("#")[0] + (f"?{_query()}" if _query() else "")


def _query() -> str:
    return urlencode([(name, text) for name in st.query_params for text in st.query_params.get_all(name)])


def command(parcel: Parcel, shown: Problem, out: str) -> str:
    """The command that writes the same player: the simulator's run of the heads shown."""
    p, source = shown, INPUTS[parcel.input_name]
    words = ["python", "-m", "fmha", "export", "--format", "html", "--input", parcel.input_name]
    if source.N is None:
        words += ["--seed", str(parcel.seed)]
    else:
        words += ["--layer", str(parcel.layer)] if parcel.input_name == "sentence" else []
        words += ["--head", str(parcel.head)]
    words += ["--N", str(p.Nq), "--d", str(p.d), "--H", str(p.H), "--dtype", p.dtype]
    words += ["--causal", p.causal] if p.causal else []
    words += ["--Br", str(parcel.tiling.Br), "--Bc", str(parcel.tiling.Bc), "--order", parcel.order]
    words += ["--gpu", parcel.gpu, "--sms", str(parcel.sms), "--l2-kib", str(parcel.l2_bytes // 1024)]
    words += ["--race"] if parcel.race else []
    return shlex.join([*words, "--event", str(parcel.event), "--out", out])


def _html(parcel: Parcel, now: Played) -> str:
    return export.html(
        now, l2_bytes=parcel.l2_bytes, race=parcel.race, event=parcel.event, row=parcel.row, col=parcel.col,
        times=parcel.times,
    )  # fmt: skip


def _snippet(parcel: Parcel, shown: Problem) -> str:
    p = parcel
    return export.snippet(
        shown, p.tiling, p.order, p.input_name, seed=p.seed, layer=p.layer, head=p.head, gpu=p.gpu, sms=p.sms,
        kernel=p.kernel, l2_bytes=p.l2_bytes, race=p.race, event=p.event, row=p.row, col=p.col,
    )  # fmt: skip


def _file(label: str, made: Callable[[], str | bytes], name: str, mime: str) -> None:
    """A button for a file that is made when it is pressed."""
    st.download_button(
        label, made, name, mime, on_click="ignore", key=f"{KEY}-{name.rpartition('.')[2]}", width="stretch"
    )


__all__ = ["LABEL", "Parcel", "address", "command", "export_box", "file_stem"]
