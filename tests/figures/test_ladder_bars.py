"""The bars of the ladder: heights, lines over the kernels of their dtype, what has no time."""

from __future__ import annotations

import math

import pytest

from fmha import ladder
from fmha.figures.ladder_bars import ladder_bars, worth
from fmha.figures.roof_chart import Mark, roof_chart
from fmha.hardware import GPUS
from fmha.kernels import KERNELS
from fmha.roofline import roofs
from tests.ladder_support import ladder_recording, speed

SHAPES = [ladder.problem(4096, 64, None, dtype) for dtype in ("fp32", "bf16")]
KNOWN = (ladder_recording(SHAPES),)


@pytest.mark.parametrize("is_log", [True, False])
@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_bars_and_lines_say_what_was_measured(dtype: str, is_log: bool) -> None:
    steps = ladder.rungs(KNOWN, 4096, 64, None, dtype)
    peers = [m for t in dict.fromkeys(s.dtype for s in steps) for m in ladder.peers(KNOWN, 4096, 64, None, t)]
    fig = ladder_bars(steps, peers, GPUS["H200"], "03", is_log=is_log)
    (bars,) = (t for t in fig.data if t.type == "bar")
    assert list(bars.y) == [pytest.approx(speed(s.kernel.number)) for s in steps]
    assert [w > 0 for w in bars.marker.line.width] == [s.kernel.number == "03" for s in steps]
    assert [shape != "" for shape in bars.marker.pattern.shape] == [s.dtype != "fp32" for s in steps]
    efficient = next(t for t in fig.data if t.name == "SDPA efficient")  # that of fp32 comes first
    where = [i for i, s in enumerate(steps) if s.dtype == "fp32"]
    assert efficient.y[0] == efficient.y[1] == pytest.approx(35.0)
    assert (efficient.x[0], efficient.x[1]) == (where[0] - 0.5, where[-1] + 0.5)
    low, high = fig.layout.yaxis.range
    top = max(speed(s.kernel.number) for s in steps)
    assert low < (math.log10(0.9) if is_log else 0.9) and high > (math.log10(top) if is_log else top)


def test_on_a_phone_the_numbers_of_neighbours_do_not_meet() -> None:
    fig = ladder_bars(ladder.rungs(KNOWN, 4096, 64, None, "bf16"), [], GPUS["H200"], "03")
    narrow = fig.layout.meta["narrow"]["annotations"]
    bold = [n for n, a in enumerate(fig.layout.annotations) if a.text.startswith("<b>")]
    assert len(bold) == len(KERNELS)
    for n in bold:  # thirteen bars take 16 pixels each there, and a digit 0.55 of its size
        text, size = narrow[str(n)]["text"], narrow[str(n)]["font"]["size"]
        assert "<b>" not in text and 0.55 * size * sum(c.isdigit() for c in text) < 16, text


def test_slow_peers_are_drawn_only_where_there_are_no_others() -> None:
    peers = ladder.peers(KNOWN, 4096, 64, None, "fp32")
    assert {m.entry.name for m in worth(peers) if m.tflops} == {"sdpa-efficient", "sdpa-cudnn"}
    slow = [m for m in peers if m.entry.name in ("sdpa-math", "torch-eager")]
    assert worth(slow) == slow


def test_a_shape_without_numbers_says_so_for_each_kernel() -> None:
    fig = ladder_bars(ladder.rungs(KNOWN, 8192, 64, None, "bf16"), [], GPUS["H200"], "02")
    assert sum(a.text == "not measured" for a in fig.layout.annotations) == len(KERNELS)


def test_arrows_lead_from_a_rung_to_the_one_that_improves_it() -> None:
    marks = [Mark(name, {"SMEM": x}, y, True) for name, x, y in (("a", 1.0, 2.0), ("b", 4.0, 3.0), ("c", 9.0, 8.0))]
    fig = roof_chart(roofs(GPUS["H200"], ["fp32"]), marks, ["fp32"], path=[(0, 1), (0, 2)], chosen=1)
    arrows = [a for a in fig.layout.annotations if a.axref == "x"]
    ends = [tuple(round(10**v, 6) for v in (a.ax, a.ay, a.x, a.y)) for a in arrows]
    assert ends == [(1, 2, 4, 3), (1, 2, 9, 8)]
    (ring,) = (t for t in fig.data if t.marker.symbol == "circle-open" and t.marker.size == 28)
    assert (ring.x[0], ring.y[0]) == (4.0, 3.0)
