"""The example notebook: what it says is what its cells give today."""

from __future__ import annotations

import importlib.util
import json
from typing import Any

from tests.export.support import ROOT


def texts(notebook: dict[str, Any]) -> list[Any]:
    """Cells with what they printed; the player, which changes with its code, only by being there."""
    found = []
    for cell in notebook["cells"]:
        printed = [output.get("text") for output in cell.get("outputs", [])]
        shown = [output["data"].get("text/plain") for output in cell.get("outputs", []) if "data" in output]
        has_player = any("<iframe" in "".join(o.get("data", {}).get("text/html", [])) for o in cell.get("outputs", []))
        found.append((cell["cell_type"], cell["source"], printed, [] if has_player else shown, has_player))
    return found


def test_the_notebook_in_the_docs_is_what_its_script_makes() -> None:
    spec = importlib.util.spec_from_file_location("make_notebook", ROOT / "fmha" / "docs" / "make_notebook.py")
    assert spec and spec.loader
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    kept = json.loads((ROOT / "fmha" / "docs" / "watch_a_run.ipynb").read_text(encoding="utf-8"))
    assert texts(kept) == texts(script.executed())
    assert kept["nbformat"] == 4 and texts(kept)[-1][-1]
    assert "O is right: True" in json.dumps(kept)
