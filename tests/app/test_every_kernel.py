"""Pages with a choice of kernels open with every kernel of the registry, in the dtype and tiles that it has."""

from __future__ import annotations

from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from fmha.kernels import KERNELS, Kernel
from fmha.trace import follow
from fmha.trace.replay import KEPT
from tests.tools import need

PAGES = Path(__file__).resolve().parents[2] / "pages" / "lab"


def opened(page: str, **link: str) -> AppTest:
    at = AppTest.from_file(str(PAGES / page), default_timeout=90)
    for name, value in link.items():
        at.query_params[name] = value
    at.run()
    assert not at.exception, [e.value for e in at.exception]
    return at


@pytest.mark.parametrize("chosen", KERNELS.values(), ids=[k.name for k in KERNELS.values()])
def test_the_kernel_lab(chosen: Kernel) -> None:
    at = opened("kernel_lab.py", kernel=chosen.number)
    assert not at.warning, [w.value for w in at.warning]  # what it begins with can be launched
    assert any(chosen.file in m.value for m in at.markdown)
    offered = [box for box in (*at.selectbox, *at.button_group) if box.label == "Data type"]
    assert [list(box.options) for box in offered] == ([list(chosen.dtypes)] if len(chosen.dtypes) > 1 else [])


def test_inside_the_last_kernel() -> None:
    from fmha.errors import TraceError
    from fmha.trace.compilers import compiler

    try:
        found = compiler().command[0]
    except TraceError:
        found = None
    need("cxx", found)
    last = list(KERNELS.values())[-1]
    at = opened("inside_the_kernel.py", kernel=last.number, N="64", d="32")
    assert not at.error and not at.warning, [e.value for e in (*at.error, *at.warning)]


def test_the_player_offers_kernels_whose_arrays_lie_in_shared_memory() -> None:
    assert {"02", "03", "04", "05"} <= set(follow.KERNELS_SHOWN) and "06" not in follow.KERNELS_SHOWN
    for kernel in follow.KERNELS_SHOWN.values():
        assert all(f"{name}" in kernel.source() for name in KEPT)
