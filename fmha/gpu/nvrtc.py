"""NVRTC, the CUDA runtime compiler, through ctypes: a program of its own that needs the standard library alone.

    python -I nvrtc.py LIBRARY                      prints {"version": "13.0", "archs": ["sm_75", ...]}
    python -I nvrtc.py LIBRARY SOURCE CUBIN OPTION...   compiles SOURCE to CUBIN, prints the compiler's log

In a process of its own because a library that hangs or crashes must not take the app or its GPU worker along.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from pathlib import Path


class Nvrtc:
    """A loaded NVRTC library. OSError when it cannot be loaded, RuntimeError when it cannot do what is asked."""

    def __init__(self, library: str) -> None:
        if sys.platform == "win32":
            os.add_dll_directory(str(Path(library).parent))  # its builtins lie beside it
        self._lib = ctypes.CDLL(library)
        self._lib.nvrtcGetErrorString.restype = ctypes.c_char_p

    @property
    def version(self) -> str:
        """As in "13.0"."""
        major, minor = ctypes.c_int(), ctypes.c_int()
        self._check(self._lib.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)))
        return f"{major.value}.{minor.value}"

    @property
    def archs(self) -> list[str]:
        """The architectures it compiles for, as in "sm_90", ascending."""
        count = ctypes.c_int()
        self._check(self._lib.nvrtcGetNumSupportedArchs(ctypes.byref(count)))
        numbers = (ctypes.c_int * count.value)()
        self._check(self._lib.nvrtcGetSupportedArchs(numbers))
        return [f"sm_{number}" for number in sorted(numbers)]

    def compile(self, source: bytes, name: str, options: list[str]) -> tuple[bytes | None, str]:
        """The cubin, or None where the source does not compile, and the compiler's log."""
        program = ctypes.c_void_p()
        self._check(
            self._lib.nvrtcCreateProgram(ctypes.byref(program), source, os.fsencode(name), 0, None, None)
        )  # fmt: skip
        try:
            encoded = (ctypes.c_char_p * len(options))(*(os.fsencode(option) for option in options))
            code = self._lib.nvrtcCompileProgram(program, len(options), encoded)
            log = self._bytes("nvrtcGetProgramLog", program).rstrip(b"\0").decode(errors="replace")
            if code:
                return None, log or f"{self._said(code)}\n"
            return self._bytes("nvrtcGetCUBIN", program), log
        finally:
            self._lib.nvrtcDestroyProgram(ctypes.byref(program))

    def _bytes(self, function: str, program: ctypes.c_void_p) -> bytes:
        size = ctypes.c_size_t()
        self._check(getattr(self._lib, f"{function}Size")(program, ctypes.byref(size)))
        data = ctypes.create_string_buffer(size.value)
        self._check(getattr(self._lib, function)(program, data))
        return data.raw

    def _said(self, code: int) -> str:
        return str(self._lib.nvrtcGetErrorString(code).decode())

    def _check(self, code: int) -> None:
        if code:
            raise RuntimeError(self._said(code))


def main(arguments: list[str]) -> int:
    """See the top of this file. 0 when it worked, 1 when the source is at fault, 2 when NVRTC is."""
    try:
        nvrtc = Nvrtc(arguments[0])
        if len(arguments) == 1:
            print(json.dumps({"version": nvrtc.version, "archs": nvrtc.archs}))
            return 0
        source, cubin, *options = arguments[1:]
        code, log = nvrtc.compile(Path(source).read_bytes(), source, options)
    except (OSError, AttributeError, RuntimeError) as error:  # AttributeError: the library lacks a function
        print(f"NVRTC: {error}")
        return 2
    sys.stdout.buffer.write(log.encode())
    if code is None:
        return 1
    Path(cubin).write_bytes(code)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
