"""The worker process and its service: whatever a request does, it costs that request only. No GPU needed."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable

import numpy as np
import pytest

from fmha.errors import BuildError, GpuError, ProblemError
from fmha.gpu.service import GpuService
from tests.gpu.service_support import ask, until


def test_a_request_runs_in_another_process_on_its_gpu(shared: GpuService) -> None:
    pid, device = ask(shared, "who")  # type: ignore[misc]
    assert pid != os.getpid() and device == 3
    assert ask(shared, "who") == (pid, 3)


def test_nothing_is_started_before_the_first_request(make: Callable[..., GpuService]) -> None:
    before = threading.active_count()
    service = make()
    assert threading.active_count() == before and service.restarts == 0


def test_progress_states_and_times(shared: GpuService) -> None:
    ticket = shared.submit("sleep", {"s": 0.4}, timeout_s=20)
    seen = set()
    while not ticket.wait(0.01):
        seen.add(ticket.progress)
    assert ticket.result() == "slept" and ticket.state == "done" and ticket.error is None and ticket.position == 0
    texts = [text for text, _ in seen if text]
    assert len(texts) >= 4
    assert all(fraction == int(text.split()[1]) / 8 for text, fraction in seen if text)
    assert 0.35 < ticket.running_s < 5 and ticket.running_s == ticket.running_s


def test_large_arrays_go_both_ways_and_are_writable(shared: GpuService) -> None:
    given = np.ones((4, 1_000_000), np.float32)
    result = ask(shared, "huge", n=25_000_000, given=given)
    assert isinstance(result, dict) and result["a"].nbytes == 100_000_000
    assert result["a"][-1] == np.float32(24_999_999) and (result["b"] == 2).all()
    result["b"][0] = 5


def test_what_libraries_print_goes_to_the_log(shared: GpuService) -> None:
    def log_of(op: str, **payload: object) -> str:
        ticket = shared.submit(op, payload, timeout_s=20)
        assert ticket.result(20) in ("", 1)
        return ticket.log

    log_of("chatty")
    until(lambda: all(t in log_of("echo", value=1) for t in ("to stdout", "straight to descriptor 1", "from a child")))
    log_of("chatty", lines=3000)
    until(lambda: log_of("echo", value=1).endswith("xx 2999"))
    assert len(log_of("echo", value=1).splitlines()) == 200


def test_an_error_for_people_arrives_as_it_was_and_the_worker_lives(shared: GpuService) -> None:
    before = ask(shared, "who"), shared.restarts
    with pytest.raises(ProblemError) as problem:
        ask(shared, "fail", how="problem")
    assert str(problem.value) == "H=6 and Hk=4: H must be a multiple of Hk; try Hk=3."
    with pytest.raises(BuildError) as build:
        ask(shared, "fail", how="build")
    assert (build.value.command, build.value.output) == ("nvcc x.cu", "x.cu(1): error")
    with pytest.raises(GpuError) as own:
        ask(shared, "fail", how="own")
    assert type(own.value) is GpuError and str(own.value) == "of a class that the app does not know"
    with pytest.raises(GpuError, match=r"knows no operation 'nonsense'; it knows chatty, crash, echo"):
        ask(shared, "nonsense")
    assert (ask(shared, "who"), shared.restarts) == before


def test_an_unforeseen_error_says_what_and_replaces_the_worker(shared: GpuService) -> None:
    for how, text in (("unforeseen", "fail failed: RuntimeError: unforeseen"), ("sticky", "a sticky error")):
        before = ask(shared, "who"), shared.restarts
        ticket = shared.submit("fail", {"how": how}, timeout_s=20)
        with pytest.raises(GpuError) as error:
            ticket.result(20)
        assert str(error.value) == text == ticket.error and type(error.value) is GpuError
        assert ticket.state == "failed" and ("Traceback" in ticket.log) == (how == "unforeseen")
        assert ask(shared, "who") != before[0] and shared.restarts == before[1] + 1


def test_results_and_inputs_that_cannot_be_sent(shared: GpuService) -> None:
    with pytest.raises(GpuError, match="unpicklable failed: "):
        ask(shared, "unpicklable")
    with pytest.raises(GpuError, match="echo failed: its input cannot be sent to the GPU process"):
        ask(shared, "echo", value=lambda: None)
    assert ask(shared, "echo", value=1) == 1


def test_a_raised_result_is_a_new_error_each_time(shared: GpuService) -> None:
    ticket = shared.submit("fail", {"how": "build"}, timeout_s=20)
    errors = []
    for _ in range(2):
        with pytest.raises(BuildError) as error:
            ticket.result(20)
        errors.append(error.value)
    assert errors[0] is not errors[1] and errors[1].output == "x.cu(1): error"


def test_queue_positions_and_cancelling(make: Callable[..., GpuService]) -> None:
    service = make()
    ask(service, "echo", value=0)
    running = service.submit("hang", {"how": "C"}, timeout_s=20)
    queued = [service.submit("echo", {"value": n}, timeout_s=20) for n in range(4)]
    until(lambda: running.state == "running" and running.progress == ("hanging", None))
    assert running.position == 0 and [t.position for t in queued] == [1, 2, 3, 4]
    assert {t.state for t in queued} == {"queued"} and queued[0].running_s == 0
    queued[1].cancel()
    assert queued[1].state == "cancelled" and [t.position for t in queued] == [1, 0, 2, 3]
    running.cancel()
    assert running.wait(10) and running.state == "cancelled"  # it would hang for 20 s
    with pytest.raises(GpuError, match="hang was cancelled"):
        running.result()
    assert [queued[n].result(20) for n in (0, 2, 3)] == [0, 2, 3]
    queued[0].cancel()
    assert queued[0].state == "done" and service.restarts == 1


def test_abandoned_requests_leave_the_queue(make: Callable[..., GpuService]) -> None:
    service = make(abandon_s=0.3)
    running = service.submit("sleep", {"s": 1.5}, timeout_s=20)
    left, asked, awaited = (service.submit("echo", {"value": n}, timeout_s=20) for n in range(3))
    results: list[object] = []
    waiter = threading.Thread(target=lambda: results.append(awaited.result()))
    waiter.start()
    until(lambda: (running.state, asked.state)[1] == "done", 20)
    waiter.join(10)
    assert running.result() == "slept" and results == [2]
    assert left.state == "cancelled" and left.error == "echo was dropped: nobody asked about it for 0.3 s."


def test_an_abandoned_run_ends_only_where_others_wait(make: Callable[..., GpuService]) -> None:
    service = make(abandon_s=0.3)
    alone = service.submit("sleep", {"s": 1.2}, timeout_s=20)
    time.sleep(1.0)
    assert alone.result() == "slept"
    closed = service.submit("sleep", {"s": 60}, timeout_s=90)
    until(lambda: closed.state == "running", 20)
    begun = time.monotonic()
    assert service.submit("echo", {"value": 7}, timeout_s=20).result() == 7
    assert time.monotonic() - begun < 15
    assert closed.state == "cancelled" and "was dropped: nobody asked about it for 0.3 s, and others wait" in (
        closed.error or ""
    )


def test_many_threads_ask_at_once(shared: GpuService) -> None:
    answers: dict[int, object] = {}

    def worker(number: int) -> None:
        answers[number] = [ask(shared, "echo", value=(number, n)) for n in range(10)]

    threads = [threading.Thread(target=worker, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert answers == {n: [(n, i) for i in range(10)] for n in range(4)}


@pytest.mark.parametrize(
    "how, text",
    [
        ("fmha", "GPU 7 was asked for; this machine has 1."),
        ("error", "the start of the GPU process failed: RuntimeError: no context"),
        ("dies", "the GPU process ended with exit code 3 while it started; it was replaced; run it again."),
        ("slow5", "the GPU process did not start within 0.5 s and was stopped; run it again."),
    ],
)
def test_a_start_that_fails_costs_that_request(make: Callable[..., GpuService], how: str, text: str) -> None:
    slow = how.startswith("slow")
    service = make(environment={"FAKE_START": how}, start_timeout_s=0.5 if slow else 20)
    ticket = service.submit("echo", {"value": 1}, timeout_s=20)
    if slow:
        until(lambda: ticket.state == "starting")
    with pytest.raises(GpuError) as error:
        ticket.result(20)
    assert str(error.value) == text and (how != "dies" or "dying early" in ticket.log)
    service._environment.clear()
    service._start_timeout_s = 20
    assert ask(service, "echo", value=2) == 2


def test_a_slow_start_is_waited_for_and_counts_apart(make: Callable[..., GpuService]) -> None:
    service = make(environment={"FAKE_START": "slow0.6"})
    ticket = service.submit("echo", {"value": 1}, timeout_s=0.5)
    until(lambda: ticket.state == "starting")
    assert ticket.result(20) == 1 and ticket.running_s < 0.5


def test_a_request_can_be_cancelled_while_its_worker_starts(make: Callable[..., GpuService]) -> None:
    service = make(environment={"FAKE_START": "slow20"})
    ticket = service.submit("echo", {"value": 1}, timeout_s=20)
    until(lambda: ticket.state == "starting")
    time.sleep(0.2)
    ticket.cancel()
    assert ticket.wait(1) and ticket.state == "cancelled" and ticket.running_s == 0
    service._environment.clear()
    assert ask(service, "echo", value=2) == 2


def test_a_missing_module_is_named() -> None:
    with GpuService(ops="tests.gpu.no_such_module") as service, pytest.raises(GpuError, match="no_such_module"):
        ask(service, "echo", value=1)


def test_a_closed_service_refuses(make: Callable[..., GpuService]) -> None:
    service = make()
    running = service.submit("hang", {"how": "C with the lock"}, timeout_s=20)
    queued = service.submit("echo", {"value": 1}, timeout_s=20)
    until(lambda: running.progress[0] == "hanging")
    begun = time.monotonic()
    service.close()
    service.close()
    assert time.monotonic() - begun < 15
    assert running.state == queued.state == "cancelled"
    with pytest.raises(GpuError, match="closed"):
        service.submit("echo", {}, timeout_s=1)


def test_a_time_limit_must_be_one(shared: GpuService) -> None:
    for limit in (0, -1, float("nan")):
        with pytest.raises(GpuError, match="time limit"):
            shared.submit("echo", {"value": 1}, timeout_s=limit)
