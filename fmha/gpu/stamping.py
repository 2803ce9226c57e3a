"""Records a time-stamped run: when each thread block did what, on which SM."""

from __future__ import annotations

import dataclasses
import tempfile
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from fmha.check import check, choose_rows
from fmha.errors import GpuError, InputError, ProblemError
from fmha.gpu.bench import Report
from fmha.gpu.device import GpuDevice
from fmha.gpu.launch import Buffers, Loaded
from fmha.gpu.timing import time_in_turns
from fmha.inputs import load
from fmha.kernels import Kernel, included
from fmha.phases import phases
from fmha.problem import Problem, Tiling
from fmha.stamp_events import stamped_events, told_once
from fmha.stamps import BUFFER, HEAD, Stamps, as_facts, read_stamps, room_for, stamped
from fmha.visit_costs import LONGEST_FIRST

_BUDGET = 1 << 22  # scores that are compared in float64


def stamp(
    device: GpuDevice, kernel: Kernel, problem: Problem, tiling: Tiling, input_name: str, seed: int, report: Report
) -> Stamps:
    """Run a kernel with stamps in its source, on poisoned outputs, and read them.

    The facts also hold the median time with stamps and without, in microseconds, timed in turns.

    Raises:
        ProblemError: a kernel of more than one launch, or one whose phases do not follow one another as events do.
        GpuError: a wrong result. Otherwise as the kernel's plan.
    """
    plan = kernel.plan(problem, tiling, device.gpu)
    if len(plan.launches) != 1:
        raise ProblemError(
            f"kernel {kernel.number} ({kernel.name}) is several kernels: stamps are for one, such as 02."
        )
    launch = plan.launches[0]
    room = room_for(problem, tiling, launch.block)
    with_stamps = dataclasses.replace(
        plan,
        launches=(dataclasses.replace(launch, arguments=(*launch.arguments, BUFFER, room)),),
        scratch={**plan.scratch, BUFFER: 8 * launch.grid * (HEAD + room)},
    )
    source = kernel.source()
    arrays = load(input_name, problem, seed=seed)
    Q, K, V = (array.astype(np.float32) for array in (arrays.Q, arrays.K, arrays.V))
    with tempfile.TemporaryDirectory(prefix="fmha-stamps-") as name:
        folder = Path(name)
        for path in included(kernel.path):
            (folder / path.name).write_bytes(path.read_bytes())
        (folder / kernel.file).write_text(stamped(source, launch.function, kernel.file), encoding="utf-8")
        report("compiling with time stamps", None)
        loaded = Loaded(device, dataclasses.replace(kernel, file=str(folder / kernel.file)), with_stamps)
    plain = Loaded(device, kernel, plan)
    with Buffers(device, with_stamps, Q, K, V, write_lse=False) as buffers:
        addresses = buffers.addresses

        def run() -> None:
            loaded.run(with_stamps, addresses)

        report("timing", None)
        times = time_in_turns(device, [run, lambda: plain.run(plan, addresses)], 20)
        buffers.poison()
        device.synchronize()
        run()
        device.synchronize()
        report("checking against float64", None)
        O, _ = buffers.output()
        words = buffers.words(BUFFER)
    found = check(problem, Q, K, V, O, rows=choose_rows(problem, _BUDGET, seed))
    if not found.ok:
        raise GpuError(f"kernel {kernel.number} with time stamps is {found.verdict}, so nothing is recorded.")
    described, use = device.described(), loaded.build.functions[0]
    facts = as_facts(
        problem, tiling,
        device=described.facts.name, driver=described.driver, cuda=described.cuda, sms=device.gpu.sms,
        gpu=dataclasses.asdict(described.facts), compiler=loaded.build.compiler.split(" (")[0],
        registers=use.registers, blocks_per_sm=use.blocks_per_sm, phases=[phase.maths for phase in phases(source)],
        made=datetime.now(UTC).isoformat(timespec="seconds"), kernel=kernel.number, source=kernel.source_hash(),
        input=input_name, seed=seed,
        stamped_us=times[0].median_us if times[0] else None, plain_us=times[1].median_us if times[1] else None,
    )  # fmt: skip
    return told_once(checked(read_stamps(words, launch.grid, facts, last_first=kernel.number in LONGEST_FIRST)))


def checked(made: Stamps) -> Stamps:
    """The same, if its phases make up the event table.

    Raises:
        ProblemError: they do not.
    """
    try:
        stamped_events(made)
    except InputError:
        raise ProblemError(
            f"kernel {made.facts['kernel']} does not go through its phases in the order of the events, so its time "
            "stamps make no timeline: record one of kernels 02 to 13."
        ) from None
    return made
