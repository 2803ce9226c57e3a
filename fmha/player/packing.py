"""One block of bytes for a JSON header and NumPy arrays, read without parsing by `frontend/decode.mjs`.

Layout: u32 header length | JSON header, padded with spaces | arrays, little-endian, each at a multiple of 8 bytes.
The header is ``{"meta": ..., "arrays": {name: {"type": "u1|u2|i2|u4|f4|f8", "shape": [...], "offset": bytes}}}``;
offsets count from the end of the header.
"""

from __future__ import annotations

import json
import struct
from typing import Any

import numpy as np
from numpy.typing import NDArray


def pack(meta: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> bytes:
    """Header and arrays as bytes. Arrays must be u1, u2, i2, u4, f4 or f8."""
    index, chunks, offset = {}, [], 0
    for name, array in arrays.items():
        body = np.ascontiguousarray(array, array.dtype.newbyteorder("<")).tobytes()
        kind = array.dtype.str[1:]
        if kind not in ("u1", "u2", "i2", "u4", "f4", "f8"):
            raise TypeError(f"array {name} has dtype {array.dtype}, which the player does not read")
        index[name] = {"type": kind, "shape": list(array.shape), "offset": offset}
        body += b"\0" * (-len(body) % 8)
        chunks.append(body)
        offset += len(body)
    # Not-a-number has no place in JSON: allow_nan=False makes a slip an error here instead of in the browser.
    header = json.dumps({"meta": meta, "arrays": index}, separators=(",", ":"), allow_nan=False).encode()
    header += b" " * (-(len(header) + 4) % 8)
    return struct.pack("<I", len(header)) + header + b"".join(chunks)


def unpack(blob: bytes) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """The inverse of `pack`: (meta, arrays). Arrays are read-only views of `blob`."""
    (length,) = struct.unpack_from("<I", blob)
    header = json.loads(blob[4 : 4 + length])
    arrays = {}
    for name, entry in header["arrays"].items():
        dtype = np.dtype("<" + entry["type"])
        count = int(np.prod(entry["shape"]))
        flat = np.frombuffer(blob, dtype, count, 4 + length + entry["offset"])
        arrays[name] = flat.reshape(entry["shape"])
    return header["meta"], arrays
