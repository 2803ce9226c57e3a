"""Small .cu files written by tests: compiled for the CPU, run on arrays, and what each marked line did to memory."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from fmha.kernels import Launch
from fmha.trace.build import Mode, build
from fmha.trace.findings import Finding, findings
from fmha.trace.run import CHECK, FLOP_KINDS, TRACE, run


@dataclass(frozen=True)
class Access:
    """What a marked line did to one array: of how many bytes a thread, in how many requests of warps."""

    array: str
    is_write: bool
    nbytes: int
    requests: int


@dataclass(frozen=True)
class Result:
    """Outputs by name; by the mark of a line its accesses and arithmetic; what is wrong."""

    outputs: dict[str, NDArray[Any]]
    accesses: dict[str, list[Access]]
    flops: dict[str, dict[str, int]]
    findings: tuple[Finding, ...]

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self.outputs[name]


class Snippet:
    """A .cu file with the given text. Lines whose accesses a test asks for end in `// @mark`."""

    def __init__(self, folder: Path, text: str, cache: Path, **defines: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path, self.text, self.cache, self.defines = folder / "snippet.cu", text, cache, defines
        self.path.write_text(text, encoding="utf-8")
        self.functions = re.findall(r'extern "C" __global__ void (\w+)', text)
        self.marks = {
            number: found[1]
            for number, line in enumerate(text.splitlines(), 1)
            if (found := re.search(r"// @(\w+)", line))
        }

    def __call__(
        self,
        function: str,
        inputs: Mapping[str, NDArray[Any]],
        outputs: Mapping[str, tuple[tuple[int, ...], DTypeLike]],
        *numbers: int | float,
        grid: int = 1,
        block: int = 32,
        smem: int = 0,
        mode: Mode = "trace",
        processes: int = 1,
    ) -> Result:
        """Run it. The kernel takes the inputs, the outputs (shape and type each) and the numbers, in this order."""
        functions = [*self.functions, *([] if function in self.functions else [function])]
        program = build(self.path, functions, self.defines, mode, cache=self.cache)
        sizes = {name: int(np.prod(shape)) * np.dtype(dtype).itemsize for name, (shape, dtype) in outputs.items()}
        launch = Launch(function, grid, block, smem, (*inputs, *outputs, *numbers), ())
        raw = run(program, [launch], inputs, sizes, flags=TRACE | CHECK if mode == "trace" else 0, processes=processes)
        accesses: dict[str, dict[tuple[str, bool, int], int]] = {}
        for row in raw.rows:
            site = program.sites[row["site"]]
            if site.line in self.marks:
                array = raw.regions[0][row["region"]].name if row["region"] < len(raw.regions[0]) else "?"
                one = accesses.setdefault(self.marks[site.line], {})
                key = (array, site.is_write, int(row["nbytes"] // row["lanes"]))
                one[key] = one.get(key, 0) + int(row["requests"])
        flops = {
            self.marks[line]: {
                kind: int(raw.flops["count"][raw.flops["line"] == line].sum(axis=0)[k])
                for k, kind in enumerate(FLOP_KINDS)
                if raw.flops["count"][raw.flops["line"] == line].sum(axis=0)[k]
            }
            for line in self.marks
            if line in raw.flops["line"]
        }
        return Result(
            {n: raw.outputs[n].view(np.dtype(dtype)).reshape(shape) for n, (shape, dtype) in outputs.items()},
            {mark: [Access(*key, n) for key, n in sorted(found.items())] for mark, found in accesses.items()},
            flops,
            findings(raw, program, [launch]),
        )
