"""Frames between the app and its GPU worker, and how an error travels.

A frame is a magic number, the sizes of its parts, and the parts: a pickle (protocol 5) and after it the memory of
each array in it. Arrays go straight from their own memory into the pipe and from the pipe into fresh memory: no
copy on the way, whatever their size.
"""

from __future__ import annotations

import pickle
import struct
import traceback
from dataclasses import dataclass, field
from io import RawIOBase
from typing import Any

import fmha.errors
from fmha.errors import FmhaError, GpuError

MAGIC = b"\x89FMHA\r\n\1"
HEAD = struct.Struct("<8sI")
PART_LIMIT = 1 << 36  # bytes; a larger size is not a size but garbage
PARTS_LIMIT = 1 << 16
CHUNK = 1 << 20  # bytes a write; a pipe takes less anyway, and Windows refuses very large ones


class ProtocolError(Exception):
    """What came through the pipe is not a frame."""


def encode(value: Any) -> list[memoryview]:
    """The pieces of a frame. The memory of arrays is referred to, not copied. Pickle's errors."""
    buffers: list[pickle.PickleBuffer] = []
    pickled = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
    parts = [memoryview(pickled), *(buffer.raw() for buffer in buffers)]
    head = HEAD.pack(MAGIC, len(parts)) + struct.pack(f"<{len(parts)}Q", *(part.nbytes for part in parts))
    return [memoryview(head), *parts]


def write_frame(pipe: RawIOBase, parts: list[memoryview]) -> None:
    """Write an encoded frame. OSError when the other side is gone."""
    for part in parts:
        done = 0
        while done < part.nbytes:
            done += pipe.write(part[done : done + CHUNK]) or 0


def read_frame(pipe: RawIOBase) -> Any:
    """Read one frame. EOFError where the stream ends, also in the middle; ProtocolError for anything but a frame."""
    magic, count = HEAD.unpack(_read(pipe, HEAD.size))
    if magic != MAGIC or not 0 < count <= PARTS_LIMIT:
        raise ProtocolError(f"expected a frame, found {magic!r}")
    sizes = struct.unpack(f"<{count}Q", _read(pipe, 8 * count))
    if max(sizes) > PART_LIMIT:
        raise ProtocolError(f"a part of {max(sizes)} bytes is beyond all that a worker sends")
    pickled, *buffers = [_read(pipe, size) for size in sizes]
    try:
        return pickle.loads(pickled, buffers=buffers)
    except Exception as error:
        raise ProtocolError(f"a frame could not be unpickled: {type(error).__name__}: {error}") from error


def _read(pipe: RawIOBase, nbytes: int) -> bytearray:
    """Exactly `nbytes` bytes."""
    data = bytearray(nbytes)
    view, done = memoryview(data), 0
    while done < nbytes:
        got = pipe.readinto(view[done:])
        if not got:
            raise EOFError("the stream ended")
        done += got
    return data


@dataclass(frozen=True)
class Failure:
    """An exception on its way to another process: by name, because the other side must not have to trust it."""

    error: str  # name of a class in fmha.errors; "" for any other exception
    text: str
    traceback: str
    attributes: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, error: BaseException) -> Failure:
        """What is to be known of an exception; of an FmhaError also its text attributes."""
        trace = "".join(traceback.format_exception(error))
        if not isinstance(error, FmhaError):
            return cls("", f"{type(error).__name__}: {error}".removesuffix(": "), trace)
        known = next(c.__name__ for c in type(error).__mro__ if getattr(fmha.errors, c.__name__, None) is c)
        return cls(known, str(error), trace, {k: v for k, v in vars(error).items() if isinstance(v, str)})

    def exception(self, doing: str) -> FmhaError:
        """The error to raise here: the very class for an FmhaError, else a GpuError that says what was being done."""
        kind = getattr(fmha.errors, self.error, None) if self.error else None
        if not (isinstance(kind, type) and issubclass(kind, FmhaError)):
            return GpuError(f"{doing} failed: {self.text}")
        error = kind(self.text)
        for name, value in self.attributes.items():
            setattr(error, name, value)
        return error
