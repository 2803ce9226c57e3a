"""The kernel lab in its states: no GPU, recordings near and stale, opened files, live runs by a make-believe GPU."""

from __future__ import annotations

import dataclasses
import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from fmha import ladder, measurement
from fmha.figures import byte_levels
from fmha.figures.kernel_times import timed
from fmha.gpu.diagnosis import Diagnosis, Facts, Finding, GpuFound, judge
from fmha.hardware import GPUS
from fmha.kernels import KERNELS
from fmha.measurement import Recording
from fmha.problem import Problem, Tiling
from fmha.traffic import compulsory_bytes
from fmha.ui import live, sentences
from tests.app import lab_ops
from tests.app.recordings import recording

PAGE = Path(__file__).resolve().parent.parent.parent / "pages" / "lab" / "kernel_lab.py"
OPS = "tests.app.lab_ops"
READY = Diagnosis((GpuFound(0, "NVIDIA H200", "9.0"),), "580.1.2", (13, 0), "2026.1", (), ())
NONE = judge(Facts())
SMALL = {"N": "128", "d": "16", "H": "2"}

Opener = Callable[..., AppTest]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Callable[[Diagnosis], None]:
    """Makes the page believe that this is the state of the machine."""

    def believe(found: Diagnosis) -> None:
        monkeypatch.setattr(live, "_machine", live.Lookout(lambda: found))

    believe(NONE)
    return believe


@pytest.fixture
def shipped(monkeypatch: pytest.MonkeyPatch, machine: Any) -> Callable[..., None]:
    """Replaces the recordings that come with the app; none to begin with."""

    def replace(*recordings: Recording) -> None:
        monkeypatch.setattr(measurement, "shipped", lambda: recordings)
        monkeypatch.setattr(ladder, "shipped", tuple)

    replace()
    return replace


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch, machine: Any, shipped: Any) -> Iterator[None]:
    """A GPU whose worker is tests/app/lab_ops.py."""
    machine(READY)
    monkeypatch.setattr(live, "OPS", OPS)
    live.bench(0, OPS).describe().wait(20)
    yield
    live.close_benches()


def opened(**url: str) -> AppTest:
    at = AppTest.from_file(PAGE, default_timeout=60)
    for name, text in url.items():
        at.query_params[name] = text
    return run(at)


def run(at: AppTest) -> AppTest:
    at.run()
    assert not at.exception, [e.value for e in at.exception]
    return at


def text_of(at: AppTest) -> str:
    """All that the page says."""
    kinds = ("title", "header", "subheader", "markdown", "caption", "info", "warning", "error", "success")
    return "\n".join(e.value for kind in kinds for e in getattr(at, kind))


def button(at: AppTest, label: str) -> Any:
    found = [b for b in at.button if b.label.startswith(label)]
    assert len(found) <= 1
    return found[0] if found else None


def finished(at: AppTest) -> AppTest:
    """Wait for the request under way, and look at the page after it. One that fails at once may be gone already."""
    desk = live.desk_in(at.session_state)
    assert desk.asked is not None
    if desk.ticket is not None:
        assert desk.ticket.wait(30)
    return run(at)


def started(**url: str) -> AppTest:
    at = opened(**(SMALL | url))
    button(at, "Run on").click()
    return run(at)


# --- no GPU, no recordings --------------------------------------------------------------------------------------------


def test_without_gpu_and_recordings_the_page_is_still_there(shipped: Any) -> None:
    at = opened()
    text = text_of(at)
    assert "No live runs on this machine" in text and "driver" in text
    assert button(at, "Run on") is None
    assert "No result of this kernel is at hand" in text
    assert "2,048 blocks of 1,024 threads" in text and "**37,376 bytes**" in text and "232,448" in text
    assert [h.value for h in at.header][-1] == "Try this"
    assert not at.error and not at.warning


