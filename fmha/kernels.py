"""The one list of kernels: number, name, what changed, source file, limits, and the plan of a run."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fmha import plans, plans_tensor
from fmha.errors import LimitError, ProblemError, TilesError
from fmha.hardware import DEFAULT_GPU, GPUS, Gpu
from fmha.plan import MAX_BLOCKS, SECTOR, STRIDES, Argument, Launch, Plan, causal_offset
from fmha.problem import Problem, Tiling
from fmha.schedule import Order
from fmha.tile_hints import hint
from fmha.units import ceil_div

SOURCES = Path(__file__).resolve().parent.parent / "cuda_src"
Planner = Callable[[Problem, Tiling, Gpu, bool], Plan]


@dataclass(frozen=True)
class Kernel:
    """One rung of the ladder.

    tiled: whether Br and Bc are chosen by the person who runs it; otherwise `tile` says what it uses. d_step: d must be
    a multiple of it. tiles: (Br, Bc) worth trying, the likeliest first. below: the number of the rung that this one
    improves, where that is not the one before it. compute: the least compute capability, where not every GPU will do.
    """

    number: str
    name: str
    title: str
    changed: str
    file: str
    order: Order
    planner: Planner
    dtypes: tuple[str, ...] = ("fp32",)
    max_d: int = 256
    tiled: bool = True
    tile: str = ""
    d_step: int = 1
    tiles: tuple[tuple[int, int], ...] = ((32, 32), (16, 64), (64, 16), (16, 16))
    below: str = ""
    compute: str = ""

    @property
    def path(self) -> Path:
        """The source file."""
        return SOURCES / self.file

    def plan(self, problem: Problem, tiling: Tiling, gpu: Gpu = GPUS[DEFAULT_GPU], *, write_lse: bool = False) -> Plan:
        """What a run of this kernel on `gpu` is made of.

        Raises:
            ProblemError: the kernel has no such dtype or head dimension. LimitError: more threads, shared memory or
            blocks than the GPU allows; where other tiles would do, it names some.
        """
        try:
            return self._planned(problem, tiling, gpu, write_lse)
        except TilesError as refused:
            what = hint(lambda p, t: self._planned(p, t, gpu, write_lse), problem, tiling)
            raise LimitError(f"{refused}; {what}.") from None

    def _planned(self, problem: Problem, tiling: Tiling, gpu: Gpu, write_lse: bool) -> Plan:
        if problem.dtype not in self.dtypes:
            raise ProblemError(
                f"kernel {self.number} ({self.name}) computes in {' or '.join(self.dtypes)}, not in {problem.dtype}: "
                f"choose dtype {self.dtypes[0]}."
            )
        if problem.d > self.max_d:
            raise ProblemError(
                f"kernel {self.number} ({self.name}) takes head dimensions d up to {self.max_d}, not {problem.d}: "
                f"choose d={self.max_d} or less."
            )
        if self.compute and (not gpu.is_cuda or float(gpu.compute) < float(self.compute)):
            able = [k.number for k in KERNELS.values() if not k.compute][-1] if gpu.is_cuda else None
            raise LimitError(
                f"kernel {self.number} ({self.name}) needs an NVIDIA GPU of compute capability {self.compute} or "
                f"later, and the {gpu.name} is {gpu.compute}: choose {f'kernel {able}' if able else 'an NVIDIA GPU'}."
            )
        if problem.d % self.d_step:
            raise ProblemError(
                f"kernel {self.number} ({self.name}) reads {self.d_step} numbers at a time, and d={problem.d} is no "
                f"multiple of {self.d_step}: use d={ceil_div(problem.d, self.d_step) * self.d_step}."
            )
        plan = self.planner(problem, tiling, gpu, write_lse)
        for launch in plan.launches:
            if launch.grid > MAX_BLOCKS:
                less = "fewer heads, a smaller batch or a larger Br" if self.tiled else "fewer heads or a smaller batch"
                raise LimitError(
                    f"{launch.function} needs {launch.grid:,} blocks, and a grid has at most {MAX_BLOCKS:,}: "
                    f"use a smaller N, {less}."
                )
        return plan

    def fitting(self, problem: Problem) -> Problem:
        """The problem as this kernel can take it: in its own first dtype where it has not the problem's."""
        return problem if problem.dtype in self.dtypes else problem.replace(dtype=self.dtypes[0])

    def complaint(self, problem: Problem, tiling: Tiling, gpu: Gpu) -> str | None:
        """Why this kernel cannot run this problem with these tiles on `gpu`; None when it can."""
        try:
            self.plan(problem, tiling, gpu)
        except (ProblemError, LimitError) as error:
            return str(error)
        return None

    def can(self, problem: Problem, tiling: Tiling, gpu: Gpu) -> bool:
        """Whether it can, without the reason."""
        try:
            self._planned(problem, tiling, gpu, False)
        except (ProblemError, LimitError):
            return False
        return True

    def source(self) -> str:
        """The text of the source file."""
        return self.path.read_text(encoding="utf-8")

    def source_hash(self) -> str:
        """Twelve hexadecimal digits that change when the source or a header of ours that it includes does."""
        digest = hashlib.sha256()
        for path in included(self.path):
            digest.update(path.name.encode() + b"\0" + path.read_bytes().replace(b"\r\n", b"\n") + b"\0")
        return digest.hexdigest()[:12]


def included(path: Path) -> tuple[Path, ...]:
    """`path` and the headers that it includes by a name in quotation marks, and theirs, each once."""
    found: dict[Path, None] = {path: None}
    todo = [path]
    while todo:
        here = todo.pop()
        for name in re.findall(r'^\s*#\s*include\s+"([^"]+)"', here.read_text(encoding="utf-8"), re.MULTILINE):
            header = here.parent / name
            if header.is_file() and header not in found:
                found[header] = None
                todo.append(header)
    return tuple(found)


