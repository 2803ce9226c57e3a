"""The README's table of the ladder: it is what the recordings say, and says nothing else."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from fmha import ladder
from fmha.kernels import KERNELS
from fmha.ladder import shipped
from fmha.recorded import make_tables
from fmha.recorded.make_tables import BEGIN, END, NOTHING, README, block, ladder_tables
from tests.ladder_support import PEAK, ladder_recording, speed


def test_the_readme_is_up_to_date() -> None:
    text = README.read_text(encoding="utf-8")
    assert text.count(BEGIN) == text.count(END) == 1
    assert block(text)[1] == ladder_tables(shipped()), "run `make tables`"


def test_the_tables_hold_the_numbers_of_the_recording() -> None:
    shapes = [ladder.problem(N, d, c, t) for t in ("fp32", "bf16") for N in (4096, 8192) for d in (64, 128)
              for c in ladder.MASKS]  # fmt: skip
    text = ladder_tables((ladder_recording(shapes),))
    lines = text.splitlines()
    for number, kernel in KERNELS.items():
        (row,) = (line for line in lines if line.startswith(f"| {number} |"))
        cells = [cell.strip() for cell in row.strip("|").split("|")]
        assert cells[1] == kernel.title and cells[3:] == [f"{speed(number):.3g}"] * 4, row
    (flash,) = (line for line in lines if "SDPA, FlashAttention-2 | bf16" in line)
    assert flash.count("300") == 4 and "SDPA, FlashAttention-2 | fp32" not in text  # it has no fp32
    sixteen = [n for n, k in KERNELS.items() if "bf16" in k.dtypes]
    top = max(sixteen, key=speed)
    (at,) = (line for line in lines if line.startswith("| 8,192 |"))
    wanted = f"{top}: {speed(top) / 300:.2f} / {speed(top) / 470:.2f} / {speed(top) / 480:.2f}"
    assert at.count(wanted) == 4
    (none,) = (line for line in lines if line.startswith("| 16,384 |"))
    assert not any(c.isdigit() for c in none.replace("16,384", ""))
    assert "NVIDIA H200" in text and "2026-11-30" in text and "Medians of 20 runs; all" in text
    # Every row of a table has as many cells as its head.
    for head in ("| | | dtype", "|  |  | dtype", "| N |"):
        for at_line, line in enumerate(lines):
            if line.startswith(head):
                rest = lines[at_line:]
                table = rest[: next((i for i, x in enumerate(rest) if not x.startswith("|")), len(rest))]
                assert len({row.count("|") for row in table}) == 1


def test_what_mma_sync_alone_reaches_is_told_where_it_is_recorded() -> None:
    whole = ladder_recording([ladder.problem(4096, 64, None, dtype) for dtype in ("fp32", "bf16")])
    assert "alone" not in ladder_tables((whole,))
    text = ladder_tables((dataclasses.replace(whole, mma_sync_peak=PEAK),))
    assert "(`bench --peak`), TFLOP/s: bf16 580, fp16 581, tf32 290." in text


def test_nothing_recorded_is_a_sentence() -> None:
    assert ladder_tables(()) == NOTHING


def test_writing_changes_the_tables_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    readme = tmp_path / "README.md"
    readme.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n", encoding="utf-8")
    monkeypatch.setattr(make_tables, "README", readme)
    monkeypatch.setattr(make_tables, "shipped", tuple)
    make_tables.main()
    make_tables.main()  # and again: the same
    assert readme.read_text(encoding="utf-8") == f"before\n{BEGIN}\n\n{NOTHING}\n\n{END}\nafter\n"
