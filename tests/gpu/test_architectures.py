"""Every kernel compiles for the GPUs that it is offered on. Needs nvcc, and no GPU."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fmha import Problem, Tiling
from fmha.gpu import toolchain
from fmha.gpu.build import build
from fmha.hardware import GPUS
from fmha.kernels import KERNELS, Kernel
from tests.tools import need

ARCHITECTURES = ("8.0", "8.6", "8.9")  # tests/gpu/test_build.py has 9.0


def test_every_kernel_compiles_from_ampere_to_hopper(tmp_path: Path) -> None:
    nvcc = next((c for c in toolchain.compilers() if c.kind == "nvcc" and not c.problem), None)
    need("nvcc", nvcc.path if nvcc else None)

    def compiled(chosen: Kernel, compute: str) -> str:
        p = chosen.fitting(Problem(N=256, d=64))
        plan = chosen.plan(p, Tiling(*chosen.tiles[0]))
        arch = "sm_" + compute.replace(".", "")
        made = build(chosen.path, defines=plan.defines, arch=arch, cache=tmp_path, compilers=[nvcc])  # type: ignore[list-item]
        return "" if made.cubin else f"{chosen.name} for {arch}"

    asked = [(k, c) for k in KERNELS.values() for c in ARCHITECTURES if not k.compute or float(c) >= float(k.compute)]
    assert len(asked) == len(KERNELS) * len(ARCHITECTURES)
    with ThreadPoolExecutor(2) as pool:
        assert not [said for said in pool.map(lambda pair: compiled(*pair), asked) if said]


@pytest.mark.parametrize("chosen", KERNELS.values(), ids=[k.name for k in KERNELS.values()])
def test_an_older_gpu_is_told_in_one_sentence(chosen: Kernel) -> None:
    p = chosen.fitting(Problem(N=256, d=64))
    for key, gpu in GPUS.items():
        said = chosen.complaint(p, Tiling(*chosen.tiles[-1]), gpu)
        if not chosen.compute or (gpu.is_cuda and float(gpu.compute) >= float(chosen.compute)):
            assert said is None or "compute capability" not in said
        else:
            assert said is not None and f"needs an NVIDIA GPU of compute capability {chosen.compute}" in said, key
            assert gpu.name in said and ("choose kernel" if gpu.is_cuda else "choose an NVIDIA GPU") in said
