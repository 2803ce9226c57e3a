"""Operations that need no GPU, for the tests of the worker and its service: well-behaved ones and all kinds of bad."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from fmha.errors import BuildError, GpuError, ProblemError

Payload = Mapping[str, Any]
Report = Callable[[str, float | None], None]
_state: dict[str, int] = {}


def start(device: int) -> None:
    """Obeys FAKE_START: slow, fails, dies, says."""
    _state["device"] = device
    how = os.environ.get("FAKE_START", "")
    if how.startswith("slow"):
        time.sleep(float(how.removeprefix("slow")))
    elif how == "fmha":
        raise GpuError("GPU 7 was asked for; this machine has 1.")
    elif how == "error":
        raise RuntimeError("no context")
    elif how == "dies":
        print("dying early", file=sys.stderr, flush=True)
        os._exit(3)


def FATAL(error: BaseException) -> bool:
    return "sticky" in str(error)


def echo(payload: Payload, report: Report) -> Any:
    return payload["value"]


def who(payload: Payload, report: Report) -> tuple[int, int]:
    return os.getpid(), _state["device"]


def sleep(payload: Payload, report: Report) -> str:
    steps = max(1, round(payload["s"] / 0.05))
    for step in range(steps):
        report(f"step {step}", step / steps)
        time.sleep(payload["s"] / steps)
    return "slept"


def crash(payload: Payload, report: Report) -> None:
    print("last words", file=sys.stderr, flush=True)
    match payload["how"]:
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "exit":
            os._exit(3)
        case "segfault":
            ctypes.string_at(8)
        case "garbage":
            for fd in range(3, 32):  # the answers' pipe is one of these
                try:
                    os.write(fd, b"this is no frame, and long enough for a head\n")
                except OSError:
                    continue


def fail(payload: Payload, report: Report) -> None:
    match payload["how"]:
        case "problem":
            raise ProblemError("H=6 and Hk=4: H must be a multiple of Hk; try Hk=3.")
        case "build":
            raise BuildError("nvcc could not compile x.cu", "nvcc x.cu", "x.cu(1): error")
        case "own":

            class OwnError(GpuError):
                pass

            raise OwnError("of a class that the app does not know")
        case "sticky":
            raise GpuError("a sticky error")
        case "unforeseen":
            raise RuntimeError("unforeseen")


def hang(payload: Payload, report: Report) -> None:
    report("hanging", None)
    match payload["how"]:
        case "busy":
            while True:
                pass
        case "C":
            ctypes.CDLL(None).pause()
        case "C with the lock":  # no other thread of this process runs any more
            ctypes.PyDLL(None).pause()
        case "child":
            subprocess.run(["sleep", payload["s"]], check=False)


def chatty(payload: Payload, report: Report) -> str:
    print("to stdout")
    sys.stdout.flush()
    os.write(1, b"straight to descriptor 1\n")
    subprocess.run(["echo", "from a child"], check=True)
    for number in range(payload.get("lines", 0)):
        print("x" * 500, number, file=sys.stderr)
    return sys.stdin.read()


def huge(payload: Payload, report: Report) -> dict[str, np.ndarray]:
    return {"a": np.arange(payload["n"], dtype=np.float32), "b": payload["given"] + 1}


def unpicklable(payload: Payload, report: Report) -> Any:
    return lambda: None


OPS = {f.__name__: f for f in (echo, who, sleep, crash, fail, hang, chatty, huge, unpicklable)}
