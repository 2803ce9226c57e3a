"""Each kind of fault in a kernel of a few lines: found, and told in a sentence with line, block and thread."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fmha.errors import BuildError, LimitError, TraceError
from tests.trace.little import Snippets

FAULTY = r"""
// A kernel each. `in` and `out` hold 32 numbers.
extern "C" __global__ void race_in_a_warp(float* out) {
    __shared__ float word[1];
    if (threadIdx.x == 3) word[0] = 2.0f;  // at warp_wrote
    if (threadIdx.x > 3) out[threadIdx.x] = word[0];  // at warp_read
}
extern "C" __global__ void race_across_warps(float* out) {
    __shared__ float word[1];
    if (threadIdx.x == 0) word[0] = 2.0f;  // at warps_wrote
    __syncwarp();
    out[threadIdx.x] = word[0];  // at warps_read
}
extern "C" __global__ void race_after_reading(float* out) {
    __shared__ float word[1];
    if (threadIdx.x == 0) word[0] = 2.0f;
    __syncthreads();
    if (threadIdx.x < 32) out[threadIdx.x] = word[0];  // at all_read
    if (threadIdx.x == 40) word[0] = 3.0f;  // at then_wrote
}
extern "C" __global__ void race_of_blocks(float* out) {
    out[7] = float(blockIdx.x);  // at blocks_wrote
}
extern "C" __global__ void race_of_readers(float* out, float* sum) {
    if (blockIdx.x == 0 && threadIdx.x == 0) out[0] = 1.0f;  // at first_block
    if (blockIdx.x == 1 && threadIdx.x == 5) sum[0] = out[0];  // at second_block
}
extern "C" __global__ void race_with_an_atomic(int* out) {
    __shared__ int sum;
    if (threadIdx.x == 0) sum = 0;  // at set
    atomicAdd(&sum, 1);  // at added
    __syncthreads();
    out[threadIdx.x] = sum;
}
extern "C" __global__ void unwritten_shared(float* out) {
    __shared__ float word[32];
    if (threadIdx.x != 9) word[threadIdx.x] = 1.0f;
    __syncthreads();
    out[threadIdx.x] = word[31 - threadIdx.x];  // at shared_read
}
extern "C" __global__ void unwritten_device(float* out) {
    if (threadIdx.x < 20) out[threadIdx.x] = threadIdx.x == 4 ? out[20] : 1.0f;  // at device_read
}
extern "C" __global__ void outside(const float* in, float* out, int read, int write) {
    float x = in[read];  // at outside_read
    out[write] = x;  // at outside_write
}
extern "C" __global__ void outside_by_a_part(const float2* in, float2* out) {
    float2 x = in[16];  // at wide_read
    out[0] = x;
}
extern "C" __global__ void far_outside(const float* in, float* out) {
    out[0] = in[1ll << 36];  // at far
}
extern "C" __global__ void outside_static(float* out, int at) {
    __shared__ float first[20], second[12];
    if (threadIdx.x < 20) first[threadIdx.x] = 0.0f;
    if (threadIdx.x < 12) second[threadIdx.x] = 0.0f;
    __syncthreads();
    if (threadIdx.x == 6) out[0] = second[at];  // at static_read
}
extern "C" __global__ void outside_dynamic(float* out, int at) {
    extern __shared__ float row[];
    if (threadIdx.x == 2) row[at] = 1.0f;  // at dynamic_write
}
extern "C" __global__ void overwrites(float* in) {
    if (threadIdx.x == 1) in[30] = 0.0f;  // at overwrite
}
extern "C" __global__ void leaves_early(float* out) {
    if (threadIdx.x == 17) return;
    __syncthreads();  // at missed
    out[threadIdx.x] = 1.0f;
}
extern "C" __global__ void two_barriers(float* out) {
    if (threadIdx.x < 8)
        __syncthreads();  // at one_barrier
    else
        __syncthreads();  // at other_barrier
    out[threadIdx.x] = 1.0f;
}
extern "C" __global__ void lonely_shuffle(float* out) {
    float x = 1.0f;
    if (threadIdx.x < 16)
        x = __shfl_xor_sync(0xffffffffu, x, 1);  // at shuffle
    else
        __syncthreads();  // at no_shuffle
    out[threadIdx.x] = x;
}
extern "C" __global__ void null_pointer(const float* in, float* out) {
    if (threadIdx.x == 11) out[0] = in[3];  // at null
}
extern "C" __global__ void misaligned(const float* in, float* out) {
    if (threadIdx.x == 8) *(float4*)out = *(const float4*)(in + 2);  // at crooked
}
extern "C" __global__ void endless(volatile float* out) {
    if (blockIdx.x == 1 && threadIdx.x == 5)
        while (out[5] != 1.0f) out[5] = 0.0f;  // at loop
}
__device__ int deep(volatile int* at, int n) {
    volatile int kept[64];
    kept[n % 64] = n;
    if (at[0] == n) return n;  // at deep
    return deep(at, n + 1) + kept[n % 64];
}
extern "C" __global__ void too_deep(int* never, int* out) {
    if (blockIdx.x == 2 && threadIdx.x == 4) out[0] = deep(never, 1);
}
"""


@pytest.fixture(scope="module")
def faulty(cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Snippets:
    return Snippets(FAULTY, tmp_path_factory.mktemp("faulty"), cache, "faulty.cu")


NUMBERS = np.arange(32, dtype=np.float32)
IN_OUT: dict[str, Any] = {"inputs": {"in": NUMBERS}, "outputs": {"out": 32}}
OUT: dict[str, Any] = {"outputs": {"out": 32}}

# function, arguments, settings; kind, line, other line, block, thread, count, and what the sentence says.
CASES: list[tuple[str, tuple[Any, ...], dict[str, Any], tuple[str, str, str, int, int, int], str]] = [
    ("race_in_a_warp", ("out",), OUT, ("race", "warp_read", "warp_wrote", 0, 4, 28),
     "reads word at byte 0, which thread 3 wrote in line {other}, with no barrier in between"),
    ("race_across_warps", ("out",), {"outputs": {"out": 64}, "block": 64},
     ("race", "warps_read", "warps_wrote", 0, 32, 32),
     "reads word at byte 0, which thread 0 wrote in line {other}, with no barrier in between"),
    ("race_after_reading", ("out",), OUT | {"block": 64}, ("race", "then_wrote", "all_read", 0, 40, 1),
     "writes word at byte 0, which several threads read in line {other}, with no barrier in between"),
    ("race_of_blocks", ("out",), OUT | {"block": 1, "grid": 3, "processes": 1},
     ("race", "blocks_wrote", "blocks_wrote", 1, 0, 2),
     "writes out at byte 28, which thread 0 of block 0 wrote in line {other}, and nothing orders blocks"),
    ("race_of_readers", ("out", "sum"), {"outputs": {"out": 32, "sum": 1}, "grid": 2, "processes": 1},
     ("race", "second_block", "first_block", 1, 5, 1),
     "reads out at byte 0, which thread 0 of block 0 wrote in line {other}, and nothing orders blocks"),
    ("race_with_an_atomic", ("out",), OUT, ("race", "added", "set", 0, 1, 31),
     "writes sum at byte 0, which thread 0 wrote in line {other}, with no barrier in between"),
    ("unwritten_shared", ("out",), OUT, ("read of what nothing wrote", "shared_read", "", 0, 22, 1),
     "reads word at byte 36, which nothing has written"),
    ("unwritten_device", ("out",), OUT, ("read of what nothing wrote", "device_read", "", 0, 4, 1),
     "reads out at byte 80, which nothing has written"),
    ("outside", ("in", "out", 32, 0), IN_OUT | {"block": 1}, ("out of bounds", "outside_read", "", 0, 0, 1),
     "reads in, right behind its end"),
    ("outside", ("in", "out", 40, 0), IN_OUT | {"block": 1}, ("out of bounds", "outside_read", "", 0, 0, 1),
     "reads in, 32 bytes behind its end"),
    ("outside", ("in", "out", -1, 0), IN_OUT | {"block": 1}, ("out of bounds", "outside_read", "", 0, 0, 1),
     "reads in, 4 bytes before its beginning"),
    ("outside", ("in", "out", 0, 32), IN_OUT | {"block": 1}, ("out of bounds", "outside_write", "", 0, 0, 1),
     "writes out, right behind its end"),
    ("outside", ("in", "out", 0, -1), IN_OUT | {"block": 1}, ("out of bounds", "outside_write", "", 0, 0, 1),
     "writes out, 4 bytes before its beginning"),
    ("outside_by_a_part", ("odd", "out"),
     {"inputs": {"odd": np.zeros(33, np.float32)}, "outputs": {"out": 32}, "block": 1},
     ("out of bounds", "wide_read", "", 0, 0, 1), "reads odd, right behind its end"),
    ("far_outside", ("in", "out"), IN_OUT | {"block": 1}, ("out of bounds", "far", "", 0, 0, 1),
     "reads an address that belongs to no array"),
    ("outside_static", ("out", 12), OUT, ("out of bounds", "static_read", "", 0, 6, 1),
     "reads second, right behind its end"),
    ("outside_static", ("out", 15), OUT, ("out of bounds", "static_read", "", 0, 6, 1),
     "reads second, 12 bytes behind its end"),
    ("outside_static", ("out", -1), OUT, ("out of bounds", "static_read", "", 0, 6, 1),
     "reads second, 4 bytes before its beginning"),
    ("outside_dynamic", ("out", 25), OUT | {"smem": 100}, ("beyond shared memory", "dynamic_write", "", 0, 2, 1),
     "writes dynamic shared memory at byte 100, and the launch asked for 100 B"),
    ("outside_dynamic", ("out", -1), OUT | {"smem": 100}, ("beyond shared memory", "dynamic_write", "", 0, 2, 1),
     "writes dynamic shared memory 4 bytes before its beginning, and the launch asked for 100 B"),
    ("outside_dynamic", ("out", 0), OUT, ("beyond shared memory", "dynamic_write", "", 0, 2, 1),
     "writes dynamic shared memory at byte 0, and the launch asked for 0 B"),
    ("overwrites", ("in",), {"inputs": {"in": NUMBERS}}, ("input overwritten", "overwrite", "", 0, 1, 1),
     "writes in at byte 120, which is an input"),
    ("leaves_early", ("out",), OUT, ("barrier missed", "missed", "", 0, 17, 1),
     "has ended, while thread 0 waits at the barrier in this line"),
    ("two_barriers", ("out",), OUT | {"block": 16}, ("barriers differ", "one_barrier", "other_barrier", 0, 8, 8),
     "waits at the barrier in line {other}, while thread 0 waits at the one in this line"),
    ("lonely_shuffle", ("out",), OUT, ("warp operation missed", "shuffle", "", 0, 0, 1),
     "waits here for thread 16 of its warp, which waits in line {no_shuffle}"),
    ("null_pointer", ("nothing", "out"), OUT, ("null pointer", "null", "", 0, 11, 1),
     "reads through a null pointer, 12 bytes behind it"),
    ("misaligned", ("in", "out"), IN_OUT, ("misaligned", "crooked", "", 0, 8, 1),
     "reads 16 bytes at once from an address that is not a multiple of 16"),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]}{'-'.join(str(a) for a in case[1][1:])}")
def test_found_and_told(case: Any, faulty: Snippets) -> None:
    function, arguments, settings, (kind, line, other, block, thread, count), said = case
    ran = faulty.call(function, arguments, **settings)
    (found,) = ran.findings
    number, other_number = faulty.line(line), faulty.line(other) if other else 0
    assert (found.kind, found.file, found.line, found.other_line) == (kind, "faulty.cu", number, other_number)
    assert (found.function, found.block, found.thread, found.count) == (function, block, thread, count)
    said = said.format(other=other_number, no_shuffle=faulty.line("no_shuffle"))
    assert found.text.startswith(f"faulty.cu:{number}: in {function}, block {block}, thread {thread} ")
    assert found.text.endswith(f"{said}.")


def test_a_race_of_blocks_is_found_whoever_runs_them(faulty: Snippets) -> None:
    for processes in (1, 2, 4):
        ran = faulty.call("race_of_blocks", ("out",), block=1, grid=16, processes=processes, **OUT)
        (found,) = ran.findings
        assert found.kind == "race" and found.count == 15 and "nothing orders blocks" in found.text


def test_what_is_not_found_in_one_order_is_in_the_other(faulty: Snippets) -> None:
    ran = faulty.call("race_in_a_warp", ("out",), is_reversed=True, **OUT)
    kinds = {(f.kind, f.line) for f in ran.findings}
    assert kinds == {
        ("read of what nothing wrote", faulty.line("warp_read")),
        ("race", faulty.line("warp_wrote")),
    }


def test_a_fault_leaves_other_blocks_and_arrays_alone(faulty: Snippets) -> None:
    ran = faulty.call("outside", ("in", "out", 3, 33), block=1, **IN_OUT)
    assert [f.kind for f in ran.findings] == ["out of bounds"]
    assert np.isnan(ran.outputs["out"]).all()  # as it was before: the stray number fell between the arrays


def test_an_endless_loop_ends_in_a_sentence(faulty: Snippets) -> None:
    for processes in (1, 3):
        with pytest.raises(TraceError) as caught:
            faulty.call("endless", ("out",), grid=2, processes=processes, timeout_s=1.5, **OUT)
        assert str(caught.value) == (
            "the kernel did not end within 1.5 s on the CPU; it was in endless, block 1, thread 5, last access at "
            f"faulty.cu:{faulty.line('loop')}. Does a loop end for every thread? A smaller N takes less time."
        )


def test_a_crash_ends_in_a_sentence(faulty: Snippets) -> None:
    for processes in (1, 3):
        with pytest.raises(TraceError) as caught:
            faulty.call(
                "too_deep", ("never", "out"), grid=3, processes=processes,
                inputs={"never": np.zeros(1, np.int32)}, outputs={"out": 1},
            )  # fmt: skip
        text = str(caught.value)
        assert text.startswith(
            "the kernel crashed on the CPU: it used an address that is not there; it was in too_deep"
        )
        assert "block 2, thread 4, last access at faulty.cu:" in text


def test_what_no_gpu_could_launch(faulty: Snippets) -> None:
    with pytest.raises(LimitError, match="2,048 threads a block, and 1 to 1,024 are allowed"):
        faulty.call("race_of_blocks", ("out",), block=2048, **OUT)
    with pytest.raises(LimitError, match="at most 227 KiB of shared memory and outside_dynamic asks for 256 KiB"):
        faulty.call("outside_dynamic", ("out", 0), smem=256 * 1024, **OUT)


def test_what_does_not_compile_is_told_with_its_line(cache: Path, tmp_path: Path) -> None:
    text = 'extern "C" __global__ void wrong(float* out) {\n    out[threadIdx.x] = missing;\n}\n'
    with pytest.raises(BuildError) as caught:
        Snippets(text, tmp_path, cache, "wrong.cu")
    said = str(caught.value)
    assert said.startswith("wrong.cu does not compile for the CPU: ") and "wrong.cu:2:24: error: " in said
    assert "missing" in said and "\n" not in said and str(tmp_path) not in said
    assert "missing" in caught.value.output and "-S" in caught.value.command
