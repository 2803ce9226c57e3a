"""A run as files of numbers: .npz for NumPy, Parquet for everything that reads tables."""

from __future__ import annotations

import dataclasses
import io
import json
from typing import Any

import numpy as np

from fmha.errors import FmhaError
from fmha.events import MEMORIES, PHASES, TENSORS
from fmha.simulation import Run

MODEL_TIMES = "A simple cost: bytes and FLOPs of each phase over one SM's share of a GPU's peaks; no measurement."
RESULTS = ("O", "LSE", "m", "l", "alpha")

# Columns of the event table, what they hold and in which unit.
COLUMNS = {
    "t0": "start, microseconds", "t1": "end, microseconds", "worker": "thread block", "sm": "streaming multiprocessor",
    "kernel": "kernel of naive attention, else 0", "phase": "what happened: its short name", "b": "batch entry",
    "h": "query head", "i": "Q tile, -1: none", "j": "K/V tile, -1: none", "tensor": "what moved or was computed",
    "src": "from this memory", "dst": "to this memory", "nbytes": "requested, bytes",
    "flops": "of matrix products, a multiply-add is two", "vector_flops": "element-wise operations",
}  # fmt: skip
_NAMES = {"phase": tuple(p.code for p in PHASES), "tensor": TENSORS, "src": MEMORIES, "dst": MEMORIES}


def about(run: Run, title: str = "", times: str = "") -> dict[str, Any]:
    """What was run, ready for JSON: problem, tiling, order, precision, the input's title, where its times are from."""
    p, t = run.problem, run.tiling
    return {
        "problem": dataclasses.asdict(p),
        "tiling": {"Br": t.Br, "Bc": t.Bc, "Tr": t.Tr(p), "Tc": t.Tc(p)},
        "order": run.order,
        "precision": run.precision,
        "input": title,
        "times": times or MODEL_TIMES,
    }


def npz(run: Run, title: str = "", times: str = "") -> bytes:
    """The results (`RESULTS`, as in `Run`), the event table as `events`, and `about` (JSON) as an .npz file.

    `phases`, `tensors` and `memories` name what the event table's numbers stand for. times: where those of the events
    are from, if not from the simple cost.
    """
    stream = io.BytesIO()
    arrays: Any = {name: getattr(run, name) for name in RESULTS}
    names: Any = {"phases": _NAMES["phase"], "tensors": TENSORS, "memories": MEMORIES}
    arrays |= {name: np.array(words) for name, words in names.items()}
    np.savez(stream, about=np.array(json.dumps(about(run, title, times))), events=run.events, **arrays)
    return stream.getvalue()


def parquet(run: Run, title: str = "", times: str = "") -> bytes:
    """The event table as a Parquet file: one row an event, names instead of codes, `about` in the file's metadata.

    Raises:
        FmhaError: pyarrow is not installed.
    """
    try:
        import pyarrow as pa
        from pyarrow import parquet as pq
    except ImportError:
        raise FmhaError(
            "Parquet files are written by pyarrow, which is not installed: pip install pyarrow, or take .npz."
        ) from None
    fields, columns = [], []
    for name, what in COLUMNS.items():
        values = np.ascontiguousarray(run.events[name])
        if name in _NAMES:
            column: Any = pa.DictionaryArray.from_arrays(pa.array(values.astype(np.int8)), list(_NAMES[name]))
        else:
            column = pa.array(values)
        columns.append(column)
        fields.append(pa.field(name, column.type, nullable=False, metadata={"about": what}))
    schema = pa.schema(fields, metadata={"about": json.dumps(about(run, title, times))})
    stream = io.BytesIO()
    pq.write_table(pa.Table.from_arrays(columns, schema=schema), stream, compression="zstd")
    return stream.getvalue()


__all__ = ["COLUMNS", "RESULTS", "about", "npz", "parquet"]
