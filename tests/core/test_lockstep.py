"""What Q tiles see, row by row, against the sums of `reach`."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fmha.errors import LimitError
from fmha.lockstep import SHRINKS, reach
from fmha.mask import keep
from fmha.problem import Problem, Tiling
from fmha.units import ceil_div

problems = st.builds(
    lambda B, Nq, Nk, causal, pad, left: Problem(
        B=B, Nq=Nq, Nk=Nk, d=8, causal=causal,
        lens_k=tuple(max(0, Nk - pad * b) for b in range(B)) if pad and not left else None,
        left_pad=tuple(min(Nk, pad * b) for b in range(B)) if pad and left else None,
    ),
    st.integers(1, 3), st.integers(1, 60), st.integers(1, 60), st.sampled_from([None, "bottom-right", "top-left"]),
    st.sampled_from([0, 0, 5, 31]), st.booleans(),
)  # fmt: skip


@given(problems, st.builds(Tiling, st.integers(1, 33), st.integers(1, 33)))
def test_reach_is_what_the_mask_shows(p: Problem, t: Tiling) -> None:
    seen, mask = reach(p, t), keep(p)
    late = ceil_div(t.Br, t.Bc) + 1 if p.causal else 0
    assert seen.partial.shape == (p.B, t.Tr(p), late)
    for b in range(p.B):
        for i in range(t.Tr(p)):
            rows = mask[b, i * t.Br : (i + 1) * t.Br]
            first, end = int(seen.first[b, i]), int(seen.end[b, i])
            keys = np.flatnonzero(rows.any(axis=0))
            assert end - first == (keys[-1] // t.Bc - keys[0] // t.Bc + 1 if len(keys) else 0)
            assert not len(keys) or first == keys[0] // t.Bc
            times = []  # of the last visits
            for j in range(end - late, end):
                scores = int(rows[:, max(0, j * t.Bc) : max(0, (j + 1) * t.Bc)].sum())
                times.append(1 - SHRINKS * (1 - scores / (t.Br * t.Bc)) if j >= first else 0.0)
            assert seen.partial[b, i].tolist() == times
            assert seen.pace[b, i] == 1 - SHRINKS * (1 - len(rows) / t.Br)
            whole = max(end - first - late, 0)
            assert seen.duration[b, i] == pytest.approx(whole * seen.pace[b, i] + sum(times))


@given(problems, st.data())
def test_some_tiles_only(p: Problem, data: st.DataObject) -> None:
    t = Tiling(4, 8)
    b = np.array(data.draw(st.lists(st.integers(0, p.B - 1), max_size=9)), np.int64)
    tile = np.array([data.draw(st.integers(0, t.Tr(p) - 1)) for _ in b], np.int64)
    seen = reach(p, t)
    assert seen.of(b, tile).duration.tolist() == seen.duration[b, tile].tolist()
    assert seen.of(b, tile).whole.tolist() == seen.whole[b, tile].tolist()


def test_too_many_rows() -> None:
    assert reach(Problem(B=64, N=1 << 16, d=8), Tiling(64, 64)).first.shape == (64, 1024)  # all alike: counted once
    with pytest.raises(LimitError, match="query rows"):
        reach(Problem(B=2, N=1 << 22, d=8, lens_k=(1, 2)), Tiling(64, 64))
