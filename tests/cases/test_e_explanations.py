"""Group E: the recurrence that is right (E01), the traffic of each algorithm (E02), statements that stay true (E04)."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fmha import Problem, Tiling, reference, simulate, traffic
from fmha.events import PHASES
from fmha.schedule import ORDERS
from fmha.state import online_update
from tests.cases.support import by_cli, column
from tests.core.yardstick import gen

Capture = pytest.CaptureFixture[str]


# --- E01: the rescaling factor --------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["q-outer", "kv-outer"])
def test_e01_two_tiles_of_one_key(order: str) -> None:
    p = Problem(Nq=1, Nk=2, d=1, scale=1)
    run = simulate(p, Tiling(1, 1), column(1), column(0, 2), column(1, 3), order)
    right = (1 + 3 * math.e**2) / (1 + math.e**2)
    assert run.O.item() == pytest.approx(right, abs=1e-14) and right == pytest.approx(2.761594, abs=1e-6)
    np.testing.assert_allclose(run.m.ravel(), [0, 2])
    np.testing.assert_allclose(run.l.ravel(), [1, 1.135335], atol=1e-6)
    np.testing.assert_allclose(run.alpha.ravel(), [0, math.exp(-2)])


def test_e01_the_printed_formulas_give_other_numbers() -> None:
    """What the misprint and the recap without the factor would give, so that neither can creep in."""
    m1, _, P1, l1 = online_update(np.array([-np.inf]), np.array([0.0]), np.array([[0.0]]))
    m2, alpha, P2, l2 = online_update(m1, l1, np.array([[2.0]]))
    O1 = P1 @ [1.0]
    assert (alpha * O1 + P2 @ [3.0]) / l2 == pytest.approx(2.761594, abs=1e-6)
    assert (O1 / alpha + P2 @ [3.0]) / l2 == pytest.approx(9.150650, abs=1e-6)
    assert m2 == 2 and l1 == 1


def test_e01_phases_say_it_right() -> None:
    maths = {phase.code: phase.maths for phase in PHASES}
    assert maths["O"] == "O = alpha O + P Vj" and maths["m"] == "m_new = max(m, rowmax S)"
    assert maths["P"] == "P = exp(S - m_new); l = alpha l + rowsum P" and maths["normalize"] == "O = O / l"


# --- E02: HBM traffic, per algorithm --------------------------------------------------------------------------------

# elements of one head, l, m and LSE included: (Br, Bc, N, causal) -> q-outer
Q_OUTER = {
    (64, 64, 1024, None): 2229248,
    (64, 64, 1024, "br"): 1246208,
    (16, 64, 1024, None): 8520704,
    (128, 64, 1024, None): 1180672,
    (64, 16, 1024, None): 2229248,
    (64, 64, 1000, None): 2177000,
}


@pytest.mark.parametrize("method", ["events", "closed"])
@pytest.mark.parametrize(("setting", "elements"), Q_OUTER.items())
def test_e02_q_outer(setting: tuple[int, int, int, str | None], elements: int, method: str, capsys: Capture) -> None:
    Br, Bc, N, causal = setting
    p, t = Problem(N=N, d=64, causal=causal), Tiling(Br, Bc)  # type: ignore[arg-type]
    assert traffic(p, t, write_lse=True, method=method).requested_bytes == 4 * elements
    half = traffic(p.replace(dtype="fp16"), t, write_lse=True, method=method)
    assert half.requested_bytes == 2 * (elements - N) + 4 * N
    mask = " --causal" if causal else ""
    out = by_cli(capsys, f"traffic --N {N} --d 64 --Br {Br} --Bc {Bc} --lse --method {method}{mask}")
    assert out["requested_read_bytes"] + out["requested_write_bytes"] == 4 * elements == out["requested_bytes"]


@pytest.mark.parametrize("method", ["events", "closed"])
def test_e02_the_others_and_fp16(method: str) -> None:
    p, t = Problem(N=1024, d=64), Tiling(64, 64)
    half = p.replace(dtype="fp16")
    assert traffic(p, t, "naive", method=method).requested_bytes == 4 * 4456448
    assert traffic(p, t, "kv-outer", method=method).requested_bytes == 4 * 3342336
    assert traffic(half, t, "naive", method=method).requested_bytes == 8912896
    assert traffic(half, t, write_lse=True, method=method).requested_bytes == 4460544
    assert traffic(half.replace(causal=True), t, write_lse=True, method=method).requested_bytes == 2494464


@pytest.mark.parametrize("order", ORDERS)
def test_e02_output_traffic_doubles_with_n(order: str) -> None:
    """N x d, never N x N; kv-outer writes it once per K/V tile, whose number doubles too."""
    small, large = (traffic(Problem(N=N, d=64), Tiling(64, 64), order).by_tensor["O"][1] for N in (1024, 2048))
    assert large == small * (4 if order == "kv-outer" else 2)


# --- E04: statements that are true for the setting shown ------------------------------------------------------------


def test_e04_how_often_k_and_v_are_loaded() -> None:
    """Once in kv-outer, once per Q tile in q-outer; ragged tiles, Br != Bc, three heads, two batch entries, bf16."""
    p, t = Problem(B=2, H=3, N=200, d=64, dtype="bf16"), Tiling(64, 32)
    tensor = 2 * 3 * 200 * 64 * 2
    assert traffic(p, t, "kv-outer").by_tensor["K"] == (tensor, 0)
    assert traffic(p, t, "q-outer").by_tensor["V"] == (4 * tensor, 0)
    assert traffic(p, t, "naive").by_tensor["K"] == (tensor, 0)


@pytest.mark.parametrize("order", ORDERS)
def test_e04_batch_and_head_are_the_ones_named(order: str) -> None:
    p, t = Problem(B=2, H=3, N=200, d=8, dtype="fp16"), Tiling(64, 32)
    Q, K, V = gen(2, 3, 200, 200, 8)
    run = simulate(p, t, Q, K, V, order)
    alone = Problem(N=200, d=8)
    for b, h in np.ndindex(2, 3):
        one = reference(alone, Q[b : b + 1, h : h + 1], K[b : b + 1, h : h + 1], V[b : b + 1, h : h + 1])
        np.testing.assert_allclose(run.O[b, h], one.O[0, 0], atol=1e-12)
    if order != "naive":
        index = int(np.flatnonzero((run.events["b"] == 1) & (run.events["h"] == 2))[-1])
        state = run.state_at(index)
        assert state.O is not None and state.worker == run.events["worker"][index]
        last = run.events["i"][index]
        np.testing.assert_allclose(state.O, run.O[1, 2, 64 * last : 64 * last + 64], atol=1e-12)
