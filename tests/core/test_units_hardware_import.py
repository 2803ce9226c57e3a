"""Words for numbers, the table of GPUs, and a light import."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import fmha
from fmha import errors
from fmha.hardware import DEFAULT_GPU, GPUS, Gpu, from_driver
from fmha.measurement import shipped
from fmha.units import ceil_div, format_bytes, format_count, format_flops, format_number, format_ratio, format_time_us


@given(st.integers(0, 10**30), st.integers(1, 10**12))
def test_ceil_div(a: int, b: int) -> None:
    q = ceil_div(a, b)
    assert q * b >= a > (q - 1) * b


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [
        (0, "0 B"), (1, "1 B"), (1023, "1023 B"), (1024, "1.00 KiB"), (10240, "10.0 KiB"), (397312, "388 KiB"),
        (1048575, "1.00 MiB"), (1 << 20, "1.00 MiB"), (1 << 30, "1.00 GiB"), (1 << 40, "1.00 TiB"),
        (1 << 50, "1.00 PiB"), (1 << 70, "1048576 PiB"), (-2048, "-2.00 KiB"), (102399, "100 KiB"),
    ],
)  # fmt: skip
def test_bytes(nbytes: int, text: str) -> None:
    assert format_bytes(nbytes) == text


@given(st.integers(0, 1 << 59))
def test_bytes_are_readable_and_near(nbytes: int) -> None:
    number, unit = format_bytes(nbytes).split()
    size = 1024 ** ("B", "KiB", "MiB", "GiB", "TiB", "PiB").index(unit)
    assert abs(float(number) * size - nbytes) <= 0.006 * max(nbytes, 1) and float(number) < 1024


@pytest.mark.parametrize(
    ("call", "value", "text"),
    [
        (format_count, 4456448, "4.46 million"), (format_count, 999_949, "999,949"), (format_count, 12, "12"),
        (format_count, 999_999_999, "1.00 billion"), (format_count, 2.5e16, "25.0 quadrillion"),
        (format_flops, 4.3e9, "4.30 GFLOP"), (format_flops, 999_999, "1.00 MFLOP"), (format_flops, 7, "7 FLOP"),
        (format_time_us, 1530, "1.53 ms"), (format_time_us, 0.5, "500 ns"), (format_time_us, 2e6, "2.00 s"),
        (format_number, 1961.3, "1,960"), (format_number, 0.8714, "0.871"), (format_number, 99.96, "100"),
        (format_number, 2e-5, "0.0000200"), (format_number, 0, "0"), (format_number, 35.5, "35.5"),
        (format_time_us, 0, "0.00 ns"), (format_time_us, 12.34, "12.3 \N{MICRO SIGN}s"),
        (format_ratio, 43.2, "43x"), (format_ratio, 1.25, "1.2x"), (format_ratio, 0.5, "0.5x"),
        (format_ratio, 23926.4, "23,926x"), (format_ratio, float("inf"), "n/a"), (format_ratio, float("nan"), "n/a"),
    ],
)  # fmt: skip
def test_words(call: object, value: float, text: str) -> None:
    assert call(value) == text  # type: ignore[operator]


@pytest.mark.parametrize("gpu", GPUS.values(), ids=lambda gpu: gpu.key)
def test_gpu_numbers_make_sense(gpu: Gpu) -> None:
    assert GPUS[gpu.key] is gpu and gpu.source and gpu.name
    assert gpu.fp16_tflops >= gpu.fp32_tflops > 0
    assert gpu.smem_per_block_default == (48 if gpu.is_cuda else 64) * 1024
    assert gpu.smem_per_block_default <= gpu.smem_per_block_optin <= gpu.smem_per_sm < gpu.data_per_sm <= 256 * 1024
    assert gpu.smem_bytes == gpu.sms * gpu.smem_per_sm
    assert gpu.registers_per_sm * 4 == (256 if gpu.is_cuda else 512) * 1024
    assert gpu.l2_bytes < gpu.hbm_bytes and gpu.hbm_gbps < gpu.smem_gbps
    assert gpu.threads_per_block <= gpu.threads_per_sm and 10 <= gpu.sms <= 1000
    # each halving of the dtype's size doubles the matrix peak (T4 and V100 have fp16 alone)
    peaks = gpu.matrix_peaks
    assert set(peaks) == {"tf32", "fp16", "bf16"} | ({"fp8"} if "fp8" in peaks else set()) or set(peaks) == {"fp16"}
    if "tf32" in peaks:
        assert peaks["fp16"] == peaks["bf16"] == pytest.approx(2 * peaks["tf32"], rel=0.02)
        assert peaks.get("fp8", 2 * peaks["fp16"]) == pytest.approx(2 * peaks["fp16"], rel=0.02)
    assert gpu.peak_tflops("fp32") == gpu.fp32_tflops and gpu.peak_tflops("fp16") == gpu.fp16_tflops
    assert gpu.l2_gbps is None or (gpu.l2_source and gpu.hbm_gbps < gpu.l2_gbps < gpu.smem_gbps)
    # peaks: 2 FLOPs a clock for each of 64 or 128 fp32 lanes of an SM
    lanes = gpu.fp32_tflops * 1e12 / (2 * gpu.sms * gpu.boost_ghz * 1e9)
    assert min(abs(lanes / 64 - 1), abs(lanes / 128 - 1)) < 0.06


def test_the_table_has_the_gpus_of_the_papers_and_of_today() -> None:
    wanted = "T4 V100 A100-40 A100-80 RTX3090 RTX4090 RTX5090 L4 L40S H100 H200 B200 MI300X".split()
    assert list(GPUS) == wanted
    assert [key for key in wanted if not GPUS[key].is_cuda] == ["MI300X"] and "do not run" in GPUS[
        "MI300X"
    ].not_modelled


def test_l1_is_what_shared_memory_leaves() -> None:
    assert GPUS["H200"].l1_bytes(0) == 256 * 1024 and GPUS["H200"].l1_bytes(228 * 1024) == 28 * 1024
    assert GPUS["T4"].l1_bytes(200 * 1024) == 0
    assert GPUS["MI300X"].l1_bytes(0) == GPUS["MI300X"].l1_bytes(64 * 1024) == 32 * 1024  # not shared there


def test_a_known_gpu_keeps_its_peaks_when_its_driver_describes_it() -> None:
    (recording, *_) = shipped()
    found = recording.device.gpu
    assert found.name == "NVIDIA H200" and found.matrix_peaks == GPUS["H200"].matrix_peaks
    assert found.limits == GPUS["H200"].limits and found.l2_bytes == GPUS["H200"].l2_bytes
    unknown = from_driver(replace(recording.device.facts, name="H-none", compute="11.0", sms=20))
    assert unknown.key == "this" and unknown.matrix_peaks == {} and unknown.l2_gbps is None
    assert unknown.l1_bytes(0) == unknown.smem_per_sm and unknown.peak_tflops("fp16") == 0


def test_default_gpu() -> None:
    assert GPUS[DEFAULT_GPU].sms == 132 and GPUS["H100"].smem_per_block_optin == 232448
    assert GPUS["A100-80"].smem_per_block_optin == 166912 and GPUS["RTX3090"].smem_per_block_optin == 101376
    assert GPUS["T4"].smem_per_block_optin == 65536


def test_errors_are_one_tree() -> None:
    kinds = (errors.ProblemError, errors.TilingError, errors.InputError, errors.LimitError, errors.SimulationError)
    assert all(issubclass(kind, errors.FmhaError) and issubclass(kind, ValueError) for kind in kinds)


def test_public_names_exist() -> None:
    assert all(hasattr(fmha, name) for name in fmha.__all__)
    assert {"Problem", "Tiling", "simulate", "traffic", "reference"} <= set(fmha.__all__)


def test_import_is_light() -> None:
    code = "import sys, fmha; print(*sorted({name.split('.')[0] for name in sys.modules}))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "numpy" in loaded
    assert not {"torch", "plotly", "streamlit", "pandas", "pycuda", "scipy", "matplotlib", "hypothesis"} & set(loaded)
