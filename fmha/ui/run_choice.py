"""Which time-stamped run is shown: one that comes with the app, one that this machine wrote, or an opened file."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, field
from pathlib import Path

import streamlit as st

from fmha.as_run import AsRun, as_run, title
from fmha.errors import FmhaError, InputError
from fmha.stamp_files import MOST_BYTES, from_bytes, shipped
from fmha.ui import controls, sentences
from fmha.ui.page import plain
from fmha.units import format_time_us

HERE_PATTERN = "fmha-timeline-*.npz"  # what `bench --timestamps` writes where it is started
MOST_HERE = 12
OPENED = "opened"
_DEAR = 1.1  # time with stamps over time without: from here on it shows
_KEY, _DESK = "timeline-file", "run-desk"
HELP = (
    "A kernel on a GPU in which the first thread of each block wrote down the time of every phase. `bench "
    "--timestamps` makes such recordings; those that it wrote into the folder of this app are listed too."
)


@dataclass
class Desk:
    """What one visitor opened: (file name, bytes), or why it was refused."""

    opened: tuple[str, bytes] | None = None
    refused: str = ""


@dataclass(frozen=True)
class Offer:
    """Recordings by the name that the address has: where they are, and what they are called."""

    files: dict[str, Path] = field(default_factory=dict)
    titles: dict[str, str] = field(default_factory=dict)


def desk() -> Desk:
    """This visitor's."""
    found = st.session_state.setdefault(_DESK, Desk())
    assert isinstance(found, Desk)
    return found


@st.cache_resource(max_entries=8, show_spinner=False)
def _read(_data: bytes, _name: str, digest: str) -> AsRun:
    return as_run(from_bytes(_data, _name))


def read(data: bytes, name: str) -> AsRun:
    """The recording in a file's bytes.

    Raises:
        InputError: it is none.
    """
    return _read(data, name, hashlib.blake2b(data, digest_size=16).hexdigest())


@st.cache_data(max_entries=64, show_spinner=False)
def _title(path: str, changed_ns: int) -> str:
    """What a file's recording is called; "" for a file that is none."""
    try:
        return title(from_bytes(_bytes_of(Path(path)), Path(path).name))
    except FmhaError:
        return ""


def _bytes_of(path: Path) -> bytes:
    try:
        if path.stat().st_size > MOST_BYTES:
            raise InputError(f"{path.name} is too large for a recording: record a smaller problem.")
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"{path.name} cannot be read ({error.strerror}): choose another recording.") from None


def offer() -> Offer:
    """What there is to choose."""
    made = Offer()
    here = sorted(Path.cwd().glob(HERE_PATTERN), reverse=True)[:MOST_HERE]
    for name, path in [*shipped().items(), *((path.stem, path) for path in here)]:
        try:
            called = _title(str(path), path.stat().st_mtime_ns)
        except OSError:
            continue
        if called:
            made.files[name] = path
            made.titles[name] = called if path not in here else f"{called} ({name.removeprefix('fmha-timeline-')})"
    if (mine := desk().opened) is not None:
        made.titles[OPENED] = f"opened: {sentences.one_line(mine[0], 40)}"
    return made


def choose(usual: str) -> AsRun | None:
    """The control; the chosen recording, None where there is none at all. usual: the name of the one to begin with.

    Raises:
        InputError: it cannot be read.
    """
    there = offer()
    if not there.titles:
        return None
    default = next(name for name in (OPENED, usual, *there.titles) if name in there.titles)
    name = controls.choice("gpurun", "Recording", there.titles, default=default, help=HELP)
    mine = desk().opened
    if name == OPENED and mine is not None:
        return read(mine[1], mine[0])
    path = there.files[name]
    return read(_bytes_of(path), path.name)


def _opened() -> None:
    """A file was chosen, or taken away: read it once, strictly."""
    mine, file = desk(), st.session_state.get(_KEY)
    mine.opened, mine.refused = None, ""
    if file is None:
        return
    try:
        data = file.getvalue()
        read(data, "The file")
        mine.opened = file.name, data
        controls.assign(gpurun=OPENED)
    except FmhaError as error:
        mine.refused = str(error)


def upload() -> None:
    """Open a recording of one's own."""
    st.file_uploader("Open a recording", type="npz", key=_KEY, on_change=_opened, max_upload_size=16)
    if desk().refused:
        st.error(plain(desk().refused))


def stamping(run: AsRun) -> tuple[float, float]:
    """Median microseconds of the kernel with stamps and without; NaN where that was not recorded."""
    times = [run.stamps.facts.get(name) for name in ("stamped_us", "plain_us")]
    with_stamps, without = (float(t) if isinstance(t, int | float) and t > 0 else math.nan for t in times)
    return with_stamps, without


def is_dear(run: AsRun) -> bool:
    """Whether stamping the run cost so much that it shows."""
    with_stamps, without = stamping(run)
    return with_stamps > _DEAR * without


def provenance(run: AsRun) -> str:
    """Where and when a run was recorded, and what stamping it cost, as Markdown."""
    facts, said = run.stamps.facts, sentences.said
    cost = ""
    with_stamps, without = stamping(run)
    if not math.isnan(with_stamps + without):
        cost = (
            f" Median time of the kernel as it is {format_time_us(without)}, with stamps {format_time_us(with_stamps)} "
            f"({100 * (with_stamps / without - 1):+.0f} %)."
        )
        if is_dear(run):
            cost += " Phases that are stamped often, row by row, look longer than they are."
    state = "the source as it is here" if run.is_of_this_source else "another version of the source"
    return (
        f"Recorded on {said(facts['device'], 40)}, driver {said(facts['driver'], 20)}, CUDA {said(facts['cuda'], 12)}, "
        f"{said(facts['made'][:10])}; kernel {said(facts['kernel'], 8)}, source {said(facts['source'], 16)} ({state})."
        f"{cost}"
    )


__all__ = ["OPENED", "Offer", "choose", "desk", "is_dear", "offer", "provenance", "read", "stamping", "upload"]
