"""The event table of a traced run: the same columns as the simulator's, filled from what a kernel did.

Nothing of the schedule is assumed. A worker's batch entry, head and Q tile follow from the rows of O that it wrote, the
K/V tile of a load from the rows that were read, that of a computation from the rows of K read before the last barrier,
the phase from the source's comments, bytes and FLOPs from counting.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmha.errors import TraceError
from fmha.events import CODE, EVENT, PHASES, TENSORS
from fmha.phases import groups
from fmha.trace.run import FLOP_KINDS
from fmha.trace.tracing import Trace

_LOAD, _COMPUTE, _STORE = range(3)
Ints = NDArray[np.int64]


def events(trace: Trace) -> NDArray[np.void]:
    """One row for each (worker, barrier interval, phase), in program order; `t0`, `t1` are 0 and `sm` is -1, as `emit`
    leaves them. For kernels of the order q-outer.

    `flops` counts lines that only multiply and add in pairs, which is what matrix products are made of, `vector_flops`
    all other arithmetic; both are as counted, so that elements which a mask hides cost nothing where the kernel leaves
    them out.

    Raises:
        TraceError: a kernel of another order, or one whose source does not name its phases.
    """
    return table(trace)[0]


def table(trace: Trace) -> tuple[NDArray[np.void], Ints]:
    """`events`, and the barrier interval of its worker in which each of them was. Errors as `events`."""
    if trace.kernel.order != "q-outer" or len(trace.plan.launches) != 1:
        raise TraceError(
            f"kernel {trace.kernel.number} ({trace.kernel.name}) has no event table by tile: only kernels of the order "
            "q-outer have, such as 02."
        )
    if not any(phase.code for phase in trace.phases):
        raise TraceError(
            f"{trace.kernel.file} names no phases: write the maths above each, as in `// S = QK^T`, to have them found."
        )
    steps = _Steps(trace)
    parts = [steps.of_rows(), steps.of_flops()]
    merged = _merge(np.concatenate(parts))
    return _table(trace, merged), merged["interval"]


STEP = np.dtype(
    [(n, "i8") for n in ("block", "interval", "group", "kind", "line", "code", "nbytes", "flops", "vector_flops")]
)


class _Steps:
    """Rows and counts of arithmetic, each given the phase of the event table that it belongs to."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        names = [region.name for region in trace.raw.regions[0]]
        self.tensor = np.array([TENSORS.index(n) if n in ("Q", "K", "V", "O", "LSE") else -1 for n in names] + [-1])
        lines = len(trace.text.splitlines()) + 2
        self.group, self.code = np.full(lines, -1), np.full(lines, -1)
        for phase, group in zip(trace.phases, groups(trace.phases), strict=True):
            self.group[phase.first : phase.last + 1] = group
            self.code[phase.first : phase.last + 1] = CODE[phase.code] if phase.code else -1

    def _lines(self, sites: Ints) -> Ints:
        """The line in the kernel's own file of each site; 0 for those in headers."""
        mine = self.trace.kernel.file
        return np.array([s.line if s.file == mine else 0 for s in self.trace.program.sites])[sites]

    def of_rows(self) -> NDArray[np.void]:
        """Loads and stores of tensors, and a step without quantities for each phase that used shared memory."""
        rows = self.trace.raw.rows
        line = self._lines(rows["site"].astype(np.int64))
        tensor = self.tensor[np.minimum(rows["region"], len(self.tensor) - 1)]
        is_write = np.array([s.is_write for s in self.trace.program.sites])[rows["site"]]
        is_global = tensor >= 0
        loads = np.array([CODE.get(f"load_{name}", -1) for name in TENSORS])
        stores = np.array([CODE.get(f"store_{name}", -1) for name in TENSORS])
        made = np.zeros(len(rows), STEP)
        made["block"], made["interval"], made["line"] = rows["block"], rows["interval"], line
        made["group"] = self.group[line]
        made["kind"] = np.where(is_global, np.where(is_write, _STORE, _LOAD), _COMPUTE)
        made["code"] = np.where(is_global, np.where(is_write, stores[tensor], loads[tensor]), self.code[line])
        made["nbytes"] = np.where(is_global, rows["nbytes"], 0)
        return made[(made["code"] >= 0) & (made["group"] >= 0)]

    def of_flops(self) -> NDArray[np.void]:
        """Arithmetic, by the phase of its line."""
        rows = self.trace.flops_raw
        line = rows["line"].astype(np.int64)
        count: dict[str, Any] = dict(zip(FLOP_KINDS, rows["count"].astype(np.int64).T, strict=True))
        total = sum(count.values(), np.zeros(len(rows), np.int64))
        is_product = (count["add"] == count["mul"]) & (total == count["add"] + count["mul"])
        made = np.zeros(len(rows), STEP)
        made["block"], made["interval"], made["line"] = rows["block"], rows["interval"], line
        made["group"], made["code"], made["kind"] = self.group[line], self.code[line], _COMPUTE
        made["flops"], made["vector_flops"] = np.where(is_product, total, 0), np.where(is_product, 0, total)
        return made[(made["code"] >= 0) & (made["group"] >= 0)]


