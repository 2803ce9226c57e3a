"""Five ways to build a q-outer kernel, what each needs for a tile of Br x Bc, and the tiles that FlashAttention chose.

A *design* says where Q, K, V, S, P and O live and who owns what; from that follow a block's threads, shared memory and
registers, and so which tiles can be. The rules for FlashAttention-2 and -3 are ours, read from where their kernels keep
things; they accept the tiles of their authors and refuse those that the authors' comments call impossible or slow
because registers spill (`tests/core/test_tile_designs.py`). Kernels of this app are as their plans have them.

Sources: FlashAttention-2, csrc/flash_attn/src/flash_fwd_launch_template.h; FlashAttention-3, hopper/tile_size.h
(forward, 16 bits, without dropout, windows or paging); CUDA C++ Programming Guide (255 registers a thread).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

from fmha.compiled import REGISTERS, registers_of
from fmha.errors import LimitError, ProblemError
from fmha.hardware import Gpu
from fmha.kernels import KERNELS
from fmha.memory import smem_bytes
from fmha.problem import Problem, Tiling
from fmha.sm_time import check_gpu
from fmha.units import format_bytes

DesignName = Literal["02", "12", "13", "fa2", "fa3"]

OTHER_REGISTERS = 24  # addresses, loop counters, m and l: what a thread needs beside its part of S, P, O
_PRODUCER_REGISTERS = 24  # FlashAttention-3 gives most registers of its loading warps away
_WARP, _GROUP = 32, 128
_GROUP_ROWS = 64  # rows of a matrix product of one warp group on Hopper
_WARP_ROWS = 16  # rows of a matrix product of one warp

# Registers a thread of 02_fmha101.cu by (Br, Bc): nvcc 13.0, sm_90, -O3. Other compilers and GPUs differ by a few.
COMPILED: dict[tuple[int, int], int] = {
    (8, 8): 32, (8, 16): 40, (8, 32): 32, (8, 64): 32, (8, 128): 59, (16, 8): 32, (16, 16): 40, (16, 32): 32,
    (16, 64): 60, (32, 8): 32, (32, 16): 64, (32, 32): 58, (64, 8): 40, (64, 16): 64, (128, 8): 64,
}  # fmt: skip


@dataclass(frozen=True)
class Need:
    """What a block of a design takes for one tile. why_not: "" or the first thing that forbids it.

    why_not is one of "GPU", "divisibility", "threads", "shared memory", "registers"; sentence says it with numbers.
    registers: of a thread; None where the compiler decides and was not asked. allocated: what the launch gives every
    thread, where threads of one block differ.
    """

    threads: int
    smem_bytes: int
    registers: int | None
    why_not: str = ""
    sentence: str = ""
    allocated: int | None = None


@dataclass(frozen=True)
class Design:
    """A way to build the kernel. dtypes: of Q, K, V. rule: where things live, in words. needs: its rule in numbers."""

    key: DesignName
    title: str
    dtypes: tuple[str, ...]
    rule: str
    needs: Callable[[Problem, Tiling, Gpu], Need]


def _one_thread_a_score(problem: Problem, tiling: Tiling, gpu: Gpu) -> Need:
    """Kernel 02: as `Kernel.plan` has it."""
    Br, Bc, threads = tiling.Br, tiling.Bc, tiling.Br * tiling.Bc
    smem = smem_bytes(tiling, problem.d)
    need = Need(threads, smem, COMPILED.get((Br, Bc)))
    if not gpu.is_cuda:
        return _refuse(need, "GPU", f"the {gpu.name} does not run CUDA kernels")
    if threads > gpu.threads_per_block:
        said = f"{Br} x {Bc} = {threads:,} threads, one for each score; a block has at most {gpu.threads_per_block:,}"
        return _refuse(need, "threads", said)
    return _within_smem(need, gpu)


def _as_planned(number: str, problem: Problem, tiling: Tiling, gpu: Gpu) -> Need:
    """A kernel of this app on tensor cores: what its plan and its build take."""
    kernel, none = KERNELS[number], Need(4 * _WARP, 0, None)
    row_step = min(rows for _, rows in REGISTERS[number])
    column_step = min(min(columns) for columns in REGISTERS[number].values())
    if not gpu.is_cuda:
        return _refuse(none, "GPU", f"the {gpu.name} does not run CUDA kernels")
    try:
        check_gpu(kernel, problem, gpu)
    except LimitError as error:
        return _refuse(none, "GPU", str(error))
    try:
        plan = kernel.plan(problem, tiling, gpu)
    except (LimitError, ProblemError) as error:
        why, sentence = "shared memory", str(error)
        if not sentence.startswith(why):
            why = "divisibility" if tiling.Br % row_step or tiling.Bc % column_step else "registers"
        return _refuse(none, why, sentence.split(": ", 1)[-1])
    (launch,) = plan.launches
    registers = registers_of(number, plan.defines["HEAD_DIM"], tiling.Br, tiling.Bc)
    return Need(launch.block, launch.smem_bytes, registers)


def _registers_hold_scores(problem: Problem, tiling: Tiling, gpu: Gpu) -> Need:
    """FlashAttention-2: 4 warps (8 for d > 128 and Br >= 128); Q, K, V tiles in SMEM; S and O in registers."""
    Br, Bc, d = tiling.Br, tiling.Bc, problem.d
    warps = 8 if d > 128 and Br >= 128 else 4
    threads = warps * _WARP
    smem = (Br + 2 * Bc) * d * problem.itemsize
    held = (Br * Bc + Br * d) // threads
    need = Need(threads, smem, held + OTHER_REGISTERS)
    if not _copies_asynchronously(gpu):
        return _refuse(need, "GPU", f"it needs asynchronous copies, and the {gpu.name} has none that it could use")
    if Br % (warps * _WARP_ROWS) or Bc % _WARP_ROWS:
        said = (
            f"{warps} warps of {_WARP_ROWS} rows each need Br in multiples of {warps * _WARP_ROWS}, and the "
            f"matrix units Bc in multiples of {_WARP_ROWS}"
        )
        return _refuse(need, "divisibility", said)
    return _within_registers(_within_smem(need, gpu), gpu.limits.registers_per_thread, "S and O in fp32")


def _warp_groups(problem: Problem, tiling: Tiling, gpu: Gpu) -> Need:
    """FlashAttention-3: a warp group loads, Br / 64 compute; K and V twice in SMEM; P in registers, or else in SMEM."""
    Br, Bc, d = tiling.Br, tiling.Bc, problem.d
    groups = max(1, Br // _GROUP_ROWS)
    threads = _GROUP * (groups + 1)
    smem = (Br + 4 * Bc) * d * problem.itemsize
    share = (gpu.registers_per_sm - _GROUP * _PRODUCER_REGISTERS) // (_GROUP * groups) // 8 * 8
    share = min(share, gpu.limits.registers_per_thread)
    scores, output = Br * Bc // (_GROUP * groups), Br * d // (_GROUP * groups)
    fits = scores + scores // 2 + output + OTHER_REGISTERS <= share
    if not fits:
        smem += Br * Bc * problem.itemsize
    held = scores + (scores // 2 if fits else 0) + output + OTHER_REGISTERS
    need = Need(threads, smem, held, allocated=gpu.registers_per_sm // threads // 8 * 8)
    if gpu.compute != "9.0":
        return _refuse(need, "GPU", f"it needs Hopper's matrix instructions (9.0), and the {gpu.name} is {gpu.compute}")
    if Br % _GROUP_ROWS or Bc % 16:
        return _refuse(
            need, "divisibility",
            f"warp groups compute {_GROUP_ROWS} rows each, so Br comes in multiples of {_GROUP_ROWS}, Bc of 16",
        )  # fmt: skip
    if threads > gpu.threads_per_block:
        return _refuse(need, "threads", f"{threads:,} threads; a block has at most {gpu.threads_per_block:,}")
    return _within_registers(_within_smem(need, gpu), share, "S, P and O" if fits else "S and O, with P in SMEM,")


def _within_smem(need: Need, gpu: Gpu) -> Need:
    limit = gpu.smem_per_block_optin
    if need.smem_bytes <= limit:
        return need
    said = f"{format_bytes(need.smem_bytes)} of shared memory; a block may use {format_bytes(limit)}"
    return _refuse(need, "shared memory", said)


def _within_registers(need: Need, limit: int, what: str) -> Need:
    """`need` with a refusal when a thread needs more than `limit` registers; an earlier refusal stays."""
    if need.why_not or need.registers is None or need.registers <= limit:
        return need
    return _refuse(need, "registers", f"{what} take {need.registers} registers a thread; it may have {limit}")


def _refuse(need: Need, why_not: str, sentence: str) -> Need:
    return replace(need, why_not=why_not, sentence=sentence)


DESIGNS: dict[str, Design] = {
    design.key: design
    for design in (
        Design(
            "02",
            "kernel 02 of this app",
            ("fp32",),
            "One thread for each score of a tile, so Br x Bc threads. Tiles of Q, K, V, the scores and the accumulator "
            "all lie in shared memory.",
            _one_thread_a_score,
        ),
        Design(
            "12",
            "kernel 12 of this app",
            ("bf16", "fp16"),
            "4 warps, each with a quarter of the rows, multiply on tensor cores. Shared memory holds the tiles of Q, K "
            "and V, those of K and V twice; S, P and O stay in registers.",
            partial(_as_planned, "12"),
        ),
        Design(
            "13",
            "kernel 13 of this app",
            ("fp32",),
            "fp32 on tensor cores, three products for one. 4 warps, each with a quarter of the rows; tiles of Q, K and "
            "V in shared memory, S, P and O in registers.",
            partial(_as_planned, "13"),
        ),
        Design(
            "fa2",
            "FlashAttention-2's design",
            ("fp16", "bf16"),
            "4 warps (8 where d > 128 and Br >= 128), each with its own rows. Shared memory holds the tiles of Q, K "
            "and V; S and O stay in registers, in fp32, and leave each thread at most 255.",
            _registers_hold_scores,
        ),
        Design(
            "fa3",
            "FlashAttention-3's design (Hopper)",
            ("fp16", "bf16"),
            "One warp group of 128 threads only loads, one more for each 64 rows of the Q tile computes. K and V are "
            "in shared memory twice, so that the next tiles arrive while these are used.",
            _warp_groups,
        ),
    )
}


@dataclass(frozen=True)
class Preset:
    """Tiles that somebody chose. source: the file that says so."""

    name: str
    design: DesignName
    Br: int
    Bc: int
    source: str


def _copies_asynchronously(gpu: Gpu) -> bool:
    """Whether the GPU has the copies from device memory to shared memory that FlashAttention-2 is built on."""
    return gpu.is_cuda and float(gpu.compute) >= 8.0


def presets(d: int, causal: bool, gpu: Gpu) -> tuple[Preset, ...]:
    """The forward tiles that FlashAttention-2 and -3 use for head dimension `d` (up to 256) on `gpu`.

    Each only where the GPU can run it. d between two of theirs takes the next larger one's.
    """
    consumer = gpu.compute.startswith("8.") and gpu.compute != "8.0"  # compute capability 8.6, 8.9
    if d <= 64:
        fa2 = (128, 128)
    elif d <= 128:
        narrow = (64, 64) if causal else (128, 32 if d > 96 else 64)
        fa2 = narrow if consumer else (128, 64)
    elif d <= 192:
        fa2 = (128, 64)
    else:
        # They ask whether 128 rows fit, and take them only where two blocks of 64 rows would not share an SM.
        large = gpu.smem_per_block_optin >= 2 * 256 * (128 + 2 * 64) and gpu.smem_per_sm < 4 * 256 * (64 + 2 * 64)
        fa2 = (128, 64) if large else (64, 64)
    found = []
    if _copies_asynchronously(gpu):
        found.append(Preset("FlashAttention-2", "fa2", *fa2, "csrc/flash_attn/src/flash_fwd_launch_template.h"))
    if gpu.compute == "9.0":
        if d <= 64:
            fa3 = (192, 128 if causal else 192)
        elif d <= 96:
            fa3 = (192, 144)
        elif d <= 128:
            fa3 = (128, 128 if causal else 176)
        else:
            fa3 = (128, 112 if d <= 192 else 80)
        found.append(Preset("FlashAttention-3", "fa3", *fa3, "hopper/tile_size.h"))
    return tuple(found)


__all__ = ["COMPILED", "DESIGNS", "OTHER_REGISTERS", "Design", "DesignName", "Need", "Preset", "presets"]
