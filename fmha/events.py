"""The event table: what moved or was computed, by whom, in which order.

One NumPy structured array, one row per event, filled a column at a time. Column by column:

==============  =====  ==========================================================================
`t0`, `t1`      f8     start and end in microseconds; 0 until `fmha.timeline.clock` fills them
`worker`        i4     thread block; (b, h, i) in q-outer and naive, (b, h) in kv-outer
`sm`            i2     streaming multiprocessor it runs on; -1 until `fmha.timeline.clock` fills it
`kernel`        u1     0; for naive 0, 1, 2: the three kernels run one after the other
`phase`         u1     index into `PHASES`
`b`, `h`        i4     batch entry, query head
`i`, `j`        i4     Q tile, K/V tile of the visit that the event belongs to; -1: none
`tensor`        u1     index into `TENSORS`
`src`, `dst`    u1     index into `MEMORIES`: where it came from, where it went
`nbytes`        i8     bytes that cross the border between the SM and the rest (requested bytes)
`flops`         i8     matrix-product FLOPs, a multiply-add counted as two
`vector_flops`  i8     element-wise operations (max, exp, multiply, add), one each
==============  =====  ==========================================================================

Rows are in program order within a worker and worker after worker, kernel after kernel. Time is a matter of its own
(`fmha.timeline`): nothing here depends on it. Only real rows of a ragged last tile are counted.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fmha.errors import LimitError
from fmha.mask import key_tile_bounds
from fmha.problem import Problem, Tiling
from fmha.schedule import Ints, Order, Schedule, check_order, schedule
from fmha.units import format_count

EVENT = np.dtype(
    {
        "names": [
            "t0", "t1", "worker", "sm", "kernel", "phase", "b", "h", "i", "j", "tensor", "src", "dst",
            "nbytes", "flops", "vector_flops",
        ],
        "formats": [
            "f8", "f8", "i4", "i2", "u1", "u1", "i4", "i4", "i4", "i4", "u1", "u1", "u1", "i8", "i8", "i8",
        ],
    },
    align=True,
)  # fmt: skip

MEMORIES = ("REG", "SMEM", "L2", "HBM")
REG, SMEM, L2, HBM = range(4)
TENSORS = ("Q", "K", "V", "S", "P", "O", "m", "l", "LSE")

MAX_EVENTS = 10_000_000


@dataclass(frozen=True)
class Phase:
    """A kind of event. `maths` are the words the `.cu` files' comments use; `code` is short, for files."""

    code: str
    maths: str
    tensor: str
    src: int
    dst: int
    is_load: bool = False
    is_store: bool = False
    is_matmul: bool = False


def _load(code: str, maths: str, tensor: str) -> Phase:
    return Phase(code, maths, tensor, HBM, SMEM, is_load=True)


def _store(code: str, maths: str, tensor: str) -> Phase:
    return Phase(code, maths, tensor, SMEM, HBM, is_store=True)


PHASES: tuple[Phase, ...] = (
    _load("load_Q", "load Qi", "Q"),
    _load("load_K", "load Kj", "K"),
    _load("load_V", "load Vj", "V"),
    Phase("S", "S = Qi Kj^T * scale", "S", SMEM, SMEM, is_matmul=True),
    Phase("m", "m_new = max(m, rowmax S)", "m", SMEM, SMEM),
    Phase("P", "P = exp(S - m_new); l = alpha l + rowsum P", "P", SMEM, SMEM),
    Phase("O", "O = alpha O + P Vj", "O", SMEM, SMEM, is_matmul=True),
    Phase("normalize", "O = O / l", "O", SMEM, SMEM),
    _store("store_O", "store Oi", "O"),
    _store("store_LSE", "store LSE = m + ln l", "LSE"),
    _store("init_O", "write O = 0", "O"),
    _store("init_l", "write l = 0", "l"),
    _store("init_m", "write m = -inf", "m"),
    _load("load_O", "load Oi", "O"),
    _load("load_l", "load li", "l"),
    _load("load_m", "load mi", "m"),
    Phase("O_norm", "O = (alpha l O + P Vj) / l_new", "O", SMEM, SMEM, is_matmul=True),
    _store("store_l", "store li", "l"),
    _store("store_m", "store mi", "m"),
    _store("store_S", "store Sij", "S"),
    _load("load_S", "load Sij", "S"),
    Phase("softmax", "P = softmax S", "P", SMEM, SMEM),
    _store("store_P", "store Pij", "P"),
    _load("load_P", "load Pij", "P"),
    Phase("PV", "O = O + Pij Vj", "O", SMEM, SMEM, is_matmul=True),
)
CODE: dict[str, int] = {phase.code: index for index, phase in enumerate(PHASES)}
INIT_PHASES = (CODE["init_O"], CODE["init_l"], CODE["init_m"])

