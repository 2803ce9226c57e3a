"""The paper check page: every claim with its verdict, in words and by a sign; derivations give the same numbers."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from streamlit.testing.v1 import AppTest

from fmha import ladder, measurement
from fmha.algorithms import fa1_tiles, flash_forward
from fmha.figures.claim_charts import Fill, blocks, ratios_band, sram_blocks
from fmha.measurement import shipped
from fmha.paper_ratios import CUDNN, EAGER, FLASH2, all_claims, ratios
from fmha.papers import theorem2_slopes
from fmha.ui.derivations import derivation
from fmha.ui.derivations_speed import Derivation, ratio_points

PAGE = Path(__file__).resolve().parent.parent.parent / "pages" / "lab" / "paper_check.py"
KNOWN = (*shipped(), *ladder.shipped())
CLAIMS = all_claims(KNOWN)
SIGNS = {"reproduced": "✓", "shape only": "≈", "not reproduced": "✗", "not tested": "–"}


def opened(**settings: str) -> AppTest:
    at = AppTest.from_file(PAGE, default_timeout=60)
    for name, text in settings.items():
        at.query_params[name] = text
    at.run()
    assert not at.exception, [e.value for e in at.exception]
    return at


def badges(at: AppTest) -> list[tuple[str, str]]:
    """Sign and word of every claim shown."""
    found = (re.match(r":\w+-badge\[(.) ([a-z ]+)\]", m.value) for m in at.markdown)
    return [(m[1], m[2]) for m in found if m]


def behind(id: str) -> Derivation:
    found = derivation(id, KNOWN)
    assert found is not None
    return found


def test_each_claim_has_a_card_whose_verdict_is_the_check_s() -> None:
    at = opened()
    wanted = [claim.check().verdict for claim in CLAIMS]
    assert [sign for sign, _ in badges(at)] == [SIGNS[verdict] for verdict in wanted]
    assert all(word.startswith(verdict) for (_, word), verdict in zip(badges(at), wanted, strict=True))
    plain = "\n".join(m.value.replace("\\", "") for m in at.markdown)
    for claim in CLAIMS:
        found = claim.check()
        assert all(
            text in plain for text in (claim.text, claim.paper, claim.place, found.theirs, found.ours, found.why)
        )


def test_the_overview_counts_the_cards() -> None:
    at = opened()
    signs = [sign for sign, _ in badges(at)]
    counts = {m.label[0]: int(m.value) for m in at.metric}
    assert counts == {sign: signs.count(sign) for sign in SIGNS.values()}
    text = at.subheader[0].value
    assert f"Of {len(CLAIMS)} claims, {counts['✓']} are reproduced, {counts['≈']} only in their shape" in text
    assert len(at.dataframe[0].value) == len(CLAIMS)


@pytest.mark.parametrize("verdict", SIGNS)
def test_one_verdict_can_be_shown_alone(verdict: str) -> None:
    at = opened(verdict=verdict.replace(" ", "-"))
    assert not at.warning
    assert {sign for sign, _ in badges(at)} <= {SIGNS[verdict]}
    assert len(badges(at)) == sum(claim.check().verdict == verdict for claim in CLAIMS)


def test_without_recordings_the_claims_about_speed_are_not_tested(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measurement, "shipped", tuple)
    monkeypatch.setattr(ladder, "shipped", tuple)
    at = opened()
    speed = [c for c in all_claims(()) if c.id.startswith(("fa2", "fa3"))]
    assert len(speed) == 5 and [sign for sign, _ in badges(at)].count("–") == 5
    assert any("no recording" in m.value for m in at.markdown)


def test_tiles_of_the_paper_s_a100() -> None:
    """192 KB of fp16: M = 98,304, Bc = 98,304 / 256 = 384, Br = 64; in bytes Bc would be 768."""
    at = opened(sram="192", d="64", dtype="fp16")
    formulas = " ".join(m.value for m in at.latex)
    assert "98{,}304" in formulas and r"\min(384, 64) = 64" in formulas
    text = "\n".join(m.value for m in at.markdown)
    assert "Bc = 768" in text and "it alone would take 150 % of M" in text and "take 83 % of M" in text


@given(st.integers(1, 300_000), st.sampled_from([16, 32, 64, 128, 256]))
def test_five_blocks_take_five_quarters_at_most(M: int, d: int) -> None:
    """Each block is at most a quarter of M, but for the rounding up of Bc: one row, or Br of Sij."""
    found = blocks(fa1_tiles(M, d), d)
    assert all(size <= M / 4 + d for size in found.values())


def test_the_tile_picture_is_in_shares_of_M() -> None:
    fig = sram_blocks([Fill("x", fa1_tiles(98_304, 64))], 64, 98_304)
    shares = {trace.name: trace.x[0] for trace in fig.data}
    assert shares == {"Kj": 0.25, "Vj": 0.25, "Qi": pytest.approx(1 / 24), "Oi": pytest.approx(1 / 24), "Sij": 0.25}


def test_derivations_give_the_numbers_of_the_claims() -> None:
    found = {claim.id: claim.check() for claim in CLAIMS}
    for id in ("fa1-flash-bytes", "fa1-standard-bytes"):
        value = found[id].value
        assert value is not None and f"{value:.2f}" in behind(id).formulas[-1]
    assert "825" in behind("fa1-gflops").formulas[1] and "962" in behind("fa1-gflops").formulas[2]
    assert f"M^{{{theorem2_slopes()['M']:.3f}}}" in behind("fa1-theorem2").formulas[1]
    assert "129" in behind("fa1-memory").formulas[0]
    assert [row["accesses an element"] for row in behind("online-accesses").rows] == ["3", "4", "3"]
    best = re.search(r"= (\d+)\\ \\text\{TFLOP", behind("fa2-hopper").formulas[1])
    assert best and f"{best[1]} of" in found["fa2-hopper"].ours
    assert derivation("no such claim", shipped()) is None


def test_passes_by_hand() -> None:
    """Bc = 384 makes Tc = 3: Q passes 3 times, O is written 1 + 3 times and read 3 times."""
    times = {row["tensor"]: row["times in the forward pass"] for row in behind("fa1-flash-bytes").rows}
    assert times["K"] == times["V"] == "1" and times["Q"] == "3" and times["O"] == "7" and times["dQ"] == "0"
    table = {row["tensor"]: row for row in behind("fa1-standard-bytes").rows}
    assert table["S"]["elements"] == "N x N" and table["S"]["times in the forward pass"] == "2"


def test_theorem_2_approaches_its_leading_term() -> None:
    for row in behind("fa1-theorem2").rows:
        M, count, leading = (int(row[k].replace(",", "")) for k in ("M, elements", "accesses counted", "12 N² d² / M"))
        assert count == flash_forward(65536, 64, fa1_tiles(M, 64).Bc).elements
        assert 1 < count / leading < 1.04


@pytest.mark.parametrize("claim", [c.id for c in CLAIMS])
def test_charts_are_fit_for_a_browser(claim: str) -> None:
    found = derivation(claim, KNOWN)
    if found is not None and found.chart is not None:
        assert found.alt and not re.search(r"\bNaN\b|Infinity", found.chart.to_json())
        json.loads(found.chart.to_json())
    assert derivation(claim, ()) is not None or claim == "fa2-fa1", "without recordings nothing breaks"


def test_block_size_chart_has_the_check_s_points() -> None:
    claim = next(c for c in CLAIMS if c.id == "fa1-block-size").check()
    chart = behind("fa1-block-size").chart
    assert chart is not None
    for Bc, gb in zip(chart.data[1].x, chart.data[1].y, strict=True):
        assert f"{Bc}: {gb:.2f} GB" in claim.ours
    curve = dict(zip(chart.data[0].x, chart.data[0].y, strict=True))
    assert curve[1024] < curve[64] and curve[64] == chart.data[1].y[0]


@pytest.mark.parametrize(("fast", "slow"), [(FLASH2, EAGER), (CUDNN, FLASH2)])
def test_ratio_points_are_the_check_s(fast: str, slow: str) -> None:
    points = ratio_points(shipped(), fast, slow)
    assert sorted(p.value for p in points) == pytest.approx(sorted(ratios(shipped(), fast, slow)))
    fig = ratios_band(points, 1.5, 2.0, "x")
    assert sum(len(trace.x) for trace in fig.data) == len(points) and len({t.marker.symbol for t in fig.data}) > 1
