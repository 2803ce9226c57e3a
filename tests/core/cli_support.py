"""Running the command line in a test."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fmha.cli import main


def answer(capsys: pytest.CaptureFixture[str], line: str) -> Any:
    """The JSON that a command prints."""
    assert main(line.split()) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return json.loads(out)


def refusal(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The one line that a refused command prints; it must exit with 2 and print nothing else."""
    try:
        code = main(arguments)
    except SystemExit as exit_:
        code = exit_.code  # type: ignore[assignment]
    out, err = capsys.readouterr()
    assert code == 2 and out == "" and err.endswith("\n") and err.count("\n") == 1
    assert err.startswith("python -m fmha") and len(err) < 500 and "Traceback" not in err
    return err


def save(path: Path, **arrays: Any) -> str:
    """Write arrays into an .npz file; its name."""
    np.savez(path, **arrays)
    return str(path)