@pytest.mark.parametrize(
    "finding",
    [Finding("No GPU.", "Use one."), Finding("nvcc 11.0 does not know sm_90 <b>x</b>.", "Install a newer one.")],
)
def test_each_finding_is_a_line_and_nothing_in_it_is_rendered(finding: Finding, machine: Any, shipped: Any) -> None:
    machine(Diagnosis((), None, None, None, (), (finding, Finding("PyCUDA is missing.", "Run `pip install x`."))))
    text = text_of(opened())
    box = next(part for part in text.split("\n\n") if "No live runs" in part)
    assert box.count("\n- ") >= 2
    assert "<b>" not in box


# --- limits -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("Br", "Bc", "d", "said"),
    [
        (64, 64, 64, "4,096 threads"),
        (32, 64, 64, "2,048 threads"),
        (8, 128, 257, "up to 256, not 257"),
        (16, 48, 256, None),
    ],
)
def test_a_broken_limit_is_said_before_any_launch(Br: int, Bc: int, d: int, said: str | None, gpu: None) -> None:
    at = opened(N="256", H="1", Br=str(Br), Bc=str(Bc), d=str(d))
    assert button(at, "Run on").disabled == (said is not None)
    warnings = " ".join(w.value for w in at.warning).replace("\\", "")
    assert (said in warnings) if said else not at.warning
    if d <= 256:
        asked = KERNELS["02"].plan(Problem(N=256, d=d), Tiling(Br, Bc), GPUS["H200"]) if said is None else None
        size = asked.launches[0].smem_bytes if asked else 4 * (2 * Br * d + 2 * Bc * d + Br * Bc + 4 * Br)
        assert f"**{size:,} bytes**" in text_of(at)


@pytest.mark.parametrize(("card", "limit"), [("T4", 65_536), ("RTX3090", 101_376), ("A100-80", 166_912)])
def test_b01_each_card_has_its_limit(card: str, limit: int, shipped: Any) -> None:
    at = opened(gpu=card, d="256", N="256", H="1")
    text = text_of(at).replace("\\", "")
    assert f"allows a block {limit:,} bytes" in text
    need = 4 * (4 * 32 * 256 + 32 * 32 + 4 * 32)
    assert f"**{need:,} bytes**" in text
    assert any("try Br=" in w.value.replace("\\", "") for w in at.warning) == (need > limit)


def test_a_kernel_that_chooses_its_tiles_has_no_tile_sliders(shipped: Any) -> None:
    at = opened(kernel="naive", Br="64", Bc="64")
    assert not [s for s in at.select_slider if s.key in ("Br", "Bc")]
    assert "64 x 64, whatever Br and Bc are" in text_of(at)
    assert not at.warning
    at.selectbox(key="kernel").set_value("02")
    assert [s.value for s in run(at).select_slider if s.key in ("Br", "Bc")] == [64, 64], "as the link asked"


# --- recordings -------------------------------------------------------------------------------------------------------


def test_the_nearest_recording_says_how_it_differs(shipped: Any) -> None:
    shipped(recording(problem=Problem(H=2, N=512, d=16)), recording(problem=Problem(H=2, N=64, d=16)))
    text = text_of(opened(**(SMALL | {"N": "1000"})))
    assert "This is the nearest recording: asked N = 1,000, recorded N = 512." in text
    assert "**Recorded** on NVIDIA H200" in text and "2026\\-11\\-29 12\\:00 UTC" in text
    assert KERNELS["02"].source_hash() in text and "580" in text
    assert "N = 512" in " ".join(c.value for c in opened(**(SMALL | {"N": "1000"})).caption)


