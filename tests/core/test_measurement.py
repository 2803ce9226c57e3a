"""Recordings: written and read again without loss, read strictly, searched for the nearest entry."""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fmha import Problem, Tiling
from fmha.check import Check
from fmha.errors import InputError
from fmha.hardware import GPUS, DriverFacts, from_driver
from fmha.kernels import KERNELS
from fmha.measurement import (
    MAX_FILE_BYTES,
    SHIPPED,
    Build,
    Device,
    Entry,
    ErrorMap,
    FunctionUse,
    Recording,
    Run,
    State,
    Timing,
    nearest,
    read,
    shipped,
)
from fmha.speeds import implausible, least_time_us, tflops, useful_flops

FACTS = DriverFacts(
    "NVIDIA H200", "9.0", 132, 1_980_000, 3_201_000, 6016, 62_914_560, 150_109_880_320, 233_472, 232_448, 2048, 1024,
    32, 65536,
)  # fmt: skip
DEVICE = Device(FACTS, "580.159.04", "13.0", "2026.1", None)
TIMING = Timing(5226.9, 5224.7, 5234.0, 5223.3, 30, 3)
CHECK = Check(True, "right", 10, 10, 1e-7, 1e-6, 1e-7, 1e-6, 5e-7, 5e-7, 0, (0, 0, 1, 2))


def entry(name: str = "02", tiling: tuple[int, int] | None = (32, 32), **more: Any) -> Entry:
    known = KERNELS.get(name)
    return Entry(
        name, "a title", "fp32", tiling, known.source_hash() if known else None, time=TIMING, check=CHECK, **more
    )


def recording(*runs: Run) -> Recording:
    return Recording(DEVICE, "2026-11-29T18:00:00+00:00", runs, "fmha")


def run(problem: Problem, *entries: Entry) -> Run:
    return Run(problem, "random", 0, "2026-11-29T18:00:00+00:00", entries, State(1980, 3201, 39, 138.6), State())


WHOLE = recording(
    run(
        Problem(H=16, N=4096, causal="br", lens_k=(4000,)),
        entry(
            build=Build("nvcc 13.0", "sm_90", ("-DBR=32",), 0.5, False, (FunctionUse("fmha101", 58, 0, 0, 1),)),
            error_map=ErrorMap(0, 1, (0, 4096), ((1e-7, math.inf), (0.0, 2e-7))),
            requested={"Q": (10, 0), "O": (0, 10)},
            counters={"fmha101": {"dram__bytes_read.sum": 12.5}},
        ),
        Entry("sdpa-flash", "SDPA", "fp32", absent="no"),
    )
)


def test_a_recording_survives_the_way_to_a_file_and_back() -> None:
    text = WHOLE.to_json()
    assert read(text) == read(text.encode()) == WHOLE
    assert "NaN" not in text and "Infinity" not in text
    first = WHOLE.runs[0].entries[0]
    assert first.requested_bytes == 20 and first.counter("dram__bytes_read.sum") == 12.5 and first.counter("x") is None
    assert not first.stale and first.is_kernel and not WHOLE.runs[0].entries[1].is_kernel


def paths(value: Any, here: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a JSON value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [here, *(path for key, item in items for path in paths(item, (*here, key)))]


PLACES = [path for path in paths(json.loads(WHOLE.to_json())) if path]


@given(st.sampled_from(PLACES), st.sampled_from([None, [], {}, "x", -1, 10**30, True, 1.5, [1, 2, 3], {"a": 1}, "inf"]))
def test_a_spoiled_file_is_refused_in_one_sentence_or_is_still_a_recording(place: tuple[Any, ...], junk: Any) -> None:
    raw = json.loads(WHOLE.to_json())
    at = raw
    for key in place[:-1]:
        at = at[key]
    at[place[-1]] = junk
    try:
        found = read(json.dumps(raw), "my file")
    except InputError as error:
        assert str(error).startswith("my file ") and "\n" not in str(error) and len(str(error)) < 500
        return
    for one in found.runs:
        for e in one.entries:
            assert e.stale in (True, False) and useful_flops(one.problem) >= 0
            if e.time:
                assert tflops(one.problem, e.time.median_us) >= 0
    assert found.device.gpu.limits.smem_per_sm > 0
    nearest([found], KERNELS["02"], Problem(N=100), Tiling(8, 8))


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "is not JSON"), (b"\x00\xff", "is not JSON"), (b"[" * 100_000, "is not JSON"),
        (b"{}", "is not a recording"), (b"[]", "is not a recording"), (b'{"format": 99}', "is not a recording"),
        (b'{"format": 1}', "should be present"),
        (b'{"format": 1, "made": NaN}', "is not JSON"), (b" " * (MAX_FILE_BYTES + 1), "is larger than 16 MiB"),
    ],
)  # fmt: skip
def test_what_is_no_recording(data: bytes, said: str) -> None:
    with pytest.raises(InputError, match=said):
        read(data, "this file")


