"""The warm start: what is imported when, and that no figure meets half a library. Each case in a fresh interpreter."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
LANDING = ROOT / "pages" / "learn" / "guided_lecture.py"
CHARTS = ROOT / "pages" / "learn" / "online_softmax.py"

# `import pandas` stops half way for as long as the test wants it to: it can be seen in sys.modules and lacks all names.
SLOWLY = """
import importlib, sys, threading
from importlib.machinery import PathFinder
from streamlit.testing.v1 import AppTest
from fmha.ui import warm

half, go_on = threading.Event(), threading.Event()

class Slowly(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name != "pandas.core.api":
            return None
        spec = super().find_spec(name, path, target)
        usual = spec.loader.exec_module
        def exec_module(module):  # not in find_spec, which holds the lock of all imports
            half.set()
            assert go_on.wait(60)
            usual(module)
        spec.loader.exec_module = exec_module
        return spec

sys.meta_path.insert(0, Slowly)

def run(path, **query):
    page = AppTest.from_file(path, default_timeout=60)
    for name, value in query.items():
        page.query_params[name] = value
    return page.run()
"""


def python(code: str) -> str:
    """What a fresh interpreter prints; it must end well."""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_the_landing_page_finds_all_that_it_needs_and_nothing_else_is_waited_for() -> None:
    code = (
        SLOWLY
        + f"""
warm._landing_page()
before = {{name for name in sys.modules if name.startswith("fmha")}}
page = run({str(LANDING)!r})
assert not page.exception, page.exception
late = sorted({{name for name in sys.modules if name.startswith("fmha")}} - before)
print(len(before), late, "pandas" in sys.modules, "pyarrow" in sys.modules)
"""
    )
    count, late = python(code).split(maxsplit=1)
    assert late.strip() == "[] False False" and int(count) > 50
    # so these would have been for nothing
    assert int(count) < len(python("from fmha.ui.warm import page_modules; print(*page_modules())").split()) / 2


def test_all_is_imported_in_the_end_even_if_the_landing_page_fails() -> None:
    code = """
import sys
from fmha.ui import lecture_parts, warm
def fails(): raise RuntimeError("on purpose")
lecture_parts.rehearse = fails
warm.warm_up()
missing = [name for name in (*warm.page_modules(), "pandas", "plotly.graph_objs._figure") if name not in sys.modules]
assert not missing, missing
"""
    python(code)


def race(page: str, is_open: bool) -> str:
    """Run a page while pandas is half imported: its errors, and whether it waited. is_open: the gate stands open."""
    return python(
        SLOWLY
        + f"""
importing = threading.Thread(target=importlib.import_module, args=("pandas",))  # as a table of another visitor does
importing.start()
assert half.wait(60) and not hasattr(sys.modules["pandas"], "DataFrame")
if {is_open}:
    warm._are_whole.set()
timer = threading.Timer({20.0 if is_open else 0.5}, go_on.set)
timer.daemon = True
timer.start()
page = run({page})
print([error.value for error in page.exception], "waited" if go_on.is_set() else "did not wait")
go_on.set()
"""
    )


@pytest.mark.parametrize("page", [f"{str(CHARTS)!r}", f"{str(LANDING)!r}, step='3'"], ids=["page", "lecture"])
def test_a_figure_waits_for_the_whole_of_pandas(page: str) -> None:
    """Streamlit imports pandas with the first table; Plotly, drawing for another visitor meanwhile, fails on half."""
    assert race(page, is_open=False).strip() == "[] waited"


def test_without_the_gate_it_would_fail() -> None:
    """The test of the test."""
    said = race(f"{str(CHARTS)!r}", is_open=True)
    assert "partially initialized module 'pandas'" in said and "did not wait" in said
