"""The settings of a kernel's run as controls, what they would launch, and why that may be impossible."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import streamlit as st

from fmha import best_tiles
from fmha.errors import FmhaError
from fmha.gpu.diagnosis import Diagnosis
from fmha.hardware import DEFAULT_GPU, GPUS, Gpu
from fmha.inputs import INPUTS, InputSource
from fmha.kernels import ALIASES, KERNELS, Kernel, Plan, kernel
from fmha.ladder import TUTORIALS
from fmha.problem import Problem, Tiling, check_memory
from fmha.ui import controls, live
from fmha.ui.this_gpu import default_gpu
from fmha.units import format_count

LENGTHS = [
    1, 2, 3, 4, 8, 16, 31, 32, 33, 63, 64, 65, 100, 128, 200, 256, 512, 1000, 1023, 1024, 2000, 2048, 4000, 4095, 4096,
    8192, 16384,
]  # fmt: skip
HEAD_DIMS = [1, 5, 8, 16, 32, 33, 40, 63, 64, 72, 80, 96, 117, 118, 128, 192, 256, 257]
TILES = [1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128]
HEADS = [1, 2, 3, 4, 6, 8, 12, 16, 32]
BATCHES = [1, 2, 3, 4, 8]
ANY_TILE = Tiling(32, 32)  # of kernels that choose their own


@dataclass(frozen=True)
class Target:
    """The GPU that a launch is held against. known: as its worker describes it; why: why it could not, in a
    sentence."""

    device: int
    gpu: Gpu
    known: live.Described | None = None
    why: str | None = None


def settings(machine: Diagnosis | None) -> tuple[live.Asked, Target]:
    """All controls, and what they ask for."""
    above = st.columns(4)
    rows_below = st.container()
    more = st.expander("Input, batch, K/V heads, key length, head shown")
    columns = more.columns(4)
    with columns[0]:
        titles = {name: source.title for name, source in INPUTS.items()}
        name = controls.choice("input", "Input", titles, default="random", help="Where Q, K and V come from.")
        source = INPUTS[name]
        seed, layer, head = _of_input(source)
    chosen, N, d, causal, dtype, tiling, H, target = _first(source, machine, above, rows_below)
    with columns[1]:
        B = controls.slider("B", "Batch B", options=BATCHES if source.N is None else [1], default=1)
        shared = [h for h in range(1, H + 1) if H % h == 0] if source.N is None else [H]
        Hk = controls.slider("Hk", "K/V heads Hk", options=shared, default=H, help="Query heads share K/V heads.")
    with columns[2]:
        Nk = N
        if controls.toggle("cross", "Keys: a length of their own"):
            Nk = controls.slider("Nk", "Keys Nk", options=_lengths(source), default=N)
    with columns[3]:
        h = controls.slider("show", "Head shown", lo=0, hi=H - 1, default=0, help="Whose O and error map are drawn.")
        b = controls.slider("batch", "Batch entry shown", lo=0, hi=B - 1, default=0)
    problem = Problem(B=B, H=H, Hk=Hk, Nq=N, Nk=Nk, d=d, causal=causal, dtype=dtype)  # type: ignore[arg-type]
    return live.Asked(chosen.number, problem, tiling, name, seed, layer, head, (b, h), target.device), target


def _lengths(source: InputSource) -> list[int]:
    return sorted({n for n in LENGTHS if n <= (source.N or n)} | {source.N or 1})


def _of_input(source: InputSource) -> tuple[int, int, int]:
    """Seed, layer and first head, as far as the input has them."""
    seed, layer, head = 0, 3, 0
    if source.N is None:
        seed = controls.number("seed", "Seed", lo=0, hi=9999, default=0)
    if source.name == "sentence":
        layer = controls.slider("layer", "Layer", lo=0, hi=5, default=3)
    if source.H and source.H > 1:
        head = controls.slider("head", "First head", lo=0, hi=source.H - 1, default=0)
    return seed, layer, head


def _first(
    source: InputSource, machine: Diagnosis | None, above: Any, rows_below: Any
) -> tuple[Kernel, int, int, str | None, str, Tiling, int, Target]:
    """The settings that matter most, in two rows: (kernel, N, d, mask, dtype, tiles, H, GPU)."""
    names = {k.number: f"{k.number} {k.name}" for k in KERNELS.values()}
    with above[0]:
        chosen = kernel(controls.choice("kernel", "Kernel", names, default="02", aliases=ALIASES))
    with above[1]:
        N = controls.slider("N", "Tokens N", options=_lengths(source), default=min(4096, source.N or 4096))
    with above[2]:
        dims = [source.d] if source.d else [d for d in HEAD_DIMS if d % chosen.d_step == 0]
        d = controls.slider("d", "Head dim d", options=dims, default=source.d or 64)
    with above[3]:
        causal = controls.causal()
    several = len(chosen.dtypes) > 1
    below = rows_below.columns(5 if several else 4)
    with below[0]:
        H = controls.slider("H", "Heads H", options=[h for h in HEADS if h <= (source.H or h)], default=source.H or 16)
    dtype = chosen.dtypes[0]
    if several:
        with below[3]:
            dtype = controls.choice(
                "dtype", "Data type", chosen.dtypes, default=dtype, help="How Q, K, V and O are stored; sums are fp32."
            )
    with below[-1]:
        target = _target(machine)
    tiling = ANY_TILE
    if chosen.tiled:
        usual = usual_tiles(chosen, Problem(N=N, d=d, dtype=dtype), target.gpu)
        with below[1]:
            Br = controls.slider("Br", "Q tile rows Br", options=TILES, default=usual.Br)
        with below[2]:
            Bc = controls.slider("Bc", "K/V tile rows Bc", options=TILES, default=usual.Bc)
        tiling = Tiling(Br, Bc)
    else:
        below[1].markdown(f":small[Tiles of this kernel]  \n**{chosen.tile[0].upper()}{chosen.tile[1:]}**")
    return chosen, N, d, causal, dtype, tiling, H, target


def usual_tiles(chosen: Kernel, problem: Problem, gpu: Gpu) -> Tiling:
    """The tiles to begin with: the fastest known, but for the rungs that keep the tutorial's."""
    fine = [t for t in best_tiles.candidates(chosen, problem, gpu) if {t.Br, t.Bc} <= set(TILES)]
    return fine[0] if fine and chosen.number not in TUTORIALS else ANY_TILE


