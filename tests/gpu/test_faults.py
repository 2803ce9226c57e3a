"""The GPU worker on a real GPU: deaths of every kind cost one request each; PyCUDA and torch share one context."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator

import numpy as np
import pytest

from fmha import Problem, Tiling
from fmha.check import check
from fmha.errors import FmhaError, GpuError, LimitError
from fmha.gpu.service import GpuService

DEATHS = int(os.environ.get("FMHA_GPU_DEATHS", "8"))
KINDS = ("illegal_address", "die", "hang", "fill_memory")
P, T = Problem(H=2, N=100, d=32), Tiling(16, 16)


@pytest.fixture
def service(gpu: object) -> Iterator[GpuService]:
    with GpuService(0, ops="tests.gpu.fault_ops") as running:
        yield running


def arrays(seed: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.standard_normal((P.B, P.H, P.Nq, P.d), np.float32) for _ in "QKV"]


def used_mib() -> int:
    """Device memory in use, by any process."""
    done = subprocess.run(
        ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits", "--id=0"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return int(done.stdout.split()[0])


def works(service: GpuService, seed: int) -> None:
    Q, K, V = arrays(seed)
    payload = {"kernel": ("01", "02")[seed % 2], "problem": P, "tiling": T, "Q": Q, "K": K, "V": V}
    found = check(P, Q, K, V, service.submit("run_kernel", payload, timeout_s=60).result())
    assert found.ok, found.verdict


def test_deaths_cost_one_request_each(service: GpuService) -> None:
    works(service, 0)
    service.close()
    time.sleep(1)
    with GpuService(0, ops="tests.gpu.fault_ops") as running:
        before = used_mib()
        for death in range(DEATHS):
            kind = KINDS[death % len(KINDS)]
            ticket = running.submit(kind, {}, timeout_s=1.0 if kind == "hang" else 60)
            with pytest.raises(FmhaError) as told:
                ticket.result()
            assert "\n" not in str(told.value) and len(str(told.value)) < 400
            works(running, death)
        print(f"{DEATHS} deaths, {running.restarts} workers replaced, each following request right")
        assert running.restarts >= DEATHS * 3 // 4
    deadline = time.monotonic() + 20
    while used_mib() > before + 64 and time.monotonic() < deadline:
        time.sleep(0.5)
    print(f"device memory in use: {before} MiB before, {used_mib()} MiB after")
    assert used_mib() <= before + 64


def test_too_large_is_said_before_launch(service: GpuService) -> None:
    payload = {"kernel": "01", "problem": Problem(H=64, N=131072, d=64), "tiling": T, "input": "random", "peers": False}
    with pytest.raises(LimitError, match=r"memory"):
        service.submit("bench", payload, timeout_s=120).result()
    works(service, 1)


def test_torch_and_pycuda_share_one_context(service: GpuService) -> None:
    ours, current = service.submit("contexts", {}, timeout_s=120).result()
    assert ours == current


def test_c02_any_order_of_kernel_and_torch(service: GpuService) -> None:
    Q = arrays(5)[0]
    expected = float(Q.astype(np.float64).sum())
    for turn in range(5):
        works(service, turn)
        assert service.submit("torch_sum", {"Q": Q}, timeout_s=60).result() == pytest.approx(expected, abs=1e-9)
    assert service.restarts == 0


def test_a_whole_bench(service: GpuService) -> None:
    payload = {
        "kernel": "02",
        "problem": Problem(H=4, N=500, d=64, causal="br"),
        "tiling": Tiling(32, 32),
        "repeats": 20,
    }
    answer = service.submit("bench", payload, timeout_s=300).result()
    run = answer["recording"].runs[0]
    kernel, naive = run.entries[:2]
    assert (kernel.name, naive.name) == ("02", "01")
    for entry in (kernel, naive):
        assert entry.check is not None and entry.check.ok and entry.time is not None and entry.time.repeats >= 20
    assert answer["O"].shape == (500, 64) and kernel.error_map is not None
    assert any(entry.time for entry in run.entries[2:]) or all(entry.absent for entry in run.entries[2:])


def test_an_unknown_kernel_is_a_sentence(service: GpuService) -> None:
    with pytest.raises(FmhaError, match="is not known"):
        service.submit("bench", {"kernel": "99", "problem": P, "tiling": T}, timeout_s=60).result()
    assert not isinstance(service.submit("describe", {}, timeout_s=60).result(), GpuError)
