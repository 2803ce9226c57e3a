"""JavaScript modules of ours as one script, for files that must not load anything.

A browser loads no module from `file://`, so the modules are put into one classic script, each in a function of its own,
dependencies first. The modules are plain: imports are named and relative, exports are declarations. Anything else
is an error here, not a silent difference in the browser.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

_IMPORT = re.compile(
    r"""^import \{(?P<names>[^}]*)\} from (?P<quote>["'])(?P<file>\.\.?/[\w./-]+)(?P=quote);[ \t]*$""", re.MULTILINE
)
_EXPORT = re.compile(r"^export (?P<rest>(?:async )?(?:function|class|const|let) (?P<name>\w+))", re.MULTILINE)
_DEFAULT_NAME = re.compile(r"^export default (?P<name>\w+);[ \t]*$", re.MULTILINE)
_LEFT_OVER = re.compile(r"^\s*(?:import|export)\b.*$|\bimport\s*\(|\bimport\.meta\b.*$", re.MULTILINE)


def bundle(entries: Iterable[Path]) -> str:
    """One classic script that runs `entries` (paths of .mjs files) and what they import, each once.

    Raises:
        ValueError: two files of one name, a circle of imports, or a form of import or export that is not read here.
    """
    order: list[Path] = []
    for entry in entries:
        _visit(entry.resolve(), order, ())
    names = [path.name for path in order]
    if len(set(names)) != len(names):
        raise ValueError(f"two modules have one name: {sorted(names)}")
    parts = ['"use strict";', "const modules = {};", *(_function(path) for path in order)]
    return "(() => {\n" + "\n".join(parts) + "\n})();\n"


def _visit(path: Path, order: list[Path], above: tuple[Path, ...]) -> None:
    if path in above:
        raise ValueError("modules import one another in a circle: " + " -> ".join(p.name for p in (*above, path)))
    if path in order:
        return
    for found in _IMPORT.finditer(path.read_text(encoding="utf-8")):
        _visit((path.parent / found["file"]).resolve(), order, (*above, path))
    order.append(path)


def _function(path: Path) -> str:
    """The module as a function that fills `modules[name]`."""
    source = path.read_text(encoding="utf-8")
    exported = [found["name"] for found in _EXPORT.finditer(source)]
    source = _IMPORT.sub(_destructured, source)
    source = _DEFAULT_NAME.sub("", source)  # imports are by name here, so what is the default does not matter
    source = _EXPORT.sub(r"\g<rest>", source)
    if wrong := _LEFT_OVER.search(source):
        raise ValueError(f"{path.name}: this form of import or export is not read: {wrong[0].strip()!r}")
    exports = ", ".join(exported)
    # A closing tag inside a string would end the page's script element.
    return f'modules["{path.name}"] = (() => {{\n{source}\nreturn {{ {exports} }};\n}})();'.replace(
        "</script", "<\\/script"
    )


def _destructured(found: re.Match[str]) -> str:
    names = [part.strip() for part in found["names"].split(",") if part.strip()]
    parts = ", ".join(": ".join(name.split(" as ")) for name in names)
    return f'const {{ {parts} }} = modules["{Path(found["file"]).name}"];'


__all__ = ["bundle"]
