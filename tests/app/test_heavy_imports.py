"""No page imports torch or PyCUDA: they cost seconds and hundreds of megabytes, and most machines have neither."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from app import MENU

ROOT = Path(__file__).resolve().parent.parent.parent
HEAVY = ("torch", "pycuda", "transformers")
# Runs pages given as paths, and prints which of the packages each has brought in.
SCRIPT = """
import json, sys
from streamlit.testing.v1 import AppTest
from fmha.ui import warm
warm.warm_up()
heavy, pages = json.loads(sys.argv[1])
found = {"warm-up": [name for name in heavy if name in sys.modules]}
for path in pages:
    page = AppTest.from_file(path, default_timeout=60).run()
    assert not page.exception, (path, page.exception)
    found[path] = [name for name in heavy if name in sys.modules]
print(json.dumps(found))
"""


def brought_in(folder: Path, pages: list[str]) -> dict[str, list[str]]:
    """For each page the packages of `HEAVY` that are loaded after it, where all of them could be."""
    for name in HEAVY:
        (folder / name).mkdir(exist_ok=True)
        (folder / name / "__init__.py").write_text("")
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)])}
    command = [sys.executable, "-c", SCRIPT, json.dumps([HEAVY, pages])]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr[-2000:]
    return dict(json.loads(done.stdout.splitlines()[-1]))


def test_no_page_imports_what_only_a_gpu_needs(tmp_path: Path) -> None:
    pages = [str(ROOT / "pages" / file) for entries in MENU.values() for file, _ in entries]
    found = brought_in(tmp_path, pages)
    assert set(found) == {"warm-up", *pages} and len(pages) >= 16
    assert not any(found.values()), found


def test_a_page_that_did_would_be_found(tmp_path: Path) -> None:
    page = tmp_path / "page.py"
    page.write_text("import streamlit as st\nimport torch\nst.title('x')\n")
    assert brought_in(tmp_path, [str(page)]) == {"warm-up": [], str(page): ["torch"]}
