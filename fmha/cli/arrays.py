"""Q, K, V from an .npz file that a stranger may have made: nothing in it is run, and its sizes are checked first."""

from __future__ import annotations

import warnings
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from fmha.errors import FmhaError, InputError, LimitError
from fmha.units import format_bytes

MAX_FILE_BYTES = 1 << 30


@dataclass(frozen=True)
class FileArrays:
    """Q [B, H, Nq, d]; K, V [B, Hk, Nk, d]; lens_k and left_pad [B] where the file has them."""

    Q: NDArray[np.generic]
    K: NDArray[np.generic]
    V: NDArray[np.generic]
    lens_k: tuple[int, ...] | None
    left_pad: tuple[int, ...] | None

    @property
    def shape(self) -> dict[str, int]:
        """B, H, Hk, Nq, Nk, d as the arrays have them."""
        B, H, Nq, d = self.Q.shape
        return {"B": B, "H": H, "Hk": self.K.shape[1], "Nq": Nq, "Nk": self.K.shape[2], "d": d}


def read_npz(filename: str) -> FileArrays:
    """Q, K, V of a file.

    Raises:
        InputError: not an .npz file, a damaged one, arrays missing, of objects, or of shapes that do not go together.
        LimitError: more than `MAX_FILE_BYTES` once unpacked.
    """
    shown = filename if len(filename) <= 80 else "..." + filename[-77:]
    try:
        with _opened(filename, shown) as archive, warnings.catch_warnings(action="ignore"):
            Q, K, V = (_member(archive, name, shown) for name in ("Q", "K", "V"))
            lens_k, left_pad = (_lengths(archive, name, shown) for name in ("lens_k", "left_pad"))
    except (FmhaError, MemoryError):
        raise
    except OSError as error:
        raise InputError(f"{shown} cannot be read: {error.strerror or error}.") from None
    except Exception:  # damaged bytes make the readers of zip and .npy raise this and that, tokenizer errors too
        raise InputError(f"{shown} is damaged: write it again with numpy.savez(FILE, Q=Q, K=K, V=V).") from None
    _check_shapes({"Q": Q, "K": K, "V": V}, shown)
    return FileArrays(Q, K, V, lens_k, left_pad)


def _opened(filename: str, shown: str) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(Path(filename))
    except zipfile.BadZipFile:
        raise InputError(f"{shown} is not an .npz file: make one with numpy.savez(FILE, Q=Q, K=K, V=V).") from None


def _member(archive: zipfile.ZipFile, name: str, shown: str) -> NDArray[np.generic]:
    names = archive.namelist()
    if f"{name}.npy" not in names:
        found = ascii(", ".join(sorted(entry.removesuffix(".npy") for entry in names)[:8])[:80])
        raise InputError(f"{shown} has no array {name}: it must hold Q, K and V, and it holds {found}.")
    size = archive.getinfo(f"{name}.npy").file_size
    if size > MAX_FILE_BYTES:
        raise LimitError(
            f"{name} in {shown} unpacks to {format_bytes(size)}, and {format_bytes(MAX_FILE_BYTES)} are allowed: "
            "use fewer heads or a shorter sequence."
        )
    with archive.open(f"{name}.npy") as stream:
        shape, _, dtype = _header(stream)
        if dtype.hasobject:
            raise InputError(f"{name} in {shown} is an object array, and object arrays are not accepted: save numbers.")
        if dtype.kind not in "fiu":
            raise InputError(f"{name} in {shown} holds values of type {str(dtype)[:40]}: attention needs real numbers.")
        count = 1
        for extent in shape:
            count *= extent
        if count * dtype.itemsize > size:  # the header promises more than there is
            raise EOFError
    with archive.open(f"{name}.npy") as stream:
        return np.lib.format.read_array(stream, allow_pickle=False)


def _header(stream: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    version = np.lib.format.read_magic(stream)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    return read(stream)


def _lengths(archive: zipfile.ZipFile, name: str, shown: str) -> tuple[int, ...] | None:
    if f"{name}.npy" not in archive.namelist():
        return None
    values = _member(archive, name, shown)
    if values.ndim != 1 or values.dtype.kind not in "iu" or len(values) > 1 << 16:
        raise InputError(f"{name} in {shown} must be one whole number per batch entry.")
    return tuple(int(value) for value in values)


def _check_shapes(arrays: dict[str, NDArray[np.generic]], shown: str) -> None:
    for name, array in arrays.items():
        if array.ndim != 4:
            raise InputError(
                f"{name} in {shown} has shape {array.shape}: four axes [B, H, N, d] are needed; "
                f"add missing ones with {name}.reshape(1, 1, ...)."
            )
    Q, K, V = (arrays[name].shape for name in "QKV")
    if K != V:
        raise InputError(f"K has shape {K} and V has {V} in {shown}: both must be [B, Hk, Nk, d].")
    if (Q[0], Q[3]) != (K[0], K[3]):
        raise InputError(f"Q has shape {Q} and K has {K} in {shown}: B (first) and d (last) must be equal.")
