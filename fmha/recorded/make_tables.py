"""Writes the README's table of the ladder from the recordings that come with the app: `make tables`."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from fmha import ladder
from fmha.kernels import KERNELS
from fmha.ladder import COUNTED_AT, DIMS, LENGTHS, MASKS, Measured, shipped
from fmha.measurement import Recording
from fmha.problem import Causal

README = Path(__file__).resolve().parents[2] / "README.md"
BEGIN, END = "<!-- ladder: written by make tables -->", "<!-- end of the ladder -->"
_NAMES = {
    "torch-eager": "torch, three operations",
    "sdpa-math": "SDPA, math",
    "sdpa-efficient": "SDPA, memory-efficient",
    "sdpa-flash": "SDPA, FlashAttention-2",
    "sdpa-cudnn": "SDPA, cuDNN",
    "fa3": "FlashAttention-3",
}
_SHAPES: list[tuple[int, Causal | None]] = [(d, causal) for d in DIMS for causal in MASKS]
_RATIOS = ("sdpa-flash", "sdpa-cudnn", "fa3")
NOTHING = "Not recorded yet: `python -m fmha bench --ladder` on an NVIDIA GPU makes the recording."


def ladder_tables(recordings: Iterable[Recording]) -> str:
    """Two tables in Markdown: all kernels and libraries at one length, and the fastest kernel beside the libraries at
    every length. A sentence in place of them where nothing was recorded."""
    known = tuple(recordings)
    made = [m for k in KERNELS.values() for m in [_of_kernel(known, k.number, *_SHAPES[0])] if m is not None]
    if not made:
        return NOTHING
    device, when = made[0].recording.device, made[0].run.made[:10]
    torch = f", torch {device.torch}" if device.torch else ""
    parts = [
        f"TFLOP/s, forward, N = {COUNTED_AT:,}, {ladder.TOKENS:,} tokens in all, hidden size {ladder.HIDDEN:,}; "
        f"{device.facts.name}, driver {device.driver}{torch}, {when}. Medians of {ladder.samples(_first(known))}; all "
        "of one dtype timed in turns.",
        "\n".join(_climb(known)),
        *_ceiling(made[0].recording),
        "The fastest 16-bit kernel (bf16) beside torch's FlashAttention-2, its cuDNN, and FlashAttention-3 at the same "
        "shapes: its number, and how many times as fast.",
        "\n".join(_ratios(known)),
    ]
    return "\n\n".join(parts)


def _of_kernel(known: tuple[Recording, ...], number: str, d: int, causal: Causal | None) -> Measured | None:
    steps = ladder.rungs(known, COUNTED_AT, d, causal, "bf16")
    return next((s.measured for s in steps if s.kernel.number == number), None)


def _first(known: tuple[Recording, ...]) -> list[Measured]:
    """All that the first table is made of."""
    found = [m for number in KERNELS for shape in _SHAPES for m in [_of_kernel(known, number, *shape)] if m is not None]
    for dtype in ("fp32", "bf16"):
        found += [m for shape in _SHAPES for m in ladder.peers(known, COUNTED_AT, *shape, dtype)]
    return found


def _head(names: Iterable[str]) -> list[str]:
    names = list(names)
    return [f"| {' | '.join(names)} |", f"|{'---|' * len(names)}"]


def _climb(known: tuple[Recording, ...]) -> list[str]:
    rows = _head(["", "", "dtype", *(f"d = {d}{', causal' if causal else ''}" for d, causal in _SHAPES)])
    for number, kernel in KERNELS.items():
        cells = [_speed(_of_kernel(known, number, d, causal)) for d, causal in _SHAPES]
        dtype = "bf16" if "bf16" in kernel.dtypes else kernel.dtypes[0]
        rows.append(f"| {number} | {kernel.title} | {dtype} | {' | '.join(cells)} |")
    for dtype in ("fp32", "bf16"):
        for name in ladder.PEERS:
            found = [
                next((m for m in ladder.peers(known, COUNTED_AT, d, c, dtype) if m.entry.name == name), None)
                for d, c in _SHAPES
            ]
            if any(m is not None and m.tflops is not None for m in found):
                rows.append(f"| | {_NAMES[name]} | {dtype} | {' | '.join(_speed(m) for m in found)} |")
    return rows


def _ceiling(recording: Recording) -> list[str]:
    """What mma.sync alone reaches, where the recording has it."""
    peak = recording.mma_sync_peak
    speeds = ", ".join(f"{name} {best:.3g}" for name in peak.tflops if (best := peak.best(name))) if peak else ""
    text = f"`mma.sync` alone, from registers, the ceiling of kernels 08 to 13 (`bench --peak`), TFLOP/s: {speeds}."
    return [text] if speeds else []


def _speed(measured: Measured | None) -> str:
    speed = measured.tflops if measured else None
    return "" if speed is None else f"{speed:.3g}"


def _ratios(known: tuple[Recording, ...]) -> list[str]:
    rows = _head(["N", *(f"d = {d}{', causal' if causal else ''}" for d, causal in _SHAPES)])
    for N in LENGTHS:
        cells = []
        for d, causal in _SHAPES:
            top = ladder.best(known, N, d, causal, "bf16")
            ratios = [top.ratio(name) for name in _RATIOS] if top else []
            text = " / ".join("-" if r is None else f"{r:.2f}" for r in ratios)
            cells.append(f"{top.rung.kernel.number}: {text}" if top else "")
        rows.append(f"| {N:,} | {' | '.join(cells)} |")
    return rows


def block(text: str) -> tuple[str, str, str]:
    """A README in three: what stands before the tables, the tables, and what follows."""
    before, _, rest = text.partition(BEGIN)
    inside, _, after = rest.partition(END)
    return before, inside.strip(), after


def main() -> None:
    """Rewrite the README."""
    before, _, after = block(README.read_text(encoding="utf-8"))
    text = f"{before}{BEGIN}\n\n{ladder_tables(shipped())}\n\n{END}{after}"
    README.write_text(text, encoding="utf-8")
    print(f"{README.name}: tables written", file=sys.stderr)


if __name__ == "__main__":
    main()
