"""A view as Python: the few lines that compute the same numbers and show the same picture."""

from __future__ import annotations

from fmha.hardware import DEFAULT_GPU
from fmha.inputs import INPUTS
from fmha.player.payload import COLUMNS
from fmha.problem import Problem, Tiling


def snippet(
    problem: Problem,
    tiling: Tiling,
    order: str = "q-outer",
    input_name: str = "random",
    *,
    seed: int = 0,
    layer: int = 3,
    head: int = 0,
    gpu: str = DEFAULT_GPU,
    sms: int | None = None,
    kernel: str | None = None,
    l2_bytes: int | None = None,
    race: bool = False,
    event: int | None = None,
    row: int = 0,
    col: int = 0,
) -> str:
    """Python that makes this run and shows it; it stands alone.

    Args:
        problem: of the heads that are shown; a batch of one.
        input_name, seed, layer, head: as for `fmha.load`.
        gpu: key of `fmha.hardware.GPUS`.
        kernel: number of a kernel whose `.cu` file makes the run on the CPU; None: the simulator.
        l2_bytes, race, event, row, col: as for `fmha.export.html`.
    """
    source = INPUTS[input_name]
    if source.N is None:
        cut = {"seed": seed}
    else:
        cut = {"layer": layer, "head": head} if input_name == "sentence" else {"head": head}
    inputs = "".join(f", {name}={value!r}" for name, value in cut.items())
    look = {
        "inputs": "inputs",
        "gpu": "gpu",
        "sms": sms,
        "l2_bytes": l2_bytes,
        "race": race or None,
        "event": event,
        "row": row or None,
        "col": col or None,
    }
    shown = "".join(f", {name}={value}" for name, value in look.items() if value is not None)
    if kernel is None:
        imports = ["from fmha import load, show, simulate, traffic, Problem, Tiling"]
        run = [
            "run = simulate(",
            f"    problem, tiling, inputs.Q, inputs.K, inputs.V, {order!r}, precision='dtype',",
            f"    gpu=gpu, sms={sms}, record_columns={COLUMNS},",
            ")",
        ]
    else:
        imports = ["from fmha import load, show, traffic, Problem, Tiling", "from fmha.trace import follow"]
        run = [
            f"follower = follow.Follower(follow.KERNELS_SHOWN[{kernel!r}], tiling, gpu, {sms}, {COLUMNS})",
            "run = follower(problem, inputs)  # the .cu file, run on this machine's CPU",
        ]
    lines = [
        *imports,
        "from fmha.hardware import GPUS",
        "",
        f"problem = Problem({_arguments(problem)})",
        f"tiling = Tiling(Br={tiling.Br}, Bc={tiling.Bc})",
        f"inputs = load({input_name!r}, problem{inputs})",
        f"gpu = GPUS[{gpu!r}]  # whose speed the times follow",
        *run,
        f"print(traffic(problem, tiling, {order!r}).requested_bytes, 'bytes requested')",
        f"show(run{shown})",
    ]
    return "\n".join(lines).replace("'", '"') + "\n"


def _arguments(problem: Problem) -> str:
    """The arguments that make this problem, without those that are the defaults."""
    given: dict[str, object] = {"H": problem.H} if problem.H != 1 else {}
    if problem.Hk != problem.H:
        given["Hk"] = problem.Hk
    given |= {"N": problem.Nq} if problem.Nq == problem.Nk else {"Nq": problem.Nq, "Nk": problem.Nk}
    given["d"] = problem.d
    if not problem.has_default_scale:
        given["scale"] = problem.scale
    given["dtype"] = problem.dtype
    for name in ("causal", "lens_k", "left_pad"):
        if getattr(problem, name) is not None:
            given[name] = getattr(problem, name)
    return ", ".join(f"{name}={value!r}" for name, value in given.items())


__all__ = ["snippet"]
