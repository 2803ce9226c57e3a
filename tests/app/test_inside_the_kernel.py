"""Inside the kernel: what the page says is what the trace counted, for kernels as they are and broken on purpose."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

from fmha import Problem, Tiling
from fmha.errors import TraceError
from fmha.inputs import load
from fmha.kernels import KERNELS
from fmha.line_counts import LineCounts, shipped
from fmha.trace import Trace, trace
from fmha.trace.breaking import Change, changes
from fmha.trace.compilers import compiler
from fmha.trace.lines import by_line
from fmha.ui import traced
from fmha.ui.trace_source import rows, struck
from fmha.ui.trace_words import compact, line_table
from fmha.units import format_bytes, format_count
from tests.app.controls_support import control
from tests.tools import need

PAGE = Path(__file__).resolve().parent.parent.parent / "pages" / "lab" / "inside_the_kernel.py"
SMALL = {"N": "64", "d": "32", "Br": "32", "Bc": "32"}
SOURCE = KERNELS["02"].source()
CURRENT = {number: kernel.source_hash() for number, kernel in KERNELS.items()}
COUNTED = [
    c for c in shipped() if c.facts["kernel"] in ("01", "05", "07") and c.facts["source"] == CURRENT[c.facts["kernel"]]
]


@pytest.fixture(autouse=True)
def a_compiler(request: pytest.FixtureRequest) -> None:
    if "without_a_compiler" in request.fixturenames:
        return
    try:
        found = compiler().command[0]
    except TraceError:
        found = None
    need("cxx", found)


def opened(**url: str) -> AppTest:
    at = AppTest.from_file(PAGE, default_timeout=60)
    for name, text in {**SMALL, **url}.items():
        at.query_params[name] = text
    return checked(at.run())


def checked(at: AppTest) -> AppTest:
    assert not at.exception, [e.value for e in at.exception]
    return at


def said(at: AppTest) -> str:
    """All words of the page, Markdown without its escapes."""
    parts = [*at.header, *at.markdown, *at.caption, *at.success, *at.error, *at.info, *at.warning]
    return re.sub(r"\\(.)", r"\1", "\n".join(str(part.value) for part in parts))


def change(words: str) -> Change:
    return next(c for c in changes(SOURCE) if words in c.why)


def run(N: int = 64, text: str | None = None) -> Trace:
    p = Problem(N=N, d=32)
    given = load("random", p)
    return trace(KERNELS["02"], p, Tiling(32, 32), given.Q, given.K, given.V, text=text)


def line_of(words: str) -> int:
    return next(n for n, line in enumerate(SOURCE.split("\n"), 1) if words in line)


def test_the_numbers_are_those_of_the_trace() -> None:
    at, there = opened(), run()
    assert len(at.success) == 1 and "Right, and clean." in at.success[0].value
    assert "all 1,024 threads of each of 2 blocks" in at.success[0].value
    values = [m.value for m in at.metric]
    wavefronts = sum(c.wavefronts for c in there.counts)
    assert values[:3] == [format_bytes(there.requested_bytes), "100 %", format_count(wavefronts)]
    assert "equal to the closed form, tensor by tensor" in said(at)
    table = next(d.value for d in at.dataframe if "tensor" in d.value.columns)
    assert [tuple(row) for row in table[["tensor", "read", "written"]].itertuples(index=False)] == [
        (name, f"{read:,}", f"{written:,}") for name, (read, written) in there.global_bytes.items()
    ]
    line = line_of("score += Qi[")
    assert f"Line {line}** in `S = QK^T`" in said(at), "the hottest line is chosen"
    assert line_table(by_line(there)[line].counts) in said(at)
    assert not at.warning and not at.error and not at.info


def test_another_line_by_the_list_and_by_a_link() -> None:
    line = line_of("Kj[e] = K[")
    at = opened()
    control(at, "line").set_value(str(line)).run()
    there = line_table(by_line(run())[line].counts)
    assert there in said(checked(at)) and "reads `K`" in there and "writes `Kj`" in there
    assert at.query_params["line"] == [str(line)] or at.query_params["line"] == str(line)
    assert there in said(opened(line=str(line), heat="global"))


def test_the_listing_says_the_same() -> None:
    there = run()
    used = by_line(there)
    made = rows(SOURCE, there.phases, used, "wavefronts", None)
    text = SOURCE.rstrip("\n").split("\n")
    assert ["".join(piece for _, piece in row["code"]) for row in made] == text
    assert [row["no"] for row in made] == list(range(1, len(text) + 1))
    shown = {row["no"]: row["value"] for row in made if "value" in row}
    assert shown == {n: compact(u.value("wavefronts")) for n, u in used.items() if u.value("wavefronts")}
    assert max(row.get("share", 0) for row in made) == 1
    assert [row["no"] for row in made if row.get("head")] == [phase.first for phase in there.phases]


def test_stepping_from_request_to_request_and_over_borders() -> None:
    at = opened()
    line = line_of("score += Qi[")
    assert f"**Line {line} reads `Kj`.** 32 lanes, **32 wavefronts** where 1 would do" in said(at)
    assert control(at, "req").value == 1 and "only 1 of 32 banks is asked" in said(at)
    at.button(key="goreq-1").click().run()
    assert f"Line {line} reads `Qi`" in said(checked(at)) and "a broadcast" in said(at)
    at.button(key="goreq-1").click().run()
    assert control(at, "phase").value == 1 and f"Line {line_of('Vj[e] = V[')} writes `Vj`" in said(checked(at))
    for _ in range(3):
        at.button(key="gophase1").click().run()
    assert f"Line {line_of('row_m = fmaxf')} reads `Sij`" not in said(checked(at))
    assert "31 lanes sit out" in said(at)
    while control(at, "visit").value == 0:
        at.button(key="gophase1").click().run()
    assert (control(at, "visit").value, control(at, "phase").value) == (1, 0)
    at.button(key="gophase-1").click().run()
    last = control(at, "phase")
    assert (control(at, "visit").value, last.value) == (0, len(last.options) - 1)
    assert f"Line {line_of('pv += Sij[')}" in said(checked(at))
    assert not at.warning


def test_the_same_phase_in_another_visit_and_a_link_to_it() -> None:
    at = opened(visit="1", phase="1", qtile="1", warp="3", req="5")
    assert "Line 67" in said(at) and "block 1" in said(at)
    assert control(at, "req").value == 5
    control(at, "visit").set_value(control(at, "visit").options[0]).run()
    assert control(at, "phase").value == 2, "S = QK^T, behind the loading of Q"
    control(at, "N").set_value(16).run()
    assert not checked(at).warning and "block 0" in said(at), "tiles that are gone are left without a word"


def test_a_visit_is_gone_through_phase_by_phase_from_its_first_to_its_last() -> None:
    """The visits in the middle have fewer phases, and the last phase of one has more requests than the next one's."""
    at = opened(N="100", visit="0", phase="6", req="60")

    def place() -> tuple[object, ...]:
        return tuple(control(at, name).value for name in ("visit", "phase", "req"))

    assert f"Line {line_of('pv += Sij[')}" in said(at)
    at.button(key="gophase1").click().run()
    assert place() == (1, 0, 0)
    requests = control(at, "req")
    requests.set_value(requests.options[-1]).run()
    at.button(key="goreq1").click().run()
    assert place() == (1, 1, 0)
    for _ in range(5):
        at.button(key="gophase1").click().run()
    assert place()[:2] == (2, 0)
    at.button(key="gophase-1").click().run()
    assert place()[:2] == (1, 5)
    assert not checked(at).warning


