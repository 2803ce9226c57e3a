"""`trace`: one call from a kernel and arrays to its outputs and to everything that it did to memory."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fmha.hardware import DEFAULT_GPU, GPUS, Gpu
from fmha.kernels import SECTOR, STRIDES, Kernel, Plan
from fmha.phases import Phase, phase_at, phases
from fmha.problem import Problem, Tiling
from fmha.reference import check_inputs
from fmha.storage import lay, strides_table, taken
from fmha.trace.build import Mode, Program, build
from fmha.trace.findings import WILD, Finding, findings
from fmha.trace.run import CHECK, REVERSED, TRACE, Detail, Raw, run

LIMIT_S = 20.0
_LENGTHS = ("key_range", STRIDES)  # small tables that are no tensors
Array = NDArray[np.float32]


@dataclass(frozen=True)
class Count:
    """What one source line did with one array: counts over all warps and blocks of one launch. What a function does
    that is called there and inlined counts on that line of the kernel.

    requests: of warps; lanes: accesses of threads; nbytes: of all lanes. For device memory, sectors of 32 bytes moved
    and the fewest that would do; for shared memory, wavefronts and the fewest. widest: of one request, its sectors, or
    its conflict ("32-way").
    """

    file: str
    line: int
    function: str
    phase: str | None
    array: str
    space: str
    is_write: bool
    access_bytes: int
    requests: int
    lanes: int
    nbytes: int
    sectors: int
    ideal_sectors: int
    wavefronts: int
    ideal_wavefronts: int
    widest: int


@dataclass(frozen=True)
class LineFlops:
    """Arithmetic of one source line: additions, multiplications, divisions, exp / log / sqrt, and max or min. What an
    inlined function does counts where it is called; line 0: on none of the kernel's file.
    """

    line: int
    function: str
    add: int
    mul: int
    div: int
    special: int
    max: int


@dataclass(frozen=True)
class Trace:
    """A kernel's run on the CPU.

    O [B, H, Nq, d]; LSE [B, H, Nq] or None; findings: what is wrong with the kernel; counts: by line and array;
    flops: by line, empty if they were not counted; raw: as the runtime wrote it down; program: what its numbers mean.
    Counts are of the kernel *as written*: a GPU's compiler may join accesses.
    """

    kernel: Kernel
    problem: Problem
    tiling: Tiling
    plan: Plan
    text: str
    O: Array
    LSE: Array | None
    findings: tuple[Finding, ...]
    raw: Raw
    program: Program
    flops_raw: NDArray[Any] = field(repr=False)
    seconds: float

    @functools.cached_property
    def phases(self) -> tuple[Phase, ...]:
        """The phases that the source's comments name."""
        return phases(self.text)

    @functools.cached_property
    def counts(self) -> tuple[Count, ...]:
        """By launch, source line and array."""
        rows = self.raw.rows
        keys, _, group = np.unique(
            np.stack([rows["launch"], rows["site"], rows["region"]], 1), axis=0, return_index=True, return_inverse=True
        )
        sums = {
            name: np.bincount(group.ravel(), rows[name], len(keys)).astype(np.int64)
            for name in ("requests", "lanes", "nbytes", "sectors", "ideal_sectors", "wavefronts", "ideal_wavefronts")
        }
        widest = np.zeros(len(keys), np.int64)
        np.maximum.at(widest, group.ravel(), rows["widest"])
        made = []
        for index, (launch, number, region) in enumerate(keys.tolist()):
            site = self.program.sites[number]
            regions = self.raw.regions[launch]
            array = regions[region] if region < len(regions) else None
            is_shared = array.space == "shared" if array else sums["sectors"][index] == 0
            phase = phase_at(self.phases, site.line) if site.file == self.kernel.file else None
            requests, lanes, nbytes, *rest = (int(sums[name][index]) for name in sums)
            sectors, ideal_sectors, wavefronts, ideal_wavefronts = rest
            count = Count(
                site.file, site.line, self.plan.launches[launch].function, phase.maths if phase else None,
                array.name if array else "?", "shared" if is_shared else "global", site.is_write,
                nbytes // max(1, lanes), requests, lanes, nbytes, sectors, ideal_sectors, wavefronts, ideal_wavefronts,
                int(widest[index]),
            )  # fmt: skip
            made.append(count)
        return tuple(sorted(made, key=lambda c: (c.file, c.line, c.function, c.array, c.is_write)))

    @functools.cached_property
    def flops(self) -> tuple[LineFlops, ...]:
        """Arithmetic by launch and source line."""
        made = []
        for launch, plan in enumerate(self.plan.launches):
            mine = self.flops_raw[self.flops_raw["launch"] == launch]
            for line in np.unique(mine["line"]):
                total = mine["count"][mine["line"] == line].sum(axis=0)
                made.append(LineFlops(int(line), plan.function, *total.tolist()))
        return tuple(made)

    @property
    def global_bytes(self) -> dict[str, tuple[int, int]]:
        """Bytes read from and written to each device array, by name."""
        moved: dict[str, tuple[int, int]] = {}
        for count in self.counts:
            if count.space == "global":
                read, written = moved.get(count.array, (0, 0))
                moved[count.array] = (
                    (read, written + count.nbytes) if count.is_write else (read + count.nbytes, written)
                )
        return moved

    @property
    def requested_bytes(self) -> int:
        """Bytes of tensors in device memory that all threads asked for, without key ranges and strides."""
        return sum(count.nbytes for count in self._tensors)

    @property
    def sector_bytes(self) -> int:
        """Bytes of the sectors of tensors that warps asked for: what the hardware counts."""
        return SECTOR * sum(count.sectors for count in self._tensors)

    @property
    def _tensors(self) -> list[Count]:
        return [count for count in self.counts if count.space == "global" and count.array not in _LENGTHS]

    def saved(self, name: str) -> Array:
        """What a part of dynamic shared memory held at the end of every interval of `raw.intervals`: [intervals,
        floats]. It must have been asked for."""
        at = 0
        for slot in self.plan.launches[0].smem:
            if slot.name in self._kept:
                if slot.name == name:
                    return np.ascontiguousarray(self.raw.saved[:, at : at + slot.nbytes]).view(np.float32)
                at += slot.nbytes
        raise KeyError(f"{name} was not kept: ask for it with keep=({name!r},).")

    _kept: tuple[str, ...] = ()


