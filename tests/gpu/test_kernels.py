"""Every kernel against float64 on a real GPU: random problems, the public cases, repeated runs, long offsets."""

from __future__ import annotations

import dataclasses
import os
from typing import Any

import numpy as np
import pytest

from fmha import Problem, Tiling
from fmha.check import Check, HeadRows, check, choose_rows
from fmha.gpu.device import GpuDevice
from fmha.gpu.launch import Loaded, run_once
from fmha.kernels import KERNELS, Kernel, Plan
from fmha.problem import cast
from fmha.storage import decode, encode
from fmha.units import ceil_div
from tests.core.yardstick import gen

EXAMPLES = int(os.environ.get("FMHA_GPU_EXAMPLES", "40"))
SEED = int(os.environ.get("FMHA_GPU_SEED", "20261129"))
TILES = [(16, 64), (64, 16), (4, 4), (8, 32), (32, 32), (1, 1), (5, 7), (32, 8), (16, 16), (3, 64), (64, 1), (1, 128)]
DIMS = [1, 2, 5, 8, 16, 31, 33, 63, 64, 72, 80, 96, 128, 192, 256]
LENGTHS = [1, 2, 3, 15, 16, 17, 31, 32, 33, 63, 64, 65, 100, 127, 200, 257, 400, 1000]


