"""Which tiles can be: kernel 02 as its plan has it, FlashAttention's designs as their authors say."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fmha import Problem, Tiling
from fmha.hardware import GPUS
from fmha.kernels import KERNELS
from fmha.measurement import shipped
from fmha.tile_designs import COMPILED, DESIGNS, OTHER_REGISTERS, Need, presets

SIZES = [1, 8, 16, 24, 32, 64, 96, 128, 192, 256]
H200, A100, ADA = GPUS["H200"], GPUS["A100-80"], GPUS["RTX4090"]


def needs(design: str, d: int, Br: int, Bc: int, gpu: str = "H200") -> Need:
    dtype = DESIGNS[design].dtypes[0]
    return DESIGNS[design].needs(Problem(N=1024, d=d, dtype=dtype), Tiling(Br, Bc), GPUS[gpu])


@given(
    d=st.sampled_from([16, 33, 64, 128, 256]),
    Br=st.sampled_from(SIZES),
    Bc=st.sampled_from(SIZES),
    key=st.sampled_from([key for key, gpu in GPUS.items() if gpu.is_cuda]),
)
def test_kernel_02_is_refused_exactly_where_its_plan_refuses_it(d: int, Br: int, Bc: int, key: str) -> None:
    complaint = KERNELS["02"].complaint(Problem(N=100, d=d), Tiling(Br, Bc), GPUS[key])
    need = needs("02", d, Br, Bc, key)
    assert bool(complaint) == bool(need.why_not)
    if complaint:
        assert complaint.startswith(need.why_not) and need.sentence
    else:
        launch = KERNELS["02"].plan(Problem(N=100, d=d), Tiling(Br, Bc), GPUS[key]).launches[0]
        assert (need.threads, need.smem_bytes) == (launch.block, launch.smem_bytes)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("d", [32, 64, 96, 128, 192, 256])
@pytest.mark.parametrize("key", ["A100-40", "RTX4090", "L40S", "H100", "H200"])
def test_the_authors_tiles_are_possible_in_their_designs(d: int, causal: bool, key: str) -> None:
    found = presets(d, causal, GPUS[key])
    assert [p.design for p in found] == (["fa2", "fa3"] if GPUS[key].compute == "9.0" else ["fa2"])
    for preset in found:
        assert not needs(preset.design, d, preset.Br, preset.Bc, key).why_not, preset


def test_what_the_authors_say_of_other_tiles() -> None:
    # FlashAttention-2, d = 64: "256 x 64 is 85 % slower because of register spilling", 64 x 256 is only slower.
    assert needs("fa2", 64, 256, 64).why_not == "registers"
    assert not needs("fa2", 64, 64, 256).why_not
    # FlashAttention-3: 128 x 192 at d = 128 and 128 x 80 at d = 256 are the last that fit into shared memory.
    assert not needs("fa3", 128, 128, 192).why_not
    assert needs("fa3", 128, 128, 208).why_not == "shared memory"
    assert not needs("fa3", 256, 128, 80).why_not
    assert needs("fa3", 256, 128, 96).why_not == "shared memory"


def test_flash_attention_3_keeps_p_in_shared_memory_where_its_authors_do() -> None:
    """192 x 192 at d = 64: P goes through SMEM; 192 x 128: it stays in registers."""
    assert needs("fa3", 64, 192, 192).smem_bytes == 2 * (192 * 64 + 4 * 192 * 64 + 192 * 192)
    assert needs("fa3", 64, 192, 128).smem_bytes == 2 * (192 * 64 + 4 * 128 * 64)


def test_presets_by_hand() -> None:
    def tiles(d: int, causal: bool, key: str) -> list[tuple[int, int]]:
        return [(p.Br, p.Bc) for p in presets(d, causal, GPUS[key])]

    assert tiles(64, False, "H200") == [(128, 128), (192, 192)]
    assert tiles(128, True, "H200") == [(128, 64), (128, 128)]
    assert tiles(128, False, "H200") == [(128, 64), (128, 176)]
    assert tiles(128, False, "RTX4090") == [(128, 32)]
    assert tiles(128, True, "RTX4090") == [(64, 64)]
    assert tiles(256, False, "A100-80") == [(128, 64)]
    assert tiles(256, False, "H200") == [(64, 64), (128, 80)]


def test_numbers_of_a_need_by_hand() -> None:
    """FlashAttention-2, d = 128, 128 x 64: 4 warps; a thread holds 64 numbers of S and 128 of O."""
    need = needs("fa2", 128, 128, 64)
    assert (need.threads, need.smem_bytes, need.registers) == (128, 65536, 64 + 128 + OTHER_REGISTERS)


@pytest.mark.parametrize(
    ("design", "gpu", "Br", "Bc", "why"),
    [
        ("02", "MI300X", 16, 16, "GPU"), ("fa2", "T4", 64, 64, "GPU"), ("fa2", "MI300X", 64, 64, "GPU"),
        ("fa3", "A100-80", 128, 128, "GPU"), ("fa3", "B200", 128, 128, "GPU"), ("fa2", "H200", 32, 64, "divisibility"),
        ("fa2", "H200", 64, 8, "divisibility"), ("fa3", "H200", 96, 64, "divisibility"),
        ("02", "H200", 64, 32, "threads"), ("fa3", "H200", 512, 16, "threads"), ("02", "T4", 64, 16, "shared memory"),
    ],
)  # fmt: skip
def test_why_not(design: str, gpu: str, Br: int, Bc: int, why: str) -> None:
    need = needs(design, 128, Br, Bc, gpu)
    assert need.why_not == why and need.sentence


def test_registers_of_kernel_02_agree_with_the_recordings() -> None:
    entries = [
        e for recording in shipped() for run in recording.runs for e in run.entries if e.name == "02" and e.build
    ]
    assert entries
    for entry in entries:
        assert entry.build is not None and entry.tiling is not None
        assert {use.registers for use in entry.build.functions} == {COMPILED[entry.tiling]}


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
@pytest.mark.parametrize("tile", [(8, 128), (32, 16), (64, 8)])
def test_registers_of_kernel_02_as_the_compiler_says(tile: tuple[int, int], tmp_path: Path) -> None:
    version = subprocess.run(["nvcc", "--version"], capture_output=True, text=True, check=True).stdout
    if "release 13.0" not in version:
        pytest.skip("the table is of nvcc 13.0")
    command = ["nvcc", "-cubin", "-arch=sm_90", "-O3", "-std=c++17", "-lineinfo", "-Xptxas", "-v"]
    command += [f"-DBR={tile[0]}", f"-DBC={tile[1]}", str(KERNELS["02"].path), "-o", str(tmp_path / "x.cubin")]
    said = subprocess.run(command, capture_output=True, text=True, check=True)
    found = re.search(r"Used (\d+) registers", said.stdout + said.stderr)
    assert found is not None and int(found.group(1)) == COMPILED[tile]
