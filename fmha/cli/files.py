"""Where a command writes: names that cannot be files are refused before minutes are spent on what goes into them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from fmha.errors import FmhaError

_SEPARATORS = tuple(s for s in (os.sep, os.altsep) if s)


def file_to_write(name: str, example: str, option: str = "--out", endings: Sequence[str] = ()) -> Path:
    """The file that an option names. example: a name that would do, such as "run.html"; endings: those that a name may
    have, such as ".html" (that of the example). One without an ending is taken as it is.

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
    allowed = tuple(endings) or (Path(example).suffix,)
    if path.suffix and path.suffix.lower() not in allowed:
        raise FmhaError(
            f"{path.name[:80]} ends in {path.suffix[:20]}, and a {' or '.join(allowed)} file is written: name one, "
            f"such as {option} {path.with_suffix(allowed[0]).name[:80]}."
        )
    return path


__all__ = ["file_to_write"]
