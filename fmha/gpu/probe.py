"""What this machine says of its GPUs: a program of its own that prints JSON, since asking means loading the driver.

    python -P probe.py

Needs the standard library alone. It initialises CUDA but makes no context, so it takes no device memory.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from importlib import metadata
from typing import Any

_MAJOR, _MINOR = 75, 76  # CUdevice_attribute of cuda.h


def load(linux: str, windows: str) -> Any:
    """A library of the driver. OSError where it is missing."""
    return ctypes.CDLL(windows if sys.platform == "win32" else linux)


def cuda() -> dict[str, Any]:
    """The driver API: whether it is there, the CUDA version that it supports, and the GPUs that it shows."""
    try:
        lib = load("libcuda.so.1", "nvcuda.dll")
    except OSError as error:
        return {"libcuda": False, "libcuda_error": str(error)}
    version, count = ctypes.c_int(), ctypes.c_int()
    lib.cuDriverGetVersion(ctypes.byref(version))
    found: dict[str, Any] = {"libcuda": True, "driver_cuda": [version.value // 1000, version.value % 1000 // 10]}
    code = lib.cuInit(0) or lib.cuDeviceGetCount(ctypes.byref(count))
    if code:
        name = ctypes.c_char_p()
        lib.cuGetErrorName(code, ctypes.byref(name))
        return {**found, "init_code": code, "init_error": (name.value or b"").decode() or f"error {code}"}
    return {**found, "init_code": 0, "gpus": [gpu(lib, index) for index in range(count.value)]}


def gpu(lib: Any, index: int) -> dict[str, Any]:
    """Name and compute capability of one GPU."""
    handle, major, minor, name = ctypes.c_int(), ctypes.c_int(), ctypes.c_int(), ctypes.create_string_buffer(256)
    lib.cuDeviceGet(ctypes.byref(handle), index)
    lib.cuDeviceGetName(name, len(name), handle)
    lib.cuDeviceGetAttribute(ctypes.byref(major), _MAJOR, handle)
    lib.cuDeviceGetAttribute(ctypes.byref(minor), _MINOR, handle)
    return {"index": index, "name": name.value.decode(errors="replace"), "compute": f"{major.value}.{minor.value}"}


def nvml() -> dict[str, Any]:
    """The management library: the driver's version, and how many GPUs there are, hidden ones too."""
    try:
        lib = load("libnvidia-ml.so.1", "nvml.dll")
    except OSError:
        return {}
    if lib.nvmlInit_v2():
        return {}
    found: dict[str, Any] = {}
    text, count = ctypes.create_string_buffer(96), ctypes.c_uint()
    if not lib.nvmlSystemGetDriverVersion(text, len(text)):
        found["driver"] = text.value.decode(errors="replace")
    if not lib.nvmlDeviceGetCount_v2(ctypes.byref(count)):
        found["installed"] = count.value
    lib.nvmlShutdown()
    return found


def pycuda() -> dict[str, Any]:
    """PyCUDA's version, and why it cannot be imported."""
    try:
        version = metadata.version("pycuda")
    except metadata.PackageNotFoundError:
        return {}
    try:
        import pycuda.driver  # noqa: F401
    except BaseException as error:
        said = (str(error).strip().splitlines() or [""])[-1]
        return {"pycuda": version, "pycuda_error": f"{type(error).__name__}: {said}".removesuffix(": ")}
    return {"pycuda": version}


if __name__ == "__main__":
    facts = {"visible": os.environ.get("CUDA_VISIBLE_DEVICES"), **cuda(), **nvml(), **pycuda()}
    print("\n" + json.dumps(facts), flush=True)
    os._exit(0)  # no finaliser of the driver or of PyCUDA can spoil the answer
