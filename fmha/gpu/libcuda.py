"""The CUDA driver through ctypes, for the two things that PyCUDA does not offer: attributes by number (its list ends
where its release did) and the driver's own occupancy."""

from __future__ import annotations

import ctypes
import sys
from typing import Any

# CUdevice_attribute of cuda.h
ATTRIBUTES = {
    "threads_per_block": 1,
    "clock_khz": 13,
    "sms": 16,
    "memory_clock_khz": 36,
    "memory_bus_bits": 37,
    "l2_bytes": 38,
    "threads_per_sm": 39,
    "smem_per_sm": 81,
    "registers_per_sm": 82,
    "smem_per_block_optin": 97,
    "blocks_per_sm": 106,
}
_MAJOR, _MINOR = 75, 76
_MAX_DYNAMIC_SMEM = 8  # CUfunction_attribute


def library() -> Any:
    """The loaded driver library. OSError where there is none."""
    return ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")


def attributes(index: int) -> dict[str, int]:
    """The limits of a device by the names of `hardware.DriverFacts`; the driver must be initialised."""
    cuda = library()
    return {name: _attribute(cuda, index, number) for name, number in ATTRIBUTES.items()}


def compute_capability(index: int) -> str:
    """Such as "9.0"."""
    cuda = library()
    return f"{_attribute(cuda, index, _MAJOR)}.{_attribute(cuda, index, _MINOR)}"


def _attribute(cuda: Any, index: int, number: int) -> int:
    device, value = ctypes.c_int(), ctypes.c_int()
    if cuda.cuDeviceGet(ctypes.byref(device), index) or cuda.cuDeviceGetAttribute(ctypes.byref(value), number, device):
        return 0
    return value.value


class Occupancies:
    """Asks the driver how many blocks of a function an SM holds. Loads the binary once more, into the context at hand,
    because PyCUDA keeps the handles of its functions to itself."""

    def __init__(self, cubin: bytes) -> None:
        self._cuda = library()
        self._cubin = ctypes.create_string_buffer(cubin, len(cubin))
        self._module = ctypes.c_void_p()
        self._ok = not self._cuda.cuModuleLoadData(ctypes.byref(self._module), self._cubin)

    def blocks_per_sm(self, function: str, threads: int, smem_bytes: int) -> int | None:
        """Blocks of `threads` threads with `smem_bytes` of dynamic shared memory; None: the driver does not say."""
        handle, blocks = ctypes.c_void_p(), ctypes.c_int()
        if not self._ok or self._cuda.cuModuleGetFunction(ctypes.byref(handle), self._module, function.encode()):
            return None
        self._cuda.cuFuncSetAttribute(handle, _MAX_DYNAMIC_SMEM, smem_bytes)
        failed = self._cuda.cuOccupancyMaxActiveBlocksPerMultiprocessor(
            ctypes.byref(blocks), handle, threads, ctypes.c_size_t(smem_bytes)
        )
        return None if failed else blocks.value

    def close(self) -> None:
        """Unload the binary."""
        if self._ok:
            self._cuda.cuModuleUnload(self._module)
            self._ok = False
