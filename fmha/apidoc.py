"""The reference of the Python API, read from the sources: modules, public names, signatures, docstrings.

Nothing is imported and nothing is run: the files are parsed. So a module that needs a GPU is listed like any other.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

PACKAGE = Path(__file__).resolve().parent
Kind = Literal["class", "function", "constant"]
API = "fmha"


@dataclass(frozen=True)
class Item:
    """A public name. members: public methods, properties and fields of a class. line: in the module's file."""

    name: str
    kind: Kind
    signature: str
    doc: str
    line: int
    module: str
    members: tuple[Item, ...] = ()

    @property
    def path(self) -> str:
        """Where to import it from: "fmha.traffic.closed_form"."""
        return f"{self.module}.{self.name}"


@dataclass(frozen=True)
class Module:
    """A module with a docstring: its dotted name, its file below the project, and its public names."""

    name: str
    file: str
    doc: str
    items: tuple[Item, ...]


@cache
def modules() -> dict[str, Module]:
    """All modules of the package by dotted name, the public API first, in the order of their names."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        if any(part.startswith("_") for part in name.split(".")):
            continue
        module = _read(name, path)
        if module.items or module.doc:
            found[name] = module
    first = {API: _public(found)}
    return first | {name: found[name] for name in sorted(found) if name != API}


def find(text: str) -> list[Item]:
    """Public names whose path or docstring holds all words of `text`, those that are called so first."""
    words = text.casefold().split()
    if not words:
        return []
    hits: list[tuple[bool, int, int, Item]] = []
    for module in modules().values():
        for item in module.items:
            for thing in (item, *item.members):
                path, doc = thing.path.casefold(), thing.doc.casefold()
                if all(word in path or word in doc for word in words):
                    in_name = sum(word in thing.name.casefold() for word in words)
                    hits.append((thing.name.casefold() != text.strip().casefold(), -in_name, len(hits), thing))
    seen: dict[str, Item] = {}
    for *_, thing in sorted(hits, key=lambda hit: hit[:3]):
        seen.setdefault(thing.path, thing)
    return list(seen.values())


def markdown(doc: str) -> str:
    """A docstring as Markdown: paragraphs, "Args:" and the like as lists, indented blocks and tables as code."""
    out = []
    for block in re.split(r"\n\s*\n", doc):
        lines = block.split("\n")
        head = re.fullmatch(r"(\w[\w ]*):", lines[0])
        if head and len(lines) > 1 and all(line.startswith(" ") for line in lines[1:]):
            entries: list[str] = []
            depth = len(lines[1]) - len(lines[1].lstrip())
            for line in lines[1:]:
                if len(line) - len(line.lstrip()) <= depth or not entries:
                    entries.append(line.strip())
                else:
                    entries[-1] += " " + line.strip()
            out.append(f"**{head[1]}**\n\n" + "\n".join(f"- {_inline(_term(entry))}" for entry in entries))
        elif all(line.startswith("    ") for line in lines) or "====" in block:
            out.append("```text\n" + block.replace("```", "'''") + "\n```")
        elif lines[0].startswith("- "):
            out.append("\n".join(_inline(line) for line in lines))
        else:
            out.append(_inline(" ".join(line.strip() for line in lines)))
    return "\n\n".join(out)


def _term(entry: str) -> str:
    """`name: text` with its name set as code."""
    found = re.match(r"([\w, ]{1,40}): (.+)", entry)
    return f"`{found[1]}`: {found[2]}" if found else entry


def _inline(text: str) -> str:
    """Escape what Markdown would take for markup; code in backticks stays."""
    parts = re.split(r"(``?[^`]+``?)", text)
    return "".join(part if k % 2 else re.sub(r"([*_<>$~|\[\]])", r"\\\1", part) for k, part in enumerate(parts))


def _read(name: str, path: Path) -> Module:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    listed = _listed(tree)
    items = []
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            if _is_public(node.name, listed):
                items.append(_class(node, name) if isinstance(node, ast.ClassDef) else _function(node, name))
        else:
            items += [item for item in _constants(node, name) if _is_public(item.name, listed)]
    return Module(name, str(path.relative_to(PACKAGE.parent)), ast.get_docstring(tree) or "", tuple(items))


def _public(found: dict[str, Module]) -> Module:
    """The package itself: its `__all__`, each name with the docstring of where it is defined."""
    package = found[API]
    tree = ast.parse((PACKAGE / "__init__.py").read_text(encoding="utf-8"))
    origin = {
        alias.asname or alias.name: (node.module or "", alias.name)
        for node in tree.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }  # fmt: skip
    items = {item.name: item for item in package.items}
    for name in _listed(tree) or ():
        module, real = origin.get(name, ("", ""))
        for item in found[module].items if module in found else ():
            if item.name == real:
                items[name] = Item(name, item.kind, item.signature, item.doc, item.line, API, item.members)
    return Module(API, package.file, package.doc, tuple(items[name] for name in sorted(items, key=str.casefold)))


def _listed(tree: ast.Module) -> tuple[str, ...] | None:
    """The names in the module's `__all__`."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "__all__" for t in node.targets):
            return tuple(ast.literal_eval(node.value))
    return None


