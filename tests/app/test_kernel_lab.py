"""The kernel lab in its states without a live run: no GPU, recordings near and stale, opened files."""

from __future__ import annotations

import dataclasses
import json
import re
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from fmha.figures import byte_levels
from fmha.figures.kernel_times import timed
from fmha.gpu.diagnosis import Diagnosis, Finding
from fmha.hardware import GPUS
from fmha.kernels import KERNELS
from fmha.problem import Problem, Tiling
from fmha.traffic import compulsory_bytes
from fmha.ui import sentences
from tests.app.lab_support import SMALL, button, opened, run, text_of
from tests.app.recordings import recording

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


def test_one_block_is_one(shipped: Any) -> None:
    assert "` 1 block of 1,024 threads" in text_of(opened(N="8", H="1"))


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