@pytest.mark.parametrize(
    ("place", "junk"),
    [
        ("dtype", "fp3"), ("dtype", ""), ("tiling", [0, 8]), ("tiling", [10**9, 8]), ("requested", {"Q": [-1, 0]}),
        ("requested", {"Q": [2**90, 0]}),
        ("error_map", {"b": 0, "h": 0, "rows": [0, 1], "values": [[0.0]] * 1000}),
        ("build", {"compiler": "", "arch": "", "options": [], "seconds": 0.0, "cached": False,
                   "functions": [{"function": "f", "registers": 2**70, "local_bytes": 0, "static_smem_bytes": 0}]}),
        ("error_map", {"b": 0, "h": 0, "rows": [0, 1], "values": [[0.0] * 1000]}),
    ],
)  # fmt: skip
def test_what_the_page_cannot_show_is_refused(place: str, junk: Any) -> None:
    raw = json.loads(WHOLE.to_json())
    raw["runs"][0]["entries"][0][place] = junk
    with pytest.raises(InputError, match=rf"entries\[0\]\.{place}\S* should be "):
        read(json.dumps(raw))


def test_a_run_with_more_entries_than_a_figure_has_bars_is_refused() -> None:
    raw = json.loads(WHOLE.to_json())
    raw["runs"][0]["entries"] = raw["runs"][0]["entries"][:1] * 101
    with pytest.raises(InputError, match=r"runs\[0\]\.entries should be a list of at most 100"):
        read(json.dumps(raw))


def test_a_problem_that_cannot_be_is_named() -> None:
    text = WHOLE.to_json().replace('"Nq":4096', '"Nq":-3')
    with pytest.raises(InputError, match="holds a problem that cannot be: Nq=-3 is out of range"):
        read(text)


def test_nearest_prefers_the_same_and_says_what_differs() -> None:
    base = Problem(H=16, N=4096)
    files = [
        recording(run(base, entry(), entry(tiling=(16, 64))), run(base.replace(N=1024), entry())),
        recording(run(base.replace(causal="br"), entry()), run(base, entry("01", None))),
    ]
    flash = KERNELS["02"]

    def found(problem: Problem, tiling: Tiling) -> Any:
        answer = nearest(files, flash, problem, tiling)
        assert answer is not None
        return answer

    assert found(base, Tiling(32, 32)).differs == {}
    assert found(base, Tiling(16, 64)).entry.tiling == (16, 64)
    assert found(base.replace(N=4000), Tiling(32, 32)).differs == {"Nq": (4000, 4096), "Nk": (4000, 4096)}
    assert found(base.replace(N=1500), Tiling(32, 32)).run.problem.Nq == 1024
    assert found(base.replace(N=8192, causal="br"), Tiling(32, 32)).run.problem.causal == "bottom-right"
    naive = nearest(files, KERNELS["01"], base, Tiling(8, 8))
    assert naive is not None and naive.differs == {}  # a kernel with tiles of its own has no Br and Bc to differ in
    assert nearest([], flash, base, Tiling(8, 8)) is None
    absent = dataclasses.replace(entry(), time=None, absent="too large")
    assert nearest([recording(run(base, absent))], flash, base, Tiling(8, 8)) is None