def _is_public(name: str, listed: tuple[str, ...] | None) -> bool:
    return name in listed if listed is not None else not name.startswith("_")


def _signature(node: ast.FunctionDef | ast.AsyncFunctionDef, name: str, *, skip_self: bool = False) -> str:
    arguments = node.args
    if skip_self and (arguments.posonlyargs or arguments.args):
        arguments = ast.arguments(**{field: getattr(arguments, field) for field in arguments._fields})
        which = "posonlyargs" if arguments.posonlyargs else "args"
        setattr(arguments, which, getattr(arguments, which)[1:])
    back = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    parts = [re.sub(r"^(\w+: [^=]+)=", r"\1 = ", part) for part in _split(ast.unparse(arguments))]
    text = f"{name}({', '.join(parts)}){back}"
    if len(text) > 88:  # one argument a line
        text = f"{name}(\n    " + ",\n    ".join(parts) + f",\n){back}"
    return text


def _split(arguments: str) -> list[str]:
    """An argument list at its outer commas."""
    parts, depth = [""], 0
    for letter in arguments:
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts if part.strip()]


def _function(node: ast.FunctionDef | ast.AsyncFunctionDef, module: str) -> Item:
    return Item(node.name, "function", _signature(node, node.name), ast.get_docstring(node) or "", node.lineno, module)


def _class(node: ast.ClassDef, module: str) -> Item:
    members: list[Item] = []
    fields: list[str] = []
    inside = f"{module}.{node.name}"
    start = ""
    for part in node.body:
        if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name) and part.target.id[0] != "_":
            value = f" = {ast.unparse(part.value)}" if part.value else ""
            fields.append(f"{part.target.id}: {ast.unparse(part.annotation)}{value}")
        elif isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef):
            marks = {ast.unparse(mark).split("(")[0] for mark in part.decorator_list}
            is_property = bool(marks & {"property", "cached_property", "functools.cached_property"})
            if part.name == "__init__":
                start = _signature(part, node.name, skip_self=True)
            elif not part.name.startswith("_"):
                text = _signature(part, part.name, skip_self="staticmethod" not in marks)
                if is_property:
                    text = part.name + (f": {ast.unparse(part.returns)}" if part.returns else "")
                doc = ast.get_docstring(part) or ""
                members.append(
                    Item(part.name, "constant" if is_property else "function", text, doc, part.lineno, inside)
                )
    bases = ", ".join(ast.unparse(base) for base in node.bases)
    head = start or f"class {node.name}({bases})".replace("()", "")
    if fields and not start:
        head += ":\n    " + "\n    ".join(fields)
    return Item(node.name, "class", head, ast.get_docstring(node) or "", node.lineno, module, tuple(members))


def _constants(node: ast.stmt, module: str) -> list[Item]:
    """Names in capitals, and what is given a type: `GPUS: dict[str, Gpu]`, `DEFAULT_GPU = "H200"`."""
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        target, kind = node.target.id, f": {ast.unparse(node.annotation)}"
    elif isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
        target, kind = node.targets[0].id, ""
    else:
        return []
    if target.startswith("__"):
        return []
    value = ast.unparse(node.value) if node.value is not None else ""
    short = f" = {value}" if value and len(value) <= 60 else " = ..."
    return [Item(target, "constant", f"{target}{kind}{short}", "", node.lineno, module)]
