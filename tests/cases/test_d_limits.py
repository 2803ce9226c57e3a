"""What of D04 and D05 concerns the core: smallest sizes work; too much is refused by a sentence, not by the machine."""

from __future__ import annotations

import numpy as np
import pytest

from fmha import Problem, Tiling, load, reference, simulate, traffic
from fmha.errors import LimitError
from fmha.schedule import ORDERS
from tests.cases.support import by_cli


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(
    "size", [{"N": 1, "d": 1}, {"Nq": 5, "Nk": 1, "d": 1}, {"Nq": 1, "Nk": 5, "d": 1, "H": 1, "Hk": 1}]
)
@pytest.mark.parametrize("tile", [(1, 1), (64, 64), (1, 64), (64, 1)])
def test_d04_smallest_sizes(order: str, size: dict[str, int], tile: tuple[int, int]) -> None:
    """Also a tile of 64 that was chosen before N became 8 or 1: it holds what there is, and no more is counted."""
    p, t = Problem(**size), Tiling(*tile)
    i = load("random", p)
    run = simulate(p, t, i.Q, i.K, i.V, order)
    np.testing.assert_allclose(run.O, reference(p, i.Q, i.K, i.V).O, atol=1e-13)
    clamped = Tiling(min(t.Br, p.Nq), min(t.Bc, p.Nk))
    assert traffic(p, t, order).as_dict() == traffic(p, clamped, order).as_dict()


def test_d04_numpy_scalars_are_sizes() -> None:
    p = Problem(N=np.int64(8), d=np.int32(4))  # type: ignore[arg-type]
    assert traffic(p, Tiling(np.int64(4), np.int64(4))).flops == 4 * 8 * 8 * 4  # type: ignore[arg-type]


@pytest.mark.parametrize("order", ORDERS)
def test_d05_64_by_64_tiles_at_full_size(order: str) -> None:
    p, t = Problem(N=1024, d=16, causal=True), Tiling(16, 16)
    i = load("random", p)
    run = simulate(p, t, i.Q, i.K, i.V, order)
    assert run.O.shape == (1, 1, 1024, 16) and np.abs(run.O - reference(p, i.Q, i.K, i.V).O).max() < 1e-12
    assert run.m.shape[-1] == (1 if order == "naive" else 64)


def test_d05_what_is_too_much_is_said_and_traffic_still_counts() -> None:
    p = Problem(H=32, N=1 << 17, d=64)
    with pytest.raises(LimitError, match=r"scores would take minutes.*use a smaller N or fewer heads"):
        simulate(p, Tiling(32, 32), *[np.zeros((1, 32, 1 << 17, 64), np.float32)] * 3)
    assert traffic(p, Tiling(32, 32)).flops == 4 * 32 * (1 << 34) * 64


def test_d05_by_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert by_cli(capsys, "traffic --N 1048576 --H 16 --Br 16 --Bc 16")["method"] == "closed form"
