"""Set-up shared by all tests."""

from __future__ import annotations

import os

from hypothesis import settings

# Two tests at a time on two cores: a time limit per example would fail for no reason. In CI the examples are
# always the same ones, so that a failure there is found again here.
settings.register_profile("fmha", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "fmha")