_TENSOR = np.array([TENSORS.index(phase.tensor) for phase in PHASES], np.uint8)
_SRC = np.array([phase.src for phase in PHASES], np.uint8)
_DST = np.array([phase.dst for phase in PHASES], np.uint8)

# What a visit consists of, in program order: (phase, when). "first"/"last": only at a worker's first/last visit;
# "tile": only when the K/V tile is met for the first time; "visit": at every visit of a tile; "no tile": at a visit
# of none (j = -1); "load", "turn", "store": in the softmax kernel, whose workers go over their tiles twice.
Step = tuple[str, str]
_Q_OUTER: tuple[Step, ...] = (
    ("load_Q", "first"), ("load_K", "visit"), ("load_V", "visit"), ("S", "visit"), ("m", "visit"), ("P", "visit"),
    ("O", "visit"), ("normalize", "last"), ("store_O", "last"), ("store_LSE", "last"),
)  # fmt: skip
_KV_OUTER: tuple[Step, ...] = (
    ("init_O", "no tile"), ("init_l", "no tile"), ("init_m", "no tile"),
    ("load_K", "tile"), ("load_V", "tile"), ("load_Q", "visit"), ("load_O", "visit"), ("load_l", "visit"),
    ("load_m", "visit"), ("S", "visit"), ("m", "visit"), ("P", "visit"), ("O_norm", "visit"), ("store_O", "visit"),
    ("store_l", "visit"), ("store_m", "visit"),
)  # fmt: skip
# Naive runs over its visits once per kernel.
_NAIVE: tuple[tuple[int, tuple[Step, ...]], ...] = (
    (0, (("load_Q", "first"), ("load_K", "tile"), ("S", "visit"), ("store_S", "visit"))),
    (1, (("load_S", "load"), ("softmax", "turn"), ("store_P", "store"))),
    (2, (("load_P", "visit"), ("load_V", "tile"), ("PV", "visit"), ("store_O", "last"))),
)


def emit(problem: Problem, tiling: Tiling, order: str = "q-outer", *, write_lse: bool = False) -> NDArray[np.void]:
    """All events of one forward pass, without time: a structured array of `EVENT`.

    Args:
        write_lse: q-outer also stores LSE, 4 bytes a row (training needs it, inference does not).

    Raises:
        LimitError: more than `MAX_EVENTS` events (use `fmha.traffic.closed_form` for sizes beyond).
        ProblemError: an unknown order.
    """
    _refuse_too_many(problem, tiling, check_order(order))
    if problem.B * problem.H > 1 and len({problem.key_range(b) for b in range(problem.B)}) == 1:
        return _alike(problem, tiling, order, write_lse)
    plan = schedule(problem, tiling, order)
    if plan.order == "naive":
        return np.concatenate([_naive_kernel(problem, tiling, plan, *part) for part in _NAIVE])
    if plan.order == "kv-outer":
        return _rows(problem, tiling, _with_initialisation(plan, problem, tiling), _KV_OUTER)
    steps = tuple(step for step in _Q_OUTER if write_lse or step[0] != "store_LSE")
    return _rows(problem, tiling, _with_idle_workers(plan, problem, tiling), steps)


def _alike(problem: Problem, tiling: Tiling, order: str, write_lse: bool) -> NDArray[np.void]:
    """The events of heads that all do the same: those of one of them, again for each."""
    p, heads = problem, problem.B * problem.H
    first = {"lens_k": p.lens_k and p.lens_k[:1], "left_pad": p.left_pad and p.left_pad[:1]}
    one = emit(p.replace(B=1, H=1, Hk=1, **first), tiling, order, write_lse=write_lse)
    workers = int(one["worker"].max(initial=0)) + 1
    out = np.empty(len(one) * heads, EVENT)
    head = np.arange(heads, dtype=np.int32)[:, None]
    edges = [0, *(np.flatnonzero(np.diff(one["kernel"])) + 1).tolist(), len(one)]
    for start, stop in itertools.pairwise(edges):
        part = out[start * heads : stop * heads].reshape(heads, stop - start)
        # As bytes: NumPy copies structured rows field by field, at a quarter of the speed.
        part.view(np.uint8).reshape(heads, -1)[:] = one[start:stop].view(np.uint8)
        part["worker"] += head * workers
        part["b"], part["h"] = head // p.H, head % p.H
    return out


