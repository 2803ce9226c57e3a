"""Profiling by source line, with a profiler that is made up: what is asked of it, what is kept, what is told."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from fmha import Problem, Tiling
from fmha.errors import GpuError, InputError
from fmha.gpu import counters, inlined, line_profile, lines, toolchain
from fmha.gpu.counters import Counted
from fmha.hardware import DEFAULT_GPU, GPUS
from fmha.kernels import KERNELS
from fmha.line_counts import LineCounts

FAKE = """\
#!{python}
import pathlib, sys
asked = sys.argv[1:]
if "--version" in asked:
    print("Nsight Compute\\nVersion 2025.3.1.0 (build 1)")
elif "--query-metrics" in asked:
    print("smsp__inst_executed_op_ldgsts    Counter  inst  # of LDGSTS")
elif "--import" in asked:
    page = asked[asked.index("--page") + 1]
    kind = "raw" if page == "raw" else asked[asked.index("--print-source") + 1]
    print(pathlib.Path({here!r}, kind.replace(",", "-") + ".csv").read_text())
elif "memory_l1_wavefronts_shared" in asked[asked.index("--metrics") + 1] and {picky}:
    print("==ERROR== Failed to find metric")
elif {refuses}:
    print("==ERROR== ERR_NVGPUCTRPERM - no permission")
else:
    pathlib.Path(asked[asked.index("--export") + 1]).write_text(asked[asked.index("--metrics") + 1])
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
# Where nvdisasm says that the two instructions come from, the second by way of a helper.
LISTING = """\
	.section	.text.fmha101,"ax",@progbits
.text.fmha101:
	//## File "/x/02_fmha101.cu", line 43
        /*0010*/              @P0  LDG.E R3, desc[UR12][R2.64] ;
	//## File "/x/common.cuh", line 20 inlined at "/x/02_fmha101.cu", line 31
	//## File "/x/02_fmha101.cu", line 31 inlined at "/x/02_fmha101.cu", line 44
	//## File "/x/02_fmha101.cu", line 44
        /*0020*/                   STS [R10], R3 ;
        /*0030*/                   EXIT ;
	//## File "/x/02_fmha101.cu", line 60
        /*0040*/                   EXIT ;
	//## File "/x/common.cuh", line 20
        /*0050*/                   STS [R10], R3 ;
"""
RUN = Counted(KERNELS["02"], Problem(N=8, d=8), Tiling(8, 8))


def profiler(folder: Path, monkeypatch: pytest.MonkeyPatch, *, picky: bool = False, refuses: bool = False) -> None:
    for name, text in {"cuda-sass": PAGE, "sass": "", "raw": RAW}.items():
        (folder / f"{name}.csv").write_text(text)
    path = folder / "ncu"
    path.write_text(FAKE.format(python=sys.executable, here=str(folder), picky=picky, refuses=refuses))
    path.chmod(0o700)
    monkeypatch.setattr(counters, "find", lambda: str(path))
    counters.offered.cache_clear()