def trace(
    kernel: Kernel,
    problem: Problem,
    tiling: Tiling,
    Q: ArrayLike,
    K: ArrayLike,
    V: ArrayLike,
    *,
    write_lse: bool = False,
    gpu: Gpu = GPUS[DEFAULT_GPU],
    text: str | None = None,
    folder: Path | None = None,
    check: bool = True,
    flops: bool = True,
    is_reversed: bool = False,
    blocks: Sequence[int] | None = None,
    detail: Detail | None = None,
    keep: Sequence[str] = (),
    processes: int | None = None,
    timeout_s: float = LIMIT_S,
    cache: Path | None = None,
) -> Trace:
    """Run a kernel of the registry on the CPU, access by access.

    Args:
        Q: [B, H, Nq, d]; K, V: [B, Hk, Nk, d], rounded to the problem's dtype; a kernel that takes strides is given
            them as they lie in memory. gpu: whose limits the plan keeps.
        text: a source to be used in place of the kernel's own. folder: where its headers are looked for first
            (`cuda_src`, where they are looked for anyway).
        check: look for races and reads of what nothing wrote (bounds and barriers are looked at in any case).
        flops: count arithmetic too, in a second run; not of a kernel that was seen to access what is not its own.
        is_reversed: let the last thread run first.
        blocks: only these; then O holds NaN elsewhere. detail: write down one warp's requests lane by lane.
        keep: parts of shared memory whose contents to keep at every barrier (`Trace.saved`).
        cache: a folder for compiled programs.

    Raises:
        ProblemError, LimitError, InputError: the plan or the arrays do not fit. BuildError: the source does not
        compile. TraceError: no compiler, a crash, or no end within `timeout_s`.
    """
    plan = kernel.plan(problem, tiling, gpu, write_lse=write_lse)
    check_inputs(problem, Q, K, V)
    p = problem
    laid = {name: lay(np.asarray(a), p.dtype, strided=plan.strided) for name, a in zip("QKV", (Q, K, V), strict=True)}
    inputs: dict[str, NDArray[Any]] = {name: tensor.flat for name, tensor in laid.items()}
    if not all(tensor.is_dense for tensor in laid.values()):
        inputs[STRIDES] = strides_table(laid)
    if p.lens_k is not None or p.left_pad is not None:
        inputs["key_range"] = np.array([p.key_range(b) for b in range(p.B)], np.int32)
    outputs = {"O": laid["Q"].flat.nbytes, **plan.scratch}  # O lies as Q does
    if write_lse:
        outputs["LSE"] = 4 * p.B * p.H * p.Nq
    functions = [launch.function for launch in plan.launches]
    called = None if text is None else {launch.function: launch.arguments for launch in plan.launches}
    with ThreadPoolExecutor(2) as pool:
        modes: tuple[Mode, ...] = ("trace", "flops") if flops else ("trace",)
        made = [
            pool.submit(
                build, kernel.path, functions, plan.defines, mode, text=text, folder=folder, called=called, cache=cache
            )
            for mode in modes
        ]
        programs = [future.result() for future in made]
    program = programs[0]
    slots = [(s.offset, s.nbytes) for s in plan.launches[0].smem if s.name in keep] if keep else []
    flags = TRACE | CHECK * check | REVERSED * is_reversed
    raw = run(
        program, plan.launches, inputs, outputs, flags=flags, detail=detail, saved=slots, blocks=blocks,
        processes=processes, timeout_s=timeout_s,
    )  # fmt: skip
    faults = findings(raw, program, plan.launches)
    counted = np.zeros(0, raw.flops.dtype)
    if flops and not any(fault.kind in WILD for fault in faults):  # where nothing looks, a wild access would crash
        limits: dict[str, Any] = {"blocks": blocks, "processes": processes, "timeout_s": timeout_s}
        counted = run(programs[1], plan.launches, inputs, outputs, flags=0, **limits).flops
    O = taken(raw.outputs["O"], laid["Q"].shape, laid["Q"].strides, p.dtype)
    LSE = raw.outputs["LSE"].reshape(p.B, p.H, p.Nq) if write_lse else None
    return Trace(
        kernel, p, tiling, plan, kernel.source() if text is None else text, O, LSE,
        faults, raw, program, counted, raw.seconds, tuple(keep),
    )  # fmt: skip


__all__ = ["Count", "LineFlops", "Trace", "trace"]