def most_events(problem: Problem, tiling: Tiling, order: str) -> int:
    """The rows that `emit` would return if no tile were skipped: an upper bound, without allocating anything.

    Raises:
        ProblemError: an unknown order.
    """
    heads, Tr, Tc = problem.B * problem.H, tiling.Tr(problem), tiling.Tc(problem)
    rates = {"q-outer": (6, 4, 0), "kv-outer": (11, 3, 2), "naive": (6, 3, 2)}
    per_visit, per_q_tile, per_kv_tile = rates[check_order(order)]
    return heads * (per_visit * Tr * Tc + per_q_tile * Tr + per_kv_tile * Tc)


def _refuse_too_many(problem: Problem, tiling: Tiling, order: Order) -> None:
    """Before anything is allocated."""
    heads, Tr, Tc = problem.B * problem.H, tiling.Tr(problem), tiling.Tc(problem)
    most = most_events(problem, tiling, order)
    if most > MAX_EVENTS:
        raise LimitError(
            f"{format_count(heads * Tr * Tc)} visits make up to {format_count(most)} events, and "
            f"{format_count(MAX_EVENTS)} are allowed: use larger tiles, a smaller N or fewer heads; "
            "counting bytes alone has no such limit."
        )


def _with_idle_workers(plan: Schedule, problem: Problem, tiling: Tiling) -> Schedule:
    """A worker that sees no key still loads Q and stores O = 0: give it one visit of no tile (j = -1)."""
    idle = np.setdiff1d(np.arange(plan.workers), plan.worker)
    if not len(idle):
        return plan
    head, i = np.divmod(idle, tiling.Tr(problem))
    b, h = np.divmod(head, problem.H)
    return _merged(_no_tile(plan, idle, b, h, i), plan)


def _with_initialisation(plan: Schedule, problem: Problem, tiling: Tiling) -> Schedule:
    """Algorithm 1, line 2: before its visits, a worker writes O = 0, l = 0, m = -inf to HBM, Q tile by Q tile."""
    b, h, i = (axis.ravel() for axis in np.indices((problem.B, problem.H, tiling.Tr(problem))))
    return _merged(_no_tile(plan, b * problem.H + h, b, h, i), plan)


def _no_tile(plan: Schedule, worker: Ints, b: Ints, h: Ints, i: Ints) -> Schedule:
    """Visits of no K/V tile."""
    return Schedule(plan.order, plan.workers, worker, b, h, i, np.full(len(i), -1), np.zeros(len(i), np.uint8))


def _merged(first: Schedule, then: Schedule) -> Schedule:
    """Worker after worker, and within a worker the visits of `first` before those of `then`."""
    row = np.argsort(np.concatenate([first.worker, then.worker]), kind="stable")
    columns = (
        np.concatenate([getattr(first, name), getattr(then, name)])[row]
        for name in ("worker", "b", "h", "i", "j", "kind")
    )
    return Schedule(then.order, then.workers, *columns)


def _naive_kernel(
    problem: Problem, tiling: Tiling, plan: Schedule, kernel: int, steps: tuple[Step, ...]
) -> NDArray[np.void]:
    """One of Algorithm 0's kernels. The softmax kernel reads a whole row tile before it writes it back."""
    if kernel != 1:
        return _rows(problem, tiling, plan, steps, kernel)
    Tc = tiling.Tc(problem)
    row = np.arange(len(plan)).reshape(-1, Tc)
    twice = np.concatenate([row, row], axis=1).ravel()
    columns = (getattr(plan, name)[twice] for name in ("worker", "b", "h", "i", "j", "kind"))
    place = np.tile(np.arange(2 * Tc), len(row))
    passes = {"load": place < Tc, "turn": place == Tc - 1, "store": place >= Tc}
    return _rows(problem, tiling, Schedule(plan.order, plan.workers, *columns), steps, kernel, passes)


