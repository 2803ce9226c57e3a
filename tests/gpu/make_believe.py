"""A device without a GPU: memory is NumPy's, kernels are the reference, events read a clock that kernels move."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fmha.hardware import DriverFacts, from_driver
from fmha.kernels import Kernel, Plan
from fmha.measurement import Build, Device, FunctionUse, State
from fmha.reference import reference
from fmha.storage import decode, encode

FACTS = DriverFacts(
    "Make-believe", "9.0", 132, 1_980_000, 2_619_000, 5120, 60 << 20, 1 << 34, 233_472, 232_448, 2048, 1024, 32, 65_536
)


class Memory(int):
    """An address that is also the memory behind it."""

    array: np.ndarray
    owner: MakeBelieve

    def free(self) -> None:
        """Give it back."""
        self.owner.held.pop(int(self))


class MakeBelieve:
    """What `GpuDevice` offers, as far as measuring uses it. ms: how long each kernel takes, by number."""

    class MemoryError(Exception):
        """As PyCUDA's."""

    def __init__(self, ms: Mapping[str, float], free: int = 1 << 34) -> None:
        self.driver = self
        self.ms, self.free, self.clock_ms, self.arch, self.cuda, self.index = ms, free, 0.0, "sm_90", (13, 0), 0
        self.held: dict[int, Memory] = {}
        self.next = 1 << 20
        self.facts = FACTS
        self.log: list[str] = []

    @property
    def gpu(self) -> Any:
        """Limits of an H200."""
        return from_driver(FACTS)

    def described(self) -> Device:
        """For a recording."""
        return Device(FACTS, "1", "13.0")

    def state(self) -> State:
        """Nothing is known."""
        return State()

    def free_bytes(self) -> int:
        """What is not allocated."""
        return self.free - sum(m.array.nbytes for m in self.held.values())

    def synchronize(self) -> None:
        """Nothing runs by itself."""

    def mem_alloc(self, nbytes: int) -> Memory:
        """Memory of zeros."""
        made = Memory(self.next)
        made.array, made.owner = np.zeros(nbytes, np.uint8), self
        self.held[int(made)] = made
        self.next += nbytes + 256
        return made

    def memcpy_htod(self, to: Memory, array: np.ndarray) -> None:
        """Copy in."""
        to.array[:] = np.ascontiguousarray(array).view(np.uint8).ravel()

    def memcpy_dtoh(self, array: np.ndarray, at: Memory) -> None:
        """Copy out."""
        array.view(np.uint8).ravel()[:] = at.array[: array.nbytes]

    def memset_d8(self, at: Memory, value: int, nbytes: int) -> None:
        """Fill."""
        at.array[:nbytes] = value

    def memset_d8_async(self, *_: Any) -> None:
        """The L2 flush."""

    def Event(self) -> Any:
        """Reads the clock."""
        event = SimpleNamespace(at=-1.0, synchronize=lambda: None)
        event.record = lambda: setattr(event, "at", self.clock_ms)
        event.time_since = lambda start: event.at - start.at
        return event


class Loaded:
    """In place of a compiled kernel: the reference, or what `wrong` makes of it."""

    notes = ()

    def __init__(self, device: MakeBelieve, kernel: Kernel, plan: Plan, wrong: tuple[str, ...] = ()) -> None:
        self.device, self.kernel, self.wrong = device, kernel, wrong
        uses = tuple(FunctionUse(x.function, 40, 0, 0, 2, x.block, x.smem_bytes) for x in plan.launches)
        self.build = Build("none", "sm_90", (), 0.0, True, uses)

    def run(self, plan: Plan, addresses: Mapping[str, int]) -> None:
        """Compute O from what lies in memory, once for all executions of these addresses."""
        self.device.clock_ms += self.device.ms[self.kernel.number]
        self.device.log.append(self.kernel.number)
        p, memory = plan.problem, {name: self.device.held[at].array for name, at in addresses.items()}
        if memory["O"][0] != 0xFF:
            return  # a timed execution
        Q, K, V = (decode(memory[n], p.dtype).reshape(p.B, -1, p.Nq, p.d) for n in "QKV")
        O = reference(p, Q, K, V).O * (1.5 if self.kernel.number in self.wrong else 1.0)
        memory["O"][:] = encode(O, p.dtype).view(np.uint8).ravel()


def make_believe(monkeypatch: pytest.MonkeyPatch, ms: Mapping[str, float], wrong: tuple[str, ...] = ()) -> MakeBelieve:
    """A device, with `Loaded` of the ladder replaced, and no torch."""
    monkeypatch.setattr("fmha.gpu.ladder.Loaded", lambda d, k, p: Loaded(d, k, p, wrong))
    monkeypatch.setattr("fmha.gpu.ladder.torch_on_gpu", lambda: None)
    monkeypatch.setattr("fmha.gpu.ladder._held", {})
    return MakeBelieve(ms)
