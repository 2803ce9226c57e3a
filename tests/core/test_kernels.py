"""The registry: plans, limits, sentences. No GPU is needed for any of it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fmha import FmhaError, Problem, Tiling
from fmha.errors import LimitError, ProblemError
from fmha.hardware import GPUS
from fmha.kernels import KERNELS, MAX_BLOCKS, SOURCES, Kernel, included, kernel, previous
from fmha.memory import smem_bytes
from fmha.traffic import closed_form
from fmha.units import ceil_div

every_kernel = pytest.mark.parametrize("chosen", KERNELS.values(), ids=[k.name for k in KERNELS.values()])


def test_every_source_file_is_in_the_registry_under_its_own_name() -> None:
    assert {k.file for k in KERNELS.values()} == {path.name for path in SOURCES.glob("*.cu")}
    for number, k in KERNELS.items():
        assert k.number == number and k.file == f"{number}_{k.name}.cu"
        assert kernel(number) is kernel(k.name) is kernel(number.lstrip("0")) is k
    assert list(KERNELS) == sorted(KERNELS)
    assert previous(KERNELS["01"]) is None and previous(KERNELS["02"]) is KERNELS["01"]


@every_kernel
def test_the_source_agrees_with_its_plan(chosen: Kernel) -> None:
    """Function names, the number of parameters, and a header of four lines that says how to run it."""
    text = chosen.source()
    head = [line.split(":")[0] for line in text.splitlines()[:4]]
    assert head == ["// Changed", "// Who", "// Where", "// Run"]
    assert f"--kernel {chosen.number} " in text.splitlines()[3]
    plan = chosen.plan(chosen.fitting(Problem(N=100, d=64)), Tiling(*chosen.tiles[0]))
    signatures = re.findall(
        r'extern "C" __global__ void __launch_bounds__\([^)]*\)\s+(\w+)\((.*?)\) \{', text, re.DOTALL
    )
    assert [name for name, _ in signatures] == [launch.function for launch in plan.launches]
    for (_, parameters), launch in zip(signatures, plan.launches, strict=True):
        stripped = (re.sub(r"//.*", "", line).strip().rstrip(",") for line in parameters.splitlines())
        kinds = [kind for kind in stripped if kind]
        wanted = {str: "*", int: "int ", float: "float "}
        assert len(kinds) == len(launch.arguments)
        for declared, argument in zip(kinds, launch.arguments, strict=True):
            assert wanted[type(argument)] in declared, (declared, argument)
            if isinstance(argument, str):
                assert declared.endswith(f"* {argument}")
    assert plan.strided == all("long long* strides" in parameters for _, parameters in signatures)


@every_kernel
def test_what_is_worth_trying_can_be_run(chosen: Kernel) -> None:
    """On the GPU of the recordings, for the head dimensions of the ladder: at least one of the tiles, in each dtype."""
    for dtype in chosen.dtypes:
        for d in (64, 128):
            p = Problem(N=256, d=d, dtype=dtype)
            fine = [t for t in chosen.tiles if chosen.complaint(p, Tiling(*t), GPUS["H200"]) is None]
            assert fine, (chosen.name, dtype, d)
    text = chosen.complaint(chosen.fitting(Problem(N=256, d=chosen.d_step + 1)), Tiling(*chosen.tiles[0]), GPUS["H200"])
    if chosen.d_step > 1:
        assert text is not None and f"use d={2 * chosen.d_step}." in text
    other = next((name for name in ("fp32", "bf16") if name not in chosen.dtypes), None)
    if other:
        text = chosen.complaint(Problem(N=256, dtype=other), Tiling(*chosen.tiles[0]), GPUS["H200"])
        assert text is not None and f"not in {other}: choose dtype {chosen.dtypes[0]}" in text
        assert chosen.fitting(Problem(N=256, dtype=other)).dtype == chosen.dtypes[0]


@every_kernel
def test_every_barrier_names_its_hazard(chosen: Kernel) -> None:
    barriers = [line for line in chosen.source().splitlines() if "__syncthreads()" in line]
    assert barriers and all(
        re.search(r"// (write before read|read before write|write before write): ", line) for line in barriers
    )


def test_the_hash_follows_the_source_and_its_headers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = KERNELS["02"]
    before = chosen.source_hash()
    assert re.fullmatch(r"[0-9a-f]{12}", before)
    assert [path.name for path in included(chosen.path)] == [chosen.file, "common.cuh"]
    for path in SOURCES.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    monkeypatch.setattr("fmha.kernels.SOURCES", tmp_path)
    assert chosen.source_hash() == before
    header = tmp_path / "common.cuh"
    header.write_bytes(header.read_bytes().replace(b"\n", b"\r\n"))
    assert chosen.source_hash() == before  # a checkout with other line ends is the same kernel
    header.write_text(header.read_text() + "// changed\n")
    assert chosen.source_hash() != before


problems = st.builds(
    Problem,
    B=st.integers(1, 3), H=st.integers(1, 4), Nq=st.integers(1, 300), Nk=st.integers(1, 300), d=st.integers(1, 256),
    causal=st.sampled_from([None, "br", "tl"]),
)  # fmt: skip


@given(problems, st.integers(1, 128), st.integers(1, 128))
def test_flash_requests_what_the_simulator_counts(p: Problem, Br: int, Bc: int) -> None:
    tiling = Tiling(Br, Bc)
    try:
        plan = KERNELS["02"].plan(p, tiling)
    except LimitError as error:
        assert Br * Bc > 1024 or smem_bytes(tiling, p.d) > GPUS["H200"].smem_per_block_optin
        assert "try" in str(error)
        return
    (launch,) = plan.launches
    assert plan.requested.by_tensor == closed_form(p, tiling, "q-outer").by_tensor
    assert launch.grid == p.B * p.H * ceil_div(p.Nq, Br) and launch.block == Br * Bc
    assert launch.smem_bytes == smem_bytes(tiling, p.d) == sum(slot.nbytes for slot in launch.smem)


@given(problems)
def test_naive_moves_at_least_algorithm_0(p: Problem) -> None:
    """Its blocks of 64 x 64 read Q, K, V again and again; S and P are what Algorithm 0 says, in whole sectors."""
    plan = KERNELS["01"].plan(p, Tiling(1, 1))
    ours, least = plan.requested.by_tensor, closed_form(p, Tiling(1, 1), "naive").by_tensor
    assert set(ours) == set(least)
    for tensor, (read, written) in least.items():
        assert ours[tensor][0] >= read and ours[tensor][1] >= written
    if p.Nk % 8 == 0 and p.d <= 64:
        assert ours["S"] == least["S"] and ours["P"] == least["P"] and ours["O"] == least["O"]
    assert plan.scratch["S"] == plan.scratch["P"] == ours["S"][1]


def test_a_row_too_long_for_shared_memory_is_read_again() -> None:
    p = Problem(Nq=8, Nk=100_000, d=8)
    plan = KERNELS["01"].plan(p, Tiling(1, 1))
    softmax = plan.launches[1]
    held = softmax.smem_bytes // 4
    assert softmax.smem_bytes + softmax.static_smem_bytes <= GPUS["H200"].smem_per_block_optin < 4 * p.Nk
    assert plan.requested.by_tensor["S"][0] == 4 * 8 * (p.Nk + 2 * (p.Nk - held))
    assert (
        plan.requested.by_tensor["S"][0] < KERNELS["01"].plan(p, Tiling(1, 1), GPUS["T4"]).requested.by_tensor["S"][0]
    )


@pytest.mark.parametrize(("tiles", "threads"), [((32, 64), "2,048"), ((64, 64), "4,096"), ((1025, 1), "1,025")])
def test_b03_too_many_threads(tiles: tuple[int, int], threads: str) -> None:
    with pytest.raises(LimitError, match=rf"threads: .* needs {threads} threads, .* at most 1,024; try Br=") as told:
        KERNELS["02"].plan(Problem(N=128), Tiling(*tiles))
    Br, Bc = (int(x) for x in re.findall(r"try Br=(\d+), Bc=(\d+)", str(told.value))[0])
    KERNELS["02"].plan(Problem(N=128), Tiling(Br, Bc))


def test_b03_many_heads_are_one_grid() -> None:
    plan = KERNELS["02"].plan(Problem(B=64, H=1024, N=16, d=16), Tiling(16, 16))
    assert plan.launches[0].grid == 65536
    with pytest.raises(LimitError, match="blocks, and a grid has at most"):
        KERNELS["02"].plan(Problem(B=65536, H=65536, N=1, d=1), Tiling(1, 1))


@pytest.mark.parametrize(("gpu", "limit"), [("T4", 64), ("RTX4090", 99), ("A100-80", 163), ("H200", 227)])
def test_b01_shared_memory_is_refused_with_both_numbers(gpu: str, limit: int) -> None:
    chosen, p = KERNELS["02"], Problem(N=512, d=256)
    largest = max(Bc for Bc in range(1, 65) if chosen.complaint(p, Tiling(16, Bc), GPUS[gpu]) is None)
    assert smem_bytes(Tiling(16, largest), 256) <= limit * 1024
    if largest < 64:
        text = chosen.complaint(p, Tiling(16, largest + 1), GPUS[gpu])
        need = smem_bytes(Tiling(16, largest + 1), 256) / 1024
        assert text is not None and f"needs {need:.1f} KiB" in text and f"allows {limit} KiB" in text and "try" in text


def test_what_a_kernel_cannot_do_is_said() -> None:
    flash = KERNELS["02"]
    with pytest.raises(ProblemError, match="computes in fp32, not in bf16"):
        flash.plan(Problem(N=8, dtype="bf16"), Tiling(8, 8))
    with pytest.raises(ProblemError, match="d up to 256, not 257: choose d=256"):
        flash.plan(Problem(N=8, d=257), Tiling(1, 1))
    for name in ("00", "", "fmha", "9" * 100, "<b>"):
        with pytest.raises(FmhaError, match=r"is not known: use 01 \(naive\), 02 \(fmha101\)"):
            kernel(name)


def test_device_memory_is_foreseen() -> None:
    p = Problem(H=16, N=16384, d=64)
    naive, flash = (KERNELS[n].plan(p, Tiling(32, 32)) for n in ("01", "02"))
    assert naive.device_bytes - flash.device_bytes == 2 * 4 * 16 * 16384**2
    assert flash.memory_complaint(flash.device_bytes) is None
    text = naive.memory_complaint(24 << 30)
    assert text is not None and "needs 32.3 GiB (S 16.0 GiB, P 16.0 GiB) and 24.0 GiB are free" in text


@every_kernel
@given(
    Br=st.integers(1, 300),
    Bc=st.integers(1, 300),
    d=st.integers(1, 256),
    card=st.sampled_from(sorted(GPUS)),
    write_lse=st.booleans(),
    N=st.sampled_from([1, 512, 1 << 20]),  # at the last, small tiles make more blocks than a grid has
)
@example(Br=2, Bc=8, d=72, card="L4", write_lse=False, N=1 << 20)
@example(Br=1, Bc=300, d=256, card="H200", write_lse=True, N=1 << 20)
def test_what_a_refusal_tells_to_try_can_be_run(
    chosen: Kernel, Br: int, Bc: int, d: int, card: str, write_lse: bool, N: int
) -> None:
    gpu, tiling = GPUS[card], Tiling(Br, Bc)
    p = chosen.fitting(Problem(B=64, H=128, N=N, d=ceil_div(d, chosen.d_step) * chosen.d_step))
    refused = chosen.complaint(p, tiling, gpu)
    assert chosen.can(p, tiling, gpu) == (refused is None)
    if refused is None or "compute capability" in refused or "needs an NVIDIA GPU" in refused:
        return
    if "blocks, and a grid has at most" in refused:
        assert ("or a larger Br." in refused) == chosen.tiled and p.B * p.H * N > MAX_BLOCKS
        return
    found = re.search(r"; try (?:d=(\d+), )?Br=(\d+), Bc=(\d+)\.$", refused)
    assert found, refused
    smaller, Br, Bc = (int(n) if n else None for n in found.groups())  # type: ignore[assignment]
    assert smaller is None or smaller < p.d
    chosen.plan(p.replace(d=smaller or p.d), Tiling(Br, Bc), gpu, write_lse=write_lse)


def test_a_problem_that_no_tiles_make_small_enough() -> None:
    p = Problem(B=1 << 16, H=1 << 16, N=1 << 20, d=64)
    assert str(KERNELS["04"].complaint(p, Tiling(3, 3), GPUS["H200"])).endswith(
        "; try a smaller N, fewer heads or a smaller batch."
    )
    assert "smaller batch or a larger Br." in str(KERNELS["04"].complaint(p, Tiling(4, 8), GPUS["H200"]))


def test_the_nearest_tiles_are_told() -> None:
    def tried(number: str, Br: int, Bc: int, card: str = "H200", **more: object) -> str:
        chosen = KERNELS[number]
        p = chosen.fitting(Problem(**{"N": 512, "d": 64, **more}))  # type: ignore[arg-type]
        return str(chosen.complaint(p, Tiling(Br, Bc), GPUS[card])).split("; ")[-1]

    assert tried("02", 64, 64) == "try Br=32, Bc=32."
    assert tried("03", 64, 16, "T4", d=256) == "try Br=8, Bc=16."
    assert tried("04", 9, 9) == "try Br=8, Bc=8."  # whole warps
    assert tried("06", 128, 100) == "try Br=128, Bc=96."
    assert tried("12", 100, 64) == "try Br=128, Bc=64."
    assert tried("10", 128, 64, "A100-80", d=256) == "try Br=64, Bc=64."
