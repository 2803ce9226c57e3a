"""Runs the `.cu` files on the CPU and writes down every access to memory.

The kernels are compiled unchanged by the host's C++ compiler; CUDA's threads are fibers; the compiler's own hooks for
thread sanitizers report each load and store. Needs a C++ compiler, and no GPU.
"""

from fmha.trace.findings import Finding
from fmha.trace.run import Detail
from fmha.trace.tracing import Count, LineFlops, Trace, trace

__all__ = ["Count", "Detail", "Finding", "LineFlops", "Trace", "trace"]
