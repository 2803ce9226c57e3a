"""Time stamps of a kernel: where they go in its source, and how they are read.

A stamp is put where each phase comment of the source stands, when it is built for that, so that the source itself
stays as it is. A block's first thread writes, at every stamp, its SM's clock and the number of the phase; at the
beginning and at the end also the time that all SMs share. Compared with the plain build this costs a store a phase.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmha.errors import InputError
from fmha.phases import phases
from fmha.problem import Problem, Tiling
from fmha.units import ceil_div

BUFFER = "stamps"  # the name of the last but one argument of a stamped kernel; the last is the room for stamps a block
HEAD = 6  # words of a block before its stamps: SM, time and clock at the beginning, the same at the end, how many
_MASK = (1 << 56) - 1
_LONG = 1000  # steps of the shared time: a block that lasts longer is measured by it
# No kernel here names more in its loop over tiles, in a loop over rows inside it, and around both.
_PHASES_A_VISIT, _PHASES_A_ROW, _PHASES_BESIDE = 4, 4, 8
_PARAMETERS = ", unsigned long long* fmha_stamps, int fmha_room) {"
_PRELUDE = """\
#ifdef FMHA_ON_CPU
#define FMHA_CLOCK() fmha_clock()
#define FMHA_TIME() fmha_clock()
#define FMHA_SM() (blockIdx.x % 4)
#else
#define FMHA_CLOCK() ((unsigned long long)clock64())
__device__ inline unsigned long long fmha_time() {
    unsigned long long t;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
    return t;
}
__device__ inline unsigned fmha_sm() {
    unsigned sm;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
    return sm;
}
#define FMHA_TIME() fmha_time()
#define FMHA_SM() fmha_sm()
#endif
"""
# Each on one line, so that the lines of the source keep their numbers.
_BEGIN = (
    f" unsigned long long* fmha_mine = fmha_stamps + (long long)blockIdx.x * (fmha_room + {HEAD}); int fmha_count = 0;"
    " if (threadIdx.x == 0) { fmha_mine[0] = FMHA_SM(); fmha_mine[1] = FMHA_TIME(); fmha_mine[2] = FMHA_CLOCK(); }"
)
_STAMP = (
    "if (threadIdx.x == 0 && fmha_count < fmha_room) fmha_mine[{head} + fmha_count++] = FMHA_CLOCK() << 8 | {phase};"
)
_END = (
    "__syncthreads(); if (threadIdx.x == 0) { fmha_mine[3] = FMHA_TIME(); fmha_mine[4] = FMHA_CLOCK();"
    " fmha_mine[5] = fmha_count; }"
)


def stamped(text: str, function: str, file: str) -> str:
    """The source with stamps in `function`: at its beginning, at each of its phase comments, and at its end; the
    function takes two arguments more, a buffer of 64-bit words [blocks, HEAD + room] and the room.

    file: the name that compilers' messages use.
    """
    lines = text.splitlines()
    start = next(n for n, line in enumerate(lines) if line.split("//")[0].strip().startswith(f"{function}("))
    opening = next(n for n in range(start, len(lines)) if lines[n].split("//")[0].rstrip().endswith(") {"))
    closing = next(n for n in range(opening, len(lines)) if lines[n].startswith("}"))
    lines[opening] = lines[opening].split("//")[0].rstrip().removesuffix(") {") + _PARAMETERS + _BEGIN
    for number, phase in enumerate(phases(text)):
        if opening < phase.first - 1 < closing:
            lines[phase.first - 1] = _STAMP.format(head=HEAD, phase=number)
    lines[closing] = _END + lines[closing]
    return "\n".join([_PRELUDE + f'#line 1 "{file}"', *lines, ""])


def room_for(problem: Problem, tiling: Tiling, threads: int) -> int:
    """How many stamps a block of so many threads may need: at each visit the phases of a visit, those of the softmax
    again for each row that one warp takes, and a few around the loop over tiles."""
    rows = max(1, ceil_div(32 * tiling.Br, threads))
    return (_PHASES_A_VISIT + _PHASES_A_ROW * rows) * tiling.Tc(problem) + _PHASES_BESIDE + rows


@dataclass(frozen=True)
class Stamps:
    """A time-stamped run. Workers are thread blocks, in the order of heads and Q tiles.

    sm [workers]; begin_us, end_us [workers]: on one clock for all, from 0; first [workers + 1]: where each worker's
    stamps begin in `at_us` (microseconds on that clock) and `phase` (index into the phases of the source). facts:
    device, driver, date, kernel, its source's hash, its phases, problem, tiling, input, seed.
    """

    facts: dict[str, Any]
    sm: NDArray[np.int32]
    begin_us: NDArray[np.float64]
    end_us: NDArray[np.float64]
    first: NDArray[np.int64]
    at_us: NDArray[np.float64]
    phase: NDArray[np.uint8]

    @property
    def problem(self) -> Problem:
        """What was run."""
        return Problem(**self.facts["problem"])

    @property
    def tiling(self) -> Tiling:
        """With which tiles."""
        return Tiling(**self.facts["tiling"])


def read_stamps(
    words: NDArray[np.uint64], workers: int, facts: Mapping[str, Any], *, last_first: bool = False
) -> Stamps:
    """Stamps from the buffer that a stamped kernel filled: [blocks, HEAD + room]. last_first: blocks take the Q tiles
    of a head from the last to the first.

    Raises:
        InputError: a block that did not end, or had more phases than there was room for.
    """
    table = words.reshape(workers, -1)
    if last_first:
        Tr = Tiling(**facts["tiling"]).Tr(Problem(**facts["problem"]))
        table = table.reshape(-1, Tr, table.shape[1])[:, ::-1].reshape(table.shape)
    counts = table[:, 5].astype(np.int64)
    if (table[:, 3] < table[:, 1]).any() or (counts < 0).any() or (counts >= table.shape[1] - HEAD).any():
        raise InputError("the time stamps are not whole: a block did not end, or had no room for all its phases.")
    begin = (table[:, 1] - table[:, 1].min()).astype(np.float64) / 1e3
    end = (table[:, 3] - table[:, 1].min()).astype(np.float64) / 1e3
    cycles = (table[:, 4] - table[:, 2]).astype(np.float64)
    # The time that SMs share moves in steps of 32 ns to a microsecond; an SM's clock does not, but clocks of SMs differ
    # by some tenths of a percent. So a long block is as long as the shared time says, and a short one as its clock
    # says at the rate of all.
    step = _step_us(begin)
    rate = np.full(workers, max(float(cycles.sum() / max((end - begin).sum(), 1e-9)), 1e-9))
    is_long = end - begin >= _LONG * step
    rate[is_long] = cycles[is_long] / (end - begin)[is_long]
    first = np.concatenate([[0], np.cumsum(counts)])
    taken = np.arange(table.shape[1] - HEAD)[None, :] < counts[:, None]
    stamps = table[:, HEAD:][taken]
    worker = np.repeat(np.arange(workers), counts)
    since = ((stamps >> np.uint64(8)) - (table[:, 2] & np.uint64(_MASK))[worker]).astype(np.float64)
    return Stamps(
        dict(facts), table[:, 0].astype(np.int32), begin, begin + cycles / rate, first,
        begin[worker] + since / rate[worker], (stamps & np.uint64(255)).astype(np.uint8),
    )  # fmt: skip


def _step_us(times: NDArray[np.float64]) -> float:
    """The step in which a clock moves: the smallest difference between its readings; 0.001 if they are all one."""
    steps = np.diff(np.unique(times))
    return float(steps.min()) if len(steps) else 1e-3


def as_facts(problem: Problem, tiling: Tiling, **more: Any) -> dict[str, Any]:
    """Facts of a recording that JSON can hold."""
    return {"problem": asdict(problem), "tiling": asdict(tiling), **more}


__all__ = [
    "BUFFER", "HEAD", "Stamps", "as_facts", "read_stamps", "room_for", "stamped",
]  # fmt: skip
