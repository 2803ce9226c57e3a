"""`python -m fmha trace`: what it prints, and how it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fmha import Problem, Tiling, traffic
from fmha.cli import main
from fmha.kernels import KERNELS
from fmha.line_counts import shipped


@pytest.fixture(autouse=True)
def kept(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FMHA_CACHE", str(cache))


def test_numbers_by_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main("trace --N 40 --d 16 --Br 16 --Bc 8 --H 2 --causal --json".split()) == 0
    told = json.loads(capsys.readouterr().out)
    moved = traffic(Problem(N=40, d=16, H=2, causal="br"), Tiling(16, 8))
    assert told["requested_bytes"] == told["predicted_bytes"] == moved.requested_bytes
    assert told["check"]["ok"] and told["findings"] == []
    of_K = [c for c in told["counts"] if c["array"] == "K"]
    assert sum(c["nbytes"] for c in of_K) == moved.by_tensor["K"][0]


def test_a_report(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", "--kernel", "01", "--N", "33", "--d", "8", "--lse"]) == 0
    out = capsys.readouterr().out
    assert "as predicted" in out and "faults    none" in out and "right" in out
    line = next(n for n, text in enumerate(KERNELS["01"].source().splitlines(), 1) if "float s = S_row[j];" in text)
    assert any(row.split()[:1] == [str(line)] and "float s = S_row[j];" in row for row in out.splitlines())


def test_a_version_of_ones_own_is_traced_and_its_fault_named(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    lines = KERNELS["02"].source().splitlines()
    barrier = next(n for n, text in enumerate(lines) if "Kj, Vj were filled" in text)
    mine = tmp_path / "mine.cu"
    mine.write_text("\n".join([*lines[:barrier], "", *lines[barrier + 1 :], ""]))
    assert main(["trace", "--N", "32", "--d", "8", "--Br", "8", "--Bc", "8", "--source", str(mine)]) == 2
    out, err = capsys.readouterr()
    assert "FAULT" in out and "no barrier in between" in out
    assert err.count("\n") == 1 and "fault(s)" in err and "mine.cu:" in err
    assert "02 fmha101 (mine.cu)" in out and "02_fmha101.cu" not in out + err


def test_refusals_are_a_sentence(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    bad = tmp_path / "bad.cu"
    bad.write_text(KERNELS["02"].source().replace("float score = 0.0f;", "floot score = 0.0f;"))
    line = next(n for n, t in enumerate(KERNELS["02"].source().splitlines(), 1) if "float score = 0.0f;" in t)
    assert main(["trace", "--N", "16", "--d", "4", "--Br", "8", "--Bc", "8", "--source", str(bad)]) == 2
    err = capsys.readouterr().err
    assert "02_fmha101.cu" not in err
    assert f"bad.cu:{line}" in err.splitlines()[-1] and "does not compile for the CPU" in err.splitlines()[-1]
    assert main(["trace", "--source", str(tmp_path / "none.cu")]) == 2
    assert "cannot be read as text (No such file or directory): choose" in capsys.readouterr().err
    bad.write_bytes(b"\xff\xfe")
    assert main(["trace", "--source", str(bad)]) == 2
    assert "cannot be read as text (it is not in UTF-8): choose" in capsys.readouterr().err
    assert main(["trace", "--dtype", "fp16"]) == 2
    assert "fp32" in capsys.readouterr().err


def test_a_wild_access_is_told_and_not_tried_again(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    mine = tmp_path / "mine.cu"
    mine.write_text(KERNELS["02"].source().replace("LSE != nullptr && ", ""))
    assert main(["trace", "--N", "16", "--d", "4", "--Br", "8", "--Bc", "8", "--source", str(mine)]) == 2
    out, err = capsys.readouterr()
    assert "FAULT" in out and "null pointer" in err


def test_against_a_gpu(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    words = "trace --kernel 02 --N 200 --d 40 --H 2 --Br 32 --Bc 16 --causal --against-gpu".split()
    assert main(words) == 0
    out = capsys.readouterr().out
    assert "NVIDIA H200" in out and "device    4 of 4 rows have equal sectors" in out
    assert "no access as compiled: the values are in registers" in out and "as written" in out
    (one,) = [c for c in shipped("02") if c.problem.Nq == 200]
    (tmp_path / "mine.json").write_text(one.to_json())
    assert main([*words, str(tmp_path / "mine.json")]) == 0
    capsys.readouterr()
    for more, why in [
        (["--N", "64"], "no counts by line of kernel 02 with these settings: there are 02: N="),
        (["--json"], "leave out --source and --json"),
        (["--kernel", "06", "--against-gpu", str(tmp_path / "mine.json")], "no counts by line of kernel 06"),
        (["--against-gpu", str(tmp_path / "none.json")], "cannot be read"),
    ]:
        assert main([*words, *more]) == 2
        err = capsys.readouterr().err
        assert why in err and err.count("\n") == 1
    (tmp_path / "old.json").write_text(one.to_json().replace(one.facts["source"], "0" * 12))
    assert main([*words, str(tmp_path / "old.json")]) == 2
    assert "has changed since it was counted" in capsys.readouterr().err