def _merge(steps: NDArray[np.void]) -> NDArray[np.void]:
    """One step for each (block, interval, phase group, load / compute / store, code), in program order."""
    keys = ("block", "interval", "group", "kind", "code")
    steps = steps[np.lexsort([steps[name] for name in ("line", *keys[::-1])])]
    same = np.ones(len(steps), np.bool_)
    for name in keys:
        same[1:] &= steps[name][1:] == steps[name][:-1]
    same[:1] = False
    first = np.flatnonzero(~same)
    merged = steps[first].copy()
    for name in ("nbytes", "flops", "vector_flops"):
        merged[name] = np.add.reduceat(steps[name], first) if len(first) else 0
    # Within a group, loads and stores stand in the order of their lines.
    return merged[np.lexsort([merged[name] for name in ("line", "kind", "group", "interval", "block")])]


def _table(trace: Trace, steps: NDArray[np.void]) -> NDArray[np.void]:
    """Steps as an event table: who and which tiles."""
    problem, tiling = trace.problem, trace.tiling
    row_bytes = problem.d * problem.itemsize
    blocks = trace.plan.launches[0].grid
    wrote = _first_row(trace, "O", is_write=True, row_bytes=row_bytes)
    head, row = np.divmod(_by_block(wrote, blocks), problem.Nq)
    b, h = np.divmod(head, problem.H)
    i = row // tiling.Br

    tile = {name: _tiles(trace, name, blocks) for name in ("K", "V")}
    read = np.where(tile["K"] >= 0, np.arange(tile["K"].shape[1]), -1)
    # What is computed with is there since a barrier: of a tile that is read meanwhile, only later intervals know.
    last = np.pad(np.maximum.accumulate(read, axis=1)[:, :-1], ((0, 0), (1, 0)), constant_values=-1)
    j = np.take_along_axis(tile["K"], np.maximum(last, 0), axis=1)
    first = np.take_along_axis(tile["K"], np.argmax(tile["K"] >= 0, axis=1)[:, None], axis=1)
    j = np.where(last >= 0, j, first)  # what comes before the first visit belongs to it

    out = np.zeros(len(steps), EVENT)
    block, code = steps["block"], steps["code"]
    out["worker"], out["sm"], out["phase"] = block, -1, code
    out["b"], out["h"], out["i"], out["j"] = b[block], h[block], i[block], j[block, steps["interval"]]
    for name, tiles in tile.items():
        mine = code == CODE[f"load_{name}"]
        out["j"][mine] = tiles[block, steps["interval"]][mine]
    out["tensor"] = np.array([TENSORS.index(phase.tensor) for phase in PHASES])[code]
    out["src"] = np.array([phase.src for phase in PHASES])[code]
    out["dst"] = np.array([phase.dst for phase in PHASES])[code]
    for name in ("nbytes", "flops", "vector_flops"):
        out[name] = steps[name]
    return out


def _tiles(trace: Trace, tensor: str, blocks: int) -> Ints:
    """The K/V tile whose rows of `tensor` each interval read: [blocks, intervals], -1 where it read none."""
    problem = trace.problem
    read = _first_row(trace, tensor, is_write=False, row_bytes=problem.d * problem.itemsize)
    tile = np.full((blocks, int(trace.raw.intervals["interval"].max()) + 1), -1)
    tile[read["block"], read["interval"]] = read["row"] % problem.Nk // trace.tiling.Bc
    return tile


_ROW = np.dtype([("block", "i8"), ("interval", "i8"), ("row", "i8")])


def _first_row(trace: Trace, tensor: str, *, is_write: bool, row_bytes: int) -> NDArray[np.void]:
    """The first row of a tensor that each (block, interval) touched."""
    regions = trace.raw.regions[0]
    number = next(n for n, region in enumerate(regions) if region.name == tensor)
    writes = np.array([site.is_write for site in trace.program.sites])
    rows = trace.raw.rows
    rows = rows[(rows["region"] == number) & (writes[rows["site"]] == is_write)]
    rows = rows[np.lexsort([rows["first"], rows["interval"], rows["block"]])]
    made = np.zeros(len(rows), _ROW)
    made["block"], made["interval"] = rows["block"], rows["interval"]
    made["row"] = (rows["first"].astype(np.int64) - regions[number].first) // row_bytes
    _, first = np.unique(made[["block", "interval"]], return_index=True)
    return made[first]


def _by_block(rows: NDArray[np.void], blocks: int) -> Ints:
    """The first row of each block; -1 for a block that touched none."""
    found = np.full(blocks, -1)
    found[rows["block"][::-1]] = rows["row"][::-1]
    return found


__all__ = ["events", "table"]
