"""What stands between this machine and a live run: one sentence each, with what was found and what to do.

`judge` is a pure function of `Facts`. `collect` gathers them without loading CUDA, PyCUDA or torch into this process.
"""

from __future__ import annotations

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fmha import build_cache
from fmha.folders import cache_folder
from fmha.gpu import toolchain
from fmha.gpu.toolchain import Compiler, arch_of
from fmha.processes import run_bounded

PROBE = Path(__file__).with_name("probe.py")
NO_DEVICE = 100  # CUDA_ERROR_NO_DEVICE
INSTALL = "`pip install -r requirements-gpu.txt`"
REINSTALL = "`pip install --force-reinstall --no-cache-dir -r requirements-gpu.txt`"


@dataclass(frozen=True)
class GpuFound:
    """A GPU that the driver shows. index: as CUDA counts; compute: its compute capability, "9.0"."""

    index: int
    name: str
    compute: str


@dataclass(frozen=True)
class Facts:
    """All that `judge` goes by."""

    platform: str = sys.platform
    libcuda: bool = False  # the driver's library can be loaded
    libcuda_error: str = ""
    driver: str | None = None  # "580.159.04"
    driver_cuda: tuple[int, int] | None = None  # the CUDA version that it supports
    init_code: int = 0  # what cuInit returned
    init_error: str = ""
    gpus: tuple[GpuFound, ...] = ()
    installed: int | None = None  # GPUs in the machine, hidden ones too; None where that is not known
    visible: str | None = None  # CUDA_VISIBLE_DEVICES
    pycuda: str | None = None  # version of the installed package
    pycuda_error: str = ""
    compilers: tuple[Compiler, ...] = ()
    cache: str = ""  # the folder for compiled kernels
    cache_error: str | None = None  # why it cannot be written
    probe_error: str = ""  # why the driver and PyCUDA could not be asked


@dataclass(frozen=True)
class Finding:
    """What was found, and what to do about it. One that does not block is a note."""

    what: str
    remedy: str
    blocks: bool = True


@dataclass(frozen=True)
class Diagnosis:
    """What this machine offers and lacks for live runs."""

    gpus: tuple[GpuFound, ...]
    driver: str | None
    cuda: tuple[int, int] | None  # the CUDA version that the driver supports
    pycuda: str | None
    compilers: tuple[Compiler, ...]
    findings: tuple[Finding, ...]

    @property
    def ready(self) -> bool:
        """Whether a live run can be tried."""
        return not any(finding.blocks for finding in self.findings)


def diagnose(*, timeout_s: float = 10.0) -> Diagnosis:
    """Look at this machine; takes a few tenths of a second, and hardly more than `timeout_s` in the worst case."""
    try:
        return judge(collect(timeout_s))
    except OSError as error:  # no folder for temporary files, no more processes: no reason to leave the page waiting
        return judge(Facts(probe_error=error.strerror or str(error)))


def best_compiler(facts: Facts, compute: str) -> Compiler | None:
    """The compiler that `build` takes for a GPU of compute capability `compute`; None when none fits."""
    return next(iter(toolchain.choose(facts.compilers, arch_of(compute), facts.driver_cuda)), None)


def judge(facts: Facts) -> Diagnosis:
    """The diagnosis of a machine with these facts."""
    findings: list[Finding] = []
    driver = _driver(facts)
    if driver is not None:
        findings.append(driver)
    # Without a driver PyCUDA cannot be imported and nothing can be said of it; the rest would only be noise.
    if facts.libcuda and not facts.probe_error:
        findings += [finding for finding in (_pycuda(facts),) if finding]
        findings += _compilers(facts)
    if facts.cache_error and not any(finding.blocks for finding in findings):
        findings.append(
            Finding(
                f"The folder {facts.cache} cannot be written ({facts.cache_error}), so kernels are compiled anew in "
                "each session.",
                "Set FMHA_CACHE to a folder that can be written.",
                blocks=False,
            )
        )
    return Diagnosis(facts.gpus, facts.driver, facts.driver_cuda, facts.pycuda, facts.compilers, tuple(findings))