def _rows(
    problem: Problem,
    tiling: Tiling,
    plan: Schedule,
    steps: tuple[Step, ...],
    kernel: int = 0,
    passes: Mapping[str, NDArray[np.bool_]] | None = None,
) -> NDArray[np.void]:
    """Expand visits into rows: each visit contributes the steps that apply to it."""
    count = len(plan)
    is_first = np.ones(count, np.bool_)
    is_first[1:] = plan.worker[1:] != plan.worker[:-1]
    is_last = np.roll(is_first, -1)
    if plan.order == "naive":  # each K/V tile is fetched once; the workers of a head take turns at it
        is_new_tile = plan.i == plan.j % tiling.Tr(problem)
    else:
        is_new_tile = is_first.copy()
        is_new_tile[1:] |= plan.j[1:] != plan.j[:-1]
    has_tile = plan.j >= 0
    applies = {"first": is_first, "last": is_last, "tile": is_new_tile & has_tile, "visit": has_tile}
    applies |= {"no tile": ~has_tile, **(passes or {})}

    # Visits that take the same steps share a variant: which steps, how many, in a table of step indices.
    when = sorted({condition for _, condition in steps})
    variant = np.zeros(count, np.intp)
    for bit, name in enumerate(when):
        variant |= applies[name].astype(np.intp) << bit
    pattern = np.zeros((1 << len(when), len(steps)), np.intp)
    length = np.zeros(1 << len(when), np.intp)
    for v in range(1 << len(when)):
        taken = [s for s, step in enumerate(steps) if v >> when.index(step[1]) & 1]
        pattern[v, : len(taken)] = taken
        length[v] = len(taken)

    lengths = length[variant]
    total = int(lengths.sum())
    visit = np.repeat(np.arange(count), lengths)
    within = np.arange(total) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    step = pattern[variant[visit], within]
    phase = np.array([CODE[name] for name, _ in steps], np.uint8)[step]

    out = np.zeros(total, EVENT)
    out["sm"] = -1
    out["kernel"] = kernel
    out["phase"] = phase
    out["tensor"], out["src"], out["dst"] = _TENSOR[phase], _SRC[phase], _DST[phase]
    for name, column in (("worker", plan.worker), ("b", plan.b), ("h", plan.h), ("i", plan.i), ("j", plan.j)):
        out[name] = column.astype(np.int32)[visit]
    for name, quantity in zip(
        ("nbytes", "flops", "vector_flops"), _quantities(problem, tiling, plan, steps), strict=True
    ):
        out[name] = quantity[visit, step]
    return out


def _quantities(
    problem: Problem, tiling: Tiling, plan: Schedule, steps: tuple[Step, ...]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Bytes, matrix FLOPs and element-wise operations of every (visit, step): three arrays [visits, steps]."""
    rows = np.minimum(tiling.Br, problem.Nq - plan.i * tiling.Br)
    if plan.order == "naive":  # dense kernels know nothing of padding
        keys = np.minimum(tiling.Bc, problem.Nk - plan.j * tiling.Bc)
    else:
        tile_keys = np.stack([np.subtract(*key_tile_bounds(problem, tiling, b)[::-1]) for b in range(problem.B)])
        keys = np.where(plan.j >= 0, tile_keys[plan.b, np.maximum(plan.j, 0)], 0)
    d, item, zero = problem.d, problem.itemsize, np.zeros(len(plan), np.int64)
    row_keys = np.full(len(plan), problem.Nk)
    nbytes = {
        "Q": rows * d * item, "O": rows * d * item, "K": keys * d * item, "V": keys * d * item,
        "S": rows * keys * item, "P": rows * keys * item, "m": rows * 4, "l": rows * 4, "LSE": rows * 4,
    }  # fmt: skip
    matmul = 2 * rows * keys * d
    vector = {
        "m": rows * keys,  # one max per score
        "P": 3 * rows * keys + 4 * rows + rows * d,  # subtract, exp, add; alpha and l; the rescale of O
        "O_norm": 2 * rows * d,  # times l, divided by l_new
        "normalize": rows * d,
        "store_LSE": 2 * rows,
        "softmax": 5 * rows * row_keys,  # max, subtract, exp, add, divide
    }
    phases = [PHASES[CODE[name]] for name, _ in steps]
    bytes_of = [nbytes[p.tensor] if p.is_load or p.is_store else zero for p in phases]
    flops_of = [matmul if p.is_matmul else zero for p in phases]
    vector_of = [vector.get(p.code, zero) for p in phases]
    return (np.stack(bytes_of, 1), np.stack(flops_of, 1), np.stack(vector_of, 1))
