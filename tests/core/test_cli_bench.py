"""The command line of kernels and bench, as far as it goes without a GPU."""

from __future__ import annotations

import dataclasses
import json

import pytest

from fmha import FmhaError, Problem, Tiling
from fmha.check import Check
from fmha.cli import bench, main
from fmha.hardware import DriverFacts
from fmha.kernels import KERNELS
from fmha.measurement import Device, Entry, Recording, Run, Timing, read


def answer(capsys: pytest.CaptureFixture[str], line: str) -> tuple[int, str, str]:
    code = main(line.split())
    out, err = capsys.readouterr()
    return code, out, err


def test_kernels_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = answer(capsys, "kernels")
    assert code == 0 and err == ""
    for number, k in KERNELS.items():
        assert number in out and k.name in out and k.source_hash() in out
    rows = json.loads(answer(capsys, "kernels --json")[1])
    assert [row["number"] for row in rows] == list(KERNELS)


def test_the_plan_of_a_kernel(capsys: pytest.CaptureFixture[str]) -> None:
    line = "kernels --kernel 2 --N 1000 --H 3 --d 64 --Br 16 --Bc 64 --json"
    plan = json.loads(answer(capsys, line)[1])["plan"]
    expected = KERNELS["02"].plan(Problem(N=1000, H=3, d=64), Tiling(16, 64))
    assert plan["launches"][0]["grid"] == 3 * 63 and plan["launches"][0]["block"] == 1024
    assert plan["launches"][0]["smem_bytes"] == expected.launches[0].smem_bytes
    assert plan["requested"]["requested_bytes"] == expected.requested.requested_bytes


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("kernels --kernel 99", "is not known"),
        ("kernels --kernel 02 --Br 64 --Bc 64", "at most 1,024"),
        ("kernels --kernel 02 --d 300", "d up to 256"),
        ("kernels --gpu K80", "gpu='K80' is not known"),
        ("bench --kernel x", "is not known"),
        ("bench --Br 0", "Br=0 is out of range"),
        ("bench --dtype fp16", "computes in fp32"),
        ("bench --kernel 02 --Br 64 --Bc 64", "at most 1,024"),
        ("bench --input nothing", "input='nothing' is not known"),
        ("bench --out /nowhere/at/all.json", "/nowhere/at does not exist"),
        ("bench --timeout 0", "timeout=0 is out of range"),
        ("bench --out /", "is a folder"),
        ("bench --seed -1", "seed=-1 is out of range"),
        ("bench --input sentence --N 64", "use d=32 and N up to 16"),
        ("bench --sweep --H 4 --Br 16", "--sweep chooses --H, --Br itself"),
        ("bench --sweep --kernel 01", "--sweep chooses --kernel itself"),
        ("bench --out=", "--out is empty: name a file, such as --out recording.json"),
        ("bench --timestamps --out new/", "new/ is a folder: name a file in it, such as --out new/timeline.npz"),
        ("bench --repeats 19", "repeats=19 is out of range: use 20 to 10,000"),
        ("bench --ladder --tune=", "--tune is empty: name a file, such as --tune tiles.json"),
        ("bench --ladder --tune new/tiles.json", "new does not exist: make that folder, or choose another --tune"),
        ("bench --ladder --tune t.txt", "t.txt ends in .txt, and a .json file is written"),
        ("bench --ladder --repeats 50", "--ladder chooses --repeats itself"),
        ("bench --peak --repeats 50 --input passage", "--peak has no use for --repeats, --input"),
        (
            "bench --timestamps --out t.json",
            "t.json ends in .json, and a .npz file is written: name one, such as --out t.npz.",
        ),
        (
            "bench --ladder --out t.NPZ",
            "t.NPZ ends in .NPZ, and a .json file is written: name one, such as --out t.json.",
        ),
        (
            "simulate --N 8 --npz run.json",
            "run.json ends in .json, and a .npz file is written: name one, such as --npz run.npz.",
        ),
        ("site --out=", "--out is empty: name a folder, such as --out site"),
        ("simulate --N 8 --npz new/", "new/ is a folder: name a file in it, such as --npz new/run.npz"),
    ],
)
def test_a_mistake_is_one_line(capsys: pytest.CaptureFixture[str], line: str, said: str) -> None:
    code, out, err = answer(capsys, line)
    assert code == 2 and out == "" and said in err and err.count("\n") == 1


