"""What the roofline page draws: predicted points of a problem, and recorded ones of its nearest. No Streamlit."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from fmha import best_tiles
from fmha.edge import dram_doubt
from fmha.errors import FmhaError, LimitError
from fmha.figures.roof_chart import Mark
from fmha.forecast import MODELLED, forecast, own_order
from fmha.hardware import GPUS, Gpu
from fmha.kernels import KERNELS
from fmha.measurement import Entry, Found, Recording, Run, nearest
from fmha.problem import Problem, Tiling
from fmha.roofline import LEVELS, ORDERS, WAVEFRONT_BYTES, Bound, Point, Roof, bound, predicted, recorded
from fmha.schedule import Order
from fmha.sm_time import wavefronts
from fmha.speeds import useful_flops
from fmha.traffic import closed_form, compulsory_bytes
from fmha.ui.page import plain
from fmha.ui.sentences import differences, one_line, percent, said
from fmha.units import format_number, format_ratio

_MOST_VISITS = 8_000
# What a reader calls a loop order; this app's kernel of the order in brackets.
ORDER_TITLES = {"naive": "naive", "kv-outer": "kv-outer (FlashAttention-1)", "q-outer": "q-outer (FlashAttention-2)"}


@dataclass(frozen=True)
class Shown:
    """One kernel on the page.

    name, short: for people, with and without what it is. found: where a measured one was recorded; None: predicted.
    lacking: why a prediction has no bytes of a kernel, a sentence: then its bytes are those that blocks request, at
    every level; None when the cache model and the banks give them. doubt: why it has no DRAM bytes, a sentence, or "".
    foretold_us: the forecast of its time, where there is one that is worth drawing.
    """

    name: str
    short: str
    bound: Bound
    found: Found | None = None
    lacking: str | None = None
    doubt: str = ""
    foretold_us: float | None = None

    @property
    def measured(self) -> bool:
        """Whether it was run."""
        return self.found is not None

    @property
    def tflops(self) -> float:
        """Its height in the chart: what was measured or is forecast, or the bound of a prediction."""
        point = self.bound.point
        return point.tflops or (point.flops / self.foretold_us / 1e6 if self.foretold_us else self.bound.tflops)

    def mark(self) -> Mark:
        """For the chart."""
        intensity = {level: self.bound.point.intensity(level) for level in LEVELS}
        return Mark(self.short, {k: x for k, x in intensity.items() if x}, self.tflops, self.measured)

    @property
    def two_level(self) -> bool:
        """Whether the bound holds only while every requested byte comes from L2 or device memory."""
        return self.lacking is not None and self.bound.binds.level in ("L2", "HBM")

    def sentence(self) -> str:
        """Which roof binds and how far below it the kernel is, Markdown."""
        limits, point = self.bound.limits, self.bound.point
        roof, most = limits[0]
        what = f"{roof.level} bandwidth" if roof.is_memory else f"the {roof.level} peak"
        text = f"**{self.name}:** {what} binds, at most **{format_number(most)} TFLOP/s**"
        peak = next((limit for r, limit in limits if not r.is_memory), None)
        if roof.is_memory:
            text += f" with {format_number(point.intensity(roof.level) or 0)} FLOPs a byte"
            text += f"; the {point.dtype} peak is {format_ratio(peak / most)} that" if peak else ""
        elif len(limits) > 1:
            text += f"; the nearest memory roof, {limits[1][0].level}, is {format_ratio(limits[1][1] / most)} that"
        text += ". " + self._measured() if self.measured else "."
        if self.foretold_us:
            share = percent(self.tflops / self.bound.tflops)
            text += f" Forecast: **{format_number(self.tflops)} TFLOP/s**, {share} of it."
        if self.two_level:
            text += " Two-level model: caches can lift it."
        text += f" {self.doubt}" if self.doubt else ""
        return text + (f" Only requested bytes are known: {self.lacking}" if self.lacking else "")

    def _measured(self) -> str:
        """How far below its roof a measured kernel is."""
        got, share = self.bound.point.tflops or 0.0, self.bound.reached or 0.0
        if share > 1:
            return (
                f"Measured: {format_number(got)} TFLOP/s, {percent(share)} of this roof, which is then drawn too low."
            )
        far = f", {format_ratio(1 / share)} below it" if share and share <= 2 / 3 else ""
        return f"Measured: {format_number(got)} TFLOP/s{far} ({percent(share)} of it)."


def predictions(
    problem: Problem, tiling: Tiling, gpu: Gpu, orders: Collection[str] = ORDERS, most: int = _MOST_VISITS
) -> dict[str, Shown]:
    """`orders` (naive, kv-outer, q-outer) under the roofs of `gpu`.

    Bytes at L2 and device memory are the cache model's where a kernel of this app has the loop order and can run the
    problem there; otherwise those that blocks request. most: visits that the model follows one by one.
    """
    kernels = {k.order: k for k in KERNELS.values() if k.number in MODELLED and k.order in orders}
    why: dict[str, str] = {}
    doubts: dict[str, str] = {}
    better: dict[str, dict[str, float]] = {}
    for order in orders:
        try:
            if order not in kernels:
                raise LimitError("no kernel of this app has this loop order.")
            said = forecast(kernels[order], problem, tiling, gpu, most=most)
            better[order] = {"L2": said.levels.l2, "HBM": said.levels.dram}
            if order == "q-outer":
                doubts[order] = dram_doubt(problem, tiling, gpu, blocks_per_sm=said.functions[0].held.blocks)
        except FmhaError as error:
            why[order] = plain(str(error))
    shown = {}
    for p in predicted(problem, tiling, gpu, better):
        if p.name not in orders:
            continue
        if p.name in why:  # no kernel runs this, so there are no accesses of one to count
            p = dataclasses.replace(p, nbytes={level: n for level, n in p.nbytes.items() if level != "SMEM"})
        doubt = doubts.get(p.name, "")
        if doubt:
            p = dataclasses.replace(p, nbytes={level: n for level, n in p.nbytes.items() if level != "HBM"})
        name = f"{ORDER_TITLES[p.name]}, predicted"
        shown[p.name] = Shown(name, p.name, bound(p, gpu), lacking=why.get(p.name), doubt=plain(doubt))
    return shown


def best_kernel(problem: Problem, tiling: Tiling, gpu: Gpu, most: int = _MOST_VISITS) -> Shown | None:
    """The forecast of kernel 12, the fastest on tensor cores, under the roofs; None where it cannot run.

    In the problem's dtype, or bf16; with these tiles if it can, else with the fastest that are known.
    """
    kernel = KERNELS["12"]
    p = kernel.fitting(problem)
    try:
        tiles = tiling if kernel.can(p, tiling, gpu) else best_tiles.best(kernel, p, gpu)
        said = forecast(kernel, p, tiles, gpu, most=most)
        plan = kernel.plan(p, tiles, gpu)
    except FmhaError:
        return None
    doubt = dram_doubt(p, tiles, gpu, own_order(kernel), blocks_per_sm=said.functions[0].held.blocks)
    nbytes = {"L2": said.levels.l2, "SMEM": WAVEFRONT_BYTES * wavefronts(kernel, plan)}
    if not doubt:
        nbytes["HBM"] = said.levels.dram
    name = f"{kernel.number} {kernel.name}, {tiles.Br} x {tiles.Bc}"
    point = Point(kernel.number, name, p.dtype, useful_flops(p), nbytes, "forecast")
    return Shown(f"{name}, {p.dtype}, forecast", name, bound(point, gpu), doubt=plain(doubt), foretold_us=said.time_us)


def requested_intensity(problem: Problem, tiling: Tiling, order: Order) -> float:
    """Useful FLOPs for each byte that blocks request."""
    return useful_flops(problem) / closed_form(problem, tiling, order).requested_bytes


def found_kernels(recordings: Iterable[Recording], problem: Problem, tiling: Tiling) -> list[Found]:
    """For each kernel its recorded entry at this setting or the nearest, if it was right, timed and counted."""
    known = tuple(_counted(recording) for recording in recordings)
    found = (nearest(known, kernel, problem, tiling) for kernel in KERNELS.values())
    return [f for f in found if f is not None and _right(f.entry) and _point(f) is not None]


def _counted(recording: Recording) -> Recording:
    """Those entries only whose bytes were counted: a point needs them, and the nearest one should not be without."""
    runs = (
        dataclasses.replace(run, entries=tuple(e for e in run.entries if e.counters or not e.is_kernel))
        for run in recording.runs
    )
    return dataclasses.replace(recording, runs=tuple(runs))


def measured_kernels(found: Iterable[Found]) -> list[Shown]:
    """The kernels of `found_kernels` under the roofs of the GPU that ran them."""
    shown = []
    for f in found:
        point = _point(f)
        if point is not None:
            tiles = f", {f.entry.tiling[0]} x {f.entry.tiling[1]}" if f.entry.tiling else ""
            name = f"{f.entry.name} {KERNELS[f.entry.name].name}{tiles}"
            bounded = _on_tensor_cores(bound(point, f.recording.device.gpu), f.recording.device.gpu)
            shown.append(Shown(f"{name}, measured", name, bounded, f))
    return shown


def _on_tensor_cores(found: Bound, gpu: Gpu) -> Bound:
    """Kernel 13 does fp32's work in three products of tf32: a third of that peak is its ceiling, not fp32's."""
    if found.point.name != "13" or not gpu.tf32_tflops:
        return found
    third = gpu.tf32_tflops / 3
    limits = [limit for limit in found.limits if limit[0].is_memory] + [(Roof("tf32 / 3", third), third)]
    return dataclasses.replace(found, limits=tuple(sorted(limits, key=lambda limit: limit[1])))


def other_tiles(found: Found) -> list[Shown]:
    """The same kernel in the same run with the other tiles that were recorded."""
    same = (e for e in found.run.entries if e.name == found.entry.name and e is not found.entry and _right(e))
    return measured_kernels(dataclasses.replace(found, entry=entry) for entry in same)


@dataclass(frozen=True)
class Library:
    """A timed library implementation, whose bytes were not counted. name: as text from a file, cut and on one line."""

    name: str
    dtype: str
    tflops: float
    median_us: float
    run: Run

    def mark(self) -> Mark:
        """For the chart: at the intensity of the compulsory bytes, which it cannot exceed by much."""
        p = self.run.problem
        least = compulsory_bytes(p.replace(dtype=self.dtype))
        return Mark(self.name.removeprefix("SDPA, "), {"": useful_flops(p) / least}, self.tflops, True)


def libraries(run: Run, dtype: str) -> list[Library]:
    """Library implementations of a run in one dtype, the fastest first."""
    flops = useful_flops(run.problem)
    timed = ((e, e.time) for e in run.entries if not e.is_kernel and e.dtype == dtype and not e.absent)
    found = [
        Library(one_line(e.title, 26), e.dtype, flops / time.median_us / 1e6, time.median_us, run)
        for e, time in timed
        if time is not None and (e.check is None or e.check.ok)
    ]
    return sorted(found, key=lambda library: library.median_us)


def origins(founds: Iterable[Found]) -> list[str]:
    """Where measured points are from, in lines of Markdown: kernels with their source hashes, device, driver, date,
    differences. Kernels of which the same is to be said share a line."""
    lines: dict[str, list[str]] = {}
    for found in founds:
        device, entry = found.recording.device, found.entry
        parts = [
            f"measured on {said(device.facts.name, 60)}",
            f"driver {said(device.driver, 30)}",
            said(found.run.made[:10], 10),
        ]
        if found.differs:
            parts.append(f"nearest recording: {differences(found.differs)}")
        if entry.stale:
            parts.append("made with an older version of this kernel")
        kernel = f"**{said(entry.name, 10)}** (source {said(entry.source_hash or 'unknown', 16)})"
        lines.setdefault(" · ".join(parts), []).append(kernel)
    return [f"{', '.join(kernels)} {rest}" for rest, kernels in lines.items()]


def device_key(found: Found) -> str | None:
    """The GPU of the list that a recording was made on; None for another model."""
    key = found.recording.device.gpu.key
    return key if key in GPUS else None


def _right(entry: Entry) -> bool:
    return entry.check is not None and entry.check.ok and not entry.check.not_finite


def _point(found: Found) -> Point | None:
    """Of one entry; None where its time or its counters are missing."""
    run = dataclasses.replace(found.run, entries=(found.entry,))
    points = recorded([dataclasses.replace(found.recording, runs=(run,))])
    return points[0][0] if points else None
