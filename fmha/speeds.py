"""Speeds from times: useful TFLOP/s, the peaks that they are held against, and times that no GPU can have."""

from __future__ import annotations

import math

from fmha.hardware import Gpu
from fmha.mask import visible_pairs
from fmha.problem import Problem
from fmha.traffic import compulsory_bytes

_TOO_FAST = 0.95  # of the least time that peaks allow: clocks can exceed the data sheet's by a little


def useful_flops(problem: Problem) -> int:
    """FLOPs of the two matrix products over the pairs that a mask leaves visible: 4 d each."""
    return 4 * problem.d * visible_pairs(problem)


def tflops(problem: Problem, time_us: float) -> float:
    """Useful TFLOP/s."""
    return useful_flops(problem) / time_us / 1e6


THREE_PRODUCTS = "13"  # does fp32's work in three products of tf32 on tensor cores


def peak_tflops(gpu: Gpu, dtype: str, kernel: str = "") -> float:
    """The peak that a dtype is measured against: tensor cores for 16 bits, the fp32 units otherwise; 0: not known.

    kernel: one by number that has a ceiling of its own: a third of the tf32 peak for kernel 13.
    """
    if kernel == THREE_PRODUCTS and gpu.tf32_tflops:
        return gpu.tf32_tflops / 3
    return gpu.fp32_tflops if dtype == "fp32" else gpu.fp16_tflops


def peak_name(gpu: Gpu, dtype: str, kernel: str = "") -> str:
    """That peak in words: "the bf16 peak"."""
    is_third = kernel == THREE_PRODUCTS and gpu.tf32_tflops
    return "a third of the tf32 peak" if is_third else f"the {dtype} peak"


def least_time_us(problem: Problem, dtype: str, gpu: Gpu, kernel: str = "") -> float:
    """No implementation can be faster: useful FLOPs at the peak of the dtype, or Q, K, V read at the full bandwidth."""
    p = problem.replace(dtype=dtype)
    peak = peak_tflops(gpu, dtype, kernel)
    arithmetic = useful_flops(p) / peak / 1e6 if peak else 0.0
    read = compulsory_bytes(p) - p.B * p.H * p.Nq * p.d * p.itemsize
    return max(arithmetic, read / gpu.hbm_gbps / 1e3 if gpu.hbm_gbps else 0.0)


def implausible(problem: Problem, dtype: str, gpu: Gpu, time_us: float, kernel: str = "") -> str | None:
    """Why a time cannot be right; None for one that can."""
    if not (math.isfinite(time_us) and time_us > 0):
        return f"a time of {time_us:g} \N{MICRO SIGN}s is no measurement: run it again."
    least = least_time_us(problem, dtype, gpu, kernel)
    if time_us < _TOO_FAST * least:
        return (
            f"{time_us:.3g} \N{MICRO SIGN}s is less than the {least:.3g} \N{MICRO SIGN}s that this GPU needs at its "
            "peak, so the result was rejected: run it again."
        )
    return None


__all__ = ["THREE_PRODUCTS", "implausible", "least_time_us", "peak_name", "peak_tflops", "tflops", "useful_flops"]
