"""Paints the frames of a clip, with the tools that paint a picture."""

from __future__ import annotations

from typing import Final

import numpy as np
from PIL import Image

from tokencover.pebble.clips.clip import COUNTER, FRAME_COUNT, GRID, Clip
from tokencover.pebble.drawing import Pixels, finished, paint_animal, paint_ground, paint_thing
from tokencover.pebble.scene import PATCH
from tokencover.pebble.sprites import DIGIT_SPRITES, INK, stamp

SIZE: Final = GRID * PATCH
FLICKER: Final = 3


def draw_clip(clip: Clip) -> list[Image.Image]:
    """Paint a clip.

    Parameters
    ----------
    clip
        What to paint.

    Returns
    -------
    list of PIL.Image.Image
        Eight frames, RGB, 96 x 96.
    """
    ground = paint_ground(clip.ground, clip.seed)
    rng = np.random.default_rng([clip.seed, 0xF11C])
    frames = []
    for frame in range(FRAME_COUNT):
        flicker = rng.standard_normal((SIZE, SIZE, 1), dtype=np.float32) * FLICKER
        canvas = ground + flicker
        for thing in clip.things_in(frame):
            paint_thing(canvas, thing)
        for animal in clip.animals_in(frame):
            paint_animal(canvas, animal)
        _paint_counter(canvas, frame)
        frames.append(finished(canvas))
    return frames


def _paint_counter(canvas: Pixels, frame: int) -> None:
    row, column = (PATCH * index for index in COUNTER)
    canvas[row : row + PATCH, column : column + PATCH] = INK
    stamp(canvas, DIGIT_SPRITES[str(frame + 1)], (255, 255, 255), row + 1, column + 2)
