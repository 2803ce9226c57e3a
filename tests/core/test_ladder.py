"""The ladder: its table from recordings, the best tiles, and the command that records it, without a GPU."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from fmha import Problem, Tiling, best_tiles, ladder
from fmha.cli import ladder as command
from fmha.cli import main
from fmha.errors import LimitError
from fmha.hardware import GPUS
from fmha.kernels import KERNELS
from fmha.measurement import read
from tests.ladder_support import FakeService, ladder_recording, recording, run_of, speed

H200 = GPUS["H200"]


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> FakeService:
    made = FakeService()
    monkeypatch.setattr("fmha.gpu.service.GpuService", lambda *_: made)
    monkeypatch.setattr("fmha.cli.ladder.need_gpu", lambda _: None)
    return made


def in_order() -> list[str]:
    """Numbers of all kernels, those in fp32 first."""
    return sorted(KERNELS, key=lambda n: ("fp32" not in KERNELS[n].dtypes, n))


def answer(capsys: pytest.CaptureFixture[str], line: str) -> tuple[int, str, str]:
    code = main(line.split())
    out, err = capsys.readouterr()
    return code, out, err


# --- the table --------------------------------------------------------------------------------------------------------


def test_all_problems_hold_the_same_tokens_and_numbers() -> None:
    for N in ladder.LENGTHS:
        for d in (32, *ladder.DIMS, 256):
            p = ladder.problem(N, d, None, "bf16")
            assert p.B * p.Nq == ladder.TOKENS and p.H * p.d == ladder.HIDDEN and p.dtype == "bf16"
    assert ladder.problem(1 << 16, 64).B == 1  # longer than all tokens: one sequence


def test_the_rungs_and_peers_of_a_shape() -> None:
    shapes = [ladder.problem(4096, 64, None, dtype) for dtype in ("fp32", "bf16")]
    found = (ladder_recording(shapes),)
    made = ladder.rungs(found, 4096, 64, None, "bf16")
    assert [r.kernel.number for r in made] == in_order()
    for rung in made:
        own = "bf16" if "bf16" in rung.kernel.dtypes else "fp32"
        assert rung.dtype == own and rung.measured is not None and rung.measured.run.problem.dtype == own
        assert rung.tflops == pytest.approx(speed(rung.kernel.number))
    fp32 = ladder.rungs(found, 4096, 64, None, "fp32")
    assert [r.kernel.number for r in fp32] == [n for n, k in KERNELS.items() if "fp32" in k.dtypes]
    names = [m.entry.name for m in ladder.peers(found, 4096, 64, None, "bf16")]
    assert names == list(ladder.PEERS)
    top = ladder.best(found, 4096, 64, None, "fp32")
    assert top is not None and top.tflops == pytest.approx(max(speed(r.kernel.number) for r in fp32))
    assert top.ratio("sdpa-efficient") == pytest.approx(top.tflops / 35.0) and top.ratio("sdpa-flash") is None


def test_a_shape_that_was_not_recorded_has_rungs_without_numbers() -> None:
    found = (ladder_recording([ladder.problem(4096, 64)]),)
    assert all(r.measured is None and r.tflops is None for r in ladder.rungs(found, 8192, 64, None, "fp32"))
    assert ladder.peers(found, 4096, 64, "bottom-right", "fp32") == []
    assert ladder.best(found, 4096, 128, None, "fp32") is None


def test_of_several_recordings_the_one_with_most_kernels_counts() -> None:
    p = ladder.problem(1024, 64)
    few = recording(run_of(p, [("02", Tiling(32, 32))], {}))
    many = recording(run_of(p, [("02", Tiling(32, 32)), ("03", Tiling(32, 32))], {}))
    for order in ((few, many), (many, few)):
        found = ladder.run_of(order, p)
        assert found is not None and found[0] is many


# --- the best tiles ---------------------------------------------------------------------------------------------------


def test_the_kept_tiles_can_be_run_on_the_gpu_they_are_of() -> None:
    for number, dtypes in best_tiles.table().items():
        for dtype, dims in dtypes.items():
            for d, tiles in dims.items():
                for sides in tiles:
                    p = Problem(N=4096, d=d, dtype=dtype)
                    assert KERNELS[number].complaint(p, Tiling(*sides), H200) is None, (number, dtype, d, sides)


def test_the_fastest_that_fits_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    text = best_tiles.written({("06", "fp32", 64): [(128, 128), (64, 32)], ("06", "fp32", 128): [(64, 64)]}, "X", "now")
    assert json.loads(text)["device"] == "X"
    known = best_tiles.read(text)
    assert known == {"06": {"fp32": {64: ((128, 128), (64, 32)), 128: ((64, 64),)}}}
    monkeypatch.setattr(best_tiles, "table", lambda: known)
    chosen = KERNELS["06"]
    for d, tiles in ((64, (128, 128)), (32, (128, 128)), (128, (64, 64)), (100, (64, 64)), (256, (64, 64))):
        assert best_tiles.best(chosen, Problem(N=512, d=d), H200) == Tiling(*tiles)
    small = GPUS["T4"]  # 64 KiB: the best do not fit
    assert best_tiles.best(chosen, Problem(N=512, d=64), small) == Tiling(64, 32)
    assert best_tiles.best(KERNELS["01"], Problem(N=512), H200) == Tiling(32, 32)
    with pytest.raises(LimitError, match="shared memory"):
        best_tiles.best(chosen, Problem(N=512, d=256), small)


# --- the command ------------------------------------------------------------------------------------------------------


def test_the_whole_ladder_is_recorded(capsys: pytest.CaptureFixture[str], service: FakeService, tmp_path: Path) -> None:
    out = tmp_path / "ladder.json"
    code, _, err = answer(capsys, f"bench --ladder --out {out}")
    assert code == 0 and f"written to {out}" in err
    made = read(out.read_bytes())
    shapes = {(r.problem.Nq, r.problem.d, r.problem.causal, r.problem.dtype) for r in made.runs}
    assert shapes == {
        (N, d, causal, dtype)
        for dtype, lengths in command.DTYPES_AT.items() for N in lengths for d in (64, 128) for causal in ladder.MASKS
    }  # fmt: skip
    for run in made.runs:
        numbers = [e.name for e in run.entries if e.is_kernel]
        assert numbers == [k.number for k in KERNELS.values() if run.problem.dtype in k.dtypes]
        assert {e.name for e in run.entries if not e.is_kernel} == set(ladder.PEERS)
    # The tutorial's kernel, at 0.9 TFLOP/s, would take 2.4 s for one execution at the greatest length.
    long = next(
        r for r in made.runs if r.problem.Nq == 16384 and r.problem.causal is None and r.problem.dtype == "fp32"
    )
    tutorial = long.entry("02")
    assert (
        tutorial is not None and tutorial.time is None and "about 2.4 s, and this table allows 1 s" in tutorial.absent
    )
    assert long.entry("03").time is not None  # type: ignore[union-attr]
    ops = [op for op, _ in service.asked]
    assert ops[:2] == ["describe", "prepare"] and set(ops[2:-1]) == {"ladder"} and ops[-1] == "mma_peak"
    built = {(k, p.d, p.dtype) for k, p, _ in service.asked[1][1]["builds"]}
    assert len(built) == sum(2 * len(set(k.dtypes)) for k in KERNELS.values())


def test_it_can_be_narrowed(capsys: pytest.CaptureFixture[str], service: FakeService) -> None:
    code, out, _ = answer(capsys, "bench --ladder --N 1024 4096 --d 64 --causal none --dtype fp32 --json --no-peers")
    assert code == 0
    runs = read(out).runs
    assert [(r.problem.Nq, r.problem.d, r.problem.causal, r.problem.dtype) for r in runs] == [
        (N, 64, None, "fp32") for N in (1024, 4096)
    ]
    assert all(not payload["peers"] for op, payload in service.asked if op == "ladder")


def test_tuning_keeps_the_order_of_tiles(
    capsys: pytest.CaptureFixture[str], service: FakeService, tmp_path: Path
) -> None:
    file = tmp_path / "tiles.json"
    code, _, err = answer(
        capsys, f"bench --ladder --tune {file} --N 1024 --d 64 --dtype fp32 --causal none --out {tmp_path / 'l.json'}"
    )
    assert code == 0 and f"tiles written to {file}" in err
    found = best_tiles.read(file.read_text())
    for number, chosen in KERNELS.items():
        if "fp32" in chosen.dtypes and chosen.tiled:
            tried = best_tiles.candidates(chosen, ladder.problem(4096, 64), H200)
            # The service makes later tiles faster.
            assert found[number]["fp32"][64] == tuple((t.Br, t.Bc) for t in reversed(tried))
    assert "01" not in found
    # What is recorded is timed at length; of tiles the order is wanted.
    limits = [(payload["peers"], payload["budget_s"]) for op, payload in service.asked if op == "ladder"]
    assert limits == [(False, command.TUNE_BUDGET_S), (True, command.BUDGET_S)]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("bench --N 64 128", "--N has 2 values: give one, or add --ladder"),
        ("bench --dtype fp32 bf16", "--dtype has 2 values"),
        ("bench --causal both", "--causal both is for --ladder"),
        ("bench --ladder --H 4 --Br 32", "--ladder chooses --H, --Br itself"),
        ("bench --ladder --sweep", "--ladder chooses --sweep itself"),
        ("bench --ladder --kernel 02", "--ladder chooses --kernel itself"),
        ("bench --ladder --input rising", "--ladder chooses --input itself"),
        ("bench --ladder --longest 0", "longest=0 leaves nothing to run"),
        ("bench --ladder --d 0", "d=0 is out of range"),
        ("bench --ladder --dtype int8", "dtype='int8' is not offered"),
        ("bench --tune", "--tune is for --ladder"),
        ("bench --longest 2", "--longest is for --ladder"),
        ("bench --peak --ladder --N 64", "--peak has no use for --N, --ladder"),
        ("bench --peak --longest 0", "--peak has no use for --longest"),
        ("bench --peak --out not-there.json", "not-there.json does not exist, and --peak adds to a recording"),
    ],
)
def test_a_mistake_is_one_line(capsys: pytest.CaptureFixture[str], line: str, said: str) -> None:
    code, out, err = answer(capsys, line)
    assert code == 2 and out == "" and said in err and err.count("\n") == 1


def test_what_fails_is_left_out_and_said(
    capsys: pytest.CaptureFixture[str], service: FakeService, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = FakeService.answer

    def fails(self: FakeService, payload: object) -> object:
        if payload["problem"].d == 128:  # type: ignore[index]
            raise LimitError("device memory: none is left")
        return plain(self, payload)

    monkeypatch.setattr(FakeService, "answer", fails)
    monkeypatch.setattr(
        FakeService, "submit", lambda self, op, payload, timeout_s: _caught(self, op, payload, timeout_s)
    )
    code, out, err = answer(capsys, "bench --ladder --N 1024 --dtype fp32 --causal none --json")
    assert code == 0 and "left out: device memory: none is left" in err
    assert [run.problem.d for run in read(out).runs] == [64]
    code, _, err = answer(capsys, "bench --ladder --N 1024 --d 128 --dtype fp32 --json")
    assert code == 2 and "nothing was measured" in err


_submit = FakeService.submit


def _caught(self: FakeService, op: str, payload: object, timeout_s: float) -> object:
    from tests.ladder_support import FakeTicket

    try:
        return _submit(self, op, payload, timeout_s)
    except LimitError as error:
        return FakeTicket(error)


def test_counters_are_read_at_one_length(
    capsys: pytest.CaptureFixture[str], service: FakeService, monkeypatch: pytest.MonkeyPatch
) -> None:
    def counted(whole: object, _device: int, _timeout: float) -> object:
        runs = [
            dataclasses.replace(
                r,
                entries=tuple(
                    dataclasses.replace(e, counters={"f": {"m": 1.0}}) if e.is_kernel else e for e in r.entries
                ),
            )
            for r in whole.runs  # type: ignore[attr-defined]
        ]
        return dataclasses.replace(whole, runs=tuple(runs))  # type: ignore[type-var]

    monkeypatch.setattr(command, "counted", counted)
    code, out, _ = answer(capsys, "bench --ladder --N 1024 4096 --d 64 --dtype fp32 --counters --json")
    assert code == 0
    for run in read(out).runs:
        at = run.problem.Nq == command.COUNTED_AT and run.problem.causal is None
        assert all(bool(e.counters) == at for e in run.entries if e.is_kernel)
