"""Runs the plan of a kernel: builds it, puts Q, K, V on the GPU, launches, brings O back."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmha.errors import LimitError
from fmha.gpu.build import build
from fmha.gpu.device import GpuDevice
from fmha.gpu.libcuda import Occupancies
from fmha.kernels import STRIDES, Kernel, Plan
from fmha.measurement import Build, FunctionUse
from fmha.storage import lay, strides_table, taken
from fmha.units import format_bytes

POISON = 0xFF  # every byte of an output before a run: a NaN in each float
_MEMSET_PIECE = 1 << 30


class Loaded:
    """A kernel compiled for one plan's defines and loaded into the context: its functions and how it was built."""

    def __init__(self, device: GpuDevice, kernel: Kernel, plan: Plan) -> None:
        binary = build(kernel.path, defines=plan.defines, arch=device.arch, driver=device.cuda)
        self.notes = binary.notes
        self._module = device.driver.module_from_buffer(binary.cubin)
        self._attribute = device.driver.function_attribute
        self._functions: dict[str, Any] = {}
        occupancies = Occupancies(binary.cubin)
        uses = []
        for launch in plan.launches:
            function = self._module.get_function(launch.function)
            function.prepare("".join(_code(argument) for argument in launch.arguments))
            self._functions[launch.function] = function
            uses.append(
                FunctionUse(
                    launch.function,
                    function.num_regs,
                    function.local_size_bytes,
                    function.shared_size_bytes,
                    occupancies.blocks_per_sm(launch.function, launch.block, launch.smem_bytes),
                    launch.block,
                    launch.smem_bytes,
                )
            )
        occupancies.close()
        self.build = Build(
            binary.compiler,
            device.arch,
            binary.options,
            0.0 if binary.cached else round(binary.seconds, 3),
            binary.cached,
            tuple(uses),
        )  # fmt: skip

    def run(self, plan: Plan, addresses: Mapping[str, int]) -> None:
        """Launch the plan's functions, one after another, without waiting. A buffer that is not in `addresses` is
        passed as null."""
        for launch in plan.launches:
            function = self._functions[launch.function]
            if launch.smem_bytes > 48 * 1024:
                function.set_attribute(self._attribute.MAX_DYNAMIC_SHARED_SIZE_BYTES, launch.smem_bytes)
            values = [addresses.get(a, 0) if isinstance(a, str) else a for a in launch.arguments]
            function.prepared_call((launch.grid, 1), (launch.block, 1, 1), *values, shared_size=launch.smem_bytes)


class Buffers:
    """Device memory of one run: Q, K, V, O in the problem's dtype, LSE, padding, scratch. Frees all when it is closed.

    Q, K, V: float arrays. A kernel that takes strides is given them as they lie in memory, and O lies as Q does.
    """

    def __init__(
        self, device: GpuDevice, plan: Plan, Q: NDArray[Any], K: NDArray[Any], V: NDArray[Any], *, write_lse: bool
    ) -> None:
        p = plan.problem
        if complaint := plan.memory_complaint(device.free_bytes()):
            raise LimitError(complaint)
        self._device = device
        self._memory: dict[str, Any] = {}
        laid = {name: lay(a, p.dtype, strided=plan.strided) for name, a in zip("QKV", (Q, K, V), strict=True)}
        self._as_Q = dataclasses.replace(laid["Q"], flat=np.empty(0))  # O lies as Q does
        self._dtype = p.dtype
        self.sizes = {"O": laid["Q"].flat.nbytes, **plan.scratch}
        if write_lse:
            self.sizes["LSE"] = 4 * p.B * p.H * p.Nq
        try:
            for name in "QKV":
                self._upload(name, laid[name].flat)
            if not all(tensor.is_dense for tensor in laid.values()):
                self._upload(STRIDES, strides_table(laid))
            if p.lens_k is not None or p.left_pad is not None:
                self._upload("key_range", np.array([p.key_range(b) for b in range(p.B)], np.int32))
            for name, size in self.sizes.items():
                self._memory[name] = device.driver.mem_alloc(size)
        except device.driver.MemoryError:
            self.close()
            raise LimitError(
                f"device memory: {format_bytes(plan.device_bytes)} could not be had in one piece beside what other "
                "programs hold: use a smaller N or fewer heads, or close them."
            ) from None

    def extend(self, sizes: Mapping[str, int]) -> None:
        """Further buffers that a kernel writes, by name, in bytes; those that are there already stay.

        Raises:
            LimitError: the GPU has no room for them.
        """
        for name, size in sizes.items():
            if name in self._memory:
                continue
            free = self._device.free_bytes()
            if size > free:
                raise LimitError(
                    f"device memory: {name} needs {format_bytes(size)} and {format_bytes(free)} are free beside the "
                    "others: use a smaller N, fewer heads or a smaller batch."
                )
            self._memory[name] = self._device.driver.mem_alloc(size)
            self.sizes[name] = size

    def _upload(self, name: str, array: NDArray[Any]) -> None:
        self._memory[name] = self._device.driver.mem_alloc(array.nbytes)
        self._device.driver.memcpy_htod(self._memory[name], array)

    @property
    def addresses(self) -> dict[str, int]:
        """Device pointers by name."""
        return {name: int(memory) for name, memory in self._memory.items()}

    def poison(self) -> None:
        """Overwrite everything that the kernel is to write, so that what it does not write is seen."""
        for name, size in self.sizes.items():
            for first in range(0, size, _MEMSET_PIECE):
                self._device.driver.memset_d8(int(self._memory[name]) + first, POISON, min(_MEMSET_PIECE, size - first))

    def output(self) -> tuple[NDArray[np.float32], NDArray[np.float32] | None]:
        """O [B, H, Nq, d] and LSE [B, H, Nq] as float32; None for an LSE that was not asked for."""
        raw = np.empty(self.sizes["O"], np.uint8)
        self._device.driver.memcpy_dtoh(raw, self._memory["O"])
        O = taken(raw, self._as_Q.shape, self._as_Q.strides, self._dtype)
        if "LSE" not in self._memory:
            return O, None
        LSE = np.empty(self._as_Q.shape[:3], np.float32)
        self._device.driver.memcpy_dtoh(LSE, self._memory["LSE"])
        return O, LSE

    def words(self, name: str) -> NDArray[np.uint64]:
        """The contents of a scratch buffer, as 64-bit words."""
        words = np.empty(self.sizes[name] // 8, np.uint64)
        self._device.driver.memcpy_dtoh(words, self._memory[name])
        return words

    def close(self) -> None:
        """Free everything."""
        for memory in self._memory.values():
            memory.free()
        self._memory.clear()

    def __enter__(self) -> Buffers:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def run_once(
    device: GpuDevice, kernel: Kernel, plan: Plan, Q: NDArray[Any], K: NDArray[Any], V: NDArray[Any], *,
    write_lse: bool = False, loaded: Loaded | None = None,
) -> tuple[NDArray[np.float32], NDArray[np.float32] | None]:  # fmt: skip
    """O and LSE of one run on poisoned outputs. Q [B, H, Nq, d]; K, V [B, Hk, Nk, d]."""
    ready = loaded or Loaded(device, kernel, plan)
    with Buffers(device, plan, Q, K, V, write_lse=write_lse) as buffers:
        buffers.poison()
        ready.run(plan, buffers.addresses)
        device.synchronize()
        return buffers.output()


def _code(argument: str | int | float) -> str:
    """PyCUDA's letter for an argument's type: pointer, int32, float32."""
    return "P" if isinstance(argument, str) else "i" if isinstance(argument, int) else "f"
