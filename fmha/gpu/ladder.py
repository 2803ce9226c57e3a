"""Measures the ladder: many kernels and their peers on one problem, checked on a sample and timed in turns.

All problems of a ladder hold equally many numbers, so that Q, K and V are made once, and lie on the GPU once for each
dtype, however they are cut into sequences and heads.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

import fmha
from fmha.check import Truth, check, choose_rows, truth_of
from fmha.errors import FmhaError, LimitError
from fmha.gpu.bench import Arrays, Candidate, Report, entry_of, peer_of, time_all
from fmha.gpu.build import build
from fmha.gpu.device import GpuDevice, torch_on_gpu
from fmha.gpu.launch import POISON, Loaded
from fmha.gpu.peers import peers
from fmha.inputs import load
from fmha.kernels import Kernel, kernel
from fmha.measurement import Recording, Run
from fmha.problem import Problem, Tiling
from fmha.storage import decode, encode, finite
from fmha.units import format_bytes

_BUDGET = 1 << 20  # scores that are compared in float64: a sample, as every kernel is tested at length elsewhere
Rungs = Sequence[tuple[str, Tiling]]  # kernels by number, with their tiles


def prepare(device: GpuDevice, payload: Mapping[str, Any], report: Report) -> dict[str, Any]:
    """Compile all that will be needed, side by side. payload["builds"]: (kernel, problem, tiling). A kernel that does
    not compile is told of when it is measured."""
    asked = {}
    for name, problem, tiling in payload["builds"]:
        chosen = kernel(name)
        with suppress(FmhaError):
            plan = chosen.plan(problem, tiling, device.gpu)
            asked[chosen.number, *sorted(plan.defines.items())] = (chosen, plan.defines)
    done = 0
    with ThreadPoolExecutor(max(1, os.cpu_count() or 1)) as pool:
        jobs = [
            pool.submit(build, chosen.path, defines=defines, arch=device.arch, driver=device.cuda)
            for chosen, defines in asked.values()
        ]
        for job in jobs:
            with suppress(FmhaError):
                job.result()
            done += 1
            report(f"compiling: {done} of {len(jobs)}", done / len(jobs))
    return {"compiled": done}


def measure(device: GpuDevice, payload: Mapping[str, Any], report: Report) -> dict[str, Any]:
    """Check and time kernels and peers on one problem, in its dtype: a recording with one run.

    payload: problem; rungs, as (kernel, tiling); peers, whether they take part; refused, {kernel or peer: why it is
    left out}; repeats and budget_s of the timing; seed.
    """
    problem: Problem = payload["problem"]
    refused: Mapping[str, str] = payload["refused"]
    report("making the input", None)
    arrays, held = _arrays(problem, payload["seed"]), _on_gpu(device, problem, payload["seed"])
    truth = truth_of(problem, *arrays, choose_rows(problem, _BUDGET, payload["seed"]))
    scratch: dict[str, Any] = {}
    try:
        rows: list[Candidate] = []
        for name, tiling in payload["rungs"]:
            chosen = kernel(name)
            try:
                if chosen.number in refused:
                    raise FmhaError(refused[chosen.number])
                rows.append(_rung(device, chosen, problem, tiling, arrays, truth, held, scratch, report))
            except FmhaError as error:
                rows.append(Candidate(entry_of(chosen, tiling, problem, absent=str(error))))
        torch = torch_on_gpu() if payload["peers"] else None
        if torch is not None:
            report("asking the peers", None)
            given = {"dtypes": (problem.dtype,), "refused": refused}
            for peer in peers(torch, problem, *arrays, device.free_bytes() // 2, **given):  # type: ignore[arg-type]
                rows.append(peer_of(torch, problem, peer, arrays, truth))
        before = device.state()
        time_all(device, problem, rows, torch, report, payload["repeats"], payload["budget_s"])
        after = device.state()
    finally:
        for memory in scratch.values():
            memory.free()
    gc.collect()  # torch's tensors
    made = datetime.now(UTC).isoformat(timespec="seconds")
    run = Run(problem, "random", payload["seed"], made, tuple(row.entry for row in rows), before, after)
    return {"recording": Recording(device.described(), made, (run,), f"fmha {fmha.__version__}")}


def _rung(
    device: GpuDevice, chosen: Kernel, problem: Problem, tiling: Tiling, arrays: Arrays, truth: Truth,
    held: Mapping[str, Any], scratch: dict[str, Any], report: Report,
) -> Candidate:  # fmt: skip
    """Compile, run on a poisoned O, compare. Further buffers are added to `scratch` for the timing."""
    report(f"kernel {chosen.number}", None)
    plan = chosen.plan(problem, tiling, device.gpu)
    loaded = Loaded(device, chosen, plan)
    for name, size in plan.scratch.items():
        if name not in scratch:
            free = device.free_bytes()
            if size > free // 2:
                raise FmhaError(
                    f"not run: {name} needs {format_bytes(size)}, and half of the {format_bytes(free)} that are free "
                    "is kept for the others"
                )
            scratch[name] = device.driver.mem_alloc(size)
    addresses = {name: int(memory) for name, memory in (*held.items(), *scratch.items())}
    nbytes = problem.B * problem.H * problem.Nq * problem.d * problem.itemsize
    device.driver.memset_d8(held["O"], POISON, nbytes)
    loaded.run(plan, addresses)
    device.synchronize()
    raw = np.empty(nbytes, np.uint8)
    device.driver.memcpy_dtoh(raw, held["O"])
    found = check(problem, *arrays, _sampled(raw, problem, truth), finite=finite(raw, problem.dtype), truth=truth)
    entry = entry_of(chosen, tiling, problem, plan=plan, build=loaded.build, check=found)
    return Candidate(entry, (lambda: loaded.run(plan, addresses)) if found.ok else None)


def _sampled(raw: NDArray[np.uint8], p: Problem, truth: Truth) -> NDArray[np.float32]:
    """O [B, H, N, d] of the rows that are compared; the others are 0."""
    stored = raw.reshape(p.B, p.H, p.Nq, p.d * p.itemsize)
    O = np.zeros((p.B, p.H, p.Nq, p.d), np.float32)
    for part in truth.parts:
        b, h, rows = part.head.b, part.head.h, part.head.rows
        O[b, h][rows] = decode(np.ascontiguousarray(stored[b, h][rows]), p.dtype)
    return O


@lru_cache(maxsize=1)
def _numbers(count: int, seed: int) -> Arrays:
    """Q, K, V of `load("random", ...)`, which draws the same numbers whatever their shape."""
    made = load("random", Problem(N=count // 64, d=64), seed=seed)
    Q, K, V = (array.astype(np.float32).ravel() for array in (made.Q, made.K, made.V))
    return Q, K, V


def _arrays(problem: Problem, seed: int) -> Arrays:
    shape = (problem.B, problem.H, problem.Nq, problem.d)
    Q, K, V = (flat.reshape(shape) for flat in _numbers(problem.B * problem.H * problem.Nq * problem.d, seed))
    return Q, K, V


_held: dict[tuple[int, int, str], dict[str, Any]] = {}  # Q, K, V, O on the GPU, by their number, seed and dtype


def _on_gpu(device: GpuDevice, problem: Problem, seed: int) -> dict[str, Any]:
    """Q, K, V as this dtype stores them, and room for O; those of another dtype are given back."""
    key = (problem.B * problem.H * problem.Nq * problem.d, seed, problem.dtype)
    if key not in _held:
        for old in _held.values():
            for memory in old.values():
                memory.free()
        _held.clear()
        need, free = 4 * key[0] * problem.itemsize, device.free_bytes()
        if need > free:
            raise LimitError(
                f"device memory: Q, K, V and O need {format_bytes(need)} and {format_bytes(free)} are free: close "
                "other programs that use this GPU."
            )
        made: dict[str, Any] = {}
        for name, flat in zip("QKV", _numbers(key[0], seed), strict=True):
            stored = encode(flat, problem.dtype)
            made[name] = device.driver.mem_alloc(stored.nbytes)
            device.driver.memcpy_htod(made[name], stored)
        made["O"] = device.driver.mem_alloc(stored.nbytes)
        _held[key] = made
    return _held[key]


__all__ = ["measure", "prepare"]
