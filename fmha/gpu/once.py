"""Runs plans, once each, for tools that watch a process: Nsight Compute, compute-sanitizer.

python -m fmha.gpu.once '[{"kernel": "02", "problem": {"Nq": 128, "d": 64}, "tiling": [32, 32], "check": true}]'
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmha.check import check
from fmha.gpu.device import GpuDevice
from fmha.gpu.launch import run_once
from fmha.kernels import kernel
from fmha.problem import Problem, Tiling


def main(text: str) -> int:
    """Run them on random inputs: 0 when every result that is to be checked is right."""
    asked = json.loads(text)
    device = GpuDevice(int(asked[0].get("device", 0)))
    return max(run(device, one) for one in asked)


def run(device: GpuDevice, asked: Mapping[str, Any]) -> int:
    """One of them: 0, or 1 when it was checked and is wrong."""
    problem, tiling = Problem(**asked["problem"]), Tiling(*asked["tiling"])
    chosen, lse = kernel(asked["kernel"]), bool(asked.get("lse", False))
    plan = chosen.plan(problem, tiling, device.gpu, write_lse=lse)
    p = problem
    Q, K, V = _inputs((p.B, p.H, p.Nq, p.d), (p.B, p.Hk, p.Nk, p.d))
    O, LSE = run_once(device, chosen, plan, Q, K, V, write_lse=lse)
    if not asked.get("check", False):
        return 0
    found = check(problem, Q, K, V, O, LSE)
    print(f"{chosen.number} {problem} {tiling}: {found.verdict}")
    return 0 if found.ok else 1


@lru_cache(maxsize=1)
def _inputs(queries: tuple[int, ...], keys: tuple[int, ...]) -> tuple[NDArray[np.float32], ...]:
    """Random Q, K, V, kept for the next run of the same shapes."""
    rng = np.random.default_rng(0)
    return tuple(rng.standard_normal(shape, np.float32) for shape in (queries, keys, keys))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
