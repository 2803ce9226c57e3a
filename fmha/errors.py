"""Every error that a user's input can cause.

    FmhaError (a ValueError)
    |-- ProblemError      shapes, head counts, dtype, scale, lengths
    |-- TilingError       Br, Bc
    |-- InputError        arrays or input names that do not fit the problem
    |-- LimitError        asked for more than this machine should be made to hold
    |   `-- TilesError    a kernel cannot have these tiles; what would do is added by the registry of kernels
    |-- GpuError          the GPU, its driver or its tools cannot do it
    |   `-- BuildError    a kernel could not be compiled
    |-- TraceError        a kernel could not be run on the CPU to its end
    `-- SimulationError   the simulator caught an illegal access (a bug in a schedule or in an event table)

The text is one sentence for the person who asked: what was asked, what is allowed, what to try.
"""

from __future__ import annotations


class FmhaError(ValueError):
    """Base of all errors of this package."""


class ProblemError(FmhaError):
    """The problem itself cannot be: a shape, a head count, a dtype, a scale, a length."""


class TilingError(FmhaError):
    """Br or Bc is not a tile size."""


class InputError(FmhaError):
    """Q, K, V do not fit the problem, or an input has no such name, layer or head."""


class LimitError(FmhaError):
    """The request is well formed but too large."""


class TilesError(LimitError):
    """A kernel cannot have these tiles. The text says why, without a full stop; `Kernel.plan` adds which would do."""


class SimulationError(FmhaError):
    """An event reads what was not loaded, goes out of range, or overflows shared memory."""


class GpuError(FmhaError):
    """The GPU, its driver or its tools cannot do it."""


class BuildError(GpuError):
    """A kernel could not be compiled. `command` is the compiler's command line, `output` all that it said."""

    def __init__(self, text: str, command: str = "", output: str = "") -> None:
        super().__init__(text)
        self.command = command
        self.output = output


class TraceError(FmhaError):
    """A kernel could not be run on the CPU to its end: it crashed, it did not end, or there is no compiler for it."""
