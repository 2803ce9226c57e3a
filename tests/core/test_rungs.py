"""The texts of the ladder: every kernel has one, its claims can fail, and what was measured is computed."""

from __future__ import annotations

import dataclasses
import re

import pytest

from fmha import glossary, ladder, rungs
from fmha.errors import InputError
from fmha.kernels import KERNELS, previous
from tests.ladder_support import COUNTS, WAVEFRONTS, ladder_recording, recording, run_of, speed

SHAPES = [ladder.problem(4096, 64, causal, dtype) for dtype in ("fp32", "bf16", "fp16") for causal in ladder.MASKS]


def test_every_kernel_has_a_text_and_expects_something_that_could_fail() -> None:
    texts = rungs.texts()
    for number, chosen in KERNELS.items():
        text = texts[chosen.name]
        assert text.idea and text.watch in rungs.COUNTERS, chosen.name
        for mark in re.findall(r"\[\[([^]]+)\]\]", text.idea + text.after):
            assert glossary.lookup(mark.split("|")[-1]) is not None, (chosen.name, mark)
        assert text.claims or number == "01", chosen.name
        for claim in text.claims:
            assert claim.counter is None or claim.counter in rungs.COUNTERS
            assert claim.of is None or claim.of in ladder.PEERS or claim.of in {k.name for k in KERNELS.values()}
            assert claim.d in ladder.DIMS and claim.N in ladder.LENGTHS
            assert claim.measure != "counter" or (claim.N, claim.causal) == (
                ladder.COUNTED_AT,
                False,
            )  # read there only


def test_claims_are_held_against_the_recording() -> None:
    known = (ladder_recording(SHAPES),)
    found = {o.claim.measure: o for o in rungs.outcomes(KERNELS["03"], known)}
    assert found["tflops"].measured == pytest.approx(speed("03")) and found["tflops"].held
    assert found["speedup"].measured == pytest.approx(speed("03") / speed("02")) and found["speedup"].held
    assert found["counter"].measured == pytest.approx(COUNTS["03"] / COUNTS["02"]) and found["counter"].held
    assert all(o.measured is None and o.held is None for o in rungs.outcomes(KERNELS["03"], ()))
    slow = {**dict.fromkeys(KERNELS, 1.0)}
    p = ladder.problem(4096, 64)
    tiles = [(n, _first(n)) for n in ("02", "03")]
    same = (recording(run_of(p, tiles, {}, speeds=lambda name: slow.get(name, 50.0))),)
    held = {o.claim.measure: o.held for o in rungs.outcomes(KERNELS["03"], same)}
    assert held == {"tflops": True, "speedup": False, "counter": None}


def _first(number: str) -> object:
    from fmha import Tiling

    return Tiling(*KERNELS[number].tiles[0])


def test_the_other_measures() -> None:
    known = (ladder_recording(SHAPES),)
    chosen, plain = KERNELS["06"], rungs.Claim("t", "registers", high=200)
    text = rungs.Text("i", WAVEFRONTS, "", (
        plain, dataclasses.replace(plain, measure="spills", high=None, low=1),
        dataclasses.replace(plain, measure="blocks", low=2),
        dataclasses.replace(plain, measure="speedup", of="sdpa-efficient", causal=True),
        dataclasses.replace(plain, measure="speedup", of="fmha101"),
        dataclasses.replace(plain, measure="speedup", of="sdpa-flash"), dataclasses.replace(plain, N=8192),
    ))  # fmt: skip
    values = [rungs._value(chosen, claim, known) for claim in text.claims]
    wanted = [128, 0, 2, speed("06") / speed("sdpa-efficient"), speed("06") / speed("02"), None, None]
    assert values == [None if w is None else pytest.approx(w) for w in wanted]
    verdicts = [rungs.Outcome(c, v).held for c, v in zip(text.claims, values, strict=True)]
    assert verdicts == [True, False, True, True, True, None, None]


def test_counters_stand_beside_those_of_the_rung_below() -> None:
    known = (ladder_recording(SHAPES),)
    steps = ladder.rungs(known, 4096, 64, None, "bf16")
    by = {s.kernel.number: s.measured for s in steps}
    (row,) = rungs.moved(by["04"], by["03"])
    assert row.metric == WAVEFRONTS and row.ratio == pytest.approx(COUNTS["04"] / COUNTS["03"])
    (alone,) = rungs.moved(by["02"], None)
    assert alone.here == COUNTS["02"] and alone.below is None and alone.ratio is None
    assert rungs.moved(None, by["03"]) == []


def test_lines_are_counted_without_blanks_and_comments() -> None:
    assert rungs.code_lines("// a\n\nint a;  // b\n   // c\n  }\n") == ["int a;", "}"]
    for chosen in KERNELS.values():
        count = rungs.lines(chosen)
        assert 40 < count.code < 400
        if chosen.number != "01":
            below = previous(chosen)
            assert below is not None
            before = rungs.lines(below).code
            assert count.code - before == count.added - count.removed


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[a\n", "is not TOML"),
        ('[a]\nidea = "x"\nwatch = "y"', "needs a text after"),
        ("[a]\nidea = 3", "needs a text idea"),
        ('[a]\nidea=""\nwatch=""\nafter=""\n[[a.claims]]\ntext="t"\nmeasure="miles"\nlow=1', "measures 'miles'"),
        ('[a]\nidea=""\nwatch=""\nafter=""\n[[a.claims]]\ntext="t"\nmeasure="tflops"', "nothing could refute it"),
        ('[a]\nidea=""\nwatch=""\nafter=""\n[[a.claims]]\ntext="t"\nmeasure="counter"\nlow=1', "names a counter"),
        ('[a]\nidea=""\nwatch=""\nafter=""\n[[a.claims]]\ntext="t"\nmeasure="tflops"\nlow=1\nspeed=2', "wrong field"),
    ],
)
def test_a_mistake_in_the_file_is_said(text: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        rungs.read(text)


def test_what_was_written_afterwards_says_so() -> None:
    texts = rungs.texts()
    assert [name for name, text in texts.items() if text.claims and text.is_prediction] == [
        "fmha101", "padding", "shuffle", "float4s", "in_regs"
    ]  # fmt: skip
    with pytest.raises(InputError, match="use true or false"):
        rungs.read('[a]\nidea = "i"\nwatch = "w"\nafter = ""\nis_prediction = "no"\n')
