"""Run the cells below and write them with what they print and show: `python fmha/docs/make_notebook.py`.

The result, watch_a_run.ipynb, opens in Jupyter and VS Code; the player in it plays without running anything.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent))
FILE = HERE / "watch_a_run.ipynb"

# Text between the cells is Markdown, the rest is code.
CELLS: tuple[tuple[str, str], ...] = (
    ("markdown", "# Watch a run\n\nAttention over 32 tokens, tile by tile: the numbers, the bytes, the picture."),
    (
        "code",
        "from fmha import Problem, Tiling, load, reference, show, simulate, traffic\n\n"
        'problem, tiling = Problem(N=32, d=16, causal="bottom-right"), Tiling(Br=8, Bc=8)\n'
        'inputs = load("random", problem)\n'
        "run = simulate(problem, tiling, inputs.Q, inputs.K, inputs.V, sms=4)\n"
        "error = abs(run.O - reference(problem, inputs.Q, inputs.K, inputs.V).O).max()\n"
        'print(f"{len(run.events)} events; O is right: {error < 1e-12}")',
    ),
    (
        "markdown",
        "The running maximum and sum of the last row after each K/V tile; `alpha` rescales what was summed before.",
    ),
    (
        "code",
        'for name in ("m", "l", "alpha"):\n'
        '    print(f"{name:>6}", *(f"{value:7.3f}" for value in getattr(run, name)[0, 0, -1]))',
    ),
    ("markdown", "Requested bytes for the three loop orders, and what naive attention needs for each byte of flash."),
    (
        "code",
        'orders = ("naive", "q-outer", "kv-outer")\n'
        "bytes_of = {order: traffic(problem, tiling, order).requested_bytes for order in orders}\n"
        'bytes_of, round(bytes_of["naive"] / bytes_of["q-outer"], 2)',
    ),
    ("markdown", "The player: click it, then press Space, or step with the arrow keys; `?` shows all keys."),
    ("code", "show(run, inputs=inputs)"),
)


def executed() -> dict[str, Any]:
    """The notebook (format 4.5) with the cells' outputs."""
    there: dict[str, Any] = {}
    cells = []
    for number, (kind, source) in enumerate(CELLS):
        cell: dict[str, Any] = {
            "cell_type": kind,
            "id": f"cell-{number}",
            "metadata": {},
            "source": source.splitlines(True),
        }
        if kind == "code":
            count = sum(before == "code" for before, _ in CELLS[: number + 1])
            cell |= {"execution_count": count, "outputs": _outputs(source, count, there)}
        cells.append(cell)
    about = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    return {"cells": cells, "metadata": about, "nbformat": 4, "nbformat_minor": 5}


def _outputs(source: str, count: int, there: dict[str, Any]) -> list[dict[str, Any]]:
    """What a cell prints, and the value of its last line if that is an expression."""
    tree = ast.parse(source)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    shown = None
    with contextlib.redirect_stdout(io.StringIO()) as said:
        exec(compile(tree, "cell", "exec"), there)
        if isinstance(last, ast.Expr):
            shown = eval(compile(ast.Expression(last.value), "cell", "eval"), there)
    outputs: list[dict[str, Any]] = []
    if text := said.getvalue():
        outputs.append({"output_type": "stream", "name": "stdout", "text": text.splitlines(True)})
    if shown is not None:
        data: dict[str, Any] = {"text/plain": repr(shown).splitlines(True)}
        if hasattr(shown, "_repr_html_"):
            data["text/html"] = shown._repr_html_().splitlines(True)
        outputs.append({"output_type": "execute_result", "execution_count": count, "metadata": {}, "data": data})
    return outputs


if __name__ == "__main__":
    FILE.write_text(json.dumps(executed(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"{FILE}: {FILE.stat().st_size / 1024:.0f} KiB")