def said_settings(asked: live.Asked) -> dict[str, Any]:
    """The settings as `configuration` shows them."""
    p, chosen = asked.problem, kernel(asked.kernel)
    length = {"N": f"{p.Nq:,}"} if p.Nq == p.Nk else {"Nq": f"{p.Nq:,}", "Nk": f"{p.Nk:,}"}
    heads = {"H": p.H} if p.Hk == p.H else {"H": p.H, "Hk": p.Hk}
    tiles = {"Br": asked.tiling.Br, "Bc": asked.tiling.Bc} if chosen.tiled else {}
    made = {"seed": asked.seed} if INPUTS[asked.input].N is None else {}
    if asked.input == "sentence":
        made["layer"] = asked.layer
    named = {"kernel": f"{chosen.number} {chosen.name}", "B": p.B, **heads, **length, "d": p.d, **tiles}
    if p.dtype != "fp32":
        named["dtype"] = p.dtype
    if not p.has_default_scale:
        named["scale"] = f"{p.scale:.6g}"
    if p.lens_k or p.left_pad:
        named["padding"] = "yes"
    return named | {"causal": p.causal or "off", "input": INPUTS[asked.input].title, **made}


def _target(machine: Diagnosis | None) -> Target:
    """This machine's GPU; without one, a GPU from the table whose limits hold."""
    if machine is not None and machine.ready:
        devices = {str(g.index): f"{g.index}: {g.name}" for g in machine.gpus}
        device = int(controls.choice("device", "GPU", devices, default=next(iter(devices))))
        known = live.described(device, live.OPS)
        if isinstance(known, live.Described):
            return Target(device, known.gpu, known)
        compute = next(g.compute for g in machine.gpus if g.index == device)
        alike = [g for g in GPUS.values() if g.compute == compute] or [GPUS[DEFAULT_GPU]]
        return Target(device, alike[-1], None, known)
    names = {key: gpu.name for key, gpu in GPUS.items()}
    limits = controls.choice("gpu", "Limits of", names, default=default_gpu(), help="What a launch is held against.")
    return Target(0, GPUS[limits])


def planned(asked: live.Asked, gpu: Gpu) -> Plan | None:
    """The plan on a GPU without limits where this one's are broken; None where the kernel has no such launch at all."""
    chosen = kernel(asked.kernel)
    endless = dataclasses.replace(gpu.limits, smem_per_block_optin=1 << 40)
    for at in (gpu, dataclasses.replace(gpu, threads_per_block=1 << 30, sm=endless)):
        try:
            return chosen.plan(asked.problem, asked.tiling, at)
        except FmhaError:
            continue
    return None


def complaint(asked: live.Asked, gpu: Gpu, free_bytes: int | None) -> str | None:
    """Why this cannot be run: a limit of the kernel, of the GPU or of this app; None when it can.

    free_bytes: of the GPU's memory, None where it is not known.
    """
    p, chosen = asked.problem, kernel(asked.kernel)
    if said := chosen.complaint(p, asked.tiling, gpu):
        return said
    values = p.B * p.d * (p.H * p.Nq + 2 * p.Hk * p.Nk)
    try:
        check_memory(3 * 8 * values, f"an input of {format_count(values)} numbers")
    except FmhaError as error:
        return str(error)
    return None if free_bytes is None else chosen.plan(p, asked.tiling, gpu).memory_complaint(free_bytes)
