"""The GPU that pages show first, with machines that are made up."""

from __future__ import annotations

from typing import Any

import pytest

from fmha.gpu.diagnosis import Diagnosis, GpuFound
from fmha.hardware import DEFAULT_GPU, GPUS
from fmha.ui.this_gpu import default_gpu, key_of


def machine(*gpus: tuple[str, str]) -> Diagnosis:
    found = tuple(GpuFound(n, name, compute) for n, (name, compute) in enumerate(gpus))
    return Diagnosis(found, "580.1", (13, 0), None, (), ())


@pytest.mark.parametrize(
    ("name", "compute", "key"),
    [
        ("NVIDIA H200", "9.0", "H200"),
        ("NVIDIA H100 80GB HBM3", "9.0", "H100"),
        ("NVIDIA GeForce RTX 4090", "8.9", "RTX4090"),
        ("NVIDIA GeForce RTX 3090", "8.6", "RTX3090"),
        ("NVIDIA GeForce RTX 5090", "12.0", "RTX5090"),
        ("NVIDIA A100-SXM4-80GB", "8.0", "A100-80"),
        ("NVIDIA A100 80GB PCIe", "8.0", "A100-80"),
        ("NVIDIA A100-PCIE-40GB", "8.0", "A100-40"),
        ("NVIDIA L4", "8.9", "L4"),
        ("NVIDIA L40S", "8.9", "L40S"),
        ("NVIDIA B200", "10.0", "B200"),
        ("Tesla T4", "7.5", "T4"),
        ("Tesla V100-SXM2-32GB", "7.0", "V100"),
    ],
)
def test_names_of_the_driver(name: str, compute: str, key: str) -> None:
    assert key_of(GpuFound(0, name, compute)) == key


@pytest.mark.parametrize(
    ("name", "compute"),
    [
        ("NVIDIA L40", "8.9"),
        ("NVIDIA H20", "9.0"),
        ("NVIDIA GH200 480GB", "9.0"),
        ("NVIDIA H100 PCIe", "9.0"),
        ("NVIDIA H200 MIG 1g.18gb", "9.0"),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", "8.9"),
        ("NVIDIA GeForce RTX 4090 D", "8.9"),
        ("NVIDIA GeForce RTX 3090 Ti", "8.6"),
        ("NVIDIA A100-SXM4-80GB", "9.0"),  # a name that does not go with the chip
        ("", "9.0"),
    ],
)
def test_others_are_not_taken_for_one_of_the_table(name: str, compute: str) -> None:
    assert key_of(GpuFound(0, name, compute)) is None


def test_every_nvidia_gpu_of_the_table_can_be_found() -> None:
    words = {"A100-40": "A100 40GB", "A100-80": "A100 80GB", "RTX3090": "RTX 3090", "RTX4090": "RTX 4090"}
    for key, gpu in GPUS.items():
        if gpu.is_cuda:
            name = words.get(key, key.replace("RTX", "RTX "))
            assert key_of(GpuFound(0, f"NVIDIA {name}", gpu.compute)) == key


def test_the_first_known_gpu_is_shown_first() -> None:
    found = machine(("NVIDIA Unheard Of", "9.0"), ("NVIDIA L4", "8.9"), ("NVIDIA H200", "9.0"))
    assert default_gpu(lambda: found, {}) == "L4"


@pytest.mark.parametrize("found", [None, machine(), machine(("NVIDIA Unheard Of", "9.0"))])
def test_without_a_known_gpu_it_is_the_default(found: Diagnosis | None) -> None:
    assert default_gpu(lambda: found, {}) == DEFAULT_GPU


def test_a_visitor_keeps_the_first_answer() -> None:
    session: dict[str, Any] = {}
    assert default_gpu(lambda: None, session) == DEFAULT_GPU
    later = machine(("NVIDIA L4", "8.9"))
    assert default_gpu(lambda: later, session) == DEFAULT_GPU
    assert default_gpu(lambda: later, {}) == "L4"
