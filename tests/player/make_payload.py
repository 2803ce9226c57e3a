"""Print a player payload for the settings in argv[1] (JSON), for tests in node. Run from the repository's root."""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from fmha import Problem, Tiling
from fmha.player.payload import Scene, build
from fmha.player.scene import prepare


def main() -> None:
    wanted = {"N": 32, "d": 8, "H": 1, "Br": 8, "Bc": 4, "causal": None, "order": "q-outer", "input": "random",
              "sms": 2, "race": True, "focus": 0, "tile": None, "start": None,
              "l2": None} | json.loads(sys.argv[1])  # fmt: skip
    problem = Problem(N=wanted["N"], d=wanted["d"], H=wanted["H"], causal=wanted["causal"])
    tiling = Tiling(wanted["Br"], wanted["Bc"])
    played = prepare(problem, tiling, wanted["order"], wanted["input"], sms=wanted["sms"])
    tile = tuple(wanted["tile"]) if wanted["tile"] else None
    start = tuple(wanted["start"]) if wanted["start"] else None
    look = Scene(
        played.gpu, played.sms, wanted["focus"], tile, wanted["race"], start, played.inputs.heads, played.inputs.tokens
    )
    sys.stdout.buffer.write(build(played.run, played.naive_events, played.served(wanted["l2"]), look))


if __name__ == "__main__":
    main()
