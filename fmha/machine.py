"""The strict runner: one event after another, and every illegal access raises.

A tile that is out of range, a read of what was not loaded or not computed, bytes that do not match the tile, or more
shared memory than allowed raise `SimulationError`, which names the event, the tile and the access.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fmha.errors import SimulationError
from fmha.events import CODE, PHASES, Phase
from fmha.mask import row_bounds
from fmha.problem import Problem, Tiling
from fmha.schedule import Order
from fmha.state import Arithmetic, Array, Precision, accumulate, online_update, tile_scores

# The order within a visit: what must have been computed on the same tile by the same worker just before.
_FOLLOWS = {"m": "S", "P": "m", "O": "P", "O_norm": "P"}


@dataclass
class Machine:
    """One event at a time over HBM and each worker's shared memory; every illegal access raises.

    `hbm` holds whole tensors by name, `smem[worker]` the resident tiles by slot name, `peak_smem_bytes` the most any
    worker held. Naive's workers of one head share K and V, because Algorithm 0 reads each once: whoever loads a tile
    loads it for all, and `run` looks ahead for that, since rows are in order only within a worker.
    """

    problem: Problem
    tiling: Tiling
    Q: ArrayLike
    K: ArrayLike
    V: ArrayLike
    order: Order = "q-outer"
    precision: Precision = "float64"
    smem_limit_bytes: int | None = None
    hbm: dict[str, Array] = field(init=False)
    smem: dict[int, dict[str, tuple[tuple[int, ...], Array]]] = field(init=False, default_factory=dict)
    peak_smem_bytes: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        p = self.problem
        self.arithmetic = Arithmetic.of(p, self.precision)
        Q, K, V = self.arithmetic.inputs(p, self.Q, self.K, self.V)
        self.hbm = {"Q": Q, "K": K, "V": V}
        self.bounds = [row_bounds(p, b) for b in range(p.B)]
        self._fetched: set[tuple[int, int, str, int]] = set()  # naive: (b, h, tensor, j) that some worker loads
        self._kernel: dict[int, int] = {}  # worker -> the kernel it is in
        self._last: dict[int, tuple[str, tuple[int, ...]]] = {}  # worker -> latest formula and the tile it was for
        self._pending: dict[int, tuple[Array, Array]] = {}  # worker -> P, l_new, computed with m_new

    def run(self, events: NDArray[np.void]) -> Machine:
        """Take every event in turn."""
        if self.order == "naive":
            shared = events[np.isin(events["phase"], (CODE["load_K"], CODE["load_V"]))]
            self._fetched.update((int(e["b"]), int(e["h"]), PHASES[e["phase"]].tensor, int(e["j"])) for e in shared)
        with np.errstate(over="ignore", invalid="ignore"):
            for event in events:
                self.step(event)
        return self

    def output(self) -> Array:
        """O [B, H, Nq, d] as it lies in HBM at the end, rounded to the dtype.

        Raises:
            SimulationError: a row of O was never stored.
        """
        O = self.hbm.get("O")
        if O is None or np.isnan(O).any():
            raise SimulationError(f"{'all' if O is None else 'some'} rows of O were never stored to HBM.")
        return self.arithmetic.stored(O).astype(self.arithmetic.work, copy=False)

    def step(self, event: np.void) -> None:
        """Take one event.

        Raises:
            SimulationError: the event is illegal here; the text names the event, the tile and the access.
        """
        if event["phase"] >= len(PHASES):
            raise SimulationError(f"phase={event['phase']} is out of range 0 to {len(PHASES) - 1}.")
        phase = PHASES[event["phase"]]
        self._check_range(event, phase)
        worker, kernel = int(event["worker"]), int(event["kernel"])
        slots = self.smem.setdefault(worker, {})
        if self._kernel.setdefault(worker, kernel) != kernel:  # shared memory does not outlive a kernel
            self._kernel[worker] = kernel
            slots.clear()
            self._last.pop(worker, None)
        if phase.is_load:
            self._load(event, phase.tensor, slots)
        elif phase.is_store:
            self._store(event, phase.code, phase.tensor, slots)
        else:
            self._check_sequence(event, phase)
            getattr(self, f"_do_{phase.code}")(event, slots)
        self._check_smem(event, slots)

    # --- memory -------------------------------------------------------------------------------------------------

    def _where(self, event: np.void, tensor: str) -> tuple[Any, ...]:
        """Index of the event's tile in the whole tensor in HBM; only real rows and keys."""
        p, t = self.problem, self.tiling
        b, h, i, j = (int(event[name]) for name in "bhij")
        rows = slice(i * t.Br, min((i + 1) * t.Br, p.Nq))
        start, stop = (0, p.Nk) if self.order == "naive" else p.key_range(b)
        keys = slice(min(max(j * t.Bc, start), stop), max(min((j + 1) * t.Bc, stop), start))
        if tensor in ("K", "V"):
            return (b, h // p.group, keys)
        return (b, h, rows, keys) if tensor in ("S", "P") else (b, h, rows)

    def _load(self, event: np.void, tensor: str, slots: dict[str, tuple[tuple[int, ...], Array]]) -> None:
        if tensor not in self.hbm:
            raise SimulationError(f"{_name(event)} loads {tensor}, but nothing has written {tensor} to HBM.")
        tile = self.hbm[tensor][self._where(event, tensor)]
        if np.isnan(tile).any():
            raise SimulationError(f"{_name(event)} loads a tile of {tensor} that nothing has written to HBM.")
        self._check_bytes(event, tensor, tile)
        where = self._tag(event, tensor)
        slots[tensor if tensor not in ("S", "P") else f"{tensor}{where[-1]}"] = (where, tile.copy())

    def _store(self, event: np.void, code: str, tensor: str, slots: dict[str, tuple[tuple[int, ...], Array]]) -> None:
        p = self.problem
        shape = {"O": (p.B, p.H, p.Nq, p.d), "S": (p.B, p.H, p.Nq, p.Nk), "P": (p.B, p.H, p.Nq, p.Nk)}
        if tensor not in self.hbm:
            self.hbm[tensor] = np.full(shape.get(tensor, (p.B, p.H, p.Nq)), np.nan, self.arithmetic.work)
        where = self._where(event, tensor)
        target = self.hbm[tensor][where]
        if code.startswith("init_"):
            value: Array = np.full(target.shape, -np.inf if tensor == "m" else 0.0)
        elif tensor == "LSE":
            m, l = self._need(event, slots, "m"), self._need(event, slots, "l")
            with np.errstate(divide="ignore"):
                value = np.where(l > 0, np.where(np.isfinite(m), m, 0) + np.log(l), -np.inf)
        else:
            slot = f"{tensor}{int(event['j'])}" if f"{tensor}{int(event['j'])}" in slots else tensor
            value = self._need(event, slots, slot)
        self._check_bytes(event, tensor, target)
        if tensor == "O" and self.order == "q-outer" and self._last.get(int(event["worker"]), ("",))[0] != "normalize":
            raise SimulationError(f'{_name(event)} must follow "{PHASES[CODE["normalize"]].maths}", and does not.')
        rounds = tensor == "P" or (tensor == "O" and self.order != "kv-outer")
        self.hbm[tensor][where] = self.arithmetic.stored(value) if rounds else value

    def _tag(self, event: np.void, tensor: str) -> tuple[int, ...]:
        b, h, i, j = (int(event[name]) for name in "bhij")
        if tensor in ("K", "V"):
            return (b, h, j)
        return (b, h, i, j) if tensor in ("S", "P") else (b, h, i)

    def _need(self, event: np.void, slots: dict[str, tuple[tuple[int, ...], Array]], slot: str) -> Array:
        """The resident tile this event reads, and it must be the tile the event speaks of."""
        if (int(event["b"]), int(event["h"]), slot, int(event["j"])) in self._fetched:
            return self.hbm[slot][self._where(event, slot)]
        if slot not in slots:
            raise SimulationError(f"{_name(event)} reads {slot}, but worker {event['worker']} has not loaded it.")
        where, tile = slots[slot]
        wanted = self._tag(event, slot.rstrip("0123456789"))
        if where != wanted:
            raise SimulationError(
                f"{_name(event)} reads {slot} of tile {wanted}, but the resident {slot} is tile {where}."
            )
        return tile

    def _check_range(self, event: np.void, phase: Phase) -> None:
        p, t = self.problem, self.tiling
        # A worker that sees no key, and initialisation, concern no K/V tile: j = -1.
        no_tile = phase.code == "normalize" or (
            phase.tensor not in ("K", "V", "S", "P") and (phase.is_load or phase.is_store)
        )
        for name, count, low in (
            ("b", p.B, 0), ("h", p.H, 0), ("i", t.Tr(p), 0), ("j", t.Tc(p), -1 if no_tile else 0),
        ):  # fmt: skip
            if not low <= event[name] < count:
                raise SimulationError(f"{_name(event)}: {name}={event[name]} is out of range 0 to {count - 1}.")

    def _check_sequence(self, event: np.void, phase: Phase) -> None:
        """S, m_new, P, O follow one another on one tile: each reads what the one before has left."""
        worker, tile = int(event["worker"]), self._tag(event, "S")
        needed = _FOLLOWS.get(phase.code)
        if needed is not None and self._last.get(worker) != (needed, tile):
            raise SimulationError(
                f'{_name(event)} must follow "{PHASES[CODE[needed]].maths}" of the same tile, and does not.'
            )
        self._last[worker] = (phase.code, tile)

    def _check_bytes(self, event: np.void, tensor: str, tile: Array) -> None:
        size = 4 if tensor in ("m", "l", "LSE") else self.problem.itemsize
        if event["nbytes"] != tile.size * size:
            raise SimulationError(
                f"{_name(event)} says {event['nbytes']} bytes, but the tile of {tensor} has {tile.size * size}."
            )

    def _check_smem(self, event: np.void, slots: dict[str, tuple[tuple[int, ...], Array]]) -> None:
        held = sum(
            tile.size * (self.problem.itemsize if slot in ("Q", "K", "V") else 4) for slot, (_, tile) in slots.items()
        )
        self.peak_smem_bytes = max(self.peak_smem_bytes, held)
        if self.smem_limit_bytes is not None and held > self.smem_limit_bytes:
            raise SimulationError(
                f"{_name(event)}: worker {event['worker']} holds {held} bytes of shared memory, "
                f"{held - self.smem_limit_bytes} more than the {self.smem_limit_bytes} allowed."
            )

    # --- arithmetic ---------------------------------------------------------------------------------------------

    def _statistics(
        self, event: np.void, slots: dict[str, tuple[tuple[int, ...], Array]]
    ) -> tuple[Array, Array, Array]:
        """m, l, O of the worker's rows; a q-outer worker starts from -inf, 0, 0 without loading them."""
        tag = self._tag(event, "m")
        if "m" not in slots:
            rows = self.hbm["Q"][self._where(event, "Q")]
            work = self.arithmetic.work
            slots["m"] = (tag, np.full(len(rows), -np.inf, work))
            slots["l"] = (tag, np.zeros(len(rows), work))
            slots["O"] = (tag, np.zeros(rows.shape, work))
        return self._need(event, slots, "m"), self._need(event, slots, "l"), self._need(event, slots, "O")

    def _visible(self, event: np.void, k: Array) -> NDArray[np.bool_]:
        b = int(event["b"])
        rows = self._where(event, "Q")[2]
        keys = self._where(event, "K")[2]
        low, high = self.bounds[b][0][rows, None], self.bounds[b][1][rows, None]
        index = np.arange(keys.start, keys.stop)
        return (index >= low) & (index < high)

    def _do_S(self, event: np.void, slots: dict[str, tuple[tuple[int, ...], Array]]) -> None:
        q, k = self._need(event, slots, "Q"), self._need(event, slots, "K")
        slots["S"] = (self._tag(event, "S"), tile_scores(q, k, self.problem.scale, self._visible(event, k)))

    def _do_m(self, event: np.void, slots: dict[str, tuple[tuple[int, ...], Array]]) -> None:
        m, l, _ = self._statistics(event, slots)
        m_new, alpha, P, l_new = online_update(m, l, self._need(event, slots, "S"))
        tag = self._tag(event, "m")
        # The formulas of the next phase are evaluated with this one; they take effect with `_do_P`.
        slots["alpha"] = (tag, alpha)
        self._pending[int(event["worker"])] = (P, l_new)
        slots["m"] = (tag, m_new)

    def _do_P(self, event: np.void, slots: dict[str, tuple[tuple[int, ...], Array]]) -> None:
        self._need(event, slots, "alpha")
        P, l_new = self._pending.pop(int(event["worker"]))
        slots["l_old"] = slots["l"]
        slots["S"] = (self._tag(event, "S"), P)  # the score tile becomes the weight tile, in place
        slots["l"] = (self._tag(event, "l"), l_new)

    def _do_O(self, event: np.void, slots: dict[str, tuple[tuple[int, ...], Array]], normalized: bool = False) -> None:
        P, v, alpha = (self._need(event, slots, name) for name in ("S", "V", "alpha"))
        pv = self.arithmetic.stored(P).astype(self.arithmetic.work, copy=False) @ v
        l_old, l_new, O = (self._need(event, slots, name) for name in ("l_old", "l", "O"))
        slots["O"] = (self._tag(event, "O"), accumulate(O, alpha, pv, l_old, l_new, normalized))
        del slots["l_old"]

    def _do_O_norm(self, event: np.void, slots: dict[str, tuple[tuple[int, ...], Array]]) -> None:
        self._do_O(event, slots, normalized=True)

    def _do_normalize(self, event: np.void, slots: dict[str, tuple[tuple[int, ...], Array]]) -> None:
        _, l, O = self._statistics(event, slots)
        done = np.divide(O, l[:, None], out=np.zeros_like(O), where=l[:, None] > 0)
        slots["O"] = (self._tag(event, "O"), done)

    def _do_softmax(self, event: np.void, slots: dict[str, tuple[tuple[int, ...], Array]]) -> None:
        tiles = range(self.tiling.Tc(self.problem))
        for j in tiles:
            if slots.get(f"S{j}", (None,))[0] != (*self._tag(event, "S")[:3], j):
                raise SimulationError(f"{_name(event)} reads S of tile {j}, but it is not resident.")
        S = np.concatenate([slots[f"S{j}"][1] for j in tiles], axis=-1)
        m, l = np.full(len(S), -np.inf, S.dtype), np.zeros(len(S), S.dtype)
        _, _, E, total = online_update(m, l, S)
        P = np.divide(E, total[:, None], out=np.zeros_like(E), where=total[:, None] > 0)
        for j in tiles:
            where, tile = slots.pop(f"S{j}")
            first = j * self.tiling.Bc
            slots[f"P{j}"] = (where, P[:, first : first + tile.shape[1]])

    def _do_PV(self, event: np.void, slots: dict[str, tuple[tuple[int, ...], Array]]) -> None:
        P, v = self._need(event, slots, f"P{int(event['j'])}"), self._need(event, slots, "V")
        pv = self.arithmetic.stored(P).astype(self.arithmetic.work, copy=False) @ v
        previous = slots["O"][1] if "O" in slots else np.zeros_like(pv)
        slots["O"] = (self._tag(event, "O"), previous + pv)
        del slots[f"P{int(event['j'])}"]


def _name(event: np.void) -> str:
    place = ", ".join(f"{name}={event[name]}" for name in "bhij")
    return f'"{PHASES[event["phase"]].maths}" of worker {event["worker"]} ({place})'
