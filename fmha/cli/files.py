"""Where a command writes: names that cannot be files are refused before minutes are spent on what goes into them."""

from __future__ import annotations

import os
from pathlib import Path

from fmha.errors import FmhaError

_KINDS = (".json", ".npz")  # of which a command writes one
_SEPARATORS = tuple(s for s in (os.sep, os.altsep) if s)


def file_to_write(name: str, example: str, option: str = "--out") -> Path:
    """The file that an option names. example: a name that would do, such as "run.html".

    Raises:
        FmhaError: it is empty, a folder, in a folder that does not exist, or ends as a file of another kind does.
    """
    if not name:
        raise FmhaError(f"{option} is empty: name a file, such as {option} {example}, or leave it out.")
    path = Path(name)
    if name.endswith(_SEPARATORS) or path.resolve().is_dir():
        raise FmhaError(f"{name[:80]} is a folder: name a file in it, such as {option} {path / example}.")
    folder = path.resolve().parent
    if not folder.is_dir():
        what = "is a file" if folder.exists() else "does not exist"
        raise FmhaError(f"{str(folder)[:80]} {what}: make that folder, or choose another {option}.")
    usual = Path(example).suffix
    if usual in _KINDS and path.suffix.lower() in _KINDS and path.suffix.lower() != usual:
        raise FmhaError(f"{path.name[:80]} ends as a file of another kind does: name a {usual} file.")
    return path


__all__ = ["file_to_write"]
