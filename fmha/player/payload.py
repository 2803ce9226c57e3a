"""Events and numbers of a run, packed for the player. The player decodes and draws; it computes no attention.

What is sent, and in how much detail (the blob must stay small at 64 x 64 tiles):

- every event of the run, and of naive attention when it races, each load with a bit: whether HBM answered it, or L2;
- for every visited tile an 8-bit picture of its scores, and m of its rows in 8 bits (for the small benches);
- for the Q tiles of the SM in focus the real numbers in float32: S, P, m, l, alpha and O after each visit.

`MAX_VISITS`, `PICTURE_SIDE` and `MAX_EXACT` bound the size. Where a picture has fewer cells than the tile, the header
says so; where the SM in focus has more Q tiles than fit, the page of them that holds `Scene.focus_tile` is sent.
A player that stands alone cannot ask for more: `Scene.exact_bytes` sends the Q tiles of all SMs, as many as fit.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmha.errors import LimitError
from fmha.events import CODE, PHASES
from fmha.figures.theme import PALETTE
from fmha.hardware import Gpu
from fmha.mask import tile_kinds
from fmha.memory import smem_layout
from fmha.player.packing import pack
from fmha.player.waves import turns
from fmha.problem import Problem, Tiling
from fmha.served import Served
from fmha.simulation import Run
from fmha.state import Arithmetic
from fmha.traffic import compulsory_bytes, count

MAX_VISITS = 4096
PICTURE_SIDE = 8
MAX_EXACT = 1 << 12
COLUMNS = 16

# The lines of the tutorial's kernel, as its phases: (text, phases that execute it, indent).
_Q_OUTER_LINES: tuple[tuple[str, tuple[str, ...], int], ...] = (
    ("load Qi;  O = 0, l = 0, m = -inf", ("load_Q",), 0),
    ("for each K/V tile j:", (), 0),
    ("load Kj, Vj", ("load_K", "load_V"), 1),
    ("S = Qi Kj^T * scale", ("S",), 1),
    ("m_new = max(m, rowmax S)", ("m",), 1),
    ("P = exp(S - m_new); l = alpha l + rowsum P", ("P",), 1),
    ("O = alpha O + P Vj", ("O",), 1),
    ("O = O / l", ("normalize",), 0),
    ("store Oi", ("store_O", "store_LSE"), 0),
)
_KV_OUTER_LINES: tuple[tuple[str, tuple[str, ...], int], ...] = (
    ("write O = 0, l = 0, m = -inf", ("init_O", "init_l", "init_m"), 0),
    ("for each K/V tile j:", (), 0),
    ("load Kj, Vj", ("load_K", "load_V"), 1),
    ("for each Q tile i: load Qi, Oi, li, mi", ("load_Q", "load_O", "load_l", "load_m"), 1),
    ("S = Qi Kj^T * scale", ("S",), 2),
    ("m_new = max(m, rowmax S)", ("m",), 2),
    ("P = exp(S - m_new); l = alpha l + rowsum P", ("P",), 2),
    ("O = (alpha l O + P Vj) / l_new", ("O_norm",), 2),
    ("store Oi, li, mi", ("store_O", "store_l", "store_m"), 2),
)


@dataclass(frozen=True)
class Scene:
    """What to show of a run, and how: the GPU whose share the clock followed, SMs, and what is in focus.

    focus_tile is (head, Q tile) on SM focus_sm; race: naive attention is sent along to run beside; start: (event,
    row, column, untouched) where a freshly opened player stands, and whether pressing play begins at time 0;
    exact_bytes: real numbers of as many Q tiles as fit into so many bytes, for a player that cannot ask for more (those
    of the SM in focus first); None: one page of the SM in focus.
    """

    gpu: Gpu
    sms: int
    focus_sm: int = 0
    focus_tile: tuple[int, int] | None = None
    race: bool = False
    start: tuple[int, int, int, bool] | None = None
    heads: tuple[int, ...] | None = None
    tokens: tuple[str, ...] | None = None
    exact_bytes: int | None = None


def build(run: Run, naive_events: NDArray[np.void], served: tuple[Served, Served], scene: Scene) -> bytes:
    """The player's data.

    Args:
        run: of order q-outer or kv-outer, batch size 1, simulated with `record_columns=COLUMNS` or more.
        naive_events: the timed events of naive attention on the same problem, tiling and SMs.
        served: who answers the loads of the run, and those of naive attention; each alone with its L2.

    Raises:
        LimitError: more than `MAX_VISITS` visits; the sentence says what to change.
    """
    problem, tiling = run.problem, run.tiling
    if run.tiles is None or problem.B != 1:
        raise ValueError("build needs a run of one batch entry with recorded tiles")
    Tr, Tc = tiling.Tr(problem), tiling.Tc(problem)
    if problem.H * Tr * Tc > MAX_VISITS:
        raise LimitError(
            f"{problem.H} heads x {Tr} x {Tc} tiles are too many to animate: use at most {MAX_VISITS} in all; "
            "try larger Br and Bc, a smaller N or one head."
        )
    clock = _Clock(max(float(run.events["t1"].max()), float(naive_events["t1"].max())))
    from_hbm, naive_from_hbm = (one.from_hbm for one in served)
    arrays = _track("f", run.events, from_hbm, clock) | _meter("f", run.events, from_hbm, clock)
    arrays |= _meter("n", naive_events, naive_from_hbm, clock)
    if scene.race:
        arrays |= _track("n", naive_events, naive_from_hbm, clock)
    picture, picture_meta = _pictures(run)
    tiles = _focus_tiles(run, scene) if scene.exact_bytes is None else _tiles_within(run, scene, scene.exact_bytes)
    exact, exact_rows = _exact(run, tiles)
    arrays |= picture | _operands(run) | exact
    arrays["kinds"] = tile_kinds(problem, tiling)[0]
    meta = _meta(run, naive_events, scene) | picture_meta | {"exact": exact_rows, "tick": clock.tick}
    meta["end"] = {"flash": clock.ticks(run.events["t1"].max()), "naive": clock.ticks(naive_events["t1"].max())}
    meta["l2"] = {
        "holds": served[0].l2_bytes,
        "read": {name: one.hbm_read for name, one in zip(("flash", "naive"), served, strict=True)},
    }
    meta["waves"] = {
        "flash": _waves(run.events, scene.sms, clock),
        "naive": _waves(naive_events, scene.sms, clock) if scene.race else None,
    }
    return pack(meta | {"schedule": schedule_digest(run)}, arrays)


def heads_that_fit(H: int, Tr: int, Tc: int) -> int:
    """How many of H heads the player can animate at once: at least one where Tr x Tc <= `MAX_VISITS`."""
    return max(1, min(H, MAX_VISITS // (Tr * Tc)))


def schedule_digest(run: Run) -> str:
    """Names the event table: a position in one run is a position in another only where these are equal."""
    digest = hashlib.blake2b(digest_size=12)
    for column in ("t0", "phase", "worker", "sm", "h", "i", "j", "nbytes"):  # not the raw rows: they have padding
        digest.update(run.events[column].tobytes())
    return digest.hexdigest()


class _Clock:
    """Times as whole ticks in four bytes. In float32 a short phase late in a run would have no length at all."""

    def __init__(self, end_us: float) -> None:
        self.tick = end_us / (2**32 - 1)

    def __call__(self, time_us: NDArray[Any]) -> NDArray[np.uint32]:
        return np.round(time_us / self.tick).astype(np.uint32)

    def ticks(self, time_us: float) -> int:
        return round(float(time_us) / self.tick)


def _waves(events: NDArray[np.void], sms: int, clock: _Clock) -> dict[str, Any]:
    """Where waves begin, [tick, kernel, wave] each, and how full they are."""
    found = turns(events, sms)
    begins = [[clock.ticks(t), kernel, wave] for t, kernel, wave in found.begins]
    return {"begins": begins, "count": found.waves.waves, "last": found.waves.last, "busy": found.busy}


def _track(
    prefix: str, events: NDArray[np.void], from_hbm: NDArray[np.bool_], clock: _Clock
) -> dict[str, NDArray[Any]]:
    """Events as columns, and the blocks (a worker in a kernel: a run of consecutive events on one SM)."""
    new_block = np.ones(len(events), np.bool_)
    new_block[1:] = (events["worker"][1:] != events["worker"][:-1]) | (events["kernel"][1:] != events["kernel"][:-1])
    first = np.flatnonzero(new_block)
    last = np.append(first[1:], len(events)) - 1
    columns: dict[str, NDArray[Any]] = {
        "t0": clock(events["t0"]),
        "phase": events["phase"],
        "hbm": np.packbits(from_hbm),
        "i": _index(events["i"]),
        "j": _index(events["j"]),
        "block_first": first.astype(np.uint32),
        "block_end": clock(events["t1"][last]),
        "block_sm": events["sm"][first].astype(np.uint16),
        "block_h": events["h"][first].astype(np.uint16),
    }
    columns |= _coded("nbytes", events["nbytes"])
    return {f"{prefix}_{name}": column for name, column in columns.items()}


def _index(tile: NDArray[np.int32]) -> NDArray[Any]:
    """Tile numbers in one byte where they fit, else two; -1 becomes the largest value of the type."""
    kind = np.uint8 if len(tile) == 0 or tile.max() < 255 else np.uint16
    return tile.astype(kind)


def _coded(name: str, values: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
    """Byte counts take few values: a table of them, and an index a row."""
    table, index = np.unique(values, return_inverse=True)
    return {f"{name}_table": table.astype(np.float64), name: index.astype(np.uint8 if len(table) < 256 else np.uint16)}


def _meter(
    prefix: str, events: NDArray[np.void], from_hbm: NDArray[np.bool_], clock: _Clock
) -> dict[str, NDArray[Any]]:
    """When bytes have arrived: end times in rising order, with the bytes of each. Initialisation is not counted.

    Bits say which of them were loaded, and which of those came from HBM.
    """
    counted = np.array([(p.is_load or p.is_store) and not p.code.startswith("init_") for p in PHASES])
    is_load = np.array([p.is_load for p in PHASES])
    moved = np.flatnonzero(counted[events["phase"]] & (events["nbytes"] > 0))
    row = moved[np.argsort(events["t1"][moved], kind="stable")]
    columns: dict[str, NDArray[Any]] = {
        "t": clock(events["t1"][row]),
        "load": np.packbits(is_load[events["phase"][row]]),
        "hbm": np.packbits(from_hbm[row]),
    }
    columns |= _coded("nbytes", events["nbytes"][row])
    return {f"{prefix}_meter_{name}": column for name, column in columns.items()}


def _pictures(run: Run) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """8-bit pictures: 0 is masked or absent, 1 to 255 run over [low, high]; at most `PICTURE_SIDE` cells a side."""
    assert run.tiles is not None
    S = run.tiles.S[0]
    Br, Bc = S.shape[-2:]
    rows, cols = min(Br, PICTURE_SIDE), min(Bc, PICTURE_SIDE)
    seen = np.isfinite(S)
    low, high = (float(S[seen].min()), float(S[seen].max())) if seen.any() else (0.0, 0.0)
    pooled = _pool(np.where(seen, S, -np.inf), rows, cols)
    with np.errstate(invalid="ignore"):
        level = 1 + np.round((pooled - low) / ((high - low) or 1.0) * 254)
    arrays: dict[str, NDArray[Any]] = {"S8": np.where(np.isfinite(pooled), level, 0).astype(np.uint8)}

    m, l = _by_tile(run.m[0], run.tiling.Br), run.l[0]  # m: [H, Tr, Br, Tc]
    share = (np.where(np.isfinite(m), m, low) - low) / ((high - low) or 1.0)
    scaled = np.clip(np.round(share.swapaxes(2, 3) * 255), 0, 255)
    arrays["m8"] = _pool(np.ascontiguousarray(scaled)[..., None], rows, 1)[..., 0].astype(np.uint8)
    meta = {
        "S_low": low, "S_high": high, "l_high": float(l.max()) or 1.0, "picture": [rows, cols],
        "reduced": (rows, cols) != (Br, Bc),
    }  # fmt: skip
    return arrays, meta


def _pool(tiles: NDArray[Any], rows: int, cols: int) -> NDArray[Any]:
    """Largest value of each of rows x cols parts of the last two axes."""
    Br, Bc = tiles.shape[-2:]
    for axis, extent, parts in ((-2, Br, rows), (-1, Bc, cols)):
        if parts != extent:
            edges = np.arange(parts) * extent // parts
            tiles = np.maximum.reduceat(tiles, edges, axis=axis)
    return tiles


def _by_tile(rows: NDArray[Any], Br: int) -> NDArray[Any]:
    """[H, Nq, x] -> [H, Tr, Br, x], the last tile filled up with zeros."""
    H, Nq, width = rows.shape
    out = np.zeros((H, -(-Nq // Br) * Br, width), rows.dtype)
    out[:, :Nq] = rows
    return out.reshape(H, -1, Br, width)


def _operands(run: Run) -> dict[str, NDArray[Any]]:
    """The first `COLUMNS` columns of Q, K, V and the final O in 8 bits: 128 is 0, each tensor by its own largest."""
    out: dict[str, NDArray[Any]] = {}
    group = run.problem.group
    for name, array in (("Q", run.Q), ("K", run.K), ("V", run.V), ("O", run.O)):
        head = array[0][..., :COLUMNS]
        if name in ("K", "V"):
            head = np.repeat(head, group, axis=0)
        largest = float(np.abs(head).max()) or 1.0
        out[f"{name}8"] = np.round(128 + head / largest * 127).astype(np.uint8)
    return out


def _q_tiles(events: NDArray[np.void]) -> NDArray[np.int64]:
    """(h, i) of the Q tiles of these events, in the order in which they are first met: [X, 2]."""
    visits = events[events["i"] >= 0]
    key = visits["h"].astype(np.int64) * (1 << 20) + visits["i"]
    first = np.sort(np.unique(key, return_index=True)[1])
    return np.stack([visits["h"][first], visits["i"][first]], axis=1).astype(np.int64)


def _tiles_within(run: Run, scene: Scene, exact_bytes: int) -> NDArray[np.int64]:
    """(h, i) of the Q tiles whose real numbers fit, at least one: the page of the SM in focus, then by start time."""
    events = run.events[np.argsort(run.events["t0"], kind="stable")]
    both = np.concatenate([_focus_tiles(run, scene), _q_tiles(events)])
    tiles = both[np.sort(np.unique(both, axis=0, return_index=True)[1])]
    return tiles[: max(1, exact_bytes // exact_tile_bytes(run))]


def exact_tile_bytes(run: Run) -> int:
    """Bytes that the real numbers of one Q tile take: S, P, O, six numbers a row after each visit, and the final O."""
    return tile_bytes(run.problem, run.tiling)


def tile_bytes(problem: Problem, tiling: Tiling) -> int:
    """The same before anything is run."""
    columns = min(COLUMNS, problem.d)
    return 4 * tiling.Br * (tiling.Tc(problem) * (2 * tiling.Bc + columns + 6) + columns)


def _focus_tiles(run: Run, scene: Scene) -> NDArray[np.int64]:
    """(h, i) of Q tiles that the SM in focus works on, in the order of its work: [X, 2], one page of them."""
    tiles = _q_tiles(run.events[run.events["sm"] == scene.focus_sm])
    page = max(1, MAX_EXACT // (run.tiling.Tc(run.problem) * run.tiling.Br * run.tiling.Bc))
    here: NDArray[np.intp] | list[int] = (
        np.flatnonzero((tiles == scene.focus_tile).all(axis=1)) if scene.focus_tile else []
    )
    start = int(here[0]) // page * page if len(here) else 0
    return tiles[start : start + page]


def _exact(run: Run, tiles: NDArray[np.int64]) -> tuple[dict[str, NDArray[Any]], list[list[int]]]:
    """Real numbers of these Q tiles."""
    assert run.tiles is not None
    h, i = tiles[:, 0], tiles[:, 1]
    columns = min(COLUMNS if len(tiles) == 1 else COLUMNS // 2, run.tiles.O.shape[-1])
    final = _by_tile(run.O[0][..., :columns], run.tiling.Br)
    arrays: dict[str, NDArray[Any]] = {
        "xS": run.tiles.S[0, h, i],
        "xP": run.tiles.P[0, h, i],
        "xO": run.tiles.O[0, h, i][..., :columns],
        "xF": final[h, i].astype(np.float32),
    } | _formula_terms(run, h, i)
    for name, trace in (("xm", run.m), ("xl", run.l), ("xa", run.alpha)):
        by_tile = _by_tile(trace[0], run.tiling.Br)[h, i]
        arrays[name] = np.ascontiguousarray(by_tile.swapaxes(1, 2)).astype(np.float32)
    return arrays, tiles.tolist()


def _formula_terms(run: Run, h: NDArray[np.int64], i: NDArray[np.int64]) -> dict[str, NDArray[np.float32]]:
    """What the inspector writes into the formulas, [X, Tc, Br]: rowmax S, rowsum P, and (P V) in column 0."""
    assert run.tiles is not None
    S, P = run.tiles.S[0, h, i], np.nan_to_num(run.tiles.P[0, h, i])
    stored = Arithmetic.of(run.problem, run.precision).stored  # P and V as the product takes them
    V = _by_tile(stored(run.V[0][..., :1]), run.tiling.Bc)[h // run.problem.group][..., 0]  # [X, Tc, Bc]
    return {
        "x_rowmax": np.where(np.isnan(S), -np.inf, S).max(axis=-1).astype(np.float32),
        "x_rowsum": P.sum(axis=-1).astype(np.float32),
        "x_pv": (stored(P) @ V[..., None])[..., 0].astype(np.float32),
    }


def _meta(run: Run, naive_events: NDArray[np.void], scene: Scene) -> dict[str, Any]:
    problem, tiling = run.problem, run.tiling
    lines = _KV_OUTER_LINES if run.order == "kv-outer" else _Q_OUTER_LINES
    flash, naive = count(run.events, run.order), count(naive_events, "naive")
    slots = smem_layout(tiling, problem.d, problem.itemsize)
    return {
        "problem": {
            "H": problem.H, "Nq": problem.Nq, "Nk": problem.Nk, "d": problem.d, "itemsize": problem.itemsize,
            "scale": problem.scale, "causal": problem.causal,
        },
        "Br": tiling.Br, "Bc": tiling.Bc, "Tr": tiling.Tr(problem), "Tc": tiling.Tc(problem),
        "order": run.order, "sms": scene.sms, "focus": scene.focus_sm, "race": scene.race, "start": scene.start,
        "heads": list(scene.heads) if scene.heads else None,
        "tokens": list(scene.tokens) if scene.tokens else None,
        "smem_limit": scene.gpu.smem_per_block_optin,
        "smem": [{"name": s.name, "shape": list(s.shape), "nbytes": s.nbytes} for s in slots],
        "phases": [
            {"code": p.code, "maths": p.maths, "tensor": p.tensor, "load": p.is_load, "store": p.is_store}
            for p in PHASES
        ],
        "lines": [{"text": text, "phases": [CODE[c] for c in codes], "indent": n} for text, codes, n in lines],
        "total": {"flash": flash.requested_bytes, "naive": naive.requested_bytes, "floor": compulsory_bytes(problem)},
        "palette": PALETTE, "alone": scene.exact_bytes is not None,
    }  # fmt: skip
