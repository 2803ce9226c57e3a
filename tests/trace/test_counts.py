"""Requests, sectors and wavefronts of random accesses, against a count by brute force that knows only the rules."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.trace.little import Ran, Snippets

TYPES = {"unsigned char": 1, "float": 4, "float2": 8, "float4": 16}
CELLS = 200
_KERNEL = """
extern "C" __global__ void move_NB(const int* index, const T* in, T* out, T* far) {
    extern __shared__ float row[];
    T* cells = (T*)row;
    const int tid = threadIdx.x, at = index[tid];
    for (int i = tid; i < CELLS; i += blockDim.x) cells[i] = in[i];  // at fill_NB
    __syncthreads();
    if (at < 0) return;
    if (at % 2) {
        out[tid] = cells[at];  // at odd_NB
        asm volatile("" ::: "memory");  // so that no compiler makes one access of the two
    } else {
        out[tid] = cells[CELLS - 1 - at];  // at even_NB
    }
    far[at] = in[at];  // at device_NB
}
"""
TEXT = "".join(
    _KERNEL.replace("NB", str(nbytes)).replace("CELLS", str(CELLS)).replace("T*", f"{name}*")
    for name, nbytes in TYPES.items()
)
TEXT += r"""
// Lanes leave loops at different times, and branch in them.
extern "C" __global__ void loops(const int* turns, const int* bits, const int* inner, float* out) {
    extern __shared__ float row[];
    const int tid = threadIdx.x;
    for (int i = tid; i < 64; i += blockDim.x) row[i] = 1.0f;
    __syncthreads();
    float sum = 0.0f;
    for (int i = 0; i < turns[tid]; ++i) {  // at turns
        if (bits[tid] >> i % 8 & 1) sum += row[(3 * tid + i) % 64];  // at branch
        for (int k = 0; k < inner[tid]; ++k) {  // at inner_turns
            if ((i + k) % 3 == 0) continue;
            sum += row[(5 * tid + k) % 64];  // at inside
        }
        sum += row[(i * tid) % 64];  // at always
    }
    out[tid] = sum;  // at behind
}
"""


@pytest.fixture(scope="module")
def kernels(cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Snippets:
    return Snippets(TEXT, tmp_path_factory.mktemp("counts"), cache, "counts.cu")


class Totals(NamedTuple):
    """Over all requests. widest: of one request, its sectors, or its wavefronts for each that would do."""

    requests: int = 0
    lanes: int = 0
    nbytes: int = 0
    sectors: int = 0
    ideal_sectors: int = 0
    wavefronts: int = 0
    ideal_wavefronts: int = 0
    widest: int = 0

    def with_request(self, addresses: dict[int, int], nbytes: int, is_shared: bool) -> Totals:
        """One more, if any lane takes part. addresses: of each lane that does, in bytes."""
        if not addresses:
            return self
        sectors = ideal_sectors = wavefronts = ideal = 0
        touched = {address + k for address in addresses.values() for k in range(nbytes)}
        if is_shared:
            at_once = {1: 32, 4: 32, 8: 16, 16: 8}[nbytes]  # lanes whose words are 128 bytes at most
            for first in range(0, 32, 2 * at_once):
                mine = {lane: a for lane, a in addresses.items() if first <= lane < first + 2 * at_once}
                in_pairs = any(
                    all(mine.get(lane ^ far, a) == a for lane, a in mine.items()) for far in (1, 2) if nbytes > 4
                )
                for group in {0 if in_pairs else lane // at_once for lane in mine}:
                    lanes = [a for lane, a in mine.items() if in_pairs or lane // at_once == group]
                    words = {(a + k) // 4 for a in lanes for k in range(nbytes)}
                    wavefronts += max(Counter(word % 32 for word in words).values())
                    ideal += 1
            widest = -(-wavefronts // ideal)
        else:
            sectors = len({byte // 32 for byte in touched})
            ideal_sectors = -(-len(touched) // 32)
            widest = sectors
        more = (1, len(addresses), nbytes * len(addresses), sectors, ideal_sectors, wavefronts, ideal)
        return Totals(*(a + b for a, b in zip(self[:7], more, strict=True)), max(self.widest, widest))


def brute(accesses: list[dict[int, int]], nbytes: int, is_shared: bool) -> Totals:
    """accesses: in turn, the address of each thread that takes part, of all warps together."""
    total = Totals()
    for turn in accesses:
        for warp in sorted({thread // 32 for thread in turn}):
            total = total.with_request({t % 32: a for t, a in turn.items() if t // 32 == warp}, nbytes, is_shared)
    return total


def counted(ran: Ran, kernels: Snippets, mark: str, array: str, is_write: bool) -> Totals:
    total = Totals()
    for row in ran.rows:
        site = kernels.program.sites[row["site"]]
        name = ran.raw.regions[row["launch"]][row["region"]].name
        if (site.line, name, site.is_write) == (kernels.line(mark), array, is_write):
            assert site.nbytes == row["nbytes"] // row["lanes"]
            sums = (a + int(row[field]) for a, field in zip(total, Totals._fields, strict=True))
            total = Totals(*list(sums)[:7], max(total.widest, int(row["widest"])))
    return total


def indices() -> st.SearchStrategy[list[int]]:
    """One a thread, each once at most, so that no two threads write one cell; -1: the thread takes no part."""
    some = st.lists(st.integers(0, CELLS - 1), min_size=1, max_size=70, unique=True)
    near = st.builds(
        lambda first, step, n: [first + step * k for k in range(n) if first + step * k < CELLS],
        st.integers(0, 20), st.integers(1, 32), st.integers(1, 70),
    )  # fmt: skip
    holes = st.sets(st.integers(0, 69))
    return st.builds(lambda found, out: [-1 if k in out else v for k, v in enumerate(found)], some | near, holes)


def test_moves_of_1_4_8_and_16_bytes(kernels: Snippets) -> None:
    @settings(max_examples=60)
    @given(indices())
    @example([*range(32)])
    @example([0, 32, 64, 96, 128, 160, 192])  # one bank, and one sector each
    @example([-1] * 8 + [2 * k for k in range(40)])
    @example([-1] * 33)
    def over_random_indices(index: list[int]) -> None:
        threads = len(index)
        launches = [
            kernels.launch(f"move_{n}", ("index", f"in{n}", f"out{n}", f"far{n}"), threads, 1, CELLS * n)
            for n in TYPES.values()
        ]
        arrays = {f"in{n}": np.arange(CELLS * n, dtype=np.uint8) for n in TYPES.values()}
        sizes = {f"{name}{n}": -(-CELLS * n // 4) for n in TYPES.values() for name in ("out", "far")}
        arrays["index"] = np.array(index, np.int32)
        ran = kernels.run(*launches, inputs=arrays, outputs=sizes, processes=1)
        assert [f.text for f in ran.findings] == []
        active = {t: at for t, at in enumerate(index) if at >= 0}
        odd = {t: at for t, at in active.items() if at % 2}
        even = {t: CELLS - 1 - at for t, at in active.items() if not at % 2}
        filled = [{t: i + t for t in range(threads) if i + t < CELLS} for i in range(0, CELLS, threads)]
        for n in TYPES.values():
            for mark, array, is_write, cells in (
                (f"fill_{n}", "row", True, filled),
                (f"fill_{n}", f"in{n}", False, filled),
                (f"odd_{n}", "row", False, [odd]),
                (f"even_{n}", "row", False, [even]),
                (f"device_{n}", f"in{n}", False, [active]),
                (f"device_{n}", f"far{n}", True, [active]),
            ):
                expected = brute([{t: n * at for t, at in turn.items()} for turn in cells], n, array == "row")
                assert counted(ran, kernels, mark, array, is_write) == expected, (mark, array)
            moved, far = (ran.outputs[f"{name}{n}"].view(np.uint8) for name in ("out", "far"))
            for t, at in active.items():
                assert np.array_equal(far[n * at : n * at + n], arrays[f"in{n}"][n * at : n * at + n])
                cell = odd.get(t, even.get(t, 0))
                assert np.array_equal(moved[n * t : n * t + n], arrays[f"in{n}"][n * cell : n * cell + n])

    over_random_indices()


def in_lockstep(turns: list[int], bits: list[int], inner: list[int]) -> dict[str, list[dict[int, int]]]:
    """What `loops` reads of shared memory, word by word, if the lanes of a warp wait for one another as they should."""
    found: dict[str, list[dict[int, int]]] = {"branch": [], "inside": [], "always": []}
    threads = range(len(turns))
    for i in range(max(turns)):
        there = [t for t in threads if i < turns[t]]
        found["branch"].append({t: (3 * t + i) % 64 for t in there if bits[t] >> i % 8 & 1})
        for k in range(max(inner[t] for t in there)):
            found["inside"].append({t: (5 * t + k) % 64 for t in there if k < inner[t] and (i + k) % 3})
        found["always"].append({t: (i * t) % 64 for t in there})
    return found


def compare_loops(kernels: Snippets, turns: list[int], bits: list[int], inner: list[int]) -> None:
    names = {"turns": turns, "bits": bits, "inner": inner}
    arrays = {name: np.array(values, np.int32) for name, values in names.items()}
    launch = kernels.launch("loops", (*arrays, "out"), block=len(turns), smem=256)
    ran = kernels.run(launch, inputs=arrays, outputs={"out": len(turns)}, processes=1)
    assert [f.text for f in ran.findings] == []
    accesses = in_lockstep(turns, bits, inner)
    for mark, reads in accesses.items():
        expected = brute([{t: 4 * word for t, word in turn.items()} for turn in reads], 4, True)
        assert counted(ran, kernels, mark, "row", False) == expected, mark
    sums = [sum(t in turn for reads in accesses.values() for turn in reads) for t in range(len(turns))]
    assert np.array_equal(ran.outputs["out"], sums)
    assert counted(ran, kernels, "behind", "out", True).requests == -(-len(turns) // 32)


def test_lanes_that_part_come_together_again(kernels: Snippets) -> None:
    lane = st.tuples(st.integers(0, 9), st.integers(0, 255), st.integers(0, 4))

    @settings(max_examples=60)
    @given(st.lists(lane, min_size=1, max_size=40).filter(lambda lanes: any(turns for turns, _, _ in lanes)))
    def over_random_lanes(lanes: list[tuple[int, int, int]]) -> None:
        turns, bits, inner = (list(values) for values in zip(*lanes, strict=True))
        compare_loops(kernels, turns, bits, inner)

    over_random_lanes()


def test_logs_that_fill_up_do_not_part_lanes(kernels: Snippets) -> None:
    """Thousands of accesses between two barriers, of very unequal number."""
    turns = [0, 5, 1900, 700, 1, 1899, 256, 1900] * 5
    bits = [255, 1, 0, 85, 255, 129, 3, 170] * 5
    inner = [0, 1, 2, 3, 4, 0, 2, 1] * 5
    compare_loops(kernels, turns, bits, inner)
