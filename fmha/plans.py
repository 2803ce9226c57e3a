"""How each kernel of the registry is launched: one function a kernel, from a problem and tiles to a plan."""

from __future__ import annotations

from dataclasses import replace

from fmha.errors import TilesError
from fmha.hardware import Gpu
from fmha.memory import Slot, smem_layout
from fmha.plan import FLOATS, STRIDES, Launch, Plan, causal_offset, check_smem, padded, slots, slots_bytes
from fmha.problem import Problem, Tiling
from fmha.traffic import Traffic, closed_form
from fmha.units import ceil_div


def _threads(tiling: Tiling, gpu: Gpu) -> int:
    """One thread for each element of Sij, if a block has so many."""
    threads = tiling.Br * tiling.Bc
    if threads > gpu.threads_per_block:
        raise TilesError(
            f"threads: Br={tiling.Br}, Bc={tiling.Bc} needs {threads:,} threads, one for each element of Sij, and a "
            f"block has at most {gpu.threads_per_block:,}"
        )
    return threads


def fmha101(problem: Problem, tiling: Tiling, gpu: Gpu, write_lse: bool) -> Plan:
    """02: the tutorial's kernel."""
    threads = _threads(tiling, gpu)
    held = smem_layout(tiling, problem.d)
    check_smem(held, tiling, problem.d, gpu)
    whole = problem.d % FLOATS == 0 and threads % FLOATS == 0
    return _flash(problem, tiling, "fmha101", threads, held, write_lse, whole, strided=False)


def padding(problem: Problem, tiling: Tiling, gpu: Gpu, write_lse: bool) -> Plan:
    """03: rows of Qi and Kj padded to an odd number of floats."""
    threads = _threads(tiling, gpu)
    held = _scores_in_smem(tiling, problem.d, problem.d | 1)
    check_smem(held, tiling, problem.d, gpu)
    whole = problem.d % FLOATS == 0 and threads % FLOATS == 0
    return _flash(problem, tiling, "padding", threads, held, write_lse, whole)


def shuffle(problem: Problem, tiling: Tiling, gpu: Gpu, write_lse: bool) -> Plan:
    """04: a warp to a row."""
    _check_warps(tiling)
    return replace_function(padding(problem, tiling, gpu, write_lse), "shuffle")


