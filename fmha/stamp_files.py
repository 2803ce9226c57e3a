"""Files of time-stamped runs: written compactly, read strictly; those that come with the app."""

from __future__ import annotations

import io
import json
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from fmha.errors import FmhaError, InputError
from fmha.stamps import Stamps

FOLDER = Path(__file__).resolve().parent / "recorded" / "timelines"
MOST_BYTES = 1 << 26  # of a file, unpacked
_WORDS = ("device", "driver", "cuda", "made", "kernel", "source", "input")
_ARRAYS = ("sm", "begin_ns", "end_ns", "counts", "steps_ns", "phase")


def save(stamps: Stamps, path: Path) -> None:
    """Write a recording: a few bytes a stamp. Times are kept to a nanosecond."""
    at = np.round(stamps.at_us * 1e3).astype(np.int64)
    steps = np.diff(at, prepend=0)
    data = io.BytesIO()
    np.savez_compressed(
        data, facts=np.frombuffer(json.dumps(stamps.facts).encode(), np.uint8), sm=stamps.sm.astype(np.int16),
        begin_ns=np.round(stamps.begin_us * 1e3).astype(np.int64),
        end_ns=np.round(stamps.end_us * 1e3).astype(np.int64), counts=np.diff(stamps.first),
        steps_ns=steps.astype(np.int32) if not len(steps) or np.abs(steps).max() < 2**31 else steps, phase=stamps.phase,
    )  # fmt: skip
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data.getvalue())


def open_stamps(path: Path) -> Stamps:
    """Read what `save` wrote.

    Raises:
        InputError: it is not such a file, or not whole.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path.name} cannot be read ({error.strerror or error}): choose another file.") from None
    return from_bytes(data, path.name)


def from_bytes(data: bytes, name: str = "the file") -> Stamps:
    """The recording in a file's bytes. Errors as `open_stamps`."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as file:
            if sum(entry.file_size for entry in file.infolist()) > MOST_BYTES:
                raise ValueError("too large")
        with np.load(io.BytesIO(data), allow_pickle=False) as file:
            facts = json.loads(file["facts"].tobytes())
            arrays = {key: file[key] for key in _ARRAYS}
        return _checked(facts, arrays)
    except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile, zlib.error, FmhaError) as error:
        raise InputError(f"{name} is not a recording of time stamps: record one with `bench --timestamps`.") from error


def _checked(facts: Any, arrays: dict[str, Any]) -> Stamps:
    """The recording, if everything in it fits together. ValueError, FmhaError and others where it does not."""
    if not all(isinstance(facts[word], str) and len(facts[word]) < 200 for word in _WORDS):
        raise ValueError("facts")
    if not (isinstance(facts["phases"], list) and all(isinstance(maths, str) for maths in facts["phases"])):
        raise ValueError("phases")
    if any(array.ndim != 1 or array.dtype.kind not in "iu" for array in arrays.values()):
        raise ValueError("arrays")
    sm, begin, end, counts = (arrays[key].astype(np.int64) for key in ("sm", "begin_ns", "end_ns", "counts"))
    at, phase = np.cumsum(arrays["steps_ns"].astype(np.int64)), arrays["phase"]
    stamps = Stamps(
        facts, sm.astype(np.int32), begin / 1e3, end / 1e3, np.concatenate([[0], np.cumsum(counts)]), at / 1e3,
        phase.astype(np.uint8),
    )  # fmt: skip
    problem, tiling = stamps.problem, stamps.tiling
    workers = problem.B * problem.H * tiling.Tr(problem)
    if not (len(sm) == len(begin) == len(end) == len(counts) == workers and len(at) == len(phase) == counts.sum()):
        raise ValueError("lengths")
    worker = np.repeat(np.arange(workers), counts)
    if (counts < 0).any() or (sm < 0).any() or int(sm.max()) >= int(facts["sms"]):
        raise ValueError("numbers")
    if (begin < 0).any() or (end < begin).any() or (np.diff(at)[np.diff(worker) == 0] < 0).any():
        raise ValueError("times")
    if (phase >= len(facts["phases"])).any():
        raise ValueError("phases")
    return stamps


def shipped() -> dict[str, Path]:
    """The recordings that come with the app: {name: file}."""
    return {path.stem: path for path in sorted(FOLDER.glob("*.npz"))}


__all__ = ["FOLDER", "MOST_BYTES", "from_bytes", "open_stamps", "save", "shipped"]
