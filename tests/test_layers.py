"""The import table of the design, held as data: who may import what. Read from the source, not by running it."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parent.parent

# Core modules, each of which may import those above it and NumPy. A core module that is missing here fails the
# test below, so the order is a decision and not an accident.
CORE = (
    "units errors folders processes build_cache problem storage mask inputs reference softmax schedule events "
    "gpu_model hardware memory capacity occupancy reuse dispatch timeline served state machine simulation traffic "
    "levels lockstep merging pace in_step caches cache_kv_outer cache_naive check plan plans plans_tensor tile_hints "
    "kernels best_tiles phases banks bank_sites bank_fmha101 bank_naive bank_kernels records speeds measurement ladder "
    "rungs stamps stamp_events stamp_files line_counts line_page roofline algorithms papers paper_ratios compiled "
    "visit_costs model_record model_facts model_facts_tiled sm_time tile_designs forecast_parts forecast l2_range "
    "tilemap wave_map spans gantt_map makespan as_run model_errors edge order_levels glossary formulas references "
    "apidoc"
).split()
HEAVY = {"streamlit", "plotly", "torch", "pycuda", "pandas", "scipy", "matplotlib"}


class Layer(NamedTuple):
    """The files of one layer, and what they may import from outside the standard library."""

    files: tuple[str, ...]  # globs from the project's root
    third_party: frozenset[str]
    fmha: tuple[str, ...]  # fmha modules that may be imported; "a.*" is a with all below it
    lazy: frozenset[str] = frozenset()  # may be imported inside functions only


def layer(files: str, third_party: str, fmha: str, lazy: str = "") -> Layer:
    return Layer(tuple(files.split()), frozenset(third_party.split()), tuple(fmha.split()), frozenset(lazy.split()))


ALL_CORE = " ".join(f"fmha.{name}" for name in CORE)
TABLE: dict[str, Layer] = {
    "basis": layer("fmha/units.py fmha/errors.py", "", "fmha.errors fmha.units"),
    **{
        name: layer(f"fmha/{name}.py", "numpy", " ".join(f"fmha.{n}" for n in CORE[: CORE.index(name)]))
        for name in CORE
        if name not in ("units", "errors")
    },
    # A run shows itself in a notebook; the export layer is asked for it then, and not before.
    "simulation": layer(
        "fmha/simulation.py",
        "numpy",
        " ".join(f"fmha.{name}" for name in CORE[: CORE.index("simulation")]),
        lazy="fmha.export.notebook",
    ),
    "public API": layer("fmha/__init__.py", "numpy", "fmha.export.notebook " + ALL_CORE),
    "command line": layer(
        "fmha/__main__.py fmha/cli/**/*.py",
        "numpy",
        "fmha fmha.cli* fmha.export* fmha.gpu* fmha.site* fmha.trace* " + ALL_CORE,
    ),
    "gpu": layer(
        "fmha/gpu/**/*.py", "numpy", "fmha " + ALL_CORE + " fmha.gpu*", lazy="pycuda pynvml torch fa3_fwd_interface"
    ),
    "trace": layer("fmha/trace/**/*.py", "numpy", ALL_CORE + " fmha.trace*"),
    "recorded": layer("fmha/recorded/**/*.py", "numpy", ALL_CORE, lazy="torch transformers"),
    "example": layer("fmha/docs/**/*.py", "", "fmha"),
    "figures": layer("fmha/figures/**/*.py", "numpy plotly", "fmha fmha.figures* " + ALL_CORE),
    "chart": layer("fmha/chart/**/*.py", "", ""),
    "lecture": layer(
        "fmha/lecture/**/*.py", "numpy", "fmha fmha.lecture* fmha.player.scene fmha.ui.parameters " + ALL_CORE
    ),
    "picture": layer(
        "fmha/picture/**/*.py",
        "numpy plotly",
        "fmha fmha.figures* fmha.lecture* fmha.picture* fmha.player.scene fmha.ui.parameters " + ALL_CORE,
    ),
    "site": layer(
        "fmha/site/**/*.py",
        "",
        "fmha fmha.chart fmha.site* fmha.export* fmha.figures* fmha.lecture* fmha.picture* fmha.player* " + ALL_CORE,
        lazy="plotly",
    ),
    "presenter": layer("fmha/presenter/**/*.py", "", "fmha.ui.assets"),
    "source view": layer("fmha/source_view/**/*.py", "", ""),
    "player payload": layer("fmha/player/**/*.py", "numpy", "fmha fmha.figures.theme fmha.player* " + ALL_CORE),
    "export": layer("fmha/export/**/*.py", "numpy", "fmha fmha.export* fmha.player* " + ALL_CORE, lazy="pyarrow"),
    "player component": layer("fmha/player/component.py", "numpy streamlit", "fmha*"),
    "ui": layer("fmha/ui/**/*.py", "streamlit plotly", "fmha*"),
    "plain ui": layer("fmha/ui/parameters.py fmha/ui/settings.py", "", "fmha.ui.parameters fmha.errors"),
    "marked words": layer("fmha/ui/words_marks.py", "", "fmha.glossary fmha.errors"),
    "pages": layer("pages/**/*.py", "streamlit", "fmha*"),
    "app": layer("app.py", "streamlit", "fmha.ui.*"),
}


def layer_of(path: Path) -> str | None:
    """The layer that a file belongs to. Where several match, the last in the table, which is the narrower one."""
    found = [name for name, layer in TABLE.items() for glob in layer.files if path in ROOT.glob(glob)]
    return found[-1] if found else None


SOURCES = sorted([*ROOT.glob("fmha/**/*.py"), *ROOT.glob("pages/**/*.py"), ROOT / "app.py"])


class Import(NamedTuple):
    module: str
    line: int
    top: bool  # at the top of the module, so that it runs when the module is imported


def imports_of(path: Path) -> list[Import]:
    """All imports of a file, but for those that only type checkers follow."""
    package = path.relative_to(ROOT).with_suffix("").parts[:-1]
    found: list[Import] = []

    def visit(node: ast.AST, top: bool) -> None:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            return
        if isinstance(node, ast.Import):
            found.extend(Import(alias.name, node.lineno, top) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                base = ".".join([*package[: len(package) - node.level + 1], *([base] if base else [])])
            # `from fmha.figures import theme` imports a module too, as far as a table of modules goes.
            names = [alias.name for alias in node.names]
            inside = [f"{base}.{n}" for n in names if is_module(f"{base}.{n}")]
            found.extend(Import(name, node.lineno, top) for name in inside or [base])
        inner = top and not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for child in ast.iter_child_nodes(node):
            visit(child, inner)

    visit(ast.parse(path.read_text(encoding="utf-8")), True)
    return found


def is_module(name: str) -> bool:
    stem = ROOT.joinpath(*name.split("."))
    return name.startswith("fmha") and (stem.with_suffix(".py").is_file() or (stem / "__init__.py").is_file())


def broken_rules(path: Path) -> list[str]:
    name = layer_of(path)
    where = path.relative_to(ROOT)
    if name is None:
        return [f"{where} belongs to no layer: give it a place in tests/test_layers.py"]
    rules, wrong = TABLE[name], []
    for item in imports_of(path):
        first = item.module.split(".")[0]
        if first in sys.stdlib_module_names:
            continue
        if first == "fmha":
            fine = any(fnmatchcase(item.module, p) for p in rules.fmha) or (item.module in rules.lazy and not item.top)
        else:
            fine = first in rules.third_party or (first in rules.lazy and not item.top)
        if not fine:
            wrong.append(f"{where}:{item.line}: layer {name!r} may not import {item.module}")
    return wrong


@pytest.mark.parametrize("path", SOURCES, ids=[str(p.relative_to(ROOT)) for p in SOURCES])
def test_imports_keep_to_the_table(path: Path) -> None:
    wrong = broken_rules(path)
    assert not wrong, "\n".join(wrong)


def test_the_table_notices_a_broken_rule(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The test of the test: a core module that imports Streamlit inside a function is found."""
    (tmp_path / "fmha").mkdir()
    bad = tmp_path / "fmha" / "mask.py"
    bad.write_text(
        "import numpy\nfrom . import problem\n\ndef f():\n    import streamlit\n    from fmha import traffic\n"
    )
    for name in ("problem", "traffic"):
        (tmp_path / "fmha" / f"{name}.py").write_text("")
    monkeypatch.setattr("tests.test_layers.ROOT" if __name__ == "tests.test_layers" else f"{__name__}.ROOT", tmp_path)
    wrong = "\n".join(broken_rules(bad))
    assert "streamlit" in wrong and "fmha.traffic" in wrong
    assert "numpy" not in wrong and "problem" not in wrong


def loaded_after(code: str) -> set[str]:
    """Top-level packages that a fresh interpreter has loaded after running `code`."""
    script = f"{code}\nimport sys, json; print(json.dumps(sorted({{name.split('.')[0] for name in sys.modules}})))"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_import_fmha_is_light() -> None:
    loaded = loaded_after("import fmha")
    assert "fmha" in loaded and "numpy" in loaded
    assert not loaded & HEAVY


def test_the_plain_parts_of_the_interface_need_no_streamlit() -> None:
    assert not loaded_after("import fmha.ui.settings, fmha.ui.parameters") & HEAVY


def test_the_app_starts_without_torch_and_pycuda() -> None:
    code = (
        "from fmha.ui.warm import page_modules\nimport importlib\nfor n in page_modules(): importlib.import_module(n)"
    )
    assert not loaded_after(code) & {"torch", "pycuda"}
