"""The model of bytes and time in words and numbers: what it does, what was fitted and to what, how far it is off.

Pages print these; `fmha.forecast` computes with them, and `tests/core/test_forecast.py` checks the errors. How it fared
where it was tested: `fmha.model_record`.
"""

from __future__ import annotations

from typing import NamedTuple

from fmha.in_step import CLUSTER, GROUP_SMS, LOST_TOGETHER, SM_US, WAITS_US, WINDOW_US
from fmha.levels import DIRTY_SHARE, MERGING_SMS, READ_WAYS, SCATTERED, WAYS
from fmha.lockstep import SHRINKS
from fmha.merging import IN_STEP_VISITS
from fmha.model_record import REPEATED, Error
from fmha.pace import ALONE_US, BY_SCORE, BY_SCORE_US, OF_A_VISIT, SPEEDS, STEADY_US, UNEVEN, UNEVEN_WAITING

LAUNCH_US = 3.0
WAVEFRONTS_REACHED = 0.98
VISIT_CLOCKS, COLUMN_CLOCKS = 2080.0, 90.0  # of a visit, and for each of its Bc columns: barriers, one thread a row
HIDDEN = 1.5  # they are hidden by other blocks on the SM: divided by blocks to this power
WARPS_TO_ISSUE = 18.0
DRAM_REACHED, L2_REACHED = 0.73, 0.5
BACKGROUND_READ, BACKGROUND_WRITE = 8.0, 18.0  # bytes a microsecond: MB/s
SCHEDULERS = 4  # of an SM; each starts one instruction of a warp a clock
# Instructions of a warp, for 32 elements of S or P, and for each of their d multiply-adds.
SCORES, OUTPUT, SOFTMAX, SOFTMAX_ROW = (31.0, 2.572), (0.0, 2.74), 49.2, 1426.0
NAIVE_REGISTERS = {"naive_scores": 64, "naive_softmax": 31, "naive_output": 80}


class Constant(NamedTuple):
    """A fitted number, with what it means and where it comes from."""

    name: str
    value: str
    source: str


_PROBED = "measured with a kernel that does nothing but load the same lines on chosen SMs of an H200"
_FOLLOWED = "fitted to counters of kernels 02 to 13 on an H200; time stamps show the like"
_RECORDED = "fitted to Nsight Compute's counters of kernels 01 and 02 on an H200 (driver 580), 127 settings"
FITTED: tuple[Constant, ...] = (
    Constant(
        "requests for a line that become one",
        f"{MERGING_SMS} at most, of a cluster of {GROUP_SMS} SMs at most",
        _PROBED,
    ),
    Constant(
        "how much later a request still joins another",
        f"{1e3 * WINDOW_US:.0f} ns; while the line is on its way from DRAM {1e3 * (WINDOW_US + WAITS_US):.0f} ns",
        _PROBED,
    ),
    Constant(
        "what the first to a tile waits for DRAM more than the others for L2", f"{1e3 * WAITS_US:.0f} ns", _PROBED
    ),
    Constant(
        "by how much a visit differs from the next",
        f"{1e3 * ALONE_US:.0f} ns x root of loads in a row. Where blocks share an SM, for each neighbour: "
        + ", ".join(f"{100 * share:g} % of a visit ({number})" for number, share in OF_A_VISIT.items())
        + "".join(f", {1e3 * us:.0f} ns ({number})" for number, us in STEADY_US.items())
        + f"; {1e3 * BY_SCORE_US:.0f} ns and {100 * BY_SCORE:.0f} % (02 to 05)",
        _FOLLOWED,
    ),
    Constant(
        "by how much some blocks are faster than others from their first visit to their last",
        ", ".join(f"{100 * share:g} % ({number})" for number, share in SPEEDS.items()) + "; standard deviation",
        _FOLLOWED,
    ),
    Constant(
        "by how much SMs differ, and clusters of them",
        f"{1e3 * SM_US:g} ns a load, and {100 * CLUSTER:.1f} % of a visit",
        _FOLLOWED,
    ),
    Constant(
        "of the blocks on an SM, the last is slower than the first by",
        f"{100 * UNEVEN:.0f} %, or {100 * UNEVEN_WAITING:.0f} % where they wait for loads (06, 09); not in kernel 08, "
        "whose blocks take turns at the banks of shared memory",
        "time stamps of kernel 12 on an H200, and counters",
    ),
    Constant("bytes that L2 loses together", f"{LOST_TOGETHER}", _FOLLOWED),
    Constant("kernel 01: visits until half of the merging is lost", f"{IN_STEP_VISITS:g} / blocks an SM²", _RECORDED),
    Constant("time of a visit that shrinks with a mask", f"{100 * SHRINKS:.0f} %", "recorded times, causal and not"),
    Constant("places that shared or written lines take in L2", "2", _RECORDED + "; as if both halves kept them"),
    Constant("L2 for written lines", f"{100 * DIRTY_SHARE:.0f} %, in sets of {WAYS}", _RECORDED),
    Constant(
        "between two uses of a line by blocks that come one after the other",
        f"{100 * SCATTERED:.0f} % of what passes otherwise",
        "fitted to DRAM bytes of single heads near L2's size under a causal mask, on an H200; 75 % by reasoning",
    ),
    Constant("L2 for lines that are read", f"all of it, as if in sets of {READ_WAYS}", _RECORDED),
    Constant(
        "DRAM traffic of no kernel",
        f"{BACKGROUND_READ:g} MB/s read, {BACKGROUND_WRITE:g} MB/s written",
        "what long runs have beyond the model, in proportion to time",
    ),
    Constant("wavefronts a clock and SM", f"{WAVEFRONTS_REACHED:g}", "recorded times of kernel 02"),
    Constant(
        "clocks of a visit beside its wavefronts",
        f"({VISIT_CLOCKS:g} + {COLUMN_CLOCKS:g} Bc) / blocks an SM^{HIDDEN:g}",
        "recorded times of kernel 02",
    ),
    Constant("issue slots used", f"1 - exp(-warps / {WARPS_TO_ISSUE:g})", "recorded times of kernel 01"),
    Constant(
        "instructions of naive attention",
        f"scores {SCORES[0]:g} + {SCORES[1]:g} d, output {OUTPUT[1]:g} d, softmax {SOFTMAX:g} for 32 elements",
        "counted by Nsight Compute in nvcc 13.0's code for sm_90",
    ),
    Constant("DRAM bandwidth reached", f"{100 * DRAM_REACHED:.0f} %", "recorded times of naive_softmax"),
    Constant(
        "L2 bandwidth reached", f"{100 * L2_REACHED:.0f} % of what slices could", "assumed; no kernel here needs it"
    ),
)