def float4s(problem: Problem, tiling: Tiling, gpu: Gpu, write_lse: bool) -> Plan:
    """05: four floats at a time."""
    _check_warps(tiling)
    threads = _threads(tiling, gpu)
    Br, Bc, d, pitch = tiling.Br, tiling.Bc, problem.d, 4 * (problem.d // 4 | 1)
    held = slots(
        ("Qi", (Br, pitch)), ("Kj", (Bc, pitch)), ("Vj", (Bc, d)), ("Oi", (Br, d)), ("Sij", (Br, Bc)),
        ("li", (Br,)), ("mi", (Br,)), ("alpha", (Br,)), ("beta", (Br,)),
    )  # fmt: skip
    check_smem(held, tiling, d, gpu)
    return _flash(problem, tiling, "float4s", threads, held, write_lse, d % FLOATS == 0)


# Of 06_in_regs.cu.
_SIDE, _TILE_THREADS, _MOST_ROWS = 16, 256, 128


def in_regs(problem: Problem, tiling: Tiling, gpu: Gpu, write_lse: bool) -> Plan:
    """06: S and O in registers."""
    for name, size in (("Br", tiling.Br), ("Bc", tiling.Bc)):
        if size % _SIDE or size > _MOST_ROWS:
            raise TilesError(
                f"registers: {name}={size} cannot be shared out among 16 x 16 threads; {name} is a multiple of {_SIDE} "
                f"up to {_MOST_ROWS} here"
            )
    Br, Bc, wide = tiling.Br, tiling.Bc, 64 * ceil_div(problem.d, 64)
    held = slots(("Qi", (Br, wide + 4)), ("Kj", (Bc, wide + 4)), ("Vj", (Bc, wide)), ("Pij", (Br, Bc + 4)))
    check_smem(held, tiling, problem.d, gpu)
    plan = _flash(problem, tiling, "in_regs", _TILE_THREADS, held, write_lse, problem.d % FLOATS == 0)
    return replace(plan, defines={**plan.defines, "HEAD_DIM": wide})


def copies(problem: Problem, tiling: Tiling, gpu: Gpu, write_lse: bool) -> Plan:
    """07: K and V copied behind the arithmetic."""
    wide = next(columns for columns in (64, 128, 256) if columns >= problem.d)
    for name, size, most in (("Br", tiling.Br, 64 if wide > 128 else _MOST_ROWS), ("Bc", tiling.Bc, _MOST_ROWS)):
        if size % _SIDE or size > most:
            raise TilesError(
                f"registers: {name}={size} cannot be shared out among 16 threads a row; with d={problem.d}, {name} is "
                f"a multiple of {_SIDE} up to {most} here"
            )
    Br, Bc = tiling.Br, tiling.Bc
    held = slots(("Qi", (Br, wide)), ("Kj", (Bc, wide)), ("Vj", (Bc, wide)), ("Pij", (Br, Bc + 4)))
    check_smem(held, tiling, problem.d, gpu)
    threads = _TILE_THREADS // 2 if wide <= 64 else _TILE_THREADS
    plan = _flash(problem, tiling, "copies", threads, held, write_lse, problem.d % FLOATS == 0)
    return replace(plan, defines={**plan.defines, "HEAD_DIM": wide})


def _flash(
    p: Problem,
    tiling: Tiling,
    function: str,
    threads: int,
    held: tuple[Slot, ...],
    write_lse: bool,
    whole: bool,
    strided: bool = True,
) -> Plan:
    """A kernel with a block for each Q tile, and arguments as the tutorial's; then strides, if it takes them."""
    launch = Launch(
        function,
        grid=tiling.Tr(p) * p.B * p.H,
        block=threads,
        smem_bytes=slots_bytes(held),
        arguments=(
            "Q", "K", "V", "O", "LSE", "key_range", p.H, p.Hk, p.Nq, p.Nk, p.d, float(p.scale), causal_offset(p),
            *((STRIDES,) if strided else ()),
        ),
        smem=held,
    )  # fmt: skip
    requested = closed_form(p, tiling, "q-outer", write_lse=write_lse)
    whole = whole and not write_lse and not padded(p)
    return Plan(p, tiling, {"BR": tiling.Br, "BC": tiling.Bc}, (launch,), requested, whole)


def replace_function(plan: Plan, function: str) -> Plan:
    """The same plan for another function."""
    return replace(plan, launches=tuple(replace(launch, function=function) for launch in plan.launches))


def _scores_in_smem(tiling: Tiling, d: int, pitch: int) -> tuple[Slot, ...]:
    """The tutorial's layout with `pitch` floats to a row of Qi and Kj."""
    Br, Bc = tiling.Br, tiling.Bc
    return slots(
        ("Qi", (Br, pitch)), ("Kj", (Bc, pitch)), ("Vj", (Bc, d)), ("Sij", (Br, Bc)), ("Oi", (Br, d)),
        ("li", (Br,)), ("mi", (Br,)), ("alpha", (Br,)), ("beta", (Br,)),
    )  # fmt: skip


def _check_warps(tiling: Tiling) -> None:
    if tiling.Br * tiling.Bc % 32:
        raise TilesError(
            f"threads: Br={tiling.Br}, Bc={tiling.Bc} makes {tiling.Br * tiling.Bc} threads, and whole warps of 32 "
            "take the rows, so Br x Bc is a multiple of 32"
        )


# Of 01_naive.cu.
_TILE, _CHUNK, _GEMM_THREADS, _ROW_THREADS = 64, 32, 256, 256


def naive(problem: Problem, tiling: Tiling, gpu: Gpu, write_lse: bool) -> Plan:
    """The plan of 01_naive.cu: S, softmax and O in a launch each, with S and P in device memory between them."""
    p = problem
    heads = p.B * p.H
    pitch = ceil_div(p.Nk, FLOATS) * FLOATS  # rows of S and P begin at a sector
    Tr, Tc, Td = ceil_div(p.Nq, _TILE), ceil_div(pitch, _TILE), ceil_div(p.d, _TILE)
    warps = 4 * _ROW_THREADS // 32
    held = min(pitch, (gpu.smem_per_block_optin - 2 * warps) // 4)
    rows = slots(("Qi", (_TILE, _CHUNK + 1)), ("Kj", (_TILE, _CHUNK + 1)))
    output = slots(("Pij", (_TILE, _CHUNK + 1)), ("Vj", (_CHUNK, _TILE)))
    # Largest and sum across the block are two functions, so `warps` is there twice.
    softmax = slots(("warps of max", (_ROW_THREADS // 32,)), ("warps of sum", (_ROW_THREADS // 32,)), ("row", (held,)))
    launches = (
        Launch(
            "naive_scores", heads * Tr * Tc, _GEMM_THREADS, 0,
            ("Q", "K", "S", "key_range", p.H, p.Hk, p.Nq, p.Nk, p.d, pitch, float(p.scale), causal_offset(p)),
            rows, slots_bytes(rows),
        ),
        Launch(
            "naive_softmax", heads * p.Nq, _ROW_THREADS, 4 * held, ("S", "P", "LSE", pitch, held), softmax, 2 * warps
        ),
        Launch(
            "naive_output", heads * Tr * Td, _GEMM_THREADS, 0,
            ("P", "V", "O", p.H, p.Hk, p.Nq, p.Nk, p.d, pitch), output, slots_bytes(output),
        ),
    )  # fmt: skip
    matrix = 4 * heads * p.Nq * pitch
    again = 4 * heads * p.Nq * (pitch - held)  # of rows too long for SMEM, in each of two more passes
    queries, keys = 4 * heads * p.Nq * p.d, 4 * heads * p.Nk * p.d
    moved = {
        "Q": (Tc * queries, 0),
        "K": (Tr * keys, 0),
        "V": (Tr * keys, 0),
        "S": (matrix + 2 * again, matrix),
        "P": (Td * matrix, matrix),
        "O": (0, queries),
    }
    if write_lse:
        moved["LSE"] = (0, 4 * heads * p.Nq)
    requested = Traffic("naive", "plan of the kernel", moved, 0, 4 * heads * p.Nq * p.Nk * p.d)
    whole = p.d % FLOATS == 0 and not write_lse and not padded(p)
    return Plan(p, tiling, {}, launches, requested, whole, {"S": matrix, "P": matrix})
