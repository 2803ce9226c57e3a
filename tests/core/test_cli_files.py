"""`python -m fmha simulate --file`: what a file gives, and how files that cannot be are refused."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fmha import Problem, Tiling, simulate
from tests.core.cli_support import answer, refusal, save
from tests.core.yardstick import gen


def test_file_gives_shapes_dtype_and_padding(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Q, K, V = gen(2, 4, 3, 5, 2, Hk=2)
    path = save(tmp_path / "a.npz", Q=Q, K=K, V=V, lens_k=np.array([5, 2]), extra=np.arange(3))
    out = answer(capsys, f"simulate --file {path} --Br 2 --Bc 2 --json")
    p = Problem(B=2, H=4, Hk=2, Nq=3, Nk=5, d=2, lens_k=(5, 2))
    np.testing.assert_allclose(out["O"], simulate(p, Tiling(2, 2), Q, K, V).O, rtol=1e-15)
    assert out["problem"]["dtype"] == "fp32" and out["input"] == "a.npz"
    out = answer(capsys, f"simulate --file {path} --lens-k 5,5 --N 3 --d 2 --causal --json")
    assert out["problem"]["lens_k"] == [5, 5] and out["problem"]["causal"] == "bottom-right"
    half = save(tmp_path / "b.npz", Q=Q.astype(np.float16), K=K.astype(np.float16), V=V.astype(np.float16))
    assert answer(capsys, f"simulate --file {half} --json")["problem"]["dtype"] == "fp16"
    assert answer(capsys, f"simulate --file {half} --dtype bf16 --json")["problem"]["dtype"] == "bf16"


def hostile(tmp_path: Path) -> dict[str, tuple[str, str]]:
    """Files that must be refused, and words of the sentence."""
    Q, K, V = gen(1, 2, 3, 4, 2)
    out = {}

    def put(name: str, words: str, **arrays: Any) -> None:
        out[name] = (save(tmp_path / f"{name}.npz", **arrays), words)

    put("no_v", "has no array V", Q=Q, K=K)
    put("empty_archive", "has no array Q")
    put("objects", "object arrays are not accepted", Q=np.array([{}, None], object), K=K, V=V)
    put("strings", "holds values of type <U1", Q=np.array(["a"]), K=K, V=V)
    put("complex", "holds values of type complex128", Q=Q * 1j, K=K, V=V)
    put("bools", "holds values of type bool", Q=Q > 0, K=K, V=V)
    put("two_axes", "four axes [B, H, N, d]", Q=Q[0, 0], K=K, V=V)
    put("five_axes", "four axes", Q=Q[None], K=K, V=V)
    put("k_not_v", "both must be [B, Hk, Nk, d]", Q=Q, K=K, V=V[:, :, :2])
    put("d_differs", "d (last) must be equal", Q=Q[..., :1], K=K, V=V)
    put("b_differs", "B (first)", Q=np.repeat(Q, 2, 0), K=K, V=V)
    put("heads", "H must be a multiple of Hk", Q=np.repeat(Q, 3, 1)[:, :3], K=K, V=V)
    put("no_tokens", "Nq=0 is out of range", Q=Q[:, :, :0], K=K, V=V)
    put("no_keys", "Nk=0 is out of range", Q=Q, K=K[:, :, :0], V=V[:, :, :0])
    put("no_batch", "B=0 is out of range", Q=Q[:0], K=K[:0], V=V[:0])
    put("no_heads", "H=0 is out of range", Q=Q[:, :0], K=K[:, :0], V=V[:, :0])
    put("nan", "K holds NaN or infinity", Q=Q, K=K * np.nan, V=V)
    put("long_lens", "lens_k has 2 entries for B=1", Q=Q, K=K, V=V, lens_k=np.array([1, 2]))
    put("wrong_lens", "lens_k[0]=9 is out of range", Q=Q, K=K, V=V, lens_k=np.array([9]))
    put("float_lens", "must be one whole number per batch entry", Q=Q, K=K, V=V, lens_k=np.array([1.5]))
    for name, content in (
        ("png", b"\x89PNG\r\n\x1a\n" + bytes(50)), ("nothing", b""), ("text", b"Q,K,V"), ("pickle", b"\x80\x04N."),
    ):  # fmt: skip
        (tmp_path / f"{name}.npz").write_bytes(content)
        out[name] = (str(tmp_path / f"{name}.npz"), "is not an .npz file")
    single = io.BytesIO()
    np.save(single, Q)
    (tmp_path / "single.npy").write_bytes(single.getvalue())
    out["npy"] = (str(tmp_path / "single.npy"), "is not an .npz file")
    whole = Path(save(tmp_path / "whole.npz", Q=Q, K=K, V=V)).read_bytes()
    (tmp_path / "cut.npz").write_bytes(whole[: len(whole) // 2])
    out["cut"] = (str(tmp_path / "cut.npz"), "is not an .npz file")
    flipped = bytearray(whole)
    flipped[150] ^= 0xFF
    (tmp_path / "flipped.npz").write_bytes(flipped)
    out["flipped"] = (str(tmp_path / "flipped.npz"), "damaged")
    lying = single.getvalue().replace(b"(1, 2, 3, 2)", b"(9**9,9,9,9)").replace(b"9**9", b"9999")
    unclosed = single.getvalue().replace(b"(1, 2, 3, 2)", b"(1, 2, 3, 2 ")
    members = {"lying_header": lying, "unclosed_header": unclosed, "garbage": b"\x93NUMPY garbage", "no_bytes": b""}
    for name, member in members.items():
        with zipfile.ZipFile(tmp_path / f"{name}.npz", "w") as archive:
            archive.writestr("Q.npy", member)
            for other in "KV":
                archive.writestr(f"{other}.npy", single.getvalue())
        out[name] = (str(tmp_path / f"{name}.npz"), "damaged")
    out["missing"] = (str(tmp_path / "missing.npz"), "cannot be read: No such file")
    out["folder"] = (str(tmp_path), "cannot be read")
    return out


def test_hostile_files_are_refused_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, (path, words) in hostile(tmp_path).items():
        assert words in refusal(capsys, "simulate", "--file", path), name


def test_zip_bomb_is_refused_by_its_size(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        header, {"descr": "<f8", "fortran_order": False, "shape": (1, 1, 1 << 20, 160)}
    )
    path = tmp_path / "bomb.npz"
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
        archive.open("Q.npy", "w") as member,
    ):
        member.write(header.getvalue())
        for _ in range(1281):
            member.write(bytes(1 << 20))
    assert "unpacks to 1.25 GiB, and 1.00 GiB are allowed" in refusal(capsys, "simulate", "--file", str(path))


def test_file_and_shape_that_disagree(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Q, K, V = gen(1, 1, 3, 3, 2)
    path = save(tmp_path / "a.npz", Q=Q, K=K, V=V)
    assert "--N 4 was given, but the file has N=3: leave --N out" in refusal(
        capsys, "simulate", "--file", path, "--N", "4"
    )
    assert "--d 3 was given" in refusal(capsys, "simulate", "--file", path, "--d", "3")
