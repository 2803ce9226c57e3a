"""A traced run as a `Run`, so that whatever shows a simulation can show what the kernel itself computed."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fmha.errors import TraceError
from fmha.events import CODE
from fmha.hardware import DEFAULT_GPU, GPUS, Gpu
from fmha.kernels import Kernel
from fmha.problem import Problem, Tiling
from fmha.reference import check_inputs
from fmha.simulation import Run
from fmha.state import TileRecord, carry
from fmha.timeline import clock
from fmha.trace.events import table
from fmha.trace.tracing import Trace, trace

# What is read from shared memory at the barriers of a visit.
KEPT = ("Sij", "Oi", "li", "mi", "alpha", "beta")


def traced_run(
    kernel: Kernel,
    problem: Problem,
    tiling: Tiling,
    Q: ArrayLike,
    K: ArrayLike,
    V: ArrayLike,
    *,
    gpu: Gpu = GPUS[DEFAULT_GPU],
    sms: int | None = None,
    record_columns: int = 8,
) -> tuple[Run, Trace]:
    """Run a kernel on the CPU and hand over its events, and m, l, alpha, S, P and O as they lay in shared memory.

    P is what the kernel holds times its beta, so that it means exp(S - m_new) as in a simulation. Times are those that
    the events would take on `gpu`.

    Args: as `trace` and `simulate` take them.

    Raises:
        TraceError: a kernel that does not hold these in shared memory; otherwise as `trace`.
    """
    plan = kernel.plan(problem, tiling, gpu)
    missing = [name for name in KEPT if name not in {slot.name for slot in plan.launches[0].smem}]
    if missing:
        raise TraceError(
            f"kernel {kernel.number} ({kernel.name}) does not keep {', '.join(missing)} in shared memory, where it "
            "could be read: the player follows kernel 02, or the simulator."
        )
    traced = trace(kernel, problem, tiling, Q, K, V, gpu=gpu, keep=KEPT, check=False)
    return as_run(traced, Q, K, V, gpu=gpu, sms=sms, record_columns=record_columns), traced


def as_run(
    traced: Trace, Q: ArrayLike, K: ArrayLike, V: ArrayLike, *, gpu: Gpu, sms: int | None, record_columns: int
) -> Run:
    """A trace that kept `KEPT` as a Run. Q, K, V: what was traced."""
    p, tiling = traced.problem, traced.tiling
    Br, Bc, Tr, Tc = tiling.Br, tiling.Bc, tiling.Tr(p), tiling.Tc(p)
    events, interval = table(traced)
    timed = clock(events, gpu, p.dtype, sms)
    begins = np.searchsorted(traced.raw.intervals["block"], np.arange(traced.plan.launches[0].grid))
    at = begins[events["worker"]] + interval

    def held(name: str, code: str) -> tuple[tuple[NDArray[np.int32], ...], NDArray[np.float32]]:
        """Which tiles have had that phase, and what the array held at the barrier behind it."""
        mine = np.flatnonzero(events["phase"] == CODE[code])
        return tuple(events[n][mine] for n in ("b", "h", "i", "j")), traced.saved(name)[at[mine]]

    empty = np.full((p.B, p.H, Tr, Tc, Br, Bc), np.nan, np.float32)
    S, P = empty, empty.copy()
    O_tiles = np.full((p.B, p.H, Tr, Tc, Br, min(record_columns, p.d)), np.nan, np.float32)
    where, values = held("Sij", "S")
    S[where] = values.reshape(-1, Br, Bc)
    where, values = held("Sij", "P")
    P[where] = values.reshape(-1, Br, Bc) * held("beta", "P")[1][:, :, None]
    where, values = held("Oi", "O")
    O_tiles[where] = values.reshape(-1, Br, p.d)[:, :, : O_tiles.shape[-1]]

    rows = {}
    for name, empty_value in (("mi", np.nan), ("li", np.nan), ("alpha", 1.0)):
        array = np.full((p.B, p.H, Tr, Tc, Br), empty_value, np.float32)
        where, values = held(name, "P")
        array[where] = values
        rows[name] = np.ascontiguousarray(array.swapaxes(3, 4).reshape(p.B, p.H, Tr * Br, Tc)[:, :, : p.Nq])
    carry(rows["mi"], -np.inf)
    carry(rows["li"], 0.0)
    m, l = rows["mi"][..., -1], rows["li"][..., -1]
    with np.errstate(divide="ignore"):
        LSE = np.where(l > 0, np.where(np.isfinite(m), m, 0) + np.log(l), -np.inf)
    Q, K, V = (array.astype(np.float32) for array in check_inputs(p, Q, K, V))
    return Run(
        p, tiling, "q-outer", "dtype", Q, K, V, traced.O, LSE, rows["mi"], rows["li"], rows["alpha"], timed,
        TileRecord(S, P, O_tiles),
    )  # fmt: skip


__all__ = ["KEPT", "as_run", "traced_run"]
