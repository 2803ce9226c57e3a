"""Modules as one script: what is read, and what is refused rather than guessed."""

from __future__ import annotations

from pathlib import Path

import pytest

from fmha.export.bundle import bundle
from fmha.export.player_file import _HERE
from tests.export.support import ROOT, node


def written(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        (folder / f"{name}.mjs").write_text(text)
    return folder / "main.mjs"


def test_modules_run_once_each_dependencies_first(tmp_path: Path) -> None:
    main = written(
        tmp_path,
        a='globalThis.log = ["a"];\nexport const one = 1, other = 2;\nexport function f() { return 10; }\n',
        b='import { one as uno, f } from "./a.mjs";\nglobalThis.log.push("b");\nexport class B { x = uno + f(); }\n',
        main='import { f } from "./a.mjs";\nimport { B } from "./b.mjs";\nlog.push(new B().x, f());\nexport default B;',
    )
    said = node("(0, eval)(input); console.log(JSON.stringify(globalThis.log));", bundle([main]))
    assert said.decode().strip() == '["a","b",11,10]'


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"main": 'import { a } from "./b.mjs";', "b": 'import { c } from "./main.mjs";'}, "in a circle"),
        ({"main": 'import * as a from "./b.mjs";', "b": ""}, "is not read"),
        ({"main": 'import a from "somewhere";'}, "is not read"),
        ({"main": "const a = 1;\nexport { a };"}, "is not read"),
        ({"main": 'const a = () => import("./b.mjs");'}, "is not read"),
        ({"main": 'export * from "./b.mjs";'}, "is not read"),
    ],
)
def test_what_is_not_read_is_an_error(tmp_path: Path, files: dict[str, str], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        bundle([written(tmp_path, **files)])


def test_every_module_of_the_player_is_in_the_file_and_no_script_ends_early() -> None:
    script = bundle([_HERE / "alone.mjs"])
    for path in (ROOT / "fmha" / "player" / "frontend").glob("*.mjs"):
        assert script.count(f'modules["{path.name}"] = (() =>') == 1, path.name
    assert "</script" not in script
