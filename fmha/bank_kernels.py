"""Where each kernel touches shared memory, and the wavefronts that its banks need for a whole run.

Every access of every warp is counted from its addresses (`fmha.banks`), with the masks, ragged edges and widths that
the compiled kernel has: nvcc 13.0 for sm_90, read from the machine code. Two things are measured and not modelled,
because their cause is not known to us: a few wavefronts a warp and visit (0.2 to 0.7 % of kernel 02's), and in
`naive_softmax` about a third more than its loads and stores explain (shuffles may take wavefronts too).
`tests/core/test_banks.py` holds the errors against the counters of an H200.
"""

from __future__ import annotations

from collections.abc import Callable

from fmha.bank_fmha101 import fmha101_sites
from fmha.bank_naive import naive_sites
from fmha.bank_sites import Notes, SmemUse, Total
from fmha.errors import LimitError
from fmha.hardware import DEFAULT_GPU, GPUS, Gpu
from fmha.kernels import Kernel, Launch
from fmha.problem import Problem, Tiling

Writer = Callable[[Notes, Problem, Tiling, Launch, int, bool], None]
_SITES: dict[str, Writer] = {"01": naive_sites, "02": fmha101_sites}


def smem_use(
    kernel: Kernel,
    problem: Problem,
    tiling: Tiling,
    gpu: Gpu = GPUS[DEFAULT_GPU],
    *,
    pad: int = 0,
    write_lse: bool = False,
) -> SmemUse:
    """Shared-memory accesses of a run of `kernel`.

    Args:
        pad: floats added to each row of Kj of kernel 02, as if it were written so: one is the cure of its conflicts.

    Raises:
        ProblemError, LimitError: as `Kernel.plan`; LimitError for a kernel whose accesses were not written down.
    """
    notes = Notes(kernel.source())
    _write_down(notes, kernel, problem, tiling, gpu, pad, write_lse)
    return SmemUse(tuple(notes.sites))


def smem_wavefronts(kernel: Kernel, problem: Problem, tiling: Tiling, gpu: Gpu) -> int:
    """The wavefronts of `smem_use`, sooner.

    Raises:
        ProblemError, LimitError: as `smem_use`.
    """
    total = Total(kernel.source())
    _write_down(total, kernel, problem, tiling, gpu, 0, False)
    return total.wavefronts


def _write_down(
    notes: Notes, kernel: Kernel, problem: Problem, tiling: Tiling, gpu: Gpu, pad: int, write_lse: bool
) -> None:
    plan = kernel.plan(problem, tiling, gpu, write_lse=write_lse)
    if kernel.number not in _SITES:
        raise LimitError(
            f"the shared-memory accesses of kernel {kernel.number} ({kernel.name}) are not modelled: "
            f"choose kernel {' or '.join(_SITES)}."
        )
    for launch in plan.launches:
        notes.function = launch.function
        _SITES[kernel.number](notes, problem, tiling, launch, pad, write_lse)
