"""The ladder's measuring, on a make-believe device: no GPU is needed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fmha import Problem, Tiling, load
from fmha.gpu import ladder
from fmha.gpu.timing import FEWEST_REPEATS
from fmha.kernels import KERNELS
from tests.gpu.make_believe import make_believe

MS = dict.fromkeys(KERNELS, 1.0) | {"01": 9.0, "02": 400.0}


def asked(p: Problem, *rungs: tuple[str, Tiling], **more: Any) -> dict[str, Any]:
    plain = {"problem": p, "rungs": rungs, "peers": True, "refused": {}, "repeats": 20, "budget_s": 0.25, "seed": 7}
    return plain | more


def test_each_kernel_is_checked_and_timed_within_its_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    device = make_believe(monkeypatch, MS, wrong=("04",))
    p, told = Problem(B=2, H=2, N=64, d=64, causal="br"), []
    rungs = [("01", Tiling(32, 32)), ("02", Tiling(32, 32)), ("04", Tiling(32, 32)), ("06", Tiling(64, 64))]
    payload = asked(p, *rungs, ("03", Tiling(64, 64)), ("05", Tiling(32, 32)), refused={"05": "not run: too long"})
    (run,) = ladder.measure(device, payload, lambda text, _: told.append(text))["recording"].runs  # type: ignore[arg-type]
    assert run.problem == p and run.seed == 7
    naive, tutorial, wrong, fast, refused, slow = run.entries
    for entry, repeats in ((naive, 20), (tutorial, FEWEST_REPEATS), (fast, 20)):
        assert entry.check is not None and entry.check.ok and entry.check.rows_checked > 0, entry.check
        assert entry.time is not None and entry.time.repeats == repeats
        assert entry.time.median_us == pytest.approx(1e3 * MS[entry.name])
    assert wrong.time is None and wrong.check is not None and "wrong: O is off" in wrong.check.verdict
    assert refused.absent is not None and "1,024" in refused.absent  # threads of 64 x 64
    assert slow.absent == "not run: too long" and "05" not in device.log
    launch = KERNELS["06"].plan(p, Tiling(64, 64)).launches[0]
    assert fast.build is not None and fast.build.functions[0].smem_bytes == launch.smem_bytes
    assert any("kernel 06" in text for text in told)
    assert {int(m) for m in device.held.values()} == {
        int(m) for m in ladder._held.popitem()[1].values()
    }  # S, P are free


@pytest.mark.parametrize("dtype", ["fp32", "bf16", "fp16"])
def test_inputs_are_those_of_load_whatever_the_shape(monkeypatch: pytest.MonkeyPatch, dtype: str) -> None:
    device = make_believe(monkeypatch, MS)
    for p in (Problem(B=2, H=2, N=64, d=64, dtype=dtype), Problem(H=4, N=64, d=64, dtype=dtype)):
        made = load("random", p, seed=5)
        arrays = ladder._arrays(p, 5)
        for mine, theirs in zip(arrays, (made.Q, made.K, made.V), strict=True):
            assert np.array_equal(mine, theirs.astype(np.float32))
    held = ladder._on_gpu(device, p, 5)  # type: ignore[arg-type]
    assert ladder._on_gpu(device, p.replace(H=2, B=2), 5) is held  # type: ignore[arg-type]
    assert held["K"].array.nbytes == 4 * 64 * 64 * p.itemsize
    ladder._on_gpu(device, p, 6)  # type: ignore[arg-type]
    assert len(device.held) == 4  # the old ones were given back


def test_memory_that_is_not_there_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    device = make_believe(monkeypatch, MS)
    p = Problem(B=2, H=2, N=64, d=64)
    device.free = 4 * 4 * 4 * 64 * 64 + (60 << 10)
    measured = ladder.measure(device, asked(p, ("01", Tiling(32, 32)), budget_s=None), lambda *_: None)  # type: ignore[arg-type]
    assert "S needs 64.0 KiB" in measured["recording"].runs[0].entries[0].absent