def test_an_exact_recording_has_no_difference(shipped: Any) -> None:
    shipped(recording())
    at = opened(**SMALL)
    assert "nearest recording" not in text_of(at) and not at.warning
    assert at.header[0].value.startswith("02 fmha101 takes 1.20 ms")
    assert any("equal to the byte" in m.value for m in at.markdown)
    assert at.success[0].value.startswith("**Right.**")


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"input": "sink"}, "asked input = Attention sink, recorded input = Random numbers."),
        ({"seed": "7"}, "asked seed = 7, recorded seed = 0."),
    ],
)
def test_other_numbers_in_a_recording_are_a_difference_too(asked: dict[str, str], said: str, shipped: Any) -> None:
    shipped(recording())
    assert f"This is the nearest recording: {said}" in text_of(opened(**SMALL, **asked))


def test_a_recording_of_an_older_source_says_so(shipped: Any) -> None:
    made = recording()
    entry = dataclasses.replace(made.runs[0].entries[0], source_hash="0123456789ab")
    shipped(dataclasses.replace(made, runs=(dataclasses.replace(made.runs[0], entries=(entry,)),)))
    at = opened(**SMALL)
    assert "older version of this kernel" in at.warning[0].value
    launches = next(f.value for f in at.dataframe if "limited by" in f.value)
    assert list(launches["registers a thread"]) == ["unknown"], "those of another source are not this one's"


def test_a_wrong_recording_is_loud_and_has_no_speed(shipped: Any) -> None:
    made = recording(off=0.5)
    entry = dataclasses.replace(made.runs[0].entries[0], time=recording().runs[0].entries[0].time)
    shipped(dataclasses.replace(made, runs=(dataclasses.replace(made.runs[0], entries=(entry,)),)))
    at = opened(**SMALL)
    assert at.error[0].value.startswith("**Wrong result, so no speed is shown")
    assert "TFLOP" not in text_of(at) and " ms" not in text_of(at)


@pytest.mark.parametrize(
    ("d", "Br", "registers", "blocks"),
    [(16, 32, "40", "2"), (32, 32, "40", "unknown"), (16, 16, "unknown", "unknown")],
)
def test_registers_hold_for_the_same_tiles_and_the_drivers_blocks_for_the_same_launch(
    d: int, Br: int, registers: str, blocks: str, shipped: Any
) -> None:
    shipped(recording())
    at = opened(**(SMALL | {"d": str(d), "Br": str(Br)}))
    launches = next(f.value for f in at.dataframe if "limited by" in f.value)
    assert list(launches["registers a thread"]) == [registers]
    assert list(launches["blocks an SM, by the driver"]) == [blocks]


@pytest.mark.parametrize(
    ("N", "d", "sectors", "said"),
    [(128, 16, 0, "equal to the byte"), (33, 33, 9, "32-byte"), (128, 16, 9, "misses something")],
)
def test_why_bytes_differ(N: int, d: int, sectors: int, said: str, shipped: Any) -> None:
    from tests.app.recordings import counters_for

    made = recording(problem=Problem(H=2, N=N, d=d), counters=False)
    entry = made.runs[0].entries[0]
    entry = dataclasses.replace(entry, counters=counters_for(entry, sectors))
    shipped(dataclasses.replace(made, runs=(dataclasses.replace(made.runs[0], entries=(entry,)),)))
    assert any(said in m.value for m in opened(N=str(N), d=str(d), H="2").markdown)


def test_a_small_rate_is_not_rounded_to_nothing() -> None:
    entry = recording(median_us=1e6).runs[0].entries[0]
    said = str(sentences.bandwidth(entry, GPUS["H200"]))
    assert " 0 GB/s" not in said and "0.00" in said.split("in that time, ")[1].split(" GB/s")[0]
    assert sentences.gigabytes(1234.5) == "1,234" and sentences.gigabytes(99.4) == "99"


