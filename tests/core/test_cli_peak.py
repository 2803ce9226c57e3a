"""`bench --peak`: what is said and what is written, without a GPU."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from fmha import ladder
from fmha.cli import main
from fmha.errors import InputError, LimitError
from fmha.kernels import KERNELS
from fmha.measurement import MmaPeak, read
from fmha.speeds import THREE_PRODUCTS, tflops
from tests.ladder_support import PEAK, FakeService, FakeTicket, ladder_recording


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> FakeService:
    made = FakeService()
    monkeypatch.setattr("fmha.gpu.service.GpuService", lambda *_: made)
    for module in ("peak", "ladder"):
        monkeypatch.setattr(f"fmha.cli.{module}.need_gpu", lambda _: None)
    return made


def answer(capsys: pytest.CaptureFixture[str], line: str) -> tuple[int, str, str]:
    code = main(line.split())
    out, err = capsys.readouterr()
    return code, out, err


def test_the_numbers_are_shown_and_added_to_a_recording(
    capsys: pytest.CaptureFixture[str], service: FakeService, tmp_path: Path
) -> None:
    code, out, _ = answer(capsys, "bench --peak")
    head, bf16, _, tf32 = out.splitlines()
    assert code == 0 and "with 1, 2 warps a scheduler" in head and list(tmp_path.iterdir()) == []
    assert bf16.split()[:3] == ["bf16", "480.0", "580.0"] and "58.6 % of the bf16 peak" in bf16
    assert "58.6 % of the tf32 peak" in tf32  # 290 of 494.5
    whole = ladder_recording([ladder.problem(1024, 64)])
    file = tmp_path / "ladder.json"
    file.write_text(whole.to_json())
    code, out, err = answer(capsys, f"bench --peak --json --out {file}")
    assert code == 0 and json.loads(out)["tflops"]["tf32"] == [240.0, 290.0] and f"added to {file}" in err
    assert read(file.read_text()) == dataclasses.replace(whole, mma_sync_peak=PEAK)


def test_a_recording_of_another_gpu_is_left_alone(
    capsys: pytest.CaptureFixture[str], service: FakeService, tmp_path: Path
) -> None:
    whole = ladder_recording([ladder.problem(1024, 64)])
    facts = dataclasses.replace(whole.device.facts, name="NVIDIA A100")
    text = dataclasses.replace(whole, device=dataclasses.replace(whole.device, facts=facts)).to_json()
    file = tmp_path / "other.json"
    file.write_text(text)
    code, _, err = answer(capsys, f"bench --peak --out {file}")
    assert code == 2 and "was recorded on NVIDIA A100, and this is NVIDIA H200" in err and file.read_text() == text


def test_a_ladder_without_a_peak_is_a_ladder(
    capsys: pytest.CaptureFixture[str], service: FakeService, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = "bench --ladder --N 1024 --d 64 --dtype fp32 --causal none --json"
    assert read(answer(capsys, line)[1]).mma_sync_peak == PEAK
    plain = FakeService.submit

    def old_gpu(self: FakeService, op: str, payload: object, timeout_s: float) -> FakeTicket:
        too_old = LimitError("mma.sync needs compute capability 8.0")
        return FakeTicket(too_old) if op == "mma_peak" else plain(self, op, payload, timeout_s)

    monkeypatch.setattr(FakeService, "submit", old_gpu)
    code, out, err = answer(capsys, line)
    assert code == 0 and read(out).mma_sync_peak is None and "without the peak of mma.sync: mma.sync needs" in err


@pytest.mark.parametrize(
    ("tflops", "said"),
    [
        ({"int8": (1.0,)}, "should be one of bf16, fp16, tf32"),
        ({"bf16": ()}, "1 to 16 positive numbers"),
        ({"bf16": (0.0,)}, "1 to 16 positive numbers"),
        ({"bf16": (float("inf"),)}, "1 to 16 positive numbers"),
        ({"bf16": (1.0,) * 17}, "1 to 16 positive numbers"),
    ],
)
def test_a_file_with_another_peak_is_refused(tflops: dict[str, tuple[float, ...]], said: str) -> None:
    whole = ladder_recording([ladder.problem(1024, 64)])
    bad = dataclasses.replace(whole, mma_sync_peak=MmaPeak(tflops, "now"))
    with pytest.raises(InputError, match=said):
        read(bad.to_json())
    assert MmaPeak({}, "now").best("bf16") is None and PEAK.best("bf16") == 580.0


def test_no_shipped_kernel_on_tensor_cores_is_faster_than_the_instruction_it_uses() -> None:
    """Kernel 13 needs three products in tf32 for each of fp32."""
    for recording in ladder.shipped():
        peak = recording.mma_sync_peak
        assert peak is not None and set(peak.tflops) == {"bf16", "fp16", "tf32"}
        told = 0
        for run in recording.runs:
            for entry in run.entries:
                if entry.name not in KERNELS or int(entry.name) < 8 or entry.time is None:
                    continue
                most = (peak.best("tf32") or 0.0) / 3 if entry.name == THREE_PRODUCTS else peak.best(entry.dtype)
                assert most is not None and tflops(run.problem, entry.time.median_us) < most, (entry.name, run.problem)
                told += 1
        assert told > 50
