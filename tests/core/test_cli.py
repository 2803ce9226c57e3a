"""`python -m fmha`: what it prints, what it writes, and how it refuses."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from fmha import Problem, Tiling, load, simulate, traffic
from fmha.cli import main
from tests.core.cli_support import answer, refusal, save
from tests.core.yardstick import gen

ISSUE_LINE = "traffic --B 1 --H 16 --N 4096 --d 64 --Br 32 --Bc 32 --dtype fp32 --order q-outer --json"


# --- traffic --------------------------------------------------------------------------------------------------------


def test_the_issue_line_as_a_process() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "fmha", *ISSUE_LINE.split()], capture_output=True, text=True, check=True
    )
    out = json.loads(done.stdout)
    tensor = 16 * 4096 * 64 * 4
    assert out["requested_read_bytes"] == tensor + 128 * 2 * tensor
    assert out["requested_write_bytes"] == tensor
    assert out["flops"] == 4 * 16 * 4096 * 4096 * 64
    assert out["smem_bytes"] == 37376 and out["compulsory_bytes"] == 4 * tensor and done.stderr == ""
    assert out["problem"]["Nk"] == 4096 and out["problem"]["scale"] == 0.125
    assert out["tiling"] == {"Br": 32, "Bc": 32, "Tr": 128, "Tc": 128} and out["order"] == "q-outer"
    assert out["by_tensor"]["Q"] == {"read": tensor, "write": 0}


@pytest.mark.parametrize(
    ("line", "p", "t", "order", "lse"),
    [
        ("--N 1000 --Br 64 --Bc 16 --causal --lse", Problem(N=1000, causal=True), Tiling(64, 16), "q-outer", True),
        ("--Nq 7 --Nk 9 --d 3 --causal tl --order kv-outer", Problem(Nq=7, Nk=9, d=3, causal="tl"), Tiling(32, 32),
         "kv-outer", False),
        ("--N 9 --Nk 4 --causal=br", Problem(N=9, Nk=4, causal=True), Tiling(32, 32), "q-outer", False),
        ("--B 2 --N 8 --lens-k 0,2 --left-pad 1,1 --Bc 2", Problem(B=2, N=8, lens_k=(0, 2), left_pad=(1, 1)),
         Tiling(32, 2), "q-outer", False),
        ("--N 8 --H 4 --Hk 2 --dtype bf16 --order naive", Problem(N=8, H=4, Hk=2, dtype="bf16"), Tiling(32, 32),
         "naive", False),
        ("--N 8 --causal none --scale -1e-3", Problem(N=8, scale=-1e-3), Tiling(32, 32), "q-outer", False),
    ],
)  # fmt: skip
def test_options_reach_the_problem(
    capsys: pytest.CaptureFixture[str], line: str, p: Problem, t: Tiling, order: str, lse: bool
) -> None:
    results = [answer(capsys, f"traffic {line} --json --method {method}") for method in ("auto", "events", "closed")]
    expected = traffic(p, t, order, write_lse=lse).as_dict()
    for out in results:
        assert {key: out[key] for key in expected if key != "method"} == {
            k: v for k, v in expected.items() if k != "method"
        }
        assert out["problem"]["scale"] == p.scale and out["problem"]["causal"] == p.causal
        assert out["problem"]["lens_k"] == (None if p.lens_k is None else list(p.lens_k))
    assert [out["method"] for out in results] == ["events", "events", "closed form"]


def test_a_table_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    assert main("traffic --N 1000000 --H 32 --order kv-outer --causal".split()) == 0
    out = capsys.readouterr().out
    for words in (
        "requested read",
        "requested written",
        "initialisation",
        "compulsory",
        "TiB",
        "GiB",
        "FLOP",
        "causal",
    ):
        assert words in out
    assert "31,250 Q tiles x 31,250 K/V tiles" in out
    assert "nan" not in out and "inf" not in out and max(map(len, out.splitlines())) <= 110


def test_one_tile_is_no_tiles(capsys: pytest.CaptureFixture[str]) -> None:
    assert main("traffic --N 2 --Br 2 --Bc 1".split()) == 0
    assert "1 Q tile x 2 K/V tiles, for" in capsys.readouterr().out


def test_words(capsys: pytest.CaptureFixture[str]) -> None:
    """One word, words that stand together in an entry, and several words that do not."""
    for asked, begin, count in (
        ("alpha", "alpha", 1),
        ("bank conflict", "bank conflict", 1),
        ("alpha SMEM", "alpha", 2),
    ):
        assert main(["words", *asked.split()]) == 0
        entries = capsys.readouterr().out.split("\n\n")
        assert entries[0].startswith(begin) and len(entries) == count


# --- simulate -------------------------------------------------------------------------------------------------------


def test_simulate_json_is_the_run(capsys: pytest.CaptureFixture[str]) -> None:
    out = answer(capsys, "simulate --input worked --json")
    w = load("worked", Problem(N=4, d=4))
    run = simulate(w.problem, Tiling(2, 2), w.Q, w.K, w.V)
    for name in ("O", "LSE", "m", "l", "alpha"):
        np.testing.assert_array_equal(np.array(out[name]), getattr(run, name))
        assert out["shapes"][name] == list(getattr(run, name).shape)
    assert out["tiling"] == {"Br": 2, "Bc": 2, "Tr": 2, "Tc": 2} and out["input"] == w.title


@pytest.mark.parametrize(
    ("line", "shape"),
    [
        ("--input sentence --layer 3 --head 1", [1, 1, 16, 32]),
        ("--input sentence --H 12", [1, 12, 16, 32]),
        ("--input passage --N 40", [1, 1, 40, 32]),
        ("--input rising --N 10 --seed 4", [1, 1, 10, 32]),
        ("--H 2 --Hk 1 --Nq 3 --Nk 5 --d 2 --B 2", [2, 2, 3, 2]),
        ("--input sink --Nk 50", [1, 1, 128, 32]),
    ],
)
@pytest.mark.parametrize("order", ["q-outer", "kv-outer", "naive"])
def test_sizes_come_from_the_input(capsys: pytest.CaptureFixture[str], line: str, shape: list[int], order: str) -> None:
    out = answer(capsys, f"simulate {line} --order {order} --json --precision dtype --dtype fp16 --sms 4 --gpu A100-80")
    assert out["shapes"]["O"] == shape == list(np.array(out["O"]).shape) and out["precision"] == "dtype"


def test_rows_without_keys_are_minus_infinity_and_never_nan(capsys: pytest.CaptureFixture[str]) -> None:
    assert main("simulate --Nq 4 --Nk 2 --d 2 --causal --json".split()) == 0
    text = capsys.readouterr().out
    assert "NaN" not in text and text.count("-Infinity") == 4
    assert json.loads(text)["LSE"][0][0][:2] == [-math.inf, -math.inf]
    assert main("simulate --Nq 4 --Nk 2 --d 2 --causal".split()) == 0
    assert "2 of 4 see no key: their O is 0 and their LSE is -inf" in capsys.readouterr().out


@pytest.mark.parametrize("order", ["q-outer", "kv-outer", "naive"])
@pytest.mark.parametrize("more", ["", " --N 1 --d 1", " --input sentence", " --N 600 --Bc 16", " --lse"])
def test_summary(capsys: pytest.CaptureFixture[str], order: str, more: str) -> None:
    if "lse" in more and order != "q-outer":
        return
    assert main(f"simulate --order {order}{more}".split()) == 0
    out = capsys.readouterr().out
    assert "LSE =" in out and "float64 reference" in out and "nan" not in out
    assert len(out.splitlines()) < 35 and max(map(len, out.splitlines())) <= 110


def test_npz_has_results_and_events(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "run"  # written under exactly this name
    assert main(f"simulate --N 20 --d 3 --Br 8 --Bc 4 --npz {target}".split()) == 0
    assert str(target) in capsys.readouterr().out
    made = load("random", Problem(N=20, d=3))
    run = simulate(Problem(N=20, d=3), Tiling(8, 4), made.Q, made.K, made.V)
    with np.load(target, allow_pickle=False) as file:
        for name in ("O", "LSE", "m", "l", "alpha"):
            np.testing.assert_array_equal(file[name], getattr(run, name))
        for column in run.events.dtype.names or ():
            np.testing.assert_array_equal(file["events"][column], run.events[column])
        assert json.loads(str(file["about"]))["problem"]["Nq"] == 20


# --- refusals -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("", "no command was given: use traffic, simulate, export, site, kernels, trace, bench"),
        ("kernel", "invalid choice: 'kernel'"),
        ("traffic", "no sequence length was given"),
        ("traffic --N 0", "N=0 is out of range: use 1 to 16,777,216"),
        ("traffic --N -5", "N=-5 is out of range"),
        ("traffic --N abc", "--N: 'abc' is not a whole number"),
        ("traffic --N 1.5", "'1.5' is not a whole number"),
        ("traffic --N", "--N: expected one argument"),
        ("traffic --N 8 --n 8", "unrecognized arguments: --n 8"),
        ("traffic --N 8 stray", "traffic: unrecognized arguments: stray; see python -m fmha traffic --help"),
        ("--stray", "python -m fmha: unrecognized arguments: --stray; see python -m fmha --help"),
        ("kernels --N 64 --Br 8", "does not depend on --N, --Br: add --kernel 02"),
        ("words alpha nonesuch", "'alpha nonesuch' is not in the glossary"),
        ("traffic --N 8 --Nq 9", "N=8 and Nq=9 were both given"),
        ("traffic --N 8 --B 0", "B=0"),
        ("traffic --N 8 --H 6 --Hk 4", "H=6 query heads cannot share Hk=4"),
        ("traffic --N 8 --d 0", "d=0"),
        ("traffic --N 8 --Br 0", "Br=0"),
        ("traffic --N 8 --Bc -1", "Bc=-1"),
        ("traffic --N 8 --dtype fp8", "dtype='fp8' is not offered: use fp32, fp16, bf16"),
        ("traffic --N 8 --order flash", "order='flash' is not known: use q-outer"),
        ("traffic --N 8 --method magic", "method='magic' is not known"),
        ("traffic --N 8 --scale nan", "scale=nan is not a finite number"),
        ("traffic --N 8 --scale x", "'x' is not a number"),
        ("traffic --N 8 --causal up", "--causal: invalid choice: 'up'"),
        ("traffic --N 8 --lens-k 1,2", "lens_k has 2 entries for B=1"),
        ("traffic --N 8 --lens-k 9", "lens_k[0]=9 is out of range: use 0 to 8"),
        ("traffic --N 8 --lens-k -1", "lens_k[0]=-1"),
        ("traffic --N 8 --left-pad 1;2", "'1;2' is not a list of whole numbers"),
        ("traffic --N 8 --lse --order naive", "--lse is for q-outer"),
        ("traffic --N 16777216 --Br 1 --Bc 1 --method events", "events, and 10.0 million are allowed"),
        ("simulate --input novel", "input='novel' is not known: use one of random"),
        ("simulate --input sentence --N 17", "has N=16, d=32, but N=17"),
        ("simulate --input sentence --layer 6", "layer=6 is out of range: use 0 to 5"),
        ("simulate --input passage --head 4", "head=4 is out of range: use 0 to 3"),
        ("simulate --seed -1", "seed=-1"),
        ("simulate --precision fp64", "use \"float64\" or \"dtype\""),
        ("simulate --gpu Voodoo2", "gpu='Voodoo2' is not known"),
        ("simulate --sms 0", "sms=0 is out of range"),
        ("simulate --lse --order kv-outer", "--lse is for q-outer"),
        ("simulate --N 20000 --Br 2 --Bc 100", "10.0 million are allowed"),
        ("simulate --N 100000", "scores would take minutes"),
        ("simulate --N 100000 --Br 1000 --Bc 1000", "scores would take minutes"),
        ("simulate --N 16777216 --d 4096", "of memory, and 4.00 GiB is allowed"),
        ("simulate --N 9000 --json", "use --npz FILE"),
        ("simulate --npz /nonexistent/folder/x.npz", "does not exist: make that folder"),
        ("simulate --input worked --file x.npz", "--input and --file were both given"),
        ("traffic --N " + "9" * 5000, "is not a whole number"),
        ("traffic --N 8 --order " + "x" * 5000, "is not known"),
        ("traffic --N 8 " + "--x" * 500, "unrecognized arguments"),
    ],
)  # fmt: skip
def test_bad_arguments(capsys: pytest.CaptureFixture[str], line: str, words: str) -> None:
    assert words in refusal(capsys, *line.split())


# --- manners --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("line", ["--help", "traffic --help", "simulate -h"])
def test_help_teaches_by_example(capsys: pytest.CaptureFixture[str], line: str) -> None:
    with pytest.raises(SystemExit) as caught:
        main(line.split())
    out = capsys.readouterr().out
    assert caught.value.code == 0 and "examples:\n  python -m fmha" in out
    assert line != "simulate -h" or "-Infinity" in out


def test_examples_in_the_help_run(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Q, K, V = gen(1, 2, 9, 9, 4)
    save(tmp_path / "qkv.npz", Q=Q, K=K, V=V)
    lines = []
    for command in ("--help", "traffic --help", "simulate --help", "kernels --help"):
        with pytest.raises(SystemExit):
            main(command.split())
        text = capsys.readouterr().out.split("examples:\n")[1]
        lines += [line.split("python -m fmha ")[1] for line in text.splitlines() if "--help" not in line and line]
    assert len(lines) >= 10
    lines = [line for line in lines if not line.startswith("bench")]  # they need a GPU: tests/gpu/test_faults.py
    for line in lines:
        assert main(line.split()) == 0, line
    assert (tmp_path / "run.npz").exists()


def test_closed_pipe_is_no_traceback() -> None:
    line = [sys.executable, "-m", "fmha", *"simulate --N 1500 --Bc 16 --json".split()]
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.read(10)
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(60) == 141


def test_interrupt_is_one_line() -> None:
    code = (
        "import sys, fmha.__main__ as m, fmha.cli as c\n"
        "def stop(_): raise KeyboardInterrupt\n"
        "c.main = stop\nsys.exit(m.run())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "interrupted\n")


def test_starts_without_heavy_modules() -> None:
    code = f"import sys; from fmha.cli import main; main({ISSUE_LINE.split()!r}); print(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name.split(".")[0] for name in done.stderr.split()}
    assert "numpy" in loaded and not {"torch", "plotly", "streamlit", "pandas", "pycuda"} & loaded


def test_tiles_that_were_left_out_are_some_that_the_kernel_can_have(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["kernels", "--kernel", "12", "--N", "256"]) == 0
    assert "Br=128" in capsys.readouterr().out
    assert main(["kernels", "--kernel", "02", "--N", "256"]) == 0
    assert "Br=32 Bc=32" in capsys.readouterr().out
    assert main(["kernels", "--kernel", "12", "--N", "256", "--gpu", "MI300X"]) == 2
    assert "choose an NVIDIA GPU." in capsys.readouterr().err
