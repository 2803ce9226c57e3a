"""Our GIF, opened by Pillow."""

from __future__ import annotations

import io

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from tests.export.support import node

WRITE = """
import { Gif, palette } from "./fmha/player/frontend/gif.mjs";
const frames = input.frames.map((f) => Uint32Array.from(f));
const gif = new Gif(input.width, input.height, palette(frames));
for (const frame of frames) gif.add(frame, 7);
fs.writeSync(1, gif.bytes());
"""


def through_gif(frames: NDArray[np.uint8]) -> list[NDArray[np.uint8]]:
    """Frames [F, height, width, RGB] written by our encoder and read by Pillow."""
    count, height, width, _ = frames.shape
    packed = frames.astype(np.uint32) @ np.array([1, 1 << 8, 1 << 16], np.uint32) | np.uint32(0xFF000000)
    data = node(WRITE, {"width": width, "height": height, "frames": packed.reshape(count, -1).tolist()})
    with Image.open(io.BytesIO(data)) as image:
        assert image.format == "GIF" and image.size == (width, height) and getattr(image, "n_frames", 1) == count
        assert image.info["loop"] == 0
        out = []
        for k in range(count):
            image.seek(k)
            assert image.info["duration"] == 70
            out.append(np.asarray(image.convert("RGB")))
    return out


@pytest.mark.parametrize("colours", [2, 17, 255])
@pytest.mark.parametrize("seed", [0, 1])
def test_frames_of_up_to_255_colours_come_back_exactly(colours: int, seed: int) -> None:
    """Noise fills LZW's table again and again; still rows and a small change exercise long words and rectangles."""
    rng = np.random.default_rng(seed)
    table = rng.choice(np.arange(1, 1 << 24, 65537), colours, replace=False)
    table = np.stack([table & 255, (table >> 8) & 255, table >> 16], 1).astype(np.uint8)
    noise = table[rng.integers(0, colours, (90, 110))]
    still, moved = noise.copy(), noise.copy()
    still[40:] = table[0]
    moved[10:20, 30:50] = table[1]
    frames = np.stack([noise, noise, still, moved, noise[::-1]])
    for got, wanted in zip(through_gif(frames), frames, strict=True):
        np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("shape", [(1, 1), (1, 300), (257, 1), (2, 2)])
def test_every_size_can_be_written(shape: tuple[int, int]) -> None:
    frames = np.zeros((2, *shape, 3), np.uint8)
    frames[1, -1, -1] = 255
    for got, wanted in zip(through_gif(frames), frames, strict=True):
        np.testing.assert_array_equal(got, wanted)


def test_more_colours_become_near_ones() -> None:
    ramp = np.arange(128 * 128, dtype=np.uint32).reshape(128, 128)
    frame = np.stack([ramp % 128 * 2, ramp // 128 * 2, np.full_like(ramp, 90)], -1).astype(np.uint8)[None]
    off = np.abs(through_gif(frame)[0].astype(int) - frame[0])
    assert off.max() < 60 and off.mean() < 12
