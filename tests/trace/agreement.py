"""What a traced run and a GPU's counts by line must agree in, and where they may not."""

from __future__ import annotations

import pytest

from fmha.kernels import SECTOR
from fmha.line_counts import LineCounts
from fmha.trace import Trace
from fmha.trace.against import Compared, compare

LOADS = "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"
STORES = "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum"


def agree(run: Trace, counted: LineCounts) -> tuple[Compared, ...]:
    """Assert it. Sectors of device memory are equal line by line, and in all to the hardware's other counters too.
    Where the compiled accesses to shared memory are the source's, bytes are equal and wavefronts within 2 %; where they
    are made by fewer lanes at once, bytes are equal and wavefronts no fewer."""
    rows = compare(run, counted)
    for row in rows:
        assert row.traced.sectors == row.measured.sectors, row
        if row.space == "shared" and row.is_as_written:
            assert row.traced.nbytes == row.measured.nbytes, row
            assert row.traced.wavefronts == pytest.approx(row.measured.wavefronts, rel=0.02), row
        if row.space == "shared" and row.is_split:
            assert row.traced.nbytes == row.measured.nbytes and row.traced.wavefronts < row.measured.wavefronts, row
        assert row.why_not or row.is_as_written
    in_all = sum(row.measured.sectors for row in rows)
    assert in_all * SECTOR == run.sector_bytes
    assert in_all == sum(metrics[LOADS] + metrics[STORES] for metrics in counted.totals.values())
    return rows
