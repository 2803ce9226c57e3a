"""Runs to export, and the script that node runs for a test."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

from fmha import Problem, Run, Tiling, load, simulate
from tests.tools import need

ROOT = Path(__file__).resolve().parent.parent.parent


def made(tiling: Tiling = Tiling(8, 8), order: str = "q-outer", sms: int = 4, **problem: Any) -> Run:  # noqa: B008
    """A run of random numbers."""
    what = Problem(**{"N": 48, "d": 8, **problem})
    inputs = load("random", what)
    record = None if order == "naive" else 16
    return simulate(what, tiling, inputs.Q, inputs.K, inputs.V, order, sms=sms, record_columns=record)


def node(script: str, value: Any) -> bytes:
    """What a module prints in node; it finds `value` as `input`."""
    path = need("node", shutil.which("node"))
    source = f'import fs from "node:fs"; const input = JSON.parse(fs.readFileSync(0, "utf8"));\n{script}'
    done = subprocess.run(
        [path, "--input-type=module", "-e", source],
        input=json.dumps(value).encode(),
        capture_output=True,
        cwd=ROOT,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout
