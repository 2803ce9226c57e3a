"""What a step may show: a fixed list of pictures, the settings of each, and what each setting may be.

A deck names a picture and gives some of its settings; `fmha.ui.lecture_pictures` draws it. The kinds are those of the
app's own controls, so that a setting can be made a live control by naming it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from fmha.events import PHASES
from fmha.hardware import GPUS
from fmha.inputs import INPUTS
from fmha.kernels import KERNELS
from fmha.ladder import DIMS as LADDER_DIMS
from fmha.ladder import LENGTHS as LADDER_LENGTHS
from fmha.player.scene import HEAD_DIMS, LENGTHS, TILES
from fmha.ui.parameters import Choice, Flag, Kind, Numbers, Range, Text, Value, powers_of_two

Settings = Mapping[str, Value]

OWN_GPU = "this"  # the GPU of the machine, or the app's default: decided where the picture is drawn
ROW_PATTERN = r"\s*[-+]?\d{1,4}(\.\d{1,4})?(\s*[,; ]\s*[-+]?\d{1,4}(\.\d{1,4})?){0,31}\s*"


@dataclass(frozen=True)
class Setting:
    """One setting of a picture: what it may be, what it is if the deck does not say, and how its control is called."""

    kind: Kind
    default: Value
    label: str
    labels: Mapping[str, str] = field(default_factory=dict)  # of a choice


@dataclass(frozen=True)
class Picture:
    """A picture by name. what: one line for authors; page: the page of the app that shows more of it."""

    name: str
    what: str
    settings: Mapping[str, Setting]
    page: str = ""


def _choice(default: str, label: str, labels: Mapping[str, str]) -> Setting:
    return Setting(Choice(tuple(labels), {}, lambda value: labels[value]), default, label, labels)


def _numbers(options: list[int] | tuple[int, ...], default: int, label: str) -> Setting:
    return Setting(Numbers(tuple(options)), default, label)


def _problem(N: int, d: int, H: int, dtype: str) -> dict[str, Setting]:
    """The settings of a problem that is only counted."""
    return {
        "N": _numbers(powers_of_two(128, 1 << 20), N, "Sequence length N"),
        "d": _numbers((16, 32, 64, 128, 256), d, "Head dimension d"),
        "H": _numbers(powers_of_two(1, 64), H, "Heads H"),
        "B": _numbers(powers_of_two(1, 64), 1, "Batch B"),
        "dtype": _choice(dtype, "Data type", {name: name for name in ("fp32", "fp16", "bf16")}),
    }


_GPU = _choice(OWN_GPU, "GPU", {OWN_GPU: "this machine's, or the default"} | {key: g.name for key, g in GPUS.items()})
_CAUSAL = _choice("none", "Causal mask", {"none": "off", "br": "bottom-right", "tl": "top-left"})
_WORD = {
    "layer": Setting(Range(0, 5), 3, "Layer (counted from 0)"),
    "head": Setting(Range(0, 11), 1, "Head (counted from 0)"),
    "word": Setting(Range(0, 15), 10, "Query word (counted from 0)"),
}
_TILE = {
    "Br": _numbers(TILES, 8, "Q tile rows Br"),
    "Bc": _numbers(TILES, 8, "K/V tile rows Bc"),
}
_PLAYER: dict[str, Setting] = {
    "N": _numbers(LENGTHS, 64, "Tokens N"),
    "d": _numbers(HEAD_DIMS, 8, "Head dim d"),
    **_TILE,
    "H": Setting(Range(1, 8), 1, "Heads H"),
    "sms": _numbers((1, 2, 4, 8, 16, 32, 64), 8, "SMs"),
    "order": _choice("q-outer", "Loop order", {"q-outer": "q-outer", "kv-outer": "kv-outer"}),
    "causal": _CAUSAL,
    "input": _choice("random", "Input", {name: source.title for name, source in INPUTS.items()}),
    "seed": Setting(Range(0, 9999), 0, "Seed"),
    "layer": _WORD["layer"],
    "head": _WORD["head"],
    "race": Setting(Flag(), False, "Race naive"),
    "gpu": _GPU,
    # the moment that it stands at: a Q tile of head 0, a K/V tile, the end of a phase; and the row that is explained
    "Q_tile": Setting(Range(0, 63), 0, "Q tile (counted from 0)"),
    "KV_tile": Setting(Range(0, 63), 0, "K/V tile (counted from 0)"),
    "phase": _choice("none", "Phase", {"none": "the start"} | {p.code: p.maths for p in PHASES}),
    "row": Setting(Range(0, 127), 0, "Row of the Q tile"),
    "play": Setting(Flag(), False, "Plays at once"),
}
_KERNEL_LENGTHS = powers_of_two(512, 16384)  # as recorded

PICTURES: dict[str, Picture] = {
    p.name: p
    for p in (
        Picture("none", "no picture", {}),
        Picture("player", "workers stream tiles; plays, steps, scrubs", _PLAYER, "tiles-in-motion"),
        Picture("words", "one word of a real sentence and where it looks", _WORD, "attention"),
        Picture("map", "all weights of that sentence", _WORD, "attention"),
        Picture(
            "softmax", "four scores and their weights",
            {f"s{k}": Setting(Range(-6.0, 6.0, 0.5), s, f"score {k}") for k, s in enumerate((2.0, 1.0, 0.0, -1.0), 1)},
            "attention",
        ),
        Picture(
            "heads", "which number of [B, H, N, d] lies where",
            {
                "b": Setting(Range(0, 1), 0, "batch b"), "h": Setting(Range(0, 2), 0, "head h"),
                "n": Setting(Range(0, 3), 0, "token n"), "k": Setting(Range(0, 3), 0, "element k"),
            },
            "attention",
        ),
        Picture(
            "memory", "bytes held against N, and where cards are full",
            _problem(8192, 64, 16, "fp16") | {"gpu": _GPU}, "memory-wall",
        ),
        Picture("levels", "sizes and speeds of a GPU's memories", {"gpu": _GPU}, "memory-wall"),
        Picture("naive", "what naive attention's three kernels move", _problem(8192, 64, 16, "fp16"), "memory-wall"),
        Picture(
            "row", "one row of scores that arrives in tiles; m, l and alpha",
            {
                "scores": Setting(Text(200, ROW_PATTERN, "up to 32 numbers with commas"), "2, 1, 0, -1, 3, 2.5, 4, 0.5",
                                  "Scores"),
                "Bc": _numbers((1, 2, 4, 8, 16, 32), 2, "Bc, keys in a tile"),
                "tile": Setting(Range(1, 32), 1, "Tile that arrives"),
            },
            "online-softmax",
        ),
        Picture(
            "worked", "the 4 x 4 example, one step of one worker",
            {"at": Setting(Range(1, 15), 1, "Step of the worker"), "worker": Setting(Range(1, 2), 1, "Worker")},
            "worked-example",
        ),
        Picture(
            "traffic", "requested bytes against N, by loop order",
            _problem(4096, 64, 16, "fp32") | {
                "Br": _numbers((16, 32, 64, 128, 256), 32, "Q tile rows Br"),
                "Bc": _numbers((16, 32, 64, 128, 256), 32, "K/V tile rows Bc"),
                "causal": _CAUSAL,
            },
            "hbm-traffic",
        ),
        Picture(
            "timeline", "which SM does what when: blocks, phases, waves, the tail",
            {
                "N": _numbers(powers_of_two(128, 4096), 1024, "Sequence length N"),
                "d": _numbers((16, 32, 64, 128, 256), 64, "Head dimension d"),
                "H": Setting(Range(1, 64), 16, "Heads H"),
                "B": _numbers(powers_of_two(1, 16), 1, "Batch B"),
                "dtype": _choice("fp32", "Data type", {name: name for name in ("fp32", "fp16", "bf16")}),
                "Br": _numbers((16, 32, 64, 128), 32, "Q tile rows Br"),
                "Bc": _numbers((16, 32, 64, 128), 32, "K/V tile rows Bc"),
                "order": _choice("q-outer", "Loop order", {name: name for name in ("q-outer", "kv-outer")}),
                "causal": _CAUSAL,
                "gpu": _GPU,
            },
            "timeline",
        ),
        Picture(
            "source", "a kernel's source, one phase marked",
            {
                "kernel": _choice("02", "Kernel", {number: k.file for number, k in KERNELS.items()}),
                "part": Setting(Range(1, 20), 1, "Phase of the source"),
            },
            "inside-the-kernel",
        ),
        Picture(
            "times", "recorded times of our kernels and of libraries",
            {
                "N": _numbers(_KERNEL_LENGTHS, 4096, "Sequence length N"),
                "d": _numbers((64, 128), 64, "Head dimension d"),
                "causal": _choice("none", "Causal mask", {"none": "off", "br": "bottom-right"}),
            },
            "kernel-lab",
        ),
        Picture(
            "ladder", "recorded speed of all kernels, one idea a rung, beside libraries",
            {
                "N": _numbers(LADDER_LENGTHS, 4096, "Sequence length N"),
                "d": _numbers(LADDER_DIMS, 64, "Head dimension d"),
                "causal": _choice("none", "Causal mask", {"none": "off", "br": "bottom-right"}),
            },
            "the-ladder",
        ),
    )
}  # fmt: skip
SETTING_NAMES: tuple[str, ...] = tuple(dict.fromkeys(name for p in PICTURES.values() for name in p.settings))

__all__ = ["OWN_GPU", "PICTURES", "SETTING_NAMES", "Picture", "Setting", "Settings"]
