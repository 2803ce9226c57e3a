"""The forecast on settings that were measured after it was fixed: what it said then stays on record."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fmha.kernels import KERNELS, SECTOR
from fmha.measurement import shipped
from fmha.model_facts import BLIND, blind_sentence
from fmha.problem import Problem, Tiling

ENTRIES: list[dict[str, Any]] = json.loads((Path(__file__).parent / "counters_h200_later.json").read_text())["entries"]
LOADS, STORES = (f"l1tex__t_sectors_pipe_lsu_mem_global_op_{op}.sum" for op in ("ld", "st"))


def total(entry: dict[str, Any], *metrics: str) -> float:
    return float(sum(counted[metric] for counted in entry["counters"].values() for metric in metrics))


def counted(entry: dict[str, Any]) -> dict[str, float]:
    return {
        "L2 bytes": SECTOR * total(entry, "lts__t_sectors_srcunit_tex.sum"),
        "DRAM bytes": total(entry, "dram__bytes_read.sum", "dram__bytes_write.sum"),
        "time": total(entry, "gpu__time_duration.sum") / 1e3,
    }


def test_none_of_them_is_among_the_recordings() -> None:
    known = {
        (entry.name, run.problem, entry.tiling)
        for recording in shipped() for run in recording.runs for entry in run.entries
    }  # fmt: skip
    earlier = json.loads((Path(__file__).parent / "counters_h200.json").read_text())["entries"]
    known |= {(e["kernel"], Problem(**e["problem"]), tuple(e["tiling"])) for e in earlier}
    for entry in ENTRIES:
        tiling = tuple(entry["tiling"]) if entry["kernel"] == "02" else None
        assert (entry["kernel"], Problem(**entry["problem"]), tiling) not in known


def test_requested_bytes_are_equal() -> None:
    gpu = shipped()[0].device.gpu
    for entry in ENTRIES:
        plan = KERNELS[entry["kernel"]].plan(Problem(**entry["problem"]), Tiling(*entry["tiling"]), gpu)
        assert plan.requested.requested_bytes == SECTOR * total(entry, LOADS, STORES)


@pytest.mark.parametrize("stated", BLIND, ids=lambda stated: stated.what)
def test_the_page_says_how_the_first_confrontation_went(stated: Any) -> None:
    key = {"L2 bytes": "l2", "DRAM bytes": "dram", "time": "time_us"}[stated.what]
    errors = np.abs([entry["said"][key] / counted(entry)[stated.what] - 1 for entry in ENTRIES])
    assert (len(errors), int((errors <= stated.bound).sum())) == (stated.of, stated.within)
    assert np.median(errors) == pytest.approx(stated.median, abs=0.005)
    assert errors.max() == pytest.approx(stated.largest, abs=0.005)


def test_the_sentence_names_what_failed() -> None:
    said = blind_sentence()
    assert "13 settings" in said and "L2 bytes within 20 % in 10 of 13" in said and "worst 41 %" in said
