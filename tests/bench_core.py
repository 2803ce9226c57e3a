"""How fast the core is: `python tests/bench_core.py`. Not a test; prints a table for this machine.

For each order: a table of about a million events emitted, counted and clocked (best of five), and `simulate` at
16 x 16 and 64 x 64 tiles; then the model of the caches. The aims, on one quiet core: emit a million events in 0.3 s, a
million uses of tiles through the L2 model in 2 s, the player's largest table in 30 ms, a whole tile map of the recorded
problem in 150 ms.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np

from fmha import Problem, Tiling, load, simulate
from fmha.events import emit
from fmha.forecast import time_us
from fmha.hardware import DEFAULT_GPU, GPUS
from fmha.kernels import KERNELS
from fmha.reuse import bytes_between
from fmha.schedule import ORDERS
from fmha.served import serve, uses
from fmha.tilemap import Predicted, asked_of_l2, tile_map
from fmha.timeline import clock
from fmha.traffic import closed_form, count

MILLION = {"q-outer": Tiling(32, 50), "kv-outer": Tiling(32, 93), "naive": Tiling(32, 51)}


def best(call: Callable[[], Any], times: int = 5) -> tuple[float, Any]:
    """Shortest of several runs in seconds, and the last result."""
    seconds, result = float("inf"), None
    for _ in range(times):
        start = time.perf_counter()
        result = call()
        seconds = min(seconds, time.perf_counter() - start)
    return seconds, result


def four_levels() -> None:
    """A million uses through the L2 model, and whole tile maps."""
    tiles = np.random.default_rng(0).integers(0, 20_000, 1_000_000)
    seconds, _ = best(lambda: bytes_between(tiles, np.ones(len(tiles))), 3)
    print(f"\na million uses of 20,000 tiles, bytes between: {seconds:.2f} s")
    gpu, shown = GPUS[DEFAULT_GPU], Problem(N=512, d=64)  # the largest table that the player shows: 4,096 visits
    events = clock(emit(shown, Tiling(8, 8), "kv-outer"), gpu, "fp32")
    seconds, _ = best(lambda: serve(uses(events, shown), 65536))
    print(f"who answers each load of {len(events):,} events: {1e3 * seconds:.1f} ms")
    for causal in (None, "bottom-right"):
        p = Problem(N=4096, H=16, d=64, causal=causal)
        models = {
            "requested": None,
            "L2 bytes": lambda t, p=p: Predicted(l2_bytes=asked_of_l2(p, t, gpu, 4_000)),
            "time": lambda t, p=p: Predicted(time_us=time_us(KERNELS["02"], p, t, gpu, most=500)),
        }
        for name, model in models.items():
            seconds, _ = best(lambda model=model, p=p: tile_map("02", p, gpu, model=model))
            print(f"tile map, N=4096, causal {causal or 'none'}, {name}: {1e3 * seconds:.1f} ms")


def main() -> None:
    """Print the tables."""
    large = Problem(H=16, N=4096, d=64)
    print(f"{'order':<10}{'events':>10}{'emit':>10}{'count':>10}{'clock':>10}{'closed':>10}{'million events/s':>18}")
    for order in ORDERS:
        tiles = MILLION[order]
        emitting, events = best(lambda tiles=tiles, order=order: emit(large, tiles, order))
        counting, _ = best(lambda events=events, order=order: count(events, order))
        clocking, _ = best(lambda events=events: clock(events, GPUS[DEFAULT_GPU], "fp32"))
        closing, _ = best(lambda tiles=tiles, order=order: closed_form(large, tiles, order))
        times = "".join(f"{1e3 * seconds:>7.1f} ms" for seconds in (emitting, counting, clocking, closing))
        print(f"{order:<10}{len(events):>10,}{times}{len(events) / emitting / 1e6:>18.1f}")
    print(f"\n{'simulate':<22}{'16 x 16 tiles':>16}{'64 x 64 tiles':>16}")
    for order in ORDERS:
        for precision in ("float64", "dtype"):
            times = ""
            for N, tile in ((128, 8), (512, 8)):
                p = Problem(N=N, d=32, dtype="bf16")
                i = load("random", p)
                tiling = Tiling(tile, tile)
                seconds, _ = best(
                    lambda p=p, i=i, t=tiling, o=order, x=precision: simulate(p, t, i.Q, i.K, i.V, o, precision=x)
                )
                times += f"{1e3 * seconds:>13.1f} ms"
            print(f"{order + ', ' + precision:<22}{times}")
    four_levels()


if __name__ == "__main__":
    main()