def _driver(facts: Facts) -> Finding | None:
    """What is wrong with the driver or with what it shows."""
    if facts.probe_error:
        return Finding(
            f"This machine's GPU driver could not be asked: {facts.probe_error}.",
            "Run `nvidia-smi`: if it does not answer either, restart the machine or reinstall the driver.",
        )
    if not facts.libcuda:
        if facts.platform == "darwin":
            return Finding("macOS has no NVIDIA driver.", "Run the app on a machine with an NVIDIA GPU.")
        return Finding(
            "No NVIDIA driver was found: its library "
            f"{'nvcuda.dll' if facts.platform == 'win32' else 'libcuda.so.1'} is missing.",
            "On a machine with an NVIDIA GPU install its driver; in a container, start it with `--gpus all`.",
        )
    name = f"The NVIDIA driver {facts.driver}" if facts.driver else "The NVIDIA driver"
    if facts.driver_cuda:
        name += f" (CUDA {facts.driver_cuda[0]}.{facts.driver_cuda[1]})"
    if facts.init_code not in (0, NO_DEVICE):
        return Finding(
            f"{name} does not start: it reports {facts.init_error}.",
            "Run `nvidia-smi`; after an update of the driver, restart the machine.",
        )
    if facts.gpus:
        return None
    if facts.visible is not None and facts.installed != 0:
        of = (
            "every GPU"
            if facts.installed is None
            else f"all {facts.installed} GPUs"
            if facts.installed > 1
            else "the GPU"
        )
        return Finding(
            f'{name} is there, but CUDA_VISIBLE_DEVICES="{facts.visible}" hides {of} of this machine.',
            "Start the app without it: `unset CUDA_VISIBLE_DEVICES`, or set it to 0.",
        )
    return Finding(
        f"{name} is there, but it shows no GPU.",
        "Run `nvidia-smi -L`: if it lists none either, the GPU is missing, off, or not given to this container.",
    )


def _pycuda(facts: Facts) -> Finding | None:
    if facts.pycuda is None:
        toolkit = "" if any(c.kind == "nvcc" for c in facts.compilers) else " (its build needs the CUDA Toolkit)"
        return Finding("PyCUDA is not installed, so no kernel can be launched.", f"Install it with {INSTALL}{toolkit}.")
    if facts.pycuda_error:
        return Finding(
            f"PyCUDA {facts.pycuda} is installed but cannot be imported: {facts.pycuda_error.rstrip('.')}.",
            f"Build it anew for this Python and CUDA: {REINSTALL}.",
        )
    return None


def _compilers(facts: Facts) -> list[Finding]:
    """For each kind of GPU that nothing here compiles for: why. A note where another GPU can be used."""
    if not facts.gpus:
        return [] if facts.compilers else [Finding(*toolchain.why_none((), "sm_0", facts.driver_cuda))]
    kinds = {gpu.compute: gpu.name for gpu in facts.gpus}
    lacking = {compute: name for compute, name in kinds.items() if best_compiler(facts, compute) is None}
    found: dict[tuple[str, str], Finding] = {}
    for compute, name in lacking.items():
        what, remedy = toolchain.why_none(facts.compilers, arch_of(compute), facts.driver_cuda)
        arch = arch_of(compute)
        what = what.replace(f"knows {arch}:", f"knows {arch} ({name}):", 1)
        found.setdefault((what, remedy), Finding(what, remedy, blocks=len(lacking) == len(kinds)))
    return list(found.values())


def collect(timeout_s: float = 10.0) -> Facts:
    """The facts of this machine. Never raises for what it finds."""
    folder = cache_folder("kernels")
    with ThreadPoolExecutor(2) as pool:
        probed = pool.submit(_probe, timeout_s)
        compilers = pool.submit(toolchain.compilers, timeout_s)
        facts = {
            **probed.result(),
            "compilers": compilers.result(),
            "cache": str(folder),
            "cache_error": build_cache.complaint(folder),
        }
    return Facts(**facts)


def _probe(timeout_s: float) -> dict[str, Any]:
    """What fmha.gpu.probe says, or why it says nothing."""
    try:
        code, said = run_bounded([sys.executable, "-P", str(PROBE)], timeout_s=timeout_s)
    except OSError as error:
        return {"probe_error": str(error)}
    lines = said.strip().splitlines()
    if code is None:
        return {"probe_error": f"it did not answer within {timeout_s:g} s"}
    try:
        answer: dict[str, Any] = json.loads(lines[-1])
    except (IndexError, ValueError):
        how = f"ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
        return {"probe_error": f"the process that asked it {how}"}
    answer["gpus"] = tuple(GpuFound(**gpu) for gpu in answer.get("gpus", ()))
    if "driver_cuda" in answer:
        answer["driver_cuda"] = tuple(answer["driver_cuda"])
    return answer
