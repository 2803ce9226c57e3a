"""Where the tutorial's kernel (02_fmha101.cu) touches shared memory, access by access.

Widths are as compiled (nvcc 13.0 for sm_90, read from the machine code): all loads and stores are of 4 bytes a lane but
those of a row of Sij by one thread, which the compiler joins where it knows the alignment.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
from numpy.typing import NDArray

from fmha.bank_sites import FLOAT, Notes, float_addresses, lanes_of
from fmha.banks import Ints
from fmha.kernels import Launch, causal_offset
from fmha.problem import Problem, Tiling
from fmha.units import ceil_div

KEPT_IN_REGISTERS = 24  # a row of S of at most so many numbers stays in registers between rowmax S and P (as compiled)

Kind = tuple[int, int, int, int]


def visit_kinds(problem: Problem, tiling: Tiling) -> Counter[Kind]:
    """All visits of kernel 02 over batch and heads, by kinds that touch shared memory alike: kind -> how many.

    A kind is (rows of the Q tile, first real key of the K/V tile, one past its last, reach): row r of the tile sees
    the tile's keys from the first on, up to but without min(last, reach + r).
    """
    p, Br, Bc = problem, tiling.Br, tiling.Bc
    offset = causal_offset(p)
    i = np.arange(tiling.Tr(p), dtype=np.int64)
    rows = np.minimum(Br, p.Nq - i * Br)
    kinds: Counter[Kind] = Counter()
    for (start, stop), entries in Counter(p.key_range(b) for b in range(p.B)).items():
        heads = entries * p.H
        reach0 = i * Br + offset + 1  # one past the last key that the tile's first row sees
        end = np.clip(reach0 + rows - 1, start, stop)
        first = start // Bc
        last = np.where((end > start) & (stop > start), -(-end // Bc), first)  # one past the last tile visited
        whole_from = ceil_div(start, Bc)
        whole_to = np.minimum(np.minimum(stop, np.maximum(reach0, 0)) // Bc, last)
        whole = np.maximum(whole_to - whole_from, 0)
        for n_rows in np.unique(rows):
            kinds[(int(n_rows), 0, Bc, Bc)] += heads * int(whole[rows == n_rows].sum())
        if first < whole_from:
            _count(kinds, heads, rows, np.full_like(i, first), first < last, reach0, (start, stop), tiling)
        rest = np.maximum(whole_to, whole_from)
        while (rest < last).any():
            _count(kinds, heads, rows, rest, rest < last, reach0, (start, stop), tiling)
            rest = rest + 1
    return +kinds


def tile_ends(problem: Problem, tiling: Tiling) -> Counter[tuple[int, int]]:
    """All blocks over batch and heads by (rows of the Q tile, how many of them, the first ones, see no key)."""
    p, Br = problem, tiling.Br
    begins = np.arange(tiling.Tr(p), dtype=np.int64) * Br
    rows = np.minimum(Br, p.Nq - begins)
    found: Counter[tuple[int, int]] = Counter()
    for (start, stop), entries in Counter(p.key_range(b) for b in range(p.B)).items():
        none = np.clip((start - causal_offset(p) if stop > start else p.Nq) - begins, 0, rows)
        for pair, count in Counter(zip(rows.tolist(), none.tolist(), strict=True)).items():
            found[pair] += count * entries * p.H
    return found


def _count(
    kinds: Counter[Kind],
    heads: int,
    rows: Ints,
    j: Ints,
    there: NDArray[np.bool_],
    reach0: Ints,
    real: tuple[int, int],
    t: Tiling,
) -> None:
    """Adds the visit of K/V tile `j` [Tr] by each Q tile where `there` (booleans)."""
    c_first = np.maximum(real[0] - j * t.Bc, 0)
    c_end = np.minimum(real[1] - j * t.Bc, t.Bc)
    reach = np.clip(reach0 - j * t.Bc, -t.Br, t.Bc)
    # One number a kind: sorting numbers is ten times as fast as sorting rows of a table.
    sides = (t.Br + 1, t.Bc + 1, t.Bc + 1, t.Br + t.Bc + 1)
    each = np.ravel_multi_index(tuple(x[there] for x in (rows, c_first, c_end, reach + t.Br)), sides)
    unique, counts = np.unique(each, return_counts=True)
    for *kind, shifted, count in zip(*(x.tolist() for x in (*np.unravel_index(unique, sides), counts)), strict=True):
        n_rows, first, end = kind
        kinds[(n_rows, first, end, shifted - t.Br)] += heads * count


def fmha101_sites(notes: Notes, problem: Problem, tiling: Tiling, launch: Launch, pad: int, write_lse: bool) -> None:
    """Writes down all accesses of kernel 02, in the order of its source; `pad` floats follow each row of Kj."""
    p, Br, Bc, d = problem, tiling.Br, tiling.Bc, problem.d
    threads = launch.block
    k_row = d + pad  # floats from one row of Kj to the next
    sizes = {"Qi": Br * d, "Kj": Bc * k_row, "Vj": Bc * d, "Sij": Br * Bc, "Oi": Br * d}
    sizes |= {"li": Br, "mi": Br, "alpha": Br, "beta": Br}
    base = dict(zip(sizes, FLOAT * np.cumsum([0, *sizes.values()]), strict=False))
    kinds = visit_kinds(p, tiling)
    visits = sum(kinds.values())
    per_tile: Counter[tuple[int, int, int]] = Counter()  # (rows, first key, last key) -> visits
    for (rows, c_first, c_end, _), count in kinds.items():
        per_tile[(rows, c_first, c_end)] += count
    blocks = Counter({Br: launch.grid})
    if p.Nq % Br:
        blocks = Counter({Br: p.B * p.H * (p.Nq // Br), p.Nq % Br: p.B * p.H})

    for rows, count in blocks.items():
        e = lanes_of(rows * d, threads)
        notes.back(0)
        notes.at("Qi[e] = Q[")
        notes.add("Qi[e]", float_addresses(base["Qi"], e, e >= 0), count, store=True, often="Br d / threads a block")
    e = lanes_of(Br * d, threads)
    notes.at("Oi[e] = 0.0f")
    notes.add("Oi[e]", float_addresses(base["Oi"], e, e >= 0), launch.grid, store=True, often="Br d / threads a block")
    tid = lanes_of(Br, threads)[0]
    for name in ("li", "mi"):
        notes.at(f"{name}[tid] = ")
        notes.add(
            f"{name}[tid]",
            float_addresses(base[name], tid, tid >= 0),
            launch.grid,
            store=True,
            often="1 a block, Br threads",
        )

    loads = notes.mark
    for (_, c_first, c_end), count in per_tile.items():
        e = lanes_of((c_end - c_first) * d, threads)
        words = e + c_first * d
        padded = words + words // d * pad
        notes.back(loads)
        for name, where in (("Kj", padded), ("Vj", words)):
            notes.at(f"{name}[e] = ")
            notes.add(
                f"{name}[e]",
                float_addresses(base[name], where, e >= 0),
                count,
                store=True,
                often="Bc d / threads a visit",
            )

    # S = QK^T: k only shifts all banks alike, so k = 0 stands for all d.
    tid = lanes_of(threads, threads)[0]
    there = tid >= 0
    s_row, s_col = tid // Bc, tid % Bc
    table = np.array(list(kinds), np.int64).reshape(-1, 4).T[:, :, None, None]
    n_rows, c_first, c_end, reach = table
    seen = there & (s_row < n_rows) & (s_col >= c_first) & (s_col < np.minimum(c_end, reach + s_row))
    counts = np.array(list(kinds.values()), np.int64)[:, None]
    notes.at("score += ")
    for text, where in (("Qi[s_row * d + k]", s_row * d), ("Kj[s_col * d + k]", s_col * k_row)):
        notes.add(
            text, float_addresses(base[text[:2]], where, seen), d * counts, often="d a visit, where the mask lets look"
        )
    notes.at("Sij[s_row * Bc + s_col] = ")
    notes.add(
        "Sij[s_row * Bc + s_col]", float_addresses(base["Sij"], tid, there), visits, store=True, often="1 a visit"
    )
    _statistics(notes, tiling, base, visits, s_row, there & (s_col == 0))

    # O = alpha O + beta P V: c only shifts all banks alike.
    update = notes.mark
    for (rows, first, end), count in per_tile.items():
        e = lanes_of(rows * d, threads)
        row, col, there = e // d, e % d, e >= 0
        notes.back(update)
        notes.at("pv += ")
        often = "Bc times (Br d / threads) a visit"
        s_where, v_where = float_addresses(base["Sij"], row * Bc, there), float_addresses(base["Vj"], col, there)
        notes.add("Sij[row * Bc + c]", s_where, count * (end - first), often=often)
        notes.add("Vj[c * d + col]", v_where, count * (end - first), often=often)
        notes.at("Oi[e] = ")
        for name, where in (("alpha[row]", row), ("beta[row]", row), ("Oi[e]", e)):
            notes.add(
                name, float_addresses(base[name.split("[")[0]], where, there), count, often="Br d / threads a visit"
            )
        notes.add("Oi[e]", float_addresses(base["Oi"], e, there), count, store=True, often="Br d / threads a visit")

    end_of_loop = notes.mark
    ends = tile_ends(p, tiling)
    seeing = ", for rows that see a key" if any(blind for _, blind in ends) else ""
    for (rows, blind), count in ends.items():
        e = lanes_of(rows * d, threads)
        notes.back(end_of_loop)
        notes.at("li[e / d]")
        notes.add("li[e / d]", float_addresses(base["li"], e // d, e >= 0), count, often="Br d / threads a block")
        notes.at("Oi[e] / l")
        notes.add(
            "Oi[e]", float_addresses(base["Oi"], e, e >= blind * d), count, often=f"Br d / threads a block{seeing}"
        )
    if write_lse:
        for (rows, blind), count in ends.items():
            tid = lanes_of(rows, threads)[0]
            notes.back(end_of_loop)
            notes.at("LSE[bh * Nq")
            for name, first in (("li", 0), ("mi", blind)):
                addresses = float_addresses(base[name], tid, tid >= first)
                often = "1 a block, one thread a row" + (seeing if first else "")
                notes.add(f"{name}[tid]", addresses, count, often=often)


def _statistics(
    notes: Notes, tiling: Tiling, base: dict[str, int], visits: int, s_row: Ints, leads: NDArray[np.bool_]
) -> None:
    """One thread a row: rowmax S, P, l, m, alpha, beta."""
    Br, Bc = tiling.Br, tiling.Bc
    # What the compiler can know of the alignment of Sij = smem + (Br + 2 Bc) d + Br Bc: widest load that divides it.
    wide = next(w for w in (4, 2, 1) if Bc % w == 0 and (Br + 2 * Bc) % w == 0)
    kept = Bc <= KEPT_IN_REGISTERS
    row = float_addresses(base["Sij"], s_row * Bc, leads)
    often = "Bc a visit, one thread a row"
    together = f"{wide} numbers at once: Bc/{wide} accesses" if wide > 1 else ""
    notes.at("row_m = fmaxf(row_m, Sij")
    notes.add("Sij[s_row * Bc + c]", row, visits * Bc // wide, often=often, width=FLOAT * wide, compiled=together)
    notes.at("mi_new = fmaxf(mi[s_row]")
    vector = {name: float_addresses(base[name], s_row, leads) for name in ("li", "mi", "alpha", "beta")}
    once = "1 a visit, one thread a row"
    notes.add("mi[s_row]", vector["mi"], visits, often=once)
    notes.at("p = expf(Sij")
    again = "none: the row is still in registers" if kept else ""
    notes.add("Sij[s_row * Bc + c]", row, 0 if kept else visits * Bc, often=often, compiled=again)
    notes.at("Sij[s_row * Bc + c] = p")
    stored = wide if kept else 1
    notes.add(
        "Sij[s_row * Bc + c]", row, visits * Bc // stored, store=True, often=often, width=FLOAT * stored,
        compiled=together if kept else "",
    )  # fmt: skip
    for snippet, reads, writes in (
        ("alpha[s_row] = mi[s_row]", ("mi",), "alpha"),
        ("beta[s_row] = row_m", (), "beta"),
        ("li[s_row] = alpha[s_row]", ("alpha", "li"), "li"),
        ("mi[s_row] = mi_new", (), "mi"),
    ):
        notes.at(snippet)
        for name in reads:
            notes.add(f"{name}[s_row]", vector[name], visits, often=once)
        notes.add(f"{writes}[s_row]", vector[writes], visits, store=True, often=once)
