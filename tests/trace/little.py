"""Little kernels written in tests: many in one file, compiled at once, each run on its own."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fmha.kernels import Argument, Launch
from fmha.memory import Slot
from fmha.trace.build import Program, build
from fmha.trace.findings import Finding, findings
from fmha.trace.run import CHECK, REVERSED, TRACE, Raw, run


@dataclass(frozen=True)
class Ran:
    """A snippet's run: what it wrote (as float32), what was found, the rest as the runtime wrote it down."""

    outputs: dict[str, np.ndarray]
    findings: tuple[Finding, ...]
    raw: Raw

    @property
    def rows(self) -> np.ndarray:
        """Counts by site and array."""
        return self.raw.rows


class Snippets:
    """Kernels in one .cu file. A comment `// at NAME` marks a line that `line(NAME)` finds again."""

    def __init__(self, text: str, folder: Path, cache: Path, name: str = "little.cu") -> None:
        self.text = text
        self.path = folder / name
        self.path.write_text(text, encoding="utf-8")
        functions = re.findall(r"__global__ void (\w+)\(", text)
        self.program: Program = build(self.path, functions, {}, cache=cache)

    def line(self, name: str) -> int:
        (found,) = [n for n, line in enumerate(self.text.split("\n"), 1) if re.search(rf"// at {name}\b", line)]
        return found

    def launch(
        self, function: str, arguments: tuple[Argument, ...], block: int = 32, grid: int = 1, smem: int = 0
    ) -> Launch:
        """smem: bytes of dynamic shared memory, as one array `row`."""
        return Launch(function, grid, block, smem, arguments, (Slot("row", (smem // 4,), 0, smem),) if smem else ())

    def run(
        self,
        *launches: Launch,
        inputs: Mapping[str, np.ndarray] | None = None,
        outputs: Mapping[str, int] | None = None,
        is_reversed: bool = False,
        **settings: Any,
    ) -> Ran:
        """outputs: how many numbers of 4 bytes."""
        sizes = {name: 4 * count for name, count in (outputs or {}).items()}
        flags = TRACE | CHECK | (REVERSED if is_reversed else 0)
        raw = run(self.program, launches, inputs or {}, sizes, flags=flags, **settings)
        return Ran(raw.outputs, findings(raw, self.program, launches), raw)

    def call(self, function: str, arguments: tuple[Argument, ...], **settings: Any) -> Ran:
        """One launch, with the settings of `launch` and `run` together."""
        shape = {name: settings.pop(name) for name in ("block", "grid", "smem") if name in settings}
        return self.run(self.launch(function, arguments, **shape), **settings)