@pytest.mark.parametrize(
    "words", ["a row of Sij was filled", "P, alpha, beta were written", "the next tile overwrites"]
)
def test_a_barrier_taken_out_is_caught(words: str) -> None:
    what = change(words)
    at, there = opened(take=what.key), run(text=what.apply(SOURCE))
    assert there.findings and not at.success
    assert f"without the barrier of line {what.line}" in at.error[0].value
    assert what.why in said(at)
    for finding in there.findings[:6]:
        assert finding.text in said(at)
    made = rows(SOURCE, there.phases, by_line(there), "wavefronts", what)
    assert [row["no"] for row in made if row.get("bad")] == sorted({f.line for f in there.findings})
    assert "".join(text for name, text in made[what.line - 1]["code"] if "struck" in name) == "__syncthreads();"
    assert len(made) == len(SOURCE.rstrip("\n").split("\n"))


def test_what_goes_well_here_goes_wrong_in_a_harder_problem() -> None:
    for words in ("Qi, li, mi are read by", "the last Q tile may have fewer rows"):
        at = opened(take=change(words).key)
        assert "Nothing goes wrong with these settings" in said(at) and "it is found" in said(at)
    what = change("the last Q tile may have fewer rows")
    ragged, (finding,) = opened(N="50", take=what.key), run(50, what.apply(SOURCE)).findings
    assert finding.kind == "out of bounds" and finding.text in said(ragged)
    assert "right all the same, by luck" in said(ragged)