def test_a_kernel_with_tiles_of_its_own_is_not_said_to_use_others(capsys: pytest.CaptureFixture[str]) -> None:
    assert "tiles     of 64 x 64" in answer(capsys, "kernels --kernel 01 --N 100")[1]
    assert "tiles     Br=32 Bc=32: 4 Q tiles" in answer(capsys, "kernels --kernel 02 --N 100")[1]


def test_a_kernel_has_one_order_and_no_option_for_it(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main("kernels --kernel 02 --order kv-outer".split())
    assert ended.value.code == 2 and "--order" in capsys.readouterr().err


def test_c04_no_gpu_is_said_and_what_to_do(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    code, out, err = answer(capsys, "bench --N 128")
    assert code == 2 and out == "" and err.startswith("python -m fmha bench: ") and err.count("\n") == 1
    assert "Traceback" not in err and len(err) > 60


def test_the_sweep_covers_what_the_app_ships() -> None:
    given = {"input": "random", "seed": 0, "no_peers": False, "repeats": 20, "N": None, "d": None, "causal": None}
    parsed = type("Options", (), given)
    payloads = list(bench.sweep(parsed))  # type: ignore[arg-type]
    problems = {(p["problem"].Nq, p["problem"].d, p["problem"].causal) for p in payloads}
    assert problems == {
        (N, d, causal) for N in bench.SWEEP_LENGTHS for d in (64, 128) for causal in (None, "bottom-right")
    }
    for payload in payloads:
        for name, tiling in payload["candidates"]:
            KERNELS[name].plan(payload["problem"], tiling)
    narrow = type("Options", (), given | {"N": 300, "d": 32, "causal": "none"})
    assert [p["problem"] for p in bench.sweep(narrow)] == [Problem(N=300, H=16, d=32)]  # type: ignore[arg-type]
    assert len({tiling for p in payloads for _, tiling in p["candidates"]}) == len(bench.SWEEP_TILES)


def test_recordings_are_joined_and_shown() -> None:
    facts = DriverFacts("X", "9.0", 1, 1, 1, 1, 1, 1, 1, 1, 1024, 1024, 1, 65536)
    right = Check(True, "right: ...", 1, 1, 0.0, 1.0, 0.0, 1.0, 0.0, 0.0, 0, (0, 0, 0, 0))
    entries = (
        Entry("02", "t", "fp32", (8, 8), "0" * 12, check=right, time=Timing(1000.0, 990.0, 1010.0, 980.0, 20, 3)),
        Entry("sdpa-flash", "t", "fp32", absent="not offered"),
    )
    files = [
        Recording(Device(facts, "1", "13.0"), "now", (Run(Problem(N=n, d=64), "random", 0, "now", entries),), "fmha")
        for n in (100, 200)
    ]
    whole = bench.joined(files)
    assert [run.problem.Nq for run in whole.runs] == [100, 200] and read(whole.to_json()) == whole
    flash, absent = bench.table(whole)
    assert "02 8x8" in flash and "1.00 ms" in flash and "0.01 TFLOP/s" in flash and "right" in flash
    assert absent.endswith("not offered")
    bench.refuse_wrong(whole)
    spoiled = dataclasses.replace(right, ok=False, verdict="wrong: O is off by 1")
    entry = dataclasses.replace(entries[0], check=spoiled, time=None)
    bad = Recording(whole.device, "now", (dataclasses.replace(whole.runs[0], entries=(entry,)),), "fmha")
    with pytest.raises(FmhaError, match="kernel 02 with B=1 H=1 N=100 d=64 is wrong: O is off by 1; no time"):
        bench.refuse_wrong(bad)
