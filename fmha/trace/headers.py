"""The files that a compiler needs for one .cu file: its text and the headers that it includes, in one flat folder.

A name in quotation marks is looked for as nvcc does it: in the folder of the file that includes it, then in the folders
that were named. Which folder that is cannot be told from a copy, so every header gets a name of its own, and the lines
that include it are given that name.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from pathlib import Path

from fmha.errors import InputError

_INCLUDE = re.compile(r'^(\s*#\s*include\s+")([^"\n]+)(")', re.MULTILINE)
_TAKEN = ("kernels.cpp", "kernels.s", "runtime.o", "program")  # what the builder itself writes there


def gathered(name: str, text: str, folder: Path, others: Sequence[Path] = ()) -> dict[str, str]:
    """{name: text} of the file `name` and of the headers that it includes in quotation marks, and theirs, each once.

    folder: where the file lies; others: where headers are looked for that are not beside the file that includes them.
    A header that is nowhere is left to the compiler, which has some of its own.

    Raises:
        InputError: a header cannot be read.
    """
    names: dict[Path, str] = {}
    taken = {name.lower(), *_TAKEN}
    made: dict[str, str] = {}
    todo = [(name, text, folder)]
    while todo:
        mine, source, here = todo.pop(0)

        def given(found: re.Match[str], here: Path = here) -> str:
            header = next((f / found[2] for f in (here, *others) if (f / found[2]).is_file()), None)
            if header is None:
                return found[0]
            same = header.resolve()
            if same not in names:
                names[same] = _free(header, taken)
                todo.append((names[same], _read(header), header.parent))
            return f"{found[1]}{names[same]}{found[3]}"

        made[mine] = _INCLUDE.sub(given, source)
    return made


def _free(header: Path, taken: set[str]) -> str:
    """A name that no other file has; its own, if that is free."""
    wishes = itertools.chain([header.name], (f"{header.stem}_{n}{header.suffix}" for n in itertools.count(2)))
    name = next(wish for wish in wishes if wish.lower() not in taken)
    taken.add(name.lower())
    return name


def _read(header: Path) -> str:
    try:
        # nvcc takes any bytes in a comment.
        return header.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise InputError(f"the header {header} cannot be read ({error.strerror}): choose another.") from None


__all__ = ["gathered"]
