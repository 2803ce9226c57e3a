"""The kernel lab with live runs, by a make-believe GPU."""

from __future__ import annotations

import dataclasses
import threading
import time
from typing import Any

import pytest

from fmha import measurement
from fmha.figures import byte_levels
from fmha.gpu.diagnosis import Finding, GpuFound
from fmha.ui import live, sentences
from tests.app import lab_ops
from tests.app.lab_support import NONE, OPS, READY, SMALL, button, finished, opened, run, started, text_of
from tests.app.recordings import recording


def test_a_run_shows_its_own_result(gpu: None, shipped: Any) -> None:
    shipped(recording(median_us=9000.0))
    at = finished(started())
    text = text_of(at)
    assert "**Your run** on NVIDIA H200" in text and at.header[0].value.startswith("02 fmha101 takes 1.20 ms")
    assert "**O of the kernel,** head 0" in text and "**O in float64,** head 0" in text
    assert "N = 128" in " ".join(c.value for c in at.caption)
    assert at.get("download_button")
    at.button_group(key="kernel-lab-which").set_value("Recording")
    assert run(at).header[0].value.startswith("02 fmha101 takes 9.00 ms")


def test_an_old_result_stays_under_its_own_settings(gpu: None) -> None:
    at = finished(started())
    next(s for s in at.select_slider if s.key == "N").set_value(256)
    text = text_of(run(at))
    assert "not for those of the controls" in text and "N = 128" in " ".join(c.value for c in at.caption)
    button(at, "Run on").click()
    at = finished(run(at))
    assert "not for those of the controls" not in text_of(at)
    next(s for s in at.select_slider if s.key == "N").set_value(128)
    assert "not for those of the controls" not in text_of(run(at)), "settings that were run before have their result"


def test_counters_join_the_result(gpu: None) -> None:
    at = finished(started())
    assert "No hardware counters were read" in text_of(at)
    button(at, "Read hardware counters").click()
    at = finished(run(at))
    assert "equal to the byte" in text_of(at) and button(at, "Read hardware counters") is None
    desk = live.desk_in(at.session_state)
    saved = measurement.read(next(iter(desk.outcomes.values())).recording.to_json())
    assert saved.runs[0].entries[0].counters


def test_a_run_under_way_can_be_cancelled_and_its_settings_are_named(gpu: None) -> None:
    at = started(seed=str(lab_ops.SLOW))
    assert button(at, "Run on") is None
    desk = live.desk_in(at.session_state)
    deadline = time.monotonic() + 20
    while desk.ticket is not None and desk.ticket.state != "running" and time.monotonic() < deadline:
        time.sleep(0.05)
    next(s for s in at.select_slider if s.key == "N").set_value(256)
    text = text_of(run(at))
    assert "This run is for other settings" in text and "N = 128" in text
    begun = time.monotonic()
    button(at, "Cancel").click()
    at = run(at)
    assert time.monotonic() - begun < 20 and live.desk_in(at.session_state).ticket is None
    assert "was cancelled" in text_of(at) and button(at, "Run on") is not None
    assert next(s for s in at.select_slider if s.key == "N").value == 256


def test_a_second_visitor_waits_in_the_queue(gpu: None) -> None:
    first = started(seed=str(lab_ops.SLOW))
    second = started()
    bars = [p.proto.text if hasattr(p, "proto") else str(p) for p in second.get("progress")]
    assert any("In the queue" in text for text in bars), bars
    live.desk_in(first.session_state).cancel()
    assert "**Your run**" in text_of(finished(second))


@pytest.mark.parametrize(
    ("seed", "said"),
    [(lab_ops.FAILS, "an illegal address"), (lab_ops.UNBUILT, "could not compile"), (lab_ops.DIES, "GPU process")],
)
def test_a_run_without_a_result_is_one_sentence(seed: int, said: str, gpu: None) -> None:
    at = finished(started(seed=str(seed)))
    assert len(at.error) == 1 and said in at.error[0].value.replace("\\", "")
    assert "**O of the kernel" not in text_of(at)
    if seed == lab_ops.UNBUILT:
        assert any("nvcc -cubin" in c.value and "error: x" in c.value for c in at.code)
    assert not button(at, "Run on").disabled


