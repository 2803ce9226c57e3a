"""The operations of the GPU worker. Imported by the worker process alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fmha.errors import GpuError
from fmha.gpu import counters, ladder, mma_peak
from fmha.gpu.bench import Report, Request, bench
from fmha.gpu.device import GpuDevice
from fmha.gpu.stamping import stamp

_devices: list[GpuDevice] = []  # of this process: one, once `start` was called


def start(index: int) -> None:
    """Take the GPU's primary context, before the first operation."""
    _devices[:] = [GpuDevice(index)]


def device() -> GpuDevice:
    """The GPU of this process."""
    if not _devices:
        raise GpuError("the GPU worker was not started.")
    return _devices[0]


def describe(_payload: Mapping[str, Any], _report: Report) -> dict[str, Any]:
    """The GPU, its free memory, and why counters cannot be read here (None: they can)."""
    free = device().free_bytes()
    return {
        "device": device().described(),
        "free_bytes": free,
        "total_bytes": device().facts.memory_bytes,
        "counters": counters.missing(),
    }


def run_bench(payload: Mapping[str, Any], report: Report) -> dict[str, Any]:
    """Check and time a kernel beside its peers: a recording with one run, and O of the shown head."""
    recording, O = bench(device(), Request.of(payload), report)
    return {"recording": recording, "O": O}


def read_counters(payload: Mapping[str, Any], report: Report) -> dict[str, Any]:
    """Counters of the first kernel of a request."""
    request = Request.of(payload)
    chosen, tiling = request.candidates[0]
    report("reading hardware counters", None)
    counted = counters.count([counters.Counted(chosen, request.problem, tiling)], device=device().index)
    return {"counters": counted[0]}


def record_stamps(payload: Mapping[str, Any], report: Report) -> dict[str, Any]:
    """A time-stamped run of a request's first kernel."""
    request = Request.of(payload)
    chosen, tiling = request.candidates[0]
    stamps = stamp(device(), chosen, request.problem, tiling, request.input, request.seed, report)
    return {"stamps": stamps}


def measure_ladder(payload: Mapping[str, Any], report: Report) -> dict[str, Any]:
    """Many kernels and peers on one problem: a recording with one run."""
    return ladder.measure(device(), payload, report)


def prepare_ladder(payload: Mapping[str, Any], report: Report) -> dict[str, Any]:
    """Compile what a ladder will need."""
    return ladder.prepare(device(), payload, report)


def measure_mma_peak(_payload: Mapping[str, Any], report: Report) -> dict[str, Any]:
    """What mma.sync alone reaches."""
    return {"peak": mma_peak.measure(device(), report)}


OPS: dict[str, Callable[[Mapping[str, Any], Report], Any]] = {
    "describe": describe,
    "bench": run_bench,
    "counters": read_counters,
    "stamps": record_stamps,
    "ladder": measure_ladder,
    "prepare": prepare_ladder,
    "mma_peak": measure_mma_peak,
}