_TENSOR: dict[str, Any] = {
    "dtypes": ("bf16", "fp16"),
    "d_step": plans_tensor.CHUNK,
    "compute": "8.0",
    "tiles": ((128, 64), (128, 96), (64, 64), (128, 48), (128, 32), (64, 32), (64, 128)),
}

KERNELS: dict[str, Kernel] = {
    kernel.number: kernel
    for kernel in (
        Kernel(
            "01",
            "naive",
            "Naive attention",
            "Three kernels; S and P go through HBM.",
            "01_naive.cu",
            "naive",
            plans.naive,
            max_d=4096,
            tiled=False,
            tile="tiles of 64 x 64, whatever Br and Bc are",
        ),
        Kernel(
            "02",
            "fmha101",
            "The tutorial's kernel",
            "One kernel; K and V come in tiles, S and P stay in the SM (online softmax).",
            "02_fmha101.cu",
            "q-outer",
            plans.fmha101,
        ),
        Kernel(
            "03",
            "padding",
            "No bank conflicts",
            "Rows of Qi and Kj take an odd number of floats, so that the lanes of a warp meet 32 different banks.",
            "03_padding.cu",
            "q-outer",
            plans.padding,
        ),
        Kernel(
            "04",
            "shuffle",
            "Rows by warps",
            "A warp finds a row's maximum and sum together, by shuffles; before, one thread did it alone.",
            "04_shuffle.cu",
            "q-outer",
            plans.shuffle,
        ),
        Kernel(
            "05",
            "float4s",
            "Four floats at a time",
            "Device and shared memory are read in float4s: a quarter of the instructions for the same bytes.",
            "05_float4s.cu",
            "q-outer",
            plans.float4s,
            d_step=4,
        ),
        Kernel(
            "06",
            "in_regs",
            "Registers",
            "A thread owns a small tile of S and of O in registers; each number from shared memory is used many times.",
            "06_in_regs.cu",
            "q-outer",
            plans.in_regs,
            d_step=4,
            tiles=((128, 64), (64, 64), (128, 32), (64, 32), (32, 32)),
        ),
        Kernel(
            "07",
            "copies",
            "Copies behind the work",
            "K and V tiles are copied past the registers (cp.async): V while S is computed, the next K while O is.",
            "07_copies.cu",
            "q-outer",
            plans.copies,
            d_step=4,
            tiles=((128, 64), (128, 96), (64, 64), (128, 32), (64, 32), (32, 32)),
            compute="8.0",
        ),
        Kernel(
            "08",
            "mma_sync",
            "Tensor cores",
            "16-bit numbers: a warp multiplies 16 x 16 by 16 x 8 of them in one instruction, with sums in fp32.",
            "08_mma_sync.cu",
            "q-outer",
            plans_tensor.mma_sync,
            **_TENSOR,
        ),
        Kernel(
            "09",
            "swizzle",
            "Tiles swizzled",
            "Eight rows that a warp loads at once lie in eight groups of banks, by exchanging pieces within each row.",
            "09_swizzle.cu",
            "q-outer",
            plans_tensor.swizzle,
            **_TENSOR,
        ),
        Kernel(
            "10",
            "async2",
            "Two tiles at once",
            "The next K and V tiles are copied past the registers (cp.async) while this one is used.",
            "10_async2.cu",
            "q-outer",
            plans_tensor.async2,
            **_TENSOR,
        ),
        Kernel(
            "11",
            "flash2",
            "FlashAttention-2's ways",
            "Q in registers, exp2 with the scale folded in, masks only where needed, the longest tiles first.",
            "11_flash2.cu",
            "q-outer",
            plans_tensor.flash2,
            **_TENSOR,
        ),
        Kernel(
            "12",
            "lag",
            "A maximum that lags",
            "O is rescaled only when a row's largest score has outgrown m by a factor of 2^8.",
            "12_lag.cu",
            "q-outer",
            plans_tensor.lag,
            **_TENSOR,
        ),
        Kernel(
            "13",
            "tf32x3",
            "fp32 on tensor cores",
            "Each fp32 number is split into two of tf32, and three of their four products are added up.",
            "13_tf32x3.cu",
            "q-outer",
            plans_tensor.tf32x3,
            d_step=4,
            tiles=((128, 64), (128, 32), (64, 32), (64, 64), (128, 16), (64, 16)),
            below="07",
            compute="8.0",
        ),
    )
}

ALIASES = {alias: k.number for k in KERNELS.values() for alias in (k.name, k.number.lstrip("0"))}  # of the numbers


def kernel(name: str) -> Kernel:
    """A kernel by number ("02", "2") or name ("fmha101").

    Raises:
        ProblemError: there is none of that name; the text lists them.
    """
    text = str(name).strip().lower()
    if (number := ALIASES.get(text, text)) in KERNELS:
        return KERNELS[number]
    known = ", ".join(f"{k.number} ({k.name})" for k in KERNELS.values())
    raise ProblemError(f"kernel={str(name)[:40]!r} is not known: use {known}.")


def previous(kernel: Kernel) -> Kernel | None:
    """The kernel one rung below; None for the first."""
    if kernel.below:
        return KERNELS[kernel.below]
    numbers = list(KERNELS)
    index = numbers.index(kernel.number)
    return KERNELS[numbers[index - 1]] if index else None


__all__ = [
    "ALIASES",
    "KERNELS",
    "MAX_BLOCKS",
    "SECTOR",
    "STRIDES",
    "Argument",
    "Kernel",
    "Launch",
    "Plan",
    "causal_offset",
    "included",
    "kernel",
    "previous",
]
