"""Compiled kernels on disk: one file an entry, which carries its own checksum and facts about the build.

An entry is written under another name and then renamed, so that no reader ever sees half of one, whoever else is
writing. One that is damaged all the same counts as missing.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

MAGIC = b"FMHA build 1\n"
SUFFIX, UNFINISHED = ".fmha-build", ".fmha-part"
MAX_ENTRIES = 512
MAX_BYTES = 256 * 1024**2
STALE_S = 3600.0  # an unfinished file this old was left by a process that died


def read(folder: Path, key: str) -> tuple[bytes, dict[str, Any]] | None:
    """The binary and its facts, or None: not there, or not whole."""
    path = folder / f"{key}{SUFFIX}"
    try:
        data = path.read_bytes()
        head = len(MAGIC)
        checksum, body = data[head : head + 32], data[head + 32 :]
        if data[:head] != MAGIC or hashlib.sha256(body).digest() != checksum:
            return None
        size = int.from_bytes(body[:8], "little")
        facts = json.loads(body[8 : 8 + size])
    except (OSError, ValueError):
        return None
    with suppress(OSError):
        os.utime(path)  # it has been used: `_bound` deletes the least recently used
    return (body[8 + size :], facts) if facts.get("key") == key else None


def write(folder: Path, key: str, binary: bytes, facts: Mapping[str, Any]) -> str | None:
    """Keep an entry. None when that worked, else why not."""
    text = json.dumps({**facts, "key": key}).encode()
    body = len(text).to_bytes(8, "little") + text + binary
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(suffix=UNFINISHED, dir=folder)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(MAGIC + hashlib.sha256(body).digest() + body)
            Path(name).replace(folder / f"{key}{SUFFIX}")
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        return error.strerror or str(error)
    _bound(folder)
    return None


def complaint(folder: Path) -> str | None:
    """Why entries cannot be kept in `folder`, or None. Leaves nothing behind but the folder."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return None
    except OSError as error:
        return error.strerror or str(error)


def _bound(folder: Path) -> None:
    """Delete the least recently used entries beyond the limits, and what dead processes left."""
    entries = []
    with suppress(OSError):
        for path in folder.iterdir():
            with suppress(OSError):  # another process may be deleting too
                stat = path.stat()
                if path.suffix == SUFFIX:
                    entries.append((stat.st_mtime_ns, stat.st_size, path))
                elif path.suffix == UNFINISHED and time.time() - stat.st_mtime > STALE_S:
                    path.unlink()
    held = 0
    for number, (_, nbytes, path) in enumerate(sorted(entries, reverse=True)):
        held += nbytes
        if number >= MAX_ENTRIES or held > MAX_BYTES:
            with suppress(OSError):
                path.unlink()