LIMITS_OF_THE_MODEL: tuple[str, ...] = (
    "Everything is counted in whole tiles: not the sectors of partial lines, the order within a tile, or bank and "
    "channel conflicts of L2 and DRAM.",
    "Not modelled: address translation (TLB), when L2 writes back (only how much is still in it at the end), clock and "
    "power changes, and other work on the GPU.",
    "Merging of requests between L1 and L2 depends on which blocks are in step to some ten nanoseconds, and is "
    "followed roughly: worst in runs of few blocks, not more than the SMs hold at once, where L2 bytes may be off by "
    "half and even twice as many. The hardware "
    "does not repeat them either: counted again, those of one setting in ten differ by more than "
    f"{100 * REPEATED.tenth:.0f} %, and one by {100 * REPEATED.largest:.0f} %.",
    "Registers that threads spill are counted for the tile sizes that were compiled (nvcc 13.0, sm_90); another "
    "compiler spills others.",
    "Where K and V of a head take about all of L2, how often blocks wait for DRAM there is uncertain, and with it how "
    "many requests merge: L2 is asked for up to a fifth more or less.",
    "Kernel 12 with a head whose K and V outgrow L2 (67 MB), without a mask, moved 1.04 GB of DRAM where 0.60 are "
    "predicted; perhaps the blocks that share an SM go over K and V one after the other then.",
    "Unexplained: the time of kernel 01 with d=32 is predicted 28 to 32 % too short (four settings), with d=96 20 % "
    "(one).",
    "Fitted to one H200. For other GPUs sizes, bandwidths and SM counts are replaced and the "
    "fitted numbers kept; nothing was measured there.",
    "Caches are cold before each function, as under Nsight Compute. In a real run naive attention finds the end of S "
    "and P still in L2.",
)


HOW_THE_MODEL_WORKS: tuple[str, ...] = (
    "Blocks are dealt to SMs in block order, and every visit of a K/V tile gets its moment.",
    "L1 keeps what the block before on the same SM used last, in what shared memory leaves of the SM's storage, and "
    "what a block beside it has just loaded. Asynchronous copies go past L1.",
    "Between L1 and L2, requests for the same line by SMs of one cluster become one, four at most, if they come within "
    f"{1e3 * WINDOW_US:.0f} ns, or while the line is on its way from DRAM. So blocks are followed in time.",
    "The block that comes first to a tile waits for DRAM; those close behind wait with it, those further behind catch "
    "up by what it waits. Blocks that compute while loads are under way wait for nothing and are not caught up with. "
    "Otherwise blocks drift apart, most of all those that share an SM.",
    "In kernels 02 to 05 a head's last block is a little faster if rows are missing: it leads, waits alone, and the "
    "others come out of step. That can double what L2 is asked for.",
    "What threads spill because they have too few registers goes through L1 to L2 when it is stored, and comes from L1 "
    "when it is loaded.",
    "An SM that is free takes the next block. So heads that wait for DRAM end later, and the blocks of one head begin "
    "at different times: fewer and fewer ask together.",
    "L2 throws out what was used longest ago. Tiles that several SMs use, and written ones, take two places in it.",
    "Time is that of the scarcest resource on the busiest SM: turns of shared memory's banks, issue slots, fp32 units, "
    "L2, DRAM.",
)


# Computed by tests/core/test_forecast.py, which fails when they no longer hold.
ERRORS_OF_THE_MODEL: tuple[Error, ...] = (
    Error("L2 bytes", 0.03, 0.19),
    Error("DRAM bytes", 0.01, 0.05),
    Error("time", 0.02, 0.11),
)
