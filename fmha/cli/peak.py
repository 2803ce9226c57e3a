"""`python -m fmha bench --peak`: what `mma.sync` alone reaches on this GPU, added to a recording."""

from __future__ import annotations

import argparse
import dataclasses
import json
import time
from pathlib import Path
from typing import Any

from fmha import FmhaError
from fmha.cli.measuring import need_gpu, say, wait
from fmha.cli.options import SHAPE
from fmha.errors import InputError
from fmha.measurement import Device, MmaPeak, Recording, read
from fmha.speeds import peak_tflops

_LIMIT_S = 300.0
_UNHEEDED = (*SHAPE, "dtype", "scale", "lens_k", "left_pad", "kernel", "Br", "Bc", "causal")
_FLAGS = ("sweep", "timestamps", "counters", "ladder", "tune", "longest", "no_peers", "repeats")


def add_options(parser: Any) -> None:
    """The option of the peak."""
    group = parser.add_argument_group("the ceiling")
    group.add_argument(
        "--peak",
        action="store_true",
        help="measure mma.sync alone, the instruction of kernels 08 to 13, from registers; with --out FILE the "
        "numbers are added to that recording of the ladder (--ladder adds them by itself)",
    )


def run(options: argparse.Namespace) -> None:
    """Measure, print, and add it to the recording that --out names.

    Raises:
        FmhaError: options that it would not heed, or a recording of another GPU.
    """
    given = [n for n in dict.fromkeys(_UNHEEDED) if getattr(options, n) is not None]
    given += [n for n in _FLAGS if getattr(options, n) is not None and getattr(options, n) is not False]
    given += ["input"] if options.input != "random" else []
    if given:
        names = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        raise FmhaError(f"--peak has no use for {names}: leave that out, or leave out --peak.")
    recording = _recording(options.out)
    need_gpu(options.device)
    from fmha.gpu.service import GpuService

    begun = time.monotonic()
    with GpuService(options.device) as service:
        device: Device = wait(service, "describe", {}, options.timeout, "GPU")["device"]
        if recording is not None and recording.device.facts.name != device.facts.name:
            raise FmhaError(
                f"{options.out} was recorded on {recording.device.facts.name}, and this is {device.facts.name}: name a "
                "recording of this GPU."
            )
        peak = measured(service)
    if options.json:
        print(json.dumps(dataclasses.asdict(peak)))
    else:
        print("\n".join(lines(peak, device)))
    if recording is not None:
        _write(dataclasses.replace(recording, mma_sync_peak=peak), Path(options.out))
    say(f"measured in {time.monotonic() - begun:.0f} s")


def measured(service: Any) -> MmaPeak:
    """What the GPU's worker says."""
    peak: MmaPeak = wait(service, "mma_peak", {}, _LIMIT_S, "mma.sync")["peak"]
    return peak


def lines(peak: MmaPeak, device: Device) -> list[str]:
    """A line for each dtype: TFLOP/s by warps a scheduler, and the share of the peak."""
    most = max(map(len, peak.tflops.values()))
    made = [f"mma.sync alone, TFLOP/s with {', '.join(map(str, range(1, most + 1)))} warps a scheduler"]
    for dtype, speeds in peak.tflops.items():
        of = device.gpu.tf32_tflops if dtype == "tf32" else peak_tflops(device.gpu, dtype)
        share = f"  {100 * max(speeds) / of:.1f} % of the {dtype} peak" if of else ""
        made.append(f"  {dtype:<6}{' '.join(f'{speed:7.1f}' for speed in speeds)}{share}")
    return made


def _recording(out: str | None) -> Recording | None:
    """The recording that it is added to; None where none is named."""
    if not out:
        return None
    path = Path(out)
    try:
        return read(path.read_bytes(), path.name)
    except FileNotFoundError:
        raise InputError(
            f"{path} does not exist, and --peak adds to a recording: record one with --ladder, or leave out --out to "
            "see the numbers alone."
        ) from None
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}): name another recording.") from None


def _write(recording: Recording, path: Path) -> None:
    try:
        path.write_text(recording.to_json(), encoding="utf-8")
    except OSError as error:
        raise FmhaError(f"{path} cannot be written ({error.strerror}): the numbers are those above.") from None
    say(f"added to {path}")
