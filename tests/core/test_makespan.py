"""The time of a run from the events of one head equals that of the clock on all events."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fmha import Problem, Tiling
from fmha.dispatch import BLOCK_ORDERS
from fmha.events import emit
from fmha.hardware import GPUS
from fmha.makespan import makespan_us
from fmha.timeline import busy_share, clock

H200 = GPUS["H200"]
problems = st.builds(
    lambda B, H, N, Nk, causal: Problem(B=B, H=H, Nq=N, Nk=Nk, d=8, causal=causal),
    st.integers(1, 2), st.integers(1, 4), st.integers(1, 60), st.integers(1, 60),
    st.sampled_from([None, None, "bottom-right", "top-left"]),
)  # fmt: skip
tilings = st.builds(Tiling, st.integers(1, 12), st.integers(1, 12))


@settings(max_examples=120)
@given(
    problems, tilings, st.sampled_from(["q-outer", "kv-outer", "naive"]), st.integers(1, 7), st.integers(1, 3),
    st.integers(1, 3), st.sampled_from(BLOCK_ORDERS),
)  # fmt: skip
def test_one_head_tells_the_time_of_all(
    p: Problem, t: Tiling, order: str, sms: int, stages: int, held: int, way: str
) -> None:
    more: dict[str, Any] = {"stages": stages, "blocks_per_sm": held, "block_order": way}
    events = clock(emit(p, t, order), H200, "fp32", sms, **more)
    time, idle = makespan_us(p, t, order, H200, sms, **more)
    assert time == pytest.approx(float(events["t1"].max()), rel=1e-9)
    if held == 1:  # blocks that end at the same moment may change places, and with them the SM that is idle
        assert idle == pytest.approx(1 - busy_share(events, sms), abs=1e-8)


@pytest.mark.parametrize("N", [4096, 4090])
def test_thousands_of_blocks_in_the_time_of_a_few(N: int) -> None:
    p, t = Problem(H=4, N=N, d=64), Tiling(64, 64)
    events = clock(emit(p, t), H200, "fp32", stages=2)
    assert makespan_us(p, t, "q-outer", H200, 132, stages=2)[0] == pytest.approx(float(events["t1"].max()), rel=1e-9)
