"""Profiling by source line, with a profiler that is made up: what is asked of it, what is kept, what is told."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from fmha import Problem, Tiling
from fmha.errors import GpuError, InputError
from fmha.gpu import counters, lines
from fmha.gpu.counters import Counted
from fmha.kernels import KERNELS
from fmha.line_counts import LineCounts

FAKE = """\
#!{python}
import pathlib, sys
asked = sys.argv[1:]
if "--version" in asked:
    print("Nsight Compute\\nVersion 2025.3.1.0 (build 1)")
elif "--import" in asked:
    page = asked[asked.index("--page") + 1]
    kind = "raw" if page == "raw" else asked[asked.index("--print-source") + 1]
    print(pathlib.Path({here!r}, kind.replace(",", "-") + ".csv").read_text())
elif "memory_l1_wavefronts_shared" in asked[asked.index("--metrics") + 1] and {picky}:
    print("==ERROR== Failed to find metric")
elif {refuses}:
    print("==ERROR== ERR_NVGPUCTRPERM - no permission")
else:
    pathlib.Path(asked[asked.index("--export") + 1]).write_bytes(b"report")
"""
HEADER = (
    '"Line No","Source","Address","Source","Instructions Executed","Predicated-On Thread Instructions Executed",'
    '"L2 Theoretical Sectors Global","L1 Wavefronts Shared","L1 Wavefronts Shared Ideal"'
)
PAGE = f"""\
"File Path","/x/02_fmha101.cu"
"Function Name","fmha101"
{HEADER}
"43","Qi[e] = Q[q_off + e];","-","-","4","128","16","2","2"
"","","0x10","LDG.E R3, desc[UR12][R2.64]","2","64","16","0","0"
"","","0x20","STS [R10], R3","2","64","0","2","2"
"""
RAW = (
    '"ID","Kernel Name","l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"\n'
    '"","","sector"\n"0","fmha101(const float *)","1,016"\n'
)
RUN = Counted(KERNELS["02"], Problem(N=8, d=8), Tiling(8, 8))


def profiler(folder: Path, monkeypatch: pytest.MonkeyPatch, *, picky: bool = False, refuses: bool = False) -> None:
    for name, text in {"cuda-sass": PAGE, "sass": "", "raw": RAW}.items():
        (folder / f"{name}.csv").write_text(text)
    path = folder / "ncu"
    path.write_text(FAKE.format(python=sys.executable, here=str(folder), picky=picky, refuses=refuses))
    path.chmod(0o700)
    monkeypatch.setattr(counters, "find", lambda: str(path))


@pytest.mark.skipif(sys.platform == "win32", reason="the made-up profiler is a script")
@pytest.mark.parametrize("picky", [False, True])
def test_a_run_is_profiled_and_read(
    picky: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    profiler(tmp_path, monkeypatch, picky=picky)
    out = tmp_path / "out"
    out.mkdir()
    lines.count_lines(RUN, out)
    name = lines.name_of(RUN)
    assert name == "02-n8-d8-h1-8x8"
    assert {path.name for path in out.iterdir()} == {
        f"{name}.{end}" for end in ("ncu-rep", "log", "source.csv", "sass.csv", "raw.csv")
    }
    assert ("Failed to find metric" in (out / f"{name}.log").read_text()) == picky
    facts = {"kernel": "02", "problem": {"N": 8, "d": 8}, "tiling": {"Br": 8, "Bc": 8}}
    counts = lines.read_counts(RUN, out, facts)
    assert [(c.line, c.space, c.lanes, c.sectors, c.wavefronts) for c in counts.lines] == [
        (43, "global", 64, 16, 0),
        (43, "shared", 64, 0, 2),
    ]
    assert counts.totals == {"fmha101": {"l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum": 1016.0}}

    monkeypatch.setattr(lines, "SETTINGS", ((RUN.problem, RUN.tiling),))
    (out / f"{name}.facts.json").write_text(json.dumps(facts))
    assert lines.main(["--out", str(out), "--kernel", "02", "--read-again"]) == 0
    assert LineCounts.from_json((out / f"{name}.json").read_text()) == counts
    assert "2 rows, 16 sectors, 2 wavefronts" in capsys.readouterr().out
    assert lines.main(["--out", str(out), "--kernel", "03", "--read-again"]) == 1
    assert lines.main(["--out", str(out), "--kernel", "ten"]) == 1


@pytest.mark.skipif(sys.platform == "win32", reason="the made-up profiler is a script")
def test_what_goes_wrong_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    profiler(tmp_path, monkeypatch, refuses=True)
    with pytest.raises(GpuError, match="ERR_NVGPUCTRPERM"):
        lines.count_lines(RUN, tmp_path)
    with pytest.raises(InputError, match="profile it first"):
        lines.read_counts(RUN, tmp_path, {})
    name = lines.name_of(RUN)
    (tmp_path / f"{name}.source.csv").write_text(PAGE.replace("fmha101", "other"))
    (tmp_path / f"{name}.raw.csv").write_text(RAW)
    with pytest.raises(InputError, match="lists other, and fmha101 was run"):
        lines.read_counts(RUN, tmp_path, {})
    monkeypatch.setattr(counters, "find", lambda: None)
    with pytest.raises(GpuError, match="not found"):
        lines.count_lines(RUN, tmp_path)


def test_the_plain_kernels_are_those_of_the_first_rungs() -> None:
    assert [kernel.number for kernel in lines.plain_kernels()] == ["01", "02", "03", "04", "05", "06"]
