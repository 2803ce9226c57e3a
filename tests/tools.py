"""Tools from outside that some tests need: a browser, node, a C++ compiler."""

from __future__ import annotations

import os
import shutil

import pytest


def need(tool: str, path: str | None) -> str:
    """`path`, or the test is skipped with the reason; if the variable FMHA_REQUIRE names `tool`, it fails."""
    if path:
        return path
    reason = f"{tool} was not found on this machine"
    if tool in os.environ.get("FMHA_REQUIRE", "").split(","):
        pytest.fail(f"{reason}, and FMHA_REQUIRE names it", pytrace=False)
    pytest.skip(reason)


def find_chromium() -> str | None:
    """The browser to drive: FMHA_CHROMIUM, or the first Chromium or Chrome on the PATH."""
    names = (os.environ.get("FMHA_CHROMIUM"), "chromium", "chromium-browser", "google-chrome", "chrome")
    return next((path for name in names if name and (path := shutil.which(name))), None)
