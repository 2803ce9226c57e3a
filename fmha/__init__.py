"""FMHA Lab: watch FlashAttention move data.

    from fmha import Problem, Tiling, simulate, traffic, reference

    problem = Problem(N=128, d=32, causal="bottom-right")
    inputs = load("random", problem)
    run = simulate(problem, Tiling(Br=8, Bc=8), inputs.Q, inputs.K, inputs.V)
    run.O, run.LSE, run.m, run.l, run.alpha, run.events
    traffic(problem, Tiling(8, 8)).requested_bytes
    show(run)                                          # the player, in a notebook; fmha.export makes files of it

Importing this package loads NumPy and nothing heavier.
"""

from fmha.errors import FmhaError
from fmha.export.notebook import Shown, show
from fmha.inputs import Inputs, load
from fmha.problem import Problem, Tiling
from fmha.reference import Attention, reference
from fmha.simulation import Run, simulate
from fmha.traffic import Traffic, traffic

__version__ = "0.1.0"
__all__ = [
    "Attention",
    "FmhaError",
    "Inputs",
    "Problem",
    "Run",
    "Shown",
    "Tiling",
    "Traffic",
    "load",
    "reference",
    "show",
    "simulate",
    "traffic",
]
