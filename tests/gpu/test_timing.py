"""The order of things while candidates are timed, on a make-believe driver: no GPU is needed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from fmha.cli.ladder import BUDGET_S, LONGEST_S, REPEATS
from fmha.errors import LimitError
from fmha.gpu.timing import FEWEST_REPEATS, LEAST_REPEATS, WARMUPS, runs_within, time_in_turns

L2 = 50 << 20


class Driver:
    """A device whose events read a clock that only `work` moves; writes down what happens."""

    class MemoryError(Exception):
        pass

    def __init__(self, free: int) -> None:
        self.free, self.log, self.clock_ms, self.held = free, [""], 0.0, 0
        self.driver, self.facts = self, SimpleNamespace(l2_bytes=L2)

    def free_bytes(self) -> int:
        return self.free

    def synchronize(self) -> None:
        self.log.append("wait")

    def mem_alloc(self, size: int) -> Any:
        if size > self.free:
            raise self.MemoryError
        self.held += size
        return SimpleNamespace(free=lambda: setattr(self, "held", self.held - size))

    def memset_d8_async(self, _memory: Any, _value: int, size: int) -> None:
        self.log.append(f"flush {size >> 20}")

    def Event(self) -> Any:
        event = SimpleNamespace(at=-1.0)

        def record() -> None:
            self.log.append("event")
            event.at = self.clock_ms

        event.record, event.time_since = record, lambda start: event.at - start.at
        event.synchronize = lambda: None
        return event

    def work(self, name: str, ms: float) -> Any:
        def run() -> None:
            self.log.append(name)
            self.clock_ms += ms

        return run


def test_every_execution_follows_a_flush_and_candidates_take_turns() -> None:
    device = Driver(free=16 << 30)
    told: list[tuple[int, int]] = []
    candidates = [device.work("a", 2.0), device.work("b", 0.5)]
    times = time_in_turns(device, candidates, 25, lambda *done: told.append(done))  # type: ignore[arg-type]
    warm, turn = ["a"] * WARMUPS + ["b"] * WARMUPS, ["flush 512", "event", "a", "event", "flush 512", "event", "b"]
    assert device.log[1:] == [*warm, "wait", *[*turn, "event", "wait"] * 25]
    assert [(t.median_us, t.p10_us, t.fastest_us) for t in times] == [(pytest.approx(x),) * 3 for x in (2000, 500)]
    assert [(t.repeats, t.warmups) for t in times] == [(25, WARMUPS)] * 2
    assert told[-1] == (25, 25) and device.held == 0


def test_there_are_never_fewer_repeats_than_a_median_needs() -> None:
    device = Driver(free=16 << 30)
    assert time_in_turns(device, [device.work("a", 1.0)], 1)[0].repeats == LEAST_REPEATS  # type: ignore[arg-type]


def test_a_time_limit_takes_repeats_from_the_slow_alone_and_spreads_them() -> None:
    device = Driver(free=16 << 30)
    slow, fast = device.work("slow", 100.0), device.work("fast", 1.0)
    times = time_in_turns(device, [slow, fast], 20, budget_s=0.5)  # type: ignore[arg-type]
    assert [(t.repeats, t.median_us) for t in times if t] == [(5, pytest.approx(100e3)), (20, pytest.approx(1e3))]
    assert [t.warmups for t in times if t] == [WARMUPS, WARMUPS]
    rounds = [part.count("slow") for part in " ".join(device.log).split("wait")[1:-1]]
    assert len(rounds) == 20 and [n for n in rounds if n] == [1] * 5 and sum(rounds[:10]) in (2, 3)
    very_slow = time_in_turns(device, [device.work("a", 900.0)], 20, budget_s=0.5)[0]  # type: ignore[arg-type]
    assert very_slow is not None and (very_slow.repeats, very_slow.warmups) == (FEWEST_REPEATS, 1)


def test_what_the_ladder_admits_is_timed_as_often_as_a_median_needs() -> None:
    device = Driver(free=16 << 30)
    for seconds in (1e-6, 0.0126, 0.3, LONGEST_S, 1.2 * LONGEST_S):  # the last: foreseen to be faster than it is
        assert runs_within(BUDGET_S, seconds, REPEATS) == REPEATS >= LEAST_REPEATS
        timing = time_in_turns(device, [device.work("a", 1e3 * seconds)], REPEATS, budget_s=BUDGET_S)[0]  # type: ignore[arg-type]
        assert timing is not None and timing.repeats == REPEATS and timing.warmups == WARMUPS
    # With --longest 30 and 600, a limit of time wins.
    assert [runs_within(BUDGET_S, s, REPEATS) for s in (2.0, 5.0, 30.0, 600.0)] == [12, 5, 3, 3]
    assert runs_within(BUDGET_S, 1e-6, 7) == 7


def test_a_gpu_that_is_nearly_full_flushes_with_less_and_a_full_one_says_so() -> None:
    device = Driver(free=1 << 30)
    time_in_turns(device, [device.work("a", 1.0)], 20)  # type: ignore[arg-type]
    assert "flush 256" in device.log and device.held == 0
    full = Driver(free=4 * L2 - 1)
    with pytest.raises(LimitError, match=r"timing needs 200 MiB more"):
        time_in_turns(full, [full.work("a", 1.0)], 20)  # type: ignore[arg-type]
    assert full.log == [""], "nothing was run"


def test_a_candidate_that_fails_leaves_no_memory_behind() -> None:
    device = Driver(free=16 << 30)

    def fails() -> None:
        raise RuntimeError("a fault")

    with pytest.raises(RuntimeError, match="a fault"):
        time_in_turns(device, [device.work("a", 1.0), fails], 20)  # type: ignore[arg-type]
    assert device.held == 0


def test_a_peer_that_runs_out_of_memory_is_left_out_and_the_others_are_timed() -> None:
    class OutOfMemoryError(RuntimeError):
        """Torch's, by its name."""

    def too_large() -> None:
        raise OutOfMemoryError("tried to allocate")

    device = Driver(free=16 << 30)
    timings = time_in_turns(device, [device.work("a", 2.0), too_large, device.work("b", 3.0)], LEAST_REPEATS)  # type: ignore[arg-type]
    assert timings[1] is None
    assert [t.median_us for t in timings if t] == [pytest.approx(2000.0), pytest.approx(3000.0)]

    def broken() -> None:
        raise RuntimeError("CUDA error")

    with pytest.raises(RuntimeError, match="CUDA error"):
        time_in_turns(device, [broken], LEAST_REPEATS)  # type: ignore[arg-type]
    assert device.held == 0
