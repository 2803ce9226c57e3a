"""Where naive attention (01_naive.cu) touches shared memory, access by access. Widths are as compiled for sm_90."""

from __future__ import annotations

import numpy as np

from fmha.bank_sites import FLOAT, Notes, float_addresses, lanes_of
from fmha.banks import WARP
from fmha.kernels import Launch
from fmha.problem import Problem, Tiling
from fmha.units import ceil_div

TILE, CHUNK, SIDE, ROW_THREADS = 64, 32, 16, 256
PADDED = CHUNK + 1  # floats from one row of a tile to the next
_IN_REGISTER = "once for four multiply-adds: it stays in a register"


def naive_sites(notes: Notes, problem: Problem, tiling: Tiling, launch: Launch, pad: int, write_lse: bool) -> None:
    """Writes down all accesses of one of the three functions of kernel 01; `pad` and `write_lse` change nothing."""
    notes.back(0)
    if launch.function == "naive_softmax":
        _softmax_sites(notes, launch)
        return
    pitch = int(launch.arguments[-1 if launch.function == "naive_output" else -3])
    depth = problem.d if launch.function == "naive_scores" else pitch
    chunks = launch.grid * ceil_div(depth, CHUNK)
    second = FLOAT * TILE * PADDED  # where the second tile begins
    e = lanes_of(TILE * CHUNK, SIDE * SIDE)
    copied = FLOAT * (e // CHUNK * PADDED + e % CHUNK)
    tid = lanes_of(SIDE * SIDE, SIDE * SIDE)[0]
    strip = SIDE * np.arange(TILE // SIDE, dtype=np.int64)[:, None, None]  # the thread's four rows, four columns
    x, y = tid % SIDE + strip, tid // SIDE + strip
    fill, inner = "8 for each 32 columns", "4 a column"
    if launch.function == "naive_scores":
        for text, at in (
            ("load_chunk(Qi, Q_tile, Nq - i * TILE, d, k0, d)", copied),
            ("load_chunk(Kj, K_tile, Nk - j * TILE, d, k0, d)", copied + second),
        ):
            notes.at(text)
            notes.add(text, at, chunks, store=True, often=fill)
        notes.at("Qi[y + r * SIDE][k]")
        for text, at in (("Qi[y + r * SIDE][k]", y * PADDED), ("Kj[x + c * SIDE][k]", x * PADDED + second // FLOAT)):
            notes.add(text, FLOAT * at, chunks * CHUNK, often=inner, compiled=_IN_REGISTER)
    else:
        text = "load_chunk(Pij, P_tile, Nq - i * TILE, pitch, j0, pitch)"
        notes.at(text)
        notes.add(text, copied, chunks, store=True, often=fill)
        notes.at("Vj[r][c] = ")
        notes.add("Vj[r][c]", second + FLOAT * e, chunks, store=True, often=fill)
        notes.at("Pij[y + r * SIDE][k]")
        for text, at in (("Pij[y + r * SIDE][k]", y * PADDED), ("Vj[k][x + c * SIDE]", x + second // FLOAT)):
            notes.add(text, FLOAT * at, chunks * CHUNK, often=inner, compiled=_IN_REGISTER)


def _softmax_sites(notes: Notes, launch: Launch) -> None:
    pitch, held = (int(value) for value in launch.arguments[-2:])
    warps = ROW_THREADS // WARP
    tid = lanes_of(ROW_THREADS, ROW_THREADS)[0]
    leads = tid % WARP == 0

    def across_block(text: str) -> None:
        """Of the largest, or of the sum: a number a warp is stored, and all are read by all."""
        notes.at(text)
        notes.add(text, float_addresses(0, tid // WARP, leads), launch.grid, store=True, often="1 a warp")
        for base in range(0, FLOAT * warps, 4 * FLOAT):
            addresses = np.full_like(tid, base)
            notes.add(text, addresses, launch.grid, often="8 a thread", width=4 * FLOAT, compiled="4 numbers at once")

    j = lanes_of(min(pitch, held), ROW_THREADS)
    row = float_addresses(2 * FLOAT * warps, j, j >= 0)
    often = "Nk / 256 a thread"
    for snippet, store, then in (
        ("row_smem[j] = s", True, "across_block<true>(m)"),
        ("expf((j < held ? row_smem[j]", False, ""),
        ("row_smem[j] = e", True, "across_block<false>(l)"),
        ("P_row[j] = (j < held ? row_smem[j]", False, ""),
    ):
        notes.at(snippet)
        notes.add("row_smem[j]", row, launch.grid, store=store, often=often)
        if then:
            across_block(then)
