"""Where this program keeps what it can make anew."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def cache_folder(what: str) -> Path:
    """$FMHA_CACHE, or `fmha-lab/<what>` in the user's folder for caches. It need not exist."""
    if chosen := os.environ.get("FMHA_CACHE"):
        return Path(chosen)
    home = Path(os.path.expanduser("~"))  # noqa: PTH111  (Path.home() raises where there is none)
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or home / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = home / "Library" / "Caches"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache")
    return base / "fmha-lab" / what