def gen_qkv(p: Problem) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The closed-form input of the public cases."""
    return gen(p.B, p.H, p.Nq, p.Nk, p.d, p.Hk)


every_kernel = pytest.mark.parametrize(
    ("chosen", "dtype"),
    [(k, dtype) for k in KERNELS.values() for dtype in k.dtypes],
    ids=[f"{k.name}-{dtype}" for k in KERNELS.values() for dtype in k.dtypes],
)
# How far numbers that are known may be off: a rounding of inputs and outputs of about 1.
OFF = {"fp32": 0.0, "fp16": 2e-3, "bf16": 2e-2}


@pytest.fixture(scope="module")
def device(gpu: object) -> GpuDevice:
    return GpuDevice(0)


_loaded: dict[Any, Loaded] = {}


def loaded(device: GpuDevice, chosen: Kernel, plan: Plan) -> Loaded:
    key = (chosen.number, *sorted(plan.defines.items()), *(launch.block for launch in plan.launches))
    if key not in _loaded:
        _loaded[key] = Loaded(device, chosen, plan)
    return _loaded[key]


def tiles_for(device: GpuDevice, chosen: Kernel, p: Problem, wish: Tiling) -> Tiling:
    """The tiles that were wished for, or the first that this kernel can use."""
    for t in (wish, *(Tiling(*sides) for sides in (*chosen.tiles, (32, 16), (16, 16)))):
        if chosen.complaint(p, t, device.gpu) is None:
            return t
    pytest.skip(f"this GPU cannot run kernel {chosen.number} with d={p.d}")


def result(
    device: GpuDevice, chosen: Kernel, dtype: str, p: Problem, t: Tiling, Q: Any, K: Any, V: Any, *, lse: bool = True
) -> Any:
    """O and LSE. Where the kernel wants d to be a multiple, Q, K and V get columns of zeros, which change no score."""
    d = ceil_div(p.d, chosen.d_step) * chosen.d_step
    wide = dataclasses.replace(p, d=d, dtype=dtype)
    arrays = [np.pad(np.asarray(a, np.float32), [(0, 0)] * 3 + [(0, d - p.d)]) for a in (Q, K, V)]
    plan = chosen.plan(wide, tiles_for(device, chosen, wide, t), device.gpu, write_lse=lse)
    O, LSE = run_once(device, chosen, plan, *arrays, write_lse=lse, loaded=loaded(device, chosen, plan))
    assert (O[..., p.d :] == 0).all()
    return np.ascontiguousarray(O[..., : p.d]), LSE


def random_problem(rng: np.random.Generator) -> Problem:
    """Ragged lengths, Nq != Nk, grouped heads, both causal alignments, padding on both sides, odd d, odd scales."""
    Hk = int(rng.integers(1, 4))
    H = Hk * int(rng.integers(1, 4))
    B = int(rng.integers(1, 4))
    Nq, Nk = (int(rng.choice(LENGTHS)) for _ in "qk")
    if rng.random() < 0.5:
        Nk = Nq
    causal = [None, "bottom-right", "top-left"][rng.integers(3)]
    padding: dict[str, Any] = {}
    if rng.random() < 0.3:
        padding["lens_k"] = tuple(int(n) for n in rng.integers(0, Nk + 1, B))
    if rng.random() < 0.3:
        padding["left_pad"] = tuple(int(n) for n in rng.integers(0, Nk + 1, B))
    scale = None if rng.random() < 0.8 else float(rng.normal())
    return Problem(B=B, H=H, Hk=Hk, Nq=Nq, Nk=Nk, d=int(rng.choice(DIMS)), causal=causal, scale=scale, **padding)


def share_of_allowed(found: Check) -> float:
    """Of what is allowed, the largest part that an error takes."""
    pairs = [(found.max_abs, found.max_abs_allowed), (found.relative, found.relative_allowed)]
    if found.lse_max_abs is not None and found.lse_allowed is not None:
        pairs.append((found.lse_max_abs, found.lse_allowed))
    return max((off / allowed for off, allowed in pairs if off), default=0.0)


@every_kernel
def test_random_problems(device: GpuDevice, chosen: Kernel, dtype: str) -> None:
    first, ran, seed, wrong, nearest = SEED, 0, 0, [], 0.0
    while ran < EXAMPLES:
        rng = np.random.default_rng(first + seed)
        p, t = random_problem(rng), Tiling(*TILES[rng.integers(len(TILES))])
        seed += 1
        p = p.replace(d=ceil_div(p.d, chosen.d_step) * chosen.d_step, dtype=dtype)
        if chosen.d_step > 1:  # few of those tiles are any of its own
            t = Tiling(*chosen.tiles[rng.integers(len(chosen.tiles))])
        if chosen.complaint(p, t, device.gpu):
            continue
        Q = rng.standard_normal((p.B, p.H, p.Nq, p.d), np.float32) * np.float32(rng.choice([0.1, 1, 3]))
        K, V = (rng.standard_normal((p.B, p.Hk, p.Nk, p.d), np.float32) for _ in "KV")
        O, LSE = result(device, chosen, dtype, p, t, Q, K, V)
        found = check(p, Q, K, V, O, LSE)
        ran += 1
        nearest = max(nearest, share_of_allowed(found))
        if not found.ok:
            wrong.append(f"seed {first + seed - 1}: {p} {t}: {found.verdict}")
    print(
        f"{chosen.name} {dtype}: {ran} random problems, seeds {first} to {first + seed - 1}, {len(wrong)} wrong; the "
        f"largest error was {nearest:.2f} of what is allowed"
    )
    assert not wrong, "\n".join(wrong[:10])


@every_kernel
@pytest.mark.parametrize("N", [1, 31, 32, 33, 63, 65, 1023])
@pytest.mark.parametrize("shape", [(16, 64, 32), (64, 16, 128), (4, 4, 64), (8, 32, 5), (32, 32, 16)])
def test_b05_ragged(device: GpuDevice, chosen: Kernel, dtype: str, N: int, shape: tuple[int, int, int]) -> None:
    Br, Bc, d = shape
    p = Problem(B=2, H=2, N=N, d=d)
    arrays = [a.astype(np.float32) for a in gen_qkv(p)]
    O, LSE = result(device, chosen, dtype, p, Tiling(Br, Bc), *arrays)
    found = check(p.replace(dtype=dtype), *arrays, O, LSE)
    assert found.ok, found.verdict


@every_kernel
def test_b05_known_numbers(device: GpuDevice, chosen: Kernel, dtype: str) -> None:
    zeros, ones = (np.full((1, 1, 33, 8), x, np.float32) for x in (0, 1))
    O, LSE = result(device, chosen, dtype, Problem(N=33, d=8), Tiling(32, 32), zeros, zeros, ones)
    np.testing.assert_allclose(O, 1, atol=1e-6 + OFF[dtype])
    np.testing.assert_allclose(LSE, 3.496508, atol=1e-5 + OFF[dtype])
    p = Problem(B=2, H=2, N=33, d=8)
    O, LSE = result(device, chosen, dtype, p, Tiling(32, 32), *gen_qkv(p))
    row = [0.058354, 0.055471, 0.051918, 0.047738, 0.042980, 0.037703, 0.031970, 0.025851]
    np.testing.assert_allclose(O[0, 0, 32], row, atol=2e-6 + OFF[dtype])
    np.testing.assert_allclose(LSE[0, 0, 32], 3.838664, atol=1e-5 + OFF[dtype])
    row = [0.065842, 0.066774, 0.066898, 0.066214, 0.064730, 0.062463, 0.059442, 0.055701]
    np.testing.assert_allclose(O[1, 1, 32], row, atol=2e-6 + OFF[dtype])


@every_kernel
def test_a01_rows_that_see_no_key(device: GpuDevice, chosen: Kernel, dtype: str) -> None:
    p = Problem(Nq=4, Nk=2, d=2, causal="br")
    O, LSE = result(device, chosen, dtype, p, Tiling(2, 2), *gen_qkv(p))
    np.testing.assert_allclose(
        O[0, 0], [[0, 0], [0, 0], [0.295520, 0.398609], [0.364759, 0.464126]], atol=2e-6 + OFF[dtype]
    )
    assert np.isneginf(LSE[0, 0, :2]).all()
    np.testing.assert_allclose(LSE[0, 0, 2:], [1.182468, 1.158768], atol=1e-5 + OFF[dtype])
    p = Problem(N=5, d=2, causal="br", left_pad=(3,))
    O, LSE = result(device, chosen, dtype, p, Tiling(2, 2), *gen_qkv(p))
    assert (O[0, 0, :3] == 0).all() and np.isneginf(LSE[0, 0, :3]).all()
    np.testing.assert_allclose(O[0, 0, 3:], [[0.819192, 0.877201], [0.867813, 0.915776]], atol=2e-6 + OFF[dtype])


@every_kernel
def test_a02_alignment(device: GpuDevice, chosen: Kernel, dtype: str) -> None:
    Q, K = np.zeros((1, 1, 2, 1), np.float32), np.zeros((1, 1, 5, 1), np.float32)
    V = np.arange(5, dtype=np.float32).reshape(1, 1, 5, 1)
    for causal, right, lse in (("br", [1.5, 2.0], [np.log(4), np.log(5)]), ("tl", [0, 0.5], [0, np.log(2)])):
        O, LSE = result(device, chosen, dtype, Problem(Nq=2, Nk=5, d=1, causal=causal), Tiling(1, 2), Q, K, V)
        np.testing.assert_allclose(O.ravel(), right, atol=1e-6 + OFF[dtype])
        np.testing.assert_allclose(LSE.ravel(), lse, atol=1e-6 + OFF[dtype])


@every_kernel
@pytest.mark.parametrize("q", [-20000.0, -60000.0])
def test_a04_masked_keys_never_win(device: GpuDevice, chosen: Kernel, dtype: str, q: float) -> None:
    Q, K, V = (np.array(x, np.float32).reshape(1, 1, 2, 1) for x in ((q, 0), (1, 0), (1, 100)))
    p = Problem(N=2, d=1, scale=1.0, lens_k=(1,))
    O, LSE = result(device, chosen, dtype, p, Tiling(2, 2), Q, K, V)
    # exp2(S scale - m) by one multiply-add sees the rounding of m, which is that of a large number here: P is near 1
    # and so is l, but a P of 16 bits is rounded once more. A masked key that won would give 100.
    np.testing.assert_allclose(O.ravel(), [1, 1], atol=1e-6 + OFF[dtype])
    np.testing.assert_allclose(
        LSE.ravel(), [cast([q], dtype)[0], 0], rtol=3e-7, atol=1e-6
    )  # m may be in units of log 2


@every_kernel
def test_a07_lengths_0_and_1(device: GpuDevice, chosen: Kernel, dtype: str) -> None:
    p = Problem(B=2, N=2, d=2, lens_k=(0, 2))
    O, LSE = result(device, chosen, dtype, p, Tiling(2, 2), *gen_qkv(p))
    assert (O[0] == 0).all() and np.isneginf(LSE[0]).all()
    np.testing.assert_allclose(O[1, 0], [[0.744977, 0.812708], [0.743958, 0.811824]], atol=2e-6 + OFF[dtype])
    p = Problem(N=1, d=2)
    O, LSE = result(device, chosen, dtype, p, Tiling(1, 1), *gen_qkv(p))
    np.testing.assert_allclose(O.ravel(), [0.295520, 0.398609], atol=2e-6 + OFF[dtype])
    np.testing.assert_allclose(LSE.ravel(), 0.307820, atol=1e-5 + OFF[dtype])


@every_kernel
@pytest.mark.parametrize("d", [1, 33, 63, 72, 80, 96, 192, 256])
def test_a10_odd_head_dims(device: GpuDevice, chosen: Kernel, dtype: str, d: int) -> None:
    p = Problem(H=2, N=40, d=d)
    arrays = gen_qkv(p)
    O, LSE = result(device, chosen, dtype, p, Tiling(16, 16), *arrays)
    found = check(p.replace(dtype=dtype), *(a.astype(np.float32) for a in arrays), O, LSE)
    assert found.ok, found.verdict
    if d == 80:
        np.testing.assert_allclose(O[0, 0, 0, :3], [-0.001939, -0.001876, -0.001790], atol=2e-6 + OFF[dtype])


@every_kernel
def test_a12_which_kv_head(device: GpuDevice, chosen: Kernel, dtype: str) -> None:
    p = Problem(H=6, Hk=2, N=3, d=2)
    Q, K = (np.zeros((1, h, 3, 2), np.float32) for h in (6, 2))
    V = np.repeat(np.float32([10, 20]), 6).reshape(1, 2, 3, 2)
    O, _ = result(device, chosen, dtype, p, Tiling(2, 2), Q, K, V)
    np.testing.assert_array_equal(O[0, :, 0, 0], [10, 10, 10, 20, 20, 20])


@every_kernel
def test_a20_values_of_one_give_one(device: GpuDevice, chosen: Kernel, dtype: str) -> None:
    Q, K, V = (np.zeros((1, 1, n, 1), np.float32) for n in (1, 4096, 4096))
    Q[:], K[0, 0, 0], V[:] = 1, 7, 1
    p = Problem(Nq=1, Nk=4096, d=1, scale=1.0, dtype=dtype)
    O, _ = result(device, chosen, dtype, p, Tiling(1, 64), Q, K, V)
    found = check(p, Q, K, V, O)
    assert found.ok, found.verdict
    np.testing.assert_allclose(O, 1, atol=3e-5 + OFF[dtype])  # l adds up 4,096 numbers


@every_kernel
def test_strides(device: GpuDevice, chosen: Kernel, dtype: str) -> None:
    """Tensors as [B, N, H, d], and K and V as parts of one packed tensor, give the O of dense ones, bit by bit.
    Kernels 01 and 02 take no strides; they are given a dense copy."""
    p = Problem(B=2, H=4, Hk=2, Nq=300, Nk=257, d=64, causal="br", dtype=dtype)
    t = tiles_for(device, chosen, p, Tiling(32, 32))
    plan = chosen.plan(p, t, device.gpu, write_lse=True)
    Q, K, V = (a.astype(np.float32) for a in gen_qkv(p))
    ready = loaded(device, chosen, plan)
    dense = run_once(device, chosen, plan, Q, K, V, write_lse=True, loaded=ready)
    packed = np.concatenate([K, V], 1).transpose(0, 2, 1, 3).copy().transpose(0, 2, 1, 3)
    apart = Q.transpose(0, 2, 1, 3).copy().transpose(0, 2, 1, 3)
    O, LSE = run_once(device, chosen, plan, apart, packed[:, :2], packed[:, 2:], write_lse=True, loaded=ready)
    assert O.tobytes() == dense[0].tobytes() and LSE is not None and dense[1] is not None
    assert LSE.tobytes() == dense[1].tobytes()


@every_kernel
@pytest.mark.parametrize("tiles", [(32, 32), (16, 64), (5, 7)])
def test_b04_a_hundred_runs_are_bit_identical(
    device: GpuDevice, chosen: Kernel, dtype: str, tiles: tuple[int, int]
) -> None:
    p = Problem(B=2, H=4, N=200, d=64)
    arrays = gen_qkv(p)
    first, first_lse = result(device, chosen, dtype, p, Tiling(*tiles), *arrays)
    for _ in range(100):
        O, LSE = result(device, chosen, dtype, p, Tiling(*tiles), *arrays)
        assert O.tobytes() == first.tobytes() and LSE.tobytes() == first_lse.tobytes()


@every_kernel
def test_more_than_2_to_the_31_elements(device: GpuDevice, chosen: Kernel, dtype: str) -> None:
    """Offsets of the last heads need 64 bits: in Q, K, V, O for flash, in S and P for naive."""
    N, heads, d = (512, 70_050, 64) if chosen.order == "q-outer" else (1024, 2_100, 8)
    p = Problem(B=heads // 30, H=30, N=N, d=d, dtype=dtype)
    plan = chosen.plan(p, tiles_for(device, chosen, p, Tiling(32, 32)), device.gpu)
    largest = max(p.B * p.H * N * d, *(size // 4 for size in plan.scratch.values()), 0)
    assert largest > 2**31
    if plan.memory_complaint(device.free_bytes()):
        pytest.skip("this GPU has too little memory for it")
    rng, head_bytes = np.random.default_rng(3), N * d * p.itemsize
    arrays = [rng.standard_normal((97, N, d), np.float32) for _ in "QKV"]  # heads, again and again
    memory: dict[str, Any] = {}
    try:
        for name, size in {**dict.fromkeys("QKVO", heads * head_bytes), **plan.scratch}.items():
            try:
                memory[name] = device.driver.mem_alloc(size)
            except device.driver.MemoryError:
                pytest.skip("this GPU's memory is taken by others")
        for name, array in zip("QKV", arrays, strict=True):
            device.driver.memcpy_htod(memory[name], encode(array, dtype))
            filled = len(array)
            while filled < heads:
                at_once = (1 << 30) // head_bytes // 97 * 97  # PyCUDA counts the bytes of a copy in 32 bits
                more = min(filled // 97 * 97, at_once, heads - filled)
                device.driver.memcpy_dtod(int(memory[name]) + filled * head_bytes, memory[name], more * head_bytes)
                filled += more
        loaded(device, chosen, plan).run(plan, {name: int(at) for name, at in memory.items()})
        device.synchronize()
        raw = np.empty(head_bytes, np.uint8)
        one = Problem(N=N, d=d, dtype=dtype)
        for head in (0, heads // 2 + 7, heads - 2, heads - 1):
            device.driver.memcpy_dtoh(raw, int(memory["O"]) + head * head_bytes)
            O = decode(raw, dtype).reshape(1, 1, N, d)
            mine = [array[head % 97][None, None] for array in arrays]
            found = check(one, *mine, O, rows=(HeadRows(0, 0, np.arange(0, N, 37)),))
            assert found.ok, (head, found.verdict)
    finally:
        for at in memory.values():
            at.free()


def test_more_shared_memory_than_48_kib(device: GpuDevice) -> None:
    chosen = KERNELS["02"]
    p, t = Problem(H=2, N=300, d=256), Tiling(32, 32)
    plan = chosen.plan(p, t, device.gpu)
    assert plan.launches[0].smem_bytes > 48 * 1024
    arrays = gen_qkv(p)
    O, LSE = result(device, chosen, "fp32", p, t, *arrays)
    found = check(p, *(a.astype(np.float32) for a in arrays), O, LSE, rows=choose_rows(p))
    assert found.ok, found.verdict


def test_the_driver_agrees_on_occupancy(device: GpuDevice) -> None:
    from fmha.occupancy import occupancy

    for chosen in KERNELS.values():
        for tiles in {*TILES, *chosen.tiles}:
            for d in (16, 64, 128):
                p = chosen.fitting(Problem(N=2048, d=d))
                if chosen.complaint(p, Tiling(*tiles), device.gpu):
                    continue
                plan = chosen.plan(p, Tiling(*tiles), device.gpu)
                ready = Loaded(device, chosen, plan)
                for launch, use in zip(plan.launches, ready.build.functions, strict=True):
                    assert use.static_smem_bytes == launch.static_smem_bytes
                    ours = occupancy(
                        device.gpu,
                        threads=launch.block,
                        smem_bytes=launch.smem_bytes + launch.static_smem_bytes,
                        registers=use.registers,
                    )
                    assert ours.blocks == use.blocks_per_sm, (chosen.name, tiles, d, launch.function, ours, use)
