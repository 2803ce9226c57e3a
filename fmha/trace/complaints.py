"""Why a source of one's own does not compile, in a sentence, where a compiler's words say it to its makers only."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from fmha.plan import Argument

_MISSING = re.compile(
    r"^(?:\./)?(?P<file>[^:\n]+):(?P<line>\d+):"
    r".*(?:error: (?P<gcc>[^:\n]+): No such file|'(?P<clang>[^'\n]+)' file not found)",
    re.MULTILINE,
)
_PARAMETERS = re.compile(r"(\w+) is called with (\([^()]*\))")


def explained(
    log: str, source: str, code: Mapping[str, str], functions: Sequence[str], folders: Sequence[Path]
) -> str | None:
    """The sentence; None where the compiler's own first complaint is as good.

    Args:
        log: what the compiler said. code: of each file, without comments; source: the first of them.
        functions: that are to be called. folders: where headers in quotation marks were looked for.
    """
    if (text := missing(log, folders)) is not None:
        return text
    for name in functions:
        if not any(re.search(rf"\b{name}\s*\(", text) for text in code.values()):
            return f"{source} has no function {name}, which is launched here: give your kernel that name."
    if (found := _PARAMETERS.search(log)) is not None:
        return f"{source}: {found[1]} is called with {found[2]} and takes others: give it parameters for these."
    for number, row in enumerate(code[source].splitlines(), 1):
        if "<<<" in row:
            return (
                f"{source}, line {number}: the app launches the kernels, so the file need not: put its host code "
                "between #ifndef FMHA_ON_CPU and #endif."
            )
    return None


def called_with(arguments: Sequence[Argument]) -> tuple[str, str]:
    """The kinds of arguments as counted by `fmha::takes`, a letter each, and in words."""
    kinds = "".join("p" if isinstance(a, str) else "f" if isinstance(a, float) else "i" for a in arguments)
    words = {"f": "float", "i": "int"}
    return kinds, ", ".join(words.get(k, f"pointer {a}") for k, a in zip(kinds, arguments, strict=True))


def missing(log: str, folders: Sequence[Path]) -> str | None:
    """A sentence for a header that no folder has, from what a compiler said; None if that is not what it complains of.

    folders: where headers in quotation marks were looked for.
    """
    found = _MISSING.search(log)
    if found is None:
        return None
    name = found["gcc"] or found["clang"]
    where = " or ".join(str(folder) for folder in dict.fromkeys(folders))
    beside = any((folder / name).is_file() for folder in folders)
    what = (
        f'is looked for among the compiler\'s headers only: write #include "{name}"'
        if beside
        else f"is not in {where}: put it there, or correct its name"
    )
    return f"{found['file']}, line {found['line']}: the header {name} {what}."


__all__ = ["called_with", "explained", "missing"]
