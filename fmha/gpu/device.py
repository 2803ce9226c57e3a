"""The GPU of this process: the primary context (the one that torch uses), what the driver says, clocks and temperature.

Only the worker process imports CUDA; everything here runs in its main thread.
"""

from __future__ import annotations

import atexit
import contextlib
from typing import Any

from fmha.gpu import libcuda
from fmha.hardware import DriverFacts, Gpu, from_driver
from fmha.measurement import Device, State


class GpuDevice:
    """One GPU with its primary context current in this thread."""

    def __init__(self, index: int = 0) -> None:
        import pycuda.driver as driver

        driver.init()
        self._closed = False
        self.index = index
        self.driver = driver
        self.handle = driver.Device(index)
        self.context = self.handle.retain_primary_context()
        self.context.push()
        atexit.register(self.close)  # PyCUDA aborts a process that ends with a context on its stack
        self.facts = DriverFacts(
            name=self.handle.name(),
            compute=libcuda.compute_capability(index),
            memory_bytes=self.handle.total_memory(),
            **libcuda.attributes(index),
        )
        self._nvml = _Nvml(self.handle.pci_bus_id())

    def close(self) -> None:
        """Leave the context; nothing of this object may be used afterwards."""
        if not self._closed:
            self._closed = True
            self.context.pop()

    @property
    def gpu(self) -> Gpu:
        """Limits and peaks."""
        return from_driver(self.facts)

    @property
    def arch(self) -> str:
        """What kernels are compiled for: "sm_90"."""
        return "sm_" + self.facts.compute.replace(".", "")

    @property
    def cuda(self) -> tuple[int, int]:
        """The CUDA version that the driver supports: (13, 0)."""
        version = int(self.driver.get_driver_version())
        return version // 1000, version % 1000 // 10

    def described(self) -> Device:
        """What a recording says of this machine."""
        import pycuda

        return Device(
            self.facts,
            self._nvml.driver_version(),
            ".".join(map(str, self.cuda)),
            pycuda.VERSION_TEXT,
            torch_version(),
        )

    def free_bytes(self) -> int:
        """Device memory that can be allocated; what torch keeps for later is given back first."""
        release_torch_memory()
        return int(self.driver.mem_get_info()[0])

    def state(self) -> State:
        """Clocks, temperature and power now."""
        return self._nvml.state()

    def synchronize(self) -> None:
        """Wait for all work; a fault of a kernel is raised here."""
        self.context.synchronize()


class _Nvml:
    """NVIDIA's management library, where it is there; what cannot be read is None."""

    def __init__(self, pci_bus_id: str) -> None:
        self._api: Any = None
        with contextlib.suppress(Exception):  # not installed, no permission, no such device: clocks are not read
            import pynvml

            pynvml.nvmlInit()
            self._device = pynvml.nvmlDeviceGetHandleByPciBusId(pci_bus_id.encode())
            self._api = pynvml

    def driver_version(self) -> str:
        text = self._read(lambda: self._api.nvmlSystemGetDriverVersion())
        return text.decode() if isinstance(text, bytes) else str(text or "unknown")

    def state(self) -> State:
        api = self._api
        if api is None:
            return State()
        device = self._device
        power = self._read(lambda: api.nvmlDeviceGetPowerUsage(device))
        return State(
            self._read(lambda: int(api.nvmlDeviceGetClockInfo(device, api.NVML_CLOCK_SM))),
            self._read(lambda: int(api.nvmlDeviceGetClockInfo(device, api.NVML_CLOCK_MEM))),
            self._read(lambda: int(api.nvmlDeviceGetTemperature(device, api.NVML_TEMPERATURE_GPU))),
            None if power is None else power / 1e3,
        )

    def _read(self, ask: Any) -> Any:
        if self._api is None:
            return None
        try:
            return ask()
        except Exception:  # pynvml raises a class per error code
            return None


def torch_on_gpu() -> Any | None:
    """torch, if it is installed and sees a GPU; else None."""
    try:
        import torch
    except Exception:  # not installed, or installed for another CUDA or Python
        return None
    return torch if torch.cuda.is_available() else None


def torch_version() -> str | None:
    """torch's version where it is installed, without importing it."""
    from importlib import metadata

    try:
        return metadata.version("torch")
    except metadata.PackageNotFoundError:
        return None


def release_torch_memory() -> None:
    """Give back device memory that torch keeps for its next tensors, if torch was used at all."""
    import sys

    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.empty_cache()
