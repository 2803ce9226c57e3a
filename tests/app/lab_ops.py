"""Operations of a GPU worker without a GPU: results that tests know, and the ways in which a run can end.

The seed says how: 1 waits until it is cancelled, 2 fails, 3 gives a wrong O, 4 does not compile, 5 dies.
"""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fmha.errors import BuildError, GpuError
from fmha.inputs import load
from fmha.reference import reference
from tests.app.recordings import DEVICE, counters_for, recording

Report = Callable[[str, float | None], None]
SLOW, FAILS, WRONG, UNBUILT, DIES = 1, 2, 3, 4, 5
HOLD = os.environ.get("FMHA_TEST_HOLD")  # a folder: a run ends when a file "go" is put there


def describe(_payload: Mapping[str, Any], _report: Report) -> dict[str, Any]:
    return {"device": DEVICE, "free_bytes": 100 << 30, "total_bytes": 140 << 30, "counters": None}


def bench(payload: Mapping[str, Any], report: Report) -> dict[str, Any]:
    seed, problem = payload["seed"], payload["problem"]
    report("compiling kernel 02", None)
    if seed == FAILS:
        raise GpuError("the launch of fmha101 failed: an illegal address was accessed; the GPU process was replaced.")
    if seed == UNBUILT:
        raise BuildError("nvcc could not compile 02_fmha101.cu for sm_90: error: x", "nvcc -cubin", "x.cu(3): error: x")
    if seed == DIES:
        os._exit(3)
    rounds = 600 if seed == SLOW or HOLD else 0
    for done in range(rounds):
        if seed != SLOW and HOLD and take(Path(HOLD, "go")):
            break
        report(f"timing: round {done} of {rounds}", done / rounds)
        time.sleep(0.1)
    off = 1.0 if seed == WRONG else 0.0
    made = recording(payload["kernel"], problem, payload["tiling"], counters=False, off=off)
    run = dataclasses.replace(made.runs[0], input=payload["input"], seed=seed)
    arrays = load(payload["input"], problem, seed=seed, layer=payload["layer"], head=payload["head"])
    b, h = payload["show"]
    O = reference(problem, arrays.Q, arrays.K, arrays.V).O[b, h].astype(np.float32)
    return {"recording": dataclasses.replace(made, runs=(run,)), "O": O}


def take(file: Path) -> bool:
    """Remove the file; whether it was there."""
    try:
        file.unlink()
    except FileNotFoundError:
        return False
    return True


def counters(payload: Mapping[str, Any], _report: Report) -> dict[str, Any]:
    made = recording(payload["kernel"], payload["problem"], payload["tiling"])
    return {"counters": counters_for(made.runs[0].entries[0])}


OPS = {"describe": describe, "bench": bench, "counters": counters}