def test_a_wrong_live_result_has_neither_speed_nor_picture(gpu: None) -> None:
    at = finished(started(seed=str(lab_ops.WRONG)))
    assert at.error[0].value.startswith("**Wrong result")
    assert "TFLOP" not in text_of(at) and "**O of the kernel" not in text_of(at)


def test_one_of_several_gpus_is_chosen(gpu: None, machine: Any) -> None:
    note = Finding("The cache cannot be written.", "Kernels are compiled anew.", blocks=False)
    machine(dataclasses.replace(READY, gpus=(*READY.gpus, GpuFound(1, "NVIDIA H200", "9.0")), findings=(note,)))
    live.bench(1, OPS).describe().wait(20)
    at = started(device="1")
    desk = live.desk_in(at.session_state)
    assert desk.asked is not None and desk.asked.device == 1
    assert "The cache cannot be written" in text_of(finished(at)) and "**Your run**" in text_of(at)


def test_what_a_worker_says_of_its_gpu_is_asked_again_when_it_is_old(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another program may have freed the memory that a run was refused for."""

    class Asked:
        def __init__(self, op: str) -> None:
            self.op, self.state = op, "queued"

    asked: list[Asked] = []

    def submit(op: str, payload: Any, *, timeout_s: float) -> Asked:
        asked.append(Asked(op))
        return asked[-1]

    bench = live.Bench(type("Service", (), {"submit": staticmethod(submit)})())  # type: ignore[arg-type]
    first = bench.describe()
    monkeypatch.setattr(live, "FRESH_S", 0.0)
    assert bench.describe() is first and len(asked) == 1, "one that is under way is not old"
    asked[0].state = "done"
    monkeypatch.setattr(live, "FRESH_S", 60.0)
    assert bench.describe() is first and len(asked) == 1
    monkeypatch.setattr(live, "FRESH_S", 0.0)
    assert [bench.describe() for _ in range(3)] == [first] * 3 and len(asked) == 2, "asked once, the old one holds"
    asked[1].state = "cancelled"
    assert bench.describe() is first and len(asked) == 3
    asked[2].state = "done"
    monkeypatch.setattr(live, "FRESH_S", 60.0)
    assert bench.describe() is asked[2] and len(asked) == 3  # type: ignore[comparison-overlap]


def test_a_gpu_that_cannot_be_described_says_why(machine: Any, shipped: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    machine(READY)
    monkeypatch.setattr(live, "OPS", "tests.app.no_such_ops")
    live.bench(0, live.OPS).describe().wait(20)
    at = opened()
    assert len(at.error) == 1 and button(at, "Try again") is not None and button(at, "Run on") is None
    live.close_benches()


def test_while_the_machine_is_looked_at_the_page_does_not_wait(monkeypatch: pytest.MonkeyPatch, shipped: Any) -> None:
    looked = threading.Event()
    monkeypatch.setattr(live, "_machine", live.Lookout(lambda: looked.wait(60) and NONE))
    at = opened(**SMALL)
    assert not looked.is_set() and "No live runs" not in text_of(at)
    looked.set()


def test_sentences_about_bytes_follow_the_counters_of_real_recordings() -> None:
    """L1 had next to none on the H200, and what is missing on the way to L2 was merged; naive ran with cold caches."""
    for file in measurement.shipped():
        gpu = file.device.gpu
        for one in file.runs:
            for entry in (e for e in one.entries if e.is_kernel):
                requested, l2, dram, _smem = sentences.bytes_explained(entry, one.problem, gpu)
                assert f"equal to the byte** ({entry.requested_bytes:,} bytes)" in requested
                from_sms = 32 * (entry.counter(byte_levels.L2_FROM_SMS) or 0) / entry.requested_bytes
                assert f"L2 was asked for {sentences.percent(from_sms)} of them" in l2
                hits = 32 * (entry.counter(byte_levels.L1_HITS) or 0) / entry.requested_bytes
                assert hits < 0.05 and ("were merged on the way" in l2) == (1 - from_sms - hits >= 0.005)
                small = entry.name == "01" and 8 * one.problem.H * one.problem.Nq**2 <= gpu.l2_bytes
                assert ("counted with cold caches" in dram) == small