@pytest.mark.skipif(sys.platform == "win32", reason="the made-up profiler is a script")
@pytest.mark.parametrize("picky", [False, True])
def test_a_run_is_profiled_and_read(
    picky: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    profiler(tmp_path, monkeypatch, picky=picky)
    out = tmp_path / "out"
    out.mkdir()
    line_profile.count_lines(RUN, out)
    line_profile.keep_pages(RUN, out)
    name = line_profile.name_of(RUN)
    assert name == "02-n8-d8-h1-8x8"
    assert {path.name for path in out.iterdir()} == {
        f"{name}.{end}" for end in ("ncu-rep", "log", "source.csv", "sass.csv", "raw.csv")
    }
    log = (out / f"{name}.log").read_text()
    assert ("Failed to find metric" in log) == picky
    asked = (out / f"{name}.ncu-rep").read_text().split(",")
    assert ("memory_l1_wavefronts_shared" in asked) != picky  # what it does not take is left out
    assert ("smsp__inst_executed_op_ldgsts.sum" in asked) != picky  # what it does not offer is not asked for
    assert not any("op_ldsm" in one for one in asked)
    facts = {"kernel": "02", "problem": {"N": 8, "d": 8}, "tiling": {"Br": 8, "Bc": 8}}
    with pytest.raises(InputError, match=r"02-n8-d8-h1-8x8\.cubin is not there"):
        line_profile.read_counts(RUN, out, facts)
    (out / f"{name}.inlined.txt").write_text(LISTING)
    counts = line_profile.read_counts(RUN, out, facts)
    assert [(c.line, c.op, c.space, c.lanes, c.sectors, c.wavefronts) for c in counts.lines] == [
        (43, "LDG", "global", 64, 16, 0),
        (44, "STS", "shared", 64, 0, 2),
    ]
    assert counts.totals == {"fmha101": {"l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum": 1016.0}}

    monkeypatch.setattr(lines, "SETTINGS", ((RUN.problem, RUN.tiling.Bc),))
    monkeypatch.setattr(lines, "_ROWS", (RUN.tiling.Br,))
    (out / f"{name}.facts.json").write_text(json.dumps(facts))
    assert lines.main(["--out", str(out), "--kernel", "02", "--read-again"]) == 0
    assert LineCounts.from_json((out / f"{name}.json").read_text()) == counts
    assert "2 rows, 16 sectors, 2 wavefronts" in capsys.readouterr().out
    assert lines.main(["--out", str(out), "--kernel", "03", "--read-again"]) == 1
    assert "facts.json cannot be read (No such file or directory): profile it first." in capsys.readouterr().err
    (out / f"{name}.facts.json").write_text("{")
    assert lines.main(["--out", str(out), "--kernel", "02", "--read-again"]) == 1
    assert "does not say what was run: profile it again." in capsys.readouterr().err
    (out / f"{name}.facts.json").write_text(json.dumps(facts))
    (out / f"{name}.source.csv").write_bytes(b"\xff\xfe")
    assert lines.main(["--out", str(out), "--kernel", "02", "--read-again"]) == 1
    assert "source.csv is no text: profile it again." in capsys.readouterr().err
    assert lines.main(["--out", str(out / f"{name}.log"), "--read-again"]) == 1
    assert "cannot be written (File exists): choose another folder with --out." in capsys.readouterr().err
    assert lines.main(["--out", str(out), "--kernel", "ten"]) == 1
    assert lines.main(["--out", str(out), "--kernel", "12"]) == 1
    assert "12 runs none of the counted problems, which are in fp32: choose" in capsys.readouterr().err


@pytest.mark.skipif(sys.platform == "win32", reason="the made-up profiler is a script")
def test_what_goes_wrong_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    profiler(tmp_path, monkeypatch, refuses=True)
    with pytest.raises(GpuError, match="ERR_NVGPUCTRPERM"):
        line_profile.count_lines(RUN, tmp_path)
    with pytest.raises(InputError, match="profile it first"):
        line_profile.read_counts(RUN, tmp_path, {})
    name = line_profile.name_of(RUN)
    (tmp_path / f"{name}.inlined.txt").write_text(LISTING)
    (tmp_path / f"{name}.source.csv").write_text(PAGE.replace("fmha101", "other"))
    (tmp_path / f"{name}.raw.csv").write_text(RAW)
    (tmp_path / f"{name}.inlined.txt").write_text(LISTING.replace("fmha101", "other"))
    with pytest.raises(InputError, match="lists other, and fmha101 was run"):
        line_profile.read_counts(RUN, tmp_path, {})
    monkeypatch.setattr(counters, "find", lambda: None)
    for step in (line_profile.count_lines, line_profile.keep_pages):
        with pytest.raises(GpuError, match="not found"):
            step(RUN, tmp_path)


def test_what_is_counted_fits_each_kernel() -> None:
    assert [kernel.number for kernel in lines.fp32_kernels()] == ["01", "02", "03", "04", "05", "06", "07", "13"]
    for kernel in lines.fp32_kernels():
        runs = lines.runs_of(kernel)
        assert [(run.problem.Nq, run.tiling.Bc) for run in runs] == [(256, 32), (200, 16)]
        assert all(kernel.complaint(run.problem, run.tiling, GPUS[DEFAULT_GPU]) is None for run in runs)
        assert lines.runs_of(kernel, quick=True) == runs[:1]
    assert lines.runs_of(KERNELS["12"]) == []


def test_an_instruction_belongs_to_the_kernels_line() -> None:
    (found,) = inlined.homes(LISTING).values()
    assert {offset: (home.line, home.name) for offset, home in found.items()} == {
        0x10: (43, "LDG"),
        0x20: (44, "STS"),
        0x30: (44, "EXIT"),
        0x40: (60, "EXIT"),
        0x50: (44, "STS"),  # nvcc forgot who called: the caller of the nearest that came from the same line
    }
    assert {home.file for home in found.values()} == {"02_fmha101.cu"}
    with pytest.raises(InputError, match="names no source lines"):
        inlined.homes(LISTING.replace("//## File", "//"))


@pytest.mark.skipif(sys.platform == "win32", reason="the made-up program is a script")
def test_nvdisasm_is_found_and_what_it_says_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cubin = tmp_path / "one.cubin"
    cubin.write_bytes(b"ELF")
    monkeypatch.setattr(toolchain, "find_nvcc", lambda: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "cuda"))
    if inlined.find() is None:  # but for a toolkit in /usr/local/cuda
        with pytest.raises(GpuError, match=r"nvdisasm was not found.*CUDA Toolkit"):
            inlined.disassemble(cubin)
    program = tmp_path / "nvdisasm"
    program.write_text('#!/bin/sh\necho "$@"\n')
    program.chmod(0o700)
    assert inlined.disassemble(cubin).split() == ["--print-line-info-inline", "--print-code", str(cubin)]
    program.write_text("#!/bin/sh\necho 'nvdisasm fatal: not supported' >&2\nexit 1\n")
    with pytest.raises(GpuError, match=r"does not take one\.cubin: nvdisasm fatal"):
        inlined.disassemble(cubin)