def test_bytes_of_flash_are_told_as_a_share_of_naives_and_repeated_dram_reads_are_not_left_unexplained() -> None:
    made = recording()
    one, gpu = made.runs[0], made.device.gpu
    entry, bars = one.entries[0], timed(one)
    said = str(sentences.flash_and_naive(one, entry, bars))
    share = entry.requested_bytes / one.entries[1].requested_bytes
    told = f"{100 * share:.0f} % of" if share <= 1 else f"{share:.1f}x"
    assert f"requests {told} naive's bytes" in said
    compulsory = compulsory_bytes(one.problem)
    for times, explained in ((1.0, False), (1.2, False), (1.5, True)):
        moved = {byte_levels.DRAM_READ: times * compulsory, byte_levels.DRAM_WRITE: 0.0}
        lines = sentences.bytes_explained(dataclasses.replace(entry, counters={"f": moved}), one.problem, gpu)
        assert any("may hold copies" in line for line in lines) == explained


# --- files ------------------------------------------------------------------------------------------------------------


def upload(at: AppTest, name: str, data: bytes) -> AppTest:
    at.file_uploader[0].upload(name, data, "application/json")
    return run(at)


def test_a_run_that_was_saved_opens_again(shipped: Any) -> None:
    shipped(recording(median_us=9000.0))
    at = upload(opened(**SMALL), "mine.json", recording().to_json().encode())
    assert "**Opened from mine.json** on NVIDIA H200" in text_of(at)
    assert at.header[0].value.startswith("02 fmha101 takes 1.20 ms"), "it stands in for the shipped ones"
    button(at, "Close").click()
    assert run(at).header[0].value.startswith("02 fmha101 takes 9.00 ms")


@pytest.mark.parametrize("data", [b"", b"\x89PNG", b"[1]", b'{"format": 1}', b'{"format": 1, "device": {"facts": 3}}'])
def test_a_file_that_is_no_recording_is_refused_in_a_sentence(data: bytes, shipped: Any) -> None:
    at = upload(opened(), "x.json", data)
    assert len(at.error) == 1 and at.error[0].value.startswith("The file")


def test_nothing_in_a_file_is_rendered(shipped: Any) -> None:
    evil = "<img src=x onerror=alert(1)> [x](//example.org) $x$ :red[x]\n# big www.example.org " + "y" * 3000
    raw = json.loads(recording().to_json())
    raw["device"]["facts"]["name"] = raw["device"]["driver"] = raw["device"]["cuda"] = evil
    raw["runs"][0]["made"] = raw["runs"][0]["input"] = evil
    for entry in raw["runs"][0]["entries"]:
        entry["title"] = evil
        entry["absent"] = evil if entry["absent"] else None
    entry = raw["runs"][0]["entries"][0]
    entry["build"]["compiler"] = entry["build"]["options"][0] = evil
    entry["build"]["functions"][0]["function"] = evil
    entry["counters"] = {evil: next(iter(entry["counters"].values()))}
    at = upload(opened(**SMALL), "<b>.json", json.dumps(raw).encode())
    kinds = ("markdown", "caption", "info", "error", "header", "success")
    for text in (e.value for kind in kinds for e in getattr(at, kind)):
        rendered = re.sub(r"\\.", "", text)  # what is escaped is shown as it is
        assert not re.search(r"<img|<b>|\]\(|\$x|:red|\n# big|www\.", rendered), text
        assert "y" * 400 not in text


# --- live -------------------------------------------------------------------------------------------------------------


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
        for run in file.runs:
            for entry in (e for e in run.entries if e.is_kernel):
                requested, l2, dram, _smem = sentences.bytes_explained(entry, run.problem, gpu)
                assert f"equal to the byte** ({entry.requested_bytes:,} bytes)" in requested
                from_sms = 32 * (entry.counter(byte_levels.L2_FROM_SMS) or 0) / entry.requested_bytes
                assert f"L2 was asked for {sentences.percent(from_sms)} of them" in l2
                hits = 32 * (entry.counter(byte_levels.L1_HITS) or 0) / entry.requested_bytes
                assert hits < 0.05 and ("were merged on the way" in l2) == (1 - from_sms - hits >= 0.005)
                small = entry.name == "01" and 8 * run.problem.H * run.problem.Nq**2 <= gpu.l2_bytes
                assert ("counted with cold caches" in dram) == small
