"""What the page *Under the hood of HBM* asks the models: its settings, and the forecasts kept for all visitors."""

from __future__ import annotations

import dataclasses

import streamlit as st

from fmha import Problem, Tiling
from fmha.edge import dram_doubt
from fmha.errors import LimitError
from fmha.forecast import MODELLED, Forecast, forecast, own_order
from fmha.hardware import Gpu
from fmha.kernels import KERNELS
from fmha.l2_range import Range, l2_range
from fmha.sm_time import check_gpu, wavefronts
from fmha.ui.bank_box import banks
from fmha.wave_map import WaveMap, wave_map

NAIVE, FLASH = "01", "02"


@st.cache_data(max_entries=256, show_spinner=False)
def predicted(number: str, problem: Problem, tiling: Tiling, gpu: Gpu, order: str, l2_bytes: int) -> Forecast:
    """Bytes of each function of a kernel at each level, and what an SM holds of it."""
    return forecast(KERNELS[number], problem, tiling, gpu, order=order, l2_bytes=l2_bytes)


@st.cache_data(max_entries=64, show_spinner=False)
def ranged(number: str, problem: Problem, tiling: Tiling, gpu: Gpu, order: str, l2_bytes: int) -> Range | None:
    """Between what bytes L2 is asked for."""
    said = predicted(number, problem, tiling, gpu, order, l2_bytes)
    return l2_range(said, KERNELS[number], problem, tiling, gpu, order=order, l2_bytes=l2_bytes)


@st.cache_data(max_entries=64, show_spinner=False)
def dealt(problem: Problem, tiling: Tiling, sms: int, blocks_per_sm: int, order: str) -> WaveMap:
    """Blocks over SMs and time."""
    return wave_map(problem, tiling, sms=sms, blocks_per_sm=blocks_per_sm, order=order)


@dataclasses.dataclass(frozen=True)
class Asked:
    """The settings."""

    number: str
    problem: Problem
    tiling: Tiling
    gpu: Gpu
    order: str
    l2_bytes: int

    @property
    def naive(self) -> bool:
        return self.number == NAIVE

    @property
    def checked(self) -> bool:
        """Whether the kernel's accesses are written down one by one."""
        return self.number in MODELLED

    @property
    def as_built(self) -> bool:
        """Whether nothing differs from what a real run has."""
        return self.l2_bytes == self.gpu.l2_bytes and (self.naive or self.order == own_order(KERNELS[self.number]))

    @property
    def wavefronts(self) -> int:
        """Turns of the banks of shared memory in the whole run."""
        if self.checked:
            return banks(self.number, self.problem, self.tiling, self.gpu, 0).wavefronts
        kernel = KERNELS[self.number]
        return round(wavefronts(kernel, kernel.plan(self.problem, self.tiling, self.gpu)))

    def forecast(self, order: str | None = None, l2_bytes: int | None = None) -> Forecast:
        """What the model says; of another block order or another L2, if given."""
        return predicted(
            self.number, self.problem, self.tiling, self.gpu, order or self.order,
            self.l2_bytes if l2_bytes is None else l2_bytes,
        )  # fmt: skip

    def expected(self) -> Range | None:
        """Between what bytes L2 is asked for; None where nothing is known of it."""
        return ranged(self.number, self.problem, self.tiling, self.gpu, self.order, self.l2_bytes)

    def doubt(self, order: str | None = None, l2_bytes: int | None = None) -> str:
        """Why nothing is said of DRAM, or ""."""
        if self.naive:
            return ""
        places = self.forecast().functions[0].held.blocks
        return dram_doubt(
            self.problem, self.tiling, self.gpu, order or self.order, blocks_per_sm=places,
            l2_bytes=self.l2_bytes if l2_bytes is None else l2_bytes,
        )  # fmt: skip


def complaint(asked: Asked) -> str:
    """Why the GPU cannot run the kernel so, or ""."""
    kernel = KERNELS[asked.number]
    found = kernel.complaint(asked.problem, asked.tiling, asked.gpu)
    if found or asked.checked:
        return found or ""
    try:
        check_gpu(kernel, asked.problem, asked.gpu)
    except LimitError as error:
        return str(error)
    return ""


__all__ = ["FLASH", "NAIVE", "Asked", "complaint", "dealt", "predicted"]