def test_a_bound_taken_out_is_struck_and_what_stands_instead_follows() -> None:
    what = change("fewer keys than Bc")
    made = rows(SOURCE, (), {}, None, what)
    assert (
        made[what.line]["code"] == [("", what.apply(SOURCE).split("\n")[what.line - 1])] and "no" not in made[what.line]
    )
    pieces = made[what.line - 1]["code"]
    assert "".join(text for name, text in pieces if "struck" in name) == what.taken
    assert struck([("k", "int"), ("", " a;")], "t a") == [("k", "in"), ("k struck", "t"), ("struck", " a"), ("", ";")]


def test_everything_that_can_be_taken_out_matters_somewhere() -> None:
    at = opened(each="1", Br="16", Bc="8")
    table = next(d.value for d in at.dataframe if "taken out" in d.value.columns)
    assert len(table) == len(changes(SOURCE))
    assert (table["found in a harder problem"] != "nothing").all(), table
    assert set(table["found here"]) > {"nothing"}


def test_tasks_about_kernel_02_say_so_beside_another() -> None:
    other, mine = said(opened(kernel="05", N="16", d="8", Br="8", Bc="8")), said(opened(N="16", d="8", Br="8", Bc="8"))
    told = "Choose kernel 02 above"
    assert told in other and told not in mine and "Take out the barrier of line" in mine


def test_a_kernel_that_loops_for_ever_or_does_not_compile_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    bad = Change("barrier-1", "barrier", 1, "//", "while (1);  //", "nothing")
    monkeypatch.setattr(traced, "changes", lambda _text: (bad,))
    monkeypatch.setattr("fmha.ui.trace_break.changes", lambda _text: (bad,))
    at = opened(take="barrier-1")
    assert "could not be run to its end" in said(at) and "does not compile" in said(at)
    assert any("Try this" in h.value for h in at.header)


@pytest.fixture
def without_a_compiler(monkeypatch: pytest.MonkeyPatch) -> str:
    why = "no C++ compiler was found, so kernels cannot be run on the CPU: install g++."

    def none() -> None:
        raise TraceError(why)

    monkeypatch.setattr("fmha.trace.build.compiler", none)
    st.cache_resource.clear()
    return why


def test_without_a_compiler_the_source_can_be_read(without_a_compiler: str) -> None:
    at = opened()
    assert without_a_compiler[1:] in said(at) and len(at.info) == 1 and not at.error
    assert [h.value for h in at.header] == ["02_fmha101.cu, line by line", "Try this"]
    assert "Under the hood of HBM" in said(at) and not at.metric
    assert without_a_compiler[1:] in said(opened(take=change("a row of Sij was filled").key))


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ({"N": "512", "d": "128"}, "N x N x d x H = 33.6 million"), ({"N": "512", "Br": "1", "Bc": "1"}, "262,144"),
        ({"Br": "64", "Bc": "64"}, "needs 4,096 threads"),
    ],
)  # fmt: skip
def test_what_is_too_large_is_said_and_the_page_goes_on(url: dict[str, str], why: str) -> None:
    at = opened(**url)
    assert why in said(at) and len(at.info) == 1 and not at.success
    assert any("Try this" in h.value for h in at.header)