def test_an_entry_is_stale_when_the_source_has_changed() -> None:
    assert dataclasses.replace(entry(), source_hash="0" * 12).stale
    assert dataclasses.replace(entry(), name="99").stale


def test_b08_times_that_cannot_be_are_refused() -> None:
    p, gpu = Problem(H=16, N=4096), GPUS["H200"]
    least = least_time_us(p, "fp32", gpu)
    assert least == pytest.approx(4 * 16 * 4096**2 * 64 / 67e6)
    assert implausible(p, "fp32", gpu, least * 1.01) is None
    for time in (0.0, -1.0, math.nan, math.inf, least / 2):
        assert implausible(p, "fp32", gpu, time) is not None
    third = least_time_us(p, "fp32", gpu, "13")  # three products on tensor cores: the fp32 units are no limit of it
    assert third == pytest.approx(4 * 16 * 4096**2 * 64 / (494.5e6 / 3))
    assert implausible(p, "fp32", gpu, third * 1.01, "13") is None and implausible(p, "fp32", gpu, third * 1.01)
    small = Problem(B=64, H=16, N=64)
    assert least_time_us(small, "bf16", gpu) == pytest.approx(3 * 64 * 16 * 64 * 64 * 2 / 4800 / 1e3)


def test_useful_flops_count_visible_pairs() -> None:
    assert useful_flops(Problem(N=8, d=2)) == 4 * 2 * 64
    assert useful_flops(Problem(N=8, d=2, causal="br")) == 4 * 2 * 36
    assert useful_flops(Problem(B=2, H=3, N=8, d=2, lens_k=(0, 5))) == 4 * 2 * 3 * 8 * 5


def test_a_gpu_from_the_driver_is_found_in_the_table() -> None:
    known = from_driver(FACTS)
    assert known.key == "H200" and known.hbm_gbps == 4800 and known.name == "NVIDIA H200"
    assert known.smem_per_block_optin == 232_448
    strange = from_driver(dataclasses.replace(FACTS, name="NVIDIA X", compute="13.7", sms=10, clock_khz=1_000_000))
    assert (
        strange.key == "this" and strange.fp32_tflops == pytest.approx(2.56) and strange.limits.threads_per_sm == 2048
    )
    assert strange.hbm_gbps == pytest.approx(2 * 3_201_000 * 6016 / 8 / 1e6) and strange.fp16_tflops == 0


LOADS, STORES = (f"l1tex__t_sectors_pipe_lsu_mem_global_op_{op}.sum" for op in ("ld", "st"))


def test_what_is_shipped_is_whole_and_right() -> None:
    """Every recorded kernel was right and took a possible time; one that is still the one in cuda_src/ asked for
    exactly the bytes that its plan says: 32 x the sectors that the hardware counted."""
    covered = set()
    for file in shipped():
        assert file.device.facts.name == "NVIDIA H200"
        for one in file.runs:
            p = one.problem
            for e in (e for e in one.entries if e.is_kernel):
                assert e.check is not None and e.check.ok and e.time is not None and e.time.repeats >= 20
                assert implausible(p, e.dtype, file.device.gpu, e.time.median_us) is None
                covered.add((e.name, p.Nq, p.d, p.causal, e.tiling))
                if e.stale:
                    continue
                plan = KERNELS[e.name].plan(p, Tiling(*(e.tiling or (1, 1))), file.device.gpu)
                assert plan.whole_sectors and e.requested == plan.requested.by_tensor
                assert 32 * (e.counter(LOADS) + e.counter(STORES)) == e.requested_bytes  # type: ignore[operator]
            assert {e.dtype for e in one.entries if e.time and not e.is_kernel} == {"fp32", "fp16", "bf16"}
    for N in (512, 1024, 2048, 4096, 8192, 16384):
        for d in (64, 128):
            for causal in (None, "bottom-right"):
                assert ("01", N, d, causal, None) in covered and ("02", N, d, causal, (32, 32)) in covered
    assert len({tiling for name, *_, tiling in covered if name == "02"}) >= 4


def test_the_files_can_be_opened_in_the_app() -> None:
    files = list(SHIPPED.glob("*.json"))
    assert files and all(path.stat().st_size <= MAX_FILE_BYTES for path in files)
