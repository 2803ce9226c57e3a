"""The app on a machine with a make-believe GPU, for the tests of the kernel lab: `streamlit run` this file."""

from __future__ import annotations

from app import show_page
from fmha.gpu.diagnosis import Diagnosis, GpuFound
from fmha.ui import live

READY = Diagnosis((GpuFound(0, "NVIDIA H200", "9.0"),), "580.1.2", (13, 0), "2026.1", (), ())

if live.OPS != "tests.app.lab_ops":
    live.OPS = "tests.app.lab_ops"
    live._machine = live.Lookout(lambda: READY)
show_page()