def test_kernel_01_has_its_functions_and_a_choice_of_02_is_left_without_a_word() -> None:
    at = opened(line=str(line_of("score += Qi[")), take=change("a row of Sij was filled").key)
    control(at, "kernel").set_value("01").run()
    assert not checked(at).warning and len(at.success) == 1
    assert "01_naive.cu, line by line" in said(at)
    control(at, "part").set_value("naive_output").run()
    assert "`O = PV`" in said(checked(at)) or "O = PV" in str(control(at, "phase").options)
    assert not at.warning


def test_a_recording_of_the_same_problem_stands_beside() -> None:
    asked = traced.Asked("02", Problem(N=512, d=64), Tiling(32, 32), "random")
    there = traced.beside(asked)
    assert there is not None and there.heads == 16
    at = opened(N="512", d="64")
    assert f"{there.sector_bytes:,.0f} bytes in sectors, the same to the byte" in said(at)
    assert f"{format_count(there.wavefronts)} wavefronts" in said(at) and "NVIDIA H200" in said(at)
    assert traced.beside(traced.Asked("02", Problem(N=512, d=64), Tiling(32, 16), "random")) is None
    assert traced.beside(traced.Asked("02", Problem(N=512, d=64, causal="tl"), Tiling(32, 32), "random")) is None
    broken = traced.Asked("02", asked.problem, asked.tiling, "random", change("a row of Sij").key)
    assert traced.beside(broken) is None


@pytest.mark.parametrize("one", COUNTED, ids=lambda one: one.title)
def test_the_same_lines_on_a_gpu(one: LineCounts) -> None:
    """Traced and counted side by side; what is not equal says why."""
    kernel, p, t = KERNELS[one.facts["kernel"]], one.problem, one.tiling
    url = {
        "N": str(p.Nq),
        "d": str(p.d),
        "H": str(p.H),
        "causal": "br" if p.causal else "none",
        "kernel": kernel.number,
    }
    at = opened(**url, Br=str(t.Br), Bc=str(t.Bc))
    table = next(d.value for d in at.dataframe if "as compiled" in d.value.columns)
    assert len(table) == len({(c.function, c.line, c.space, c.is_write) for c in one.lines})
    device = table[table["access"].str.startswith("device")]
    assert len(device) and (device["traced"] == device["GPU"]).all()
    unequal = table[table["traced"] != table["GPU"]]
    assert bool(len(unequal)) == ((kernel.number, p.Nq) != ("07", 256))  # there all lines are equal
    assert (unequal["as compiled"] != "as written, equal").all()
    text = said(at)
    assert f"{len(device)} of {len(device)} lines have equal sectors on the H200" in text
    assert f"{sum(c.wavefronts for c in one.lines):,} were counted" in text
    if kernel.number == "07":
        assert set(table[table["access"].str.contains("cp.async")]["access"]) == {
            "device, load, cp.async", "shared, store, cp.async",
        }  # fmt: skip
        assert ("zeros beyond the tensor are written apart from the rest" in text) == (p.Nq == 200)


def test_other_settings_that_were_counted_are_a_click_away() -> None:
    at = opened(N="64", kernel="02")
    button = next(b for b in at.button if "N = 200" in b.label)
    checked(button.click().run())
    assert not [b for b in at.button if "N = 200" in b.label]
    assert "H = 2 · N = 200 · d = 40 · Br = 32 · Bc = 16 · causal = bottom-right" in said(at)
    assert "lines have equal sectors on the H200" in said(at)


def test_a_link_may_name_the_kernel_in_the_ways_of_the_command_line() -> None:
    for name in ("1", "naive", "NAIVE", "01"):
        at = opened(kernel=name)
        assert at.selectbox[0].value == "01" and not at.warning
