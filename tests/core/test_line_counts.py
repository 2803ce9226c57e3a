"""Nsight Compute's source page becomes counts by source line; the file that keeps them is read strictly."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter

import pytest

from fmha import Problem, Tiling
from fmha.bank_kernels import smem_use
from fmha.errors import InputError
from fmha.hardware import GPUS
from fmha.kernels import KERNELS
from fmha.line_counts import LineCounts, shipped
from fmha.line_page import Home, accesses, by_line, read_page

# Two launches of two functions, the first with a table of a header besides. The columns are a few of the page's many.
PAGE = """\
==PROF== Connected to process 7
"File Path","/somewhere/01_naive.cu"
"Function Name","naive_scores"
"Line No","Source","Address","Source","# Samples","Instructions Executed","Thread Instructions Executed",\
"Predicated-On Thread Instructions Executed","Address Space","L1 Wavefronts Shared","L1 Wavefronts Shared Ideal",\
"L2 Theoretical Sectors Global"
"20","  tile[e] = in[e];","-","-","9","16","512","500","-","8","8","64"
"","","0x7f10","      LDG.E R15, desc[UR12][R2.64] ","4","8","256","250","Global(2)","0","0","64"
"","","0x7f20","@!P0  STS.128 [R8+-0x2000], R15 ","5","8","256","250","Shared(3)","32","8","0"
"21","","-","-","0","0","0","0","-","0","0","0"
"83","  sum += a[k] * b[k];","-","-","0","1,024","32,768","32,768","-","2,048","1,024","0"
"","","0x7f30","      LDS R4, [R8] ","0","512","16384","16384","Shared(3)","1,024","512","0"
"","","0x7f40","      LDS R5, [R9] ","0","512","16384","16384","Shared(3)","1,024","512","0"
"","","0x7f50","      FFMA R5, R4, R5, R5 ","0","512","16384","16384","-","0","0","0"
"File Path","/somewhere/common.cuh"
"Function Name","naive_scores"
"Line No","Source","Address","Source","# Samples","Instructions Executed","Thread Instructions Executed",\
"Predicated-On Thread Instructions Executed","Address Space","L1 Wavefronts Shared","L1 Wavefronts Shared Ideal",\
"L2 Theoretical Sectors Global"
"21","  return key_range[b];","-","-","0","2","64","0","-","0","0","2"
"","","0x7f60","@P0   LDG.E.64 R24, desc[UR12][R10.64+0x4] ","0","2","64","64","Global(2)","0","0","2"
"File Path","/somewhere/01_naive.cu"
"Function Name","naive_softmax(float *, int)"
"Line No","Source","Address","Source","# Samples","Instructions Executed","Thread Instructions Executed",\
"Predicated-On Thread Instructions Executed","Address Space","L1 Wavefronts Shared","L1 Wavefronts Shared Ideal",\
"L2 Theoretical Sectors Global"
"122","  P[e] = p;","-","-","0","4","128","100","-","0","0","16"
"","","0x7f10","      STG.E desc[UR4][R2.64], R5 ","0","4","128","100","Global(2)","0","0","16"
"""
FUNCTIONS = ["naive_scores", "naive_softmax"]


def test_the_page_becomes_counts_by_line() -> None:
    launches = read_page(PAGE, FUNCTIONS)
    assert [function for function, _ in launches] == FUNCTIONS
    rows = [row for function, listed in launches for row in by_line(function, listed)]
    assert [
        (r.function, r.file, r.line, r.space, r.is_write, r.access_bytes, r.requests, r.lanes, r.nbytes, r.sectors)
        for r in rows
    ] == [
        ("naive_scores", "01_naive.cu", 20, "global", False, 4, 8, 250, 1000, 64),
        ("naive_scores", "01_naive.cu", 20, "shared", True, 16, 8, 250, 4000, 0),
        ("naive_scores", "01_naive.cu", 83, "shared", False, 4, 1024, 32768, 131072, 0),
        ("naive_scores", "common.cuh", 21, "global", False, 8, 2, 64, 512, 2),
        ("naive_softmax", "01_naive.cu", 122, "global", True, 4, 4, 100, 400, 16),
    ]
    assert [(r.wavefronts, r.ideal_wavefronts) for r in rows] == [(0, 0), (32, 8), (2048, 1024), (0, 0), (0, 0)]


def test_a_second_launch_of_one_function_is_another_launch() -> None:
    _, second = PAGE.split('"File Path","/somewhere/common.cuh"')
    again = PAGE + '"File Path","/somewhere/01_naive.cu"' + second.split('"File Path","/somewhere/01_naive.cu"')[1]
    assert [function for function, _ in read_page(again, FUNCTIONS)] == [*FUNCTIONS, "naive_softmax"]


def test_a_page_without_counters_is_refused() -> None:
    with pytest.raises(InputError, match="SourceCounters"):
        read_page(PAGE.replace('"L1 Wavefronts Shared Ideal"', '"Other"'), FUNCTIONS)
    assert read_page("==ERROR== nothing was profiled, no kernels", FUNCTIONS) == []


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("LDS.U8 R1, [R2]", [("LDS", "shared", False, 1)]),
        ("@UP0 STG.E.64 desc[UR4][R2.64], R5", [("STG", "global", True, 8)]),
        ("LDG.E.128.CONSTANT R4, desc[UR4][R2.64]", [("LDG", "global", False, 16)]),
        ("      LDSM.16.M88.4 R4, [R8+0x800]", [("LDSM", "shared", False, 16)]),
        ("LDSM.16.MT88.2 R4, [R8]", [("LDSM", "shared", False, 8)]),
        ("LDSM.16.M88 R4, [R8]", [("LDSM", "shared", False, 4)]),
        ("STSM.16.M88.4 [R8], R4", [("STSM", "shared", True, 16)]),
        (
            "@!P1  LDGSTS.E.BYPASS.LTC128B.128 [R10+0x880], desc[UR6][R12.64], !P5",
            [("LDGSTS", "global", False, 16), ("LDGSTS", "shared", True, 16)],
        ),
        ("LDGSTS.E [R1], desc[UR4][R2.64]", [("LDGSTS", "global", False, 4), ("LDGSTS", "shared", True, 4)]),
        ("LDC R1, c[0x0][0x28]", []),
        ("LDGDEPBAR", []),
        ("HMMA.1688.F32.TF32 R4, R8, R12, R4", []),
    ],
)
def test_an_instruction_says_what_it_touches(text: str, what: list[tuple[str, str, bool, int]]) -> None:
    assert list(accesses(text)) == what


# cp.async and ldmatrix as Nsight Compute lists them: below lines of the header, and only now and then of the kernel.
COPIED = f"""\
"File Path","/somewhere/mma.cuh"
"Function Name","copies"
{PAGE.splitlines()[3]}
"78","  asm volatile(...)","-","-","0","24","768","768","-","128","96","160"
"","","0x7f5a80","      LDGSTS.E.BYPASS.128 [R10], desc[UR6][R14.64], !P2 ","0","8","256","256","-","64","32","32"
"","","0x7f5a90","@P0   LDGSTS.E.BYPASS.128 [R10+0x880], desc[UR6][R12.64] ","0","16","512","512","-","64","64","128"
"66","  asm volatile(...)","-","-","0","4","128","128","-","16","16","0"
"","","0x7f5aa0","      LDSM.16.M88.4 R4, [R8] ","0","4","128","128","-","16","16","0"
"File Path","/somewhere/07_copies.cu"
"Function Name","copies"
{PAGE.splitlines()[3]}
"88","  copy_k(j_first);","-","-","0","0","0","0","-","0","0","0"
"","","0x7f5a80","      LDGSTS.E.BYPASS.128 [R10], desc[UR6][R14.64], !P2 ","0","8","256","256","-","64","32","32"
"""
HOMES = {
    "copies": {
        0x0: Home("07_copies.cu", 88, "LDGSTS"),
        0x10: Home("07_copies.cu", 99, "LDGSTS"),
        0x20: Home("07_copies.cu", 99, "LDSM"),
    }
}


def test_a_copy_past_the_registers_counts_on_both_sides_at_the_kernels_line() -> None:
    ((function, listed),) = read_page(COPIED, ["copies"], HOMES)
    rows = by_line(function, listed)
    assert {(r.file, r.access_bytes) for r in rows} == {("07_copies.cu", 16)}
    assert [
        (r.line, r.op, r.space, r.is_write, r.requests, r.lanes, r.sectors, r.wavefronts, r.ideal_wavefronts)
        for r in rows
    ] == [
        (88, "LDGSTS", "global", False, 8, 256, 32, 0, 0),
        (88, "LDGSTS", "shared", True, 8, 256, 0, 64, 32),
        (99, "LDGSTS", "global", False, 16, 512, 128, 0, 0),
        (99, "LDGSTS", "shared", True, 16, 512, 0, 64, 64),
        (99, "LDSM", "shared", False, 4, 128, 0, 16, 16),
    ]


@pytest.mark.parametrize("homes", [{}, {"copies": {**HOMES["copies"], 0x20: Home("07_copies.cu", 99, "LDS")}}])
def test_lines_of_another_binary_are_refused(homes: dict[str, dict[int, Home]]) -> None:
    with pytest.raises(InputError, match=r"the source page of copies lists '(LDSM|LDGSTS).*profile it again"):
        read_page(COPIED, ["copies"], homes)


def counts() -> LineCounts:
    facts = {
        "device": "D", "kernel": "01", "source": "0" * 12,
        "problem": dataclasses.asdict(Problem(N=32, d=8, causal="br")), "tiling": {"Br": 16, "Bc": 8},
    }  # fmt: skip
    rows = [row for function, listed in read_page(PAGE, FUNCTIONS) for row in by_line(function, listed)]
    return LineCounts(facts, {"naive_scores": {"lts__t_bytes.sum": 7.0}}, tuple(rows))


def test_a_file_keeps_all_and_is_read_strictly() -> None:
    made = counts()
    assert LineCounts.from_json(made.to_json()) == made
    assert made.problem == Problem(N=32, d=8, causal="br") and made.tiling == Tiling(16, 8)
    data = json.loads(made.to_json())
    for key, value in [("format", "x"), ("lines", [[1, 2]]), ("facts", {}), ("columns", []), ("totals", 3)]:
        with pytest.raises(InputError, match="no counts by line"):
            LineCounts.from_json(json.dumps({**data, key: value}))
    data["lines"][0][-1] = "many"
    with pytest.raises(InputError, match="no counts by line"):
        LineCounts.from_json(json.dumps(data))
    with pytest.raises(InputError, match=r"x\.json holds no counts"):
        LineCounts.from_json("[", "x.json")


def test_what_is_shipped_is_of_kernels_that_are_there() -> None:
    for one in shipped():
        chosen = KERNELS[one.facts["kernel"]]
        assert {line.file for line in one.lines} == {chosen.file}
        assert shipped("no such kernel") == () and one in shipped(chosen.number)
    assert len(shipped()) >= 12


@pytest.mark.parametrize("one", shipped(), ids=lambda one: one.title)
def test_lines_add_up_to_what_other_counters_say(one: LineCounts) -> None:
    """Sectors to the last one. Wavefronts of loads within 1 %: other work of the SM adds a few to that counter."""
    for function, metrics in one.totals.items():
        mine = [line for line in one.lines if line.function == function]
        for op, is_write in (("ld", False), ("st", True)):
            sectors = sum(line.sectors for line in mine if line.is_write == is_write)
            assert sectors == metrics[f"l1tex__t_sectors_pipe_lsu_mem_global_op_{op}.sum"]
        loads = sum(line.wavefronts for line in mine if not line.is_write)
        assert loads == pytest.approx(metrics["l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum"], rel=0.01)
        for op in ("LDGSTS", "LDSM"):
            name = f"smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_{op.lower()}.sum"
            assert sum(line.wavefronts for line in mine if line.op == op) == metrics.get(name, 0)
            assert any(line.op == op for line in mine) == (one.facts["kernel"] in {"LDGSTS": "07 13", "LDSM": "13"}[op])


@pytest.mark.parametrize("one", [*shipped("01"), *shipped("02")], ids=lambda one: one.title)
def test_the_bank_model_is_what_was_counted_line_by_line(one: LineCounts) -> None:
    """The sites of `fmha.bank_kernels` say what each line does as compiled: equal wavefronts, not just in all."""
    use = smem_use(KERNELS[one.facts["kernel"]], one.problem, one.tiling, GPUS["H200"])
    model: Counter[tuple[str, int, bool]] = Counter()
    for site in use.sites:
        model[site.function, site.line, site.store] += site.wavefronts
    counted: Counter[tuple[str, int, bool]] = Counter()
    for line in one.lines:
        if line.space == "shared":
            counted[line.function, line.line, line.is_write] += line.wavefronts
    assert model == counted
