"""The GPU of this machine, as the one that pages show first."""

from __future__ import annotations

import re
from collections.abc import Callable, MutableMapping
from typing import Any

import streamlit as st

from fmha.gpu.diagnosis import Diagnosis, GpuFound
from fmha.hardware import DEFAULT_GPU, GPUS
from fmha.ui import live

# Words of a driver's name for a GPU -> the GPU of the table, where all of them occur. The A100's memory tells the two
# apart.
_WORDS: tuple[tuple[frozenset[str], str], ...] = tuple(
    (frozenset(words.split()), key)
    for words, key in (
        ("T4", "T4"), ("V100", "V100"), ("A100 40GB", "A100-40"), ("A100 80GB", "A100-80"), ("RTX 3090", "RTX3090"),
        ("RTX 4090", "RTX4090"), ("RTX 5090", "RTX5090"), ("L4", "L4"), ("L40S", "L40S"), ("H100", "H100"),
        ("H200", "H200"), ("B200", "B200"),
    )
)  # fmt: skip
# What makes a GPU another one although its name holds those words: part of a GPU, other chips, other SM counts.
_OTHERS = frozenset({"MIG", "LAPTOP", "MOBILE", "TI", "D", "MAX"})
_OTHER_OF = {"H100": frozenset({"PCIE"})}  # 114 SMs
_PINNED = "fmha.this_gpu"


def key_of(gpu: GpuFound) -> str | None:
    """The key in `GPUS` of a GPU that the driver shows; None where the table does not have it.

    "NVIDIA H200" -> "H200", "NVIDIA GeForce RTX 4090" -> "RTX4090", "NVIDIA A100-SXM4-80GB" -> "A100-80".
    """
    words = frozenset(re.findall(r"[A-Z0-9]+", gpu.name.upper()))
    if words & _OTHERS:
        return None
    for wanted, key in _WORDS:
        if wanted <= words and GPUS[key].compute == gpu.compute and not words & _OTHER_OF.get(key, frozenset()):
            return key
    return None


def default_gpu(
    look: Callable[[], Diagnosis | None] = live.machine, session: MutableMapping[str, Any] | None = None
) -> str:
    """The key in `GPUS` of the first GPU in this machine that the table has, else `DEFAULT_GPU`.

    It does not wait: while the machine is still being looked at, the answer is `DEFAULT_GPU`. A visitor keeps the first
    answer, so that no page changes its GPU on its own.

    Args:
        look: what is known of this machine so far.
        session: where the answer is kept; None: the visitor's session.
    """
    kept: Any = st.session_state if session is None else session
    if _PINNED not in kept:
        found = look()
        keys = (key_of(gpu) for gpu in found.gpus) if found is not None else ()
        kept[_PINNED] = next((key for key in keys if key), DEFAULT_GPU)
    return str(kept[_PINNED])
