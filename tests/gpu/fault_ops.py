"""The operations of the GPU worker, and others that go wrong: an illegal address, a hang, too much memory, a death."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fmha.gpu import jobs
from fmha.gpu.build import build
from fmha.gpu.launch import run_once
from fmha.kernels import kernel
from fmha.problem import Problem, Tiling

SOURCE = Path(__file__).with_name("fault.cu")
start = jobs.start


def _function(name: str) -> Any:
    device = jobs.device()
    binary = build(SOURCE, defines={}, arch=device.arch)
    module = device.driver.module_from_buffer(binary.cubin)
    function = module.get_function(name)
    function.prepare("P")
    return module, function


def illegal_address(_payload: Mapping[str, Any], _report: Any) -> None:
    _, function = _function("write_anywhere")
    function.prepared_call((1, 1), (32, 1, 1), 0x1234_0000_0000)
    jobs.device().synchronize()


def hang(_payload: Mapping[str, Any], _report: Any) -> None:
    module, function = _function("never_end")
    flag = jobs.device().driver.mem_alloc(4)
    jobs.device().driver.memset_d32(flag, 0, 1)
    function.prepared_call((1, 1), (1, 1, 1), int(flag))
    jobs.device().synchronize()
    del module


def die(_payload: Mapping[str, Any], report: Any) -> None:
    held = jobs.device().driver.mem_alloc(1 << 30)
    report("about to die", 0.5)
    os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(10)
    held.free()


def fill_memory(_payload: Mapping[str, Any], _report: Any) -> None:
    held = []
    while True:
        held.append(jobs.device().driver.mem_alloc(4 << 30))


def run_kernel(payload: Mapping[str, Any], _report: Any) -> Any:
    """O of one run: {"kernel", "problem", "tiling", "Q", "K", "V"}."""
    device = jobs.device()
    chosen, problem, tiling = kernel(payload["kernel"]), payload["problem"], payload["tiling"]
    assert isinstance(problem, Problem) and isinstance(tiling, Tiling)
    plan = chosen.plan(problem, tiling, device.gpu)
    return run_once(device, chosen, plan, payload["Q"], payload["K"], payload["V"])[0]


def torch_sum(payload: Mapping[str, Any], _report: Any) -> float:
    """A number that torch computes on the GPU, in the same process."""
    import torch

    return float(torch.from_numpy(payload["Q"]).to("cuda").double().sum().cpu())


def contexts(_payload: Mapping[str, Any], _report: Any) -> tuple[int, int]:
    """The context PyCUDA has pushed, and the one that is current after torch has worked."""
    import ctypes

    import torch

    ours = int(jobs.device().context.handle)
    torch.ones(4, device="cuda").sum().item()
    current = ctypes.c_void_p()
    ctypes.CDLL("libcuda.so.1").cuCtxGetCurrent(ctypes.byref(current))
    return ours, int(current.value or 0)


OPS: dict[str, Callable[[Mapping[str, Any], Any], Any]] = {
    **jobs.OPS,
    "illegal_address": illegal_address,
    "hang": hang,
    "die": die,
    "fill_memory": fill_memory,
    "run_kernel": run_kernel,
    "torch_sum": torch_sum,
    "contexts": contexts,
}
