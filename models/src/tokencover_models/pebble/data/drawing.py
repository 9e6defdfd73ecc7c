"""Paints scenes and clips: textured ground, shaded objects with soft shadows, small animals."""

from __future__ import annotations

from functools import cache
from typing import Final

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFilter

from tokencover_models.pebble.data.clip import COUNTER, FRAME_COUNT, FRAME_GRID, Clip
from tokencover_models.pebble.data.ground import Ground
from tokencover_models.pebble.data.scene import GRID, PATCH, Animal, Scene, Thing
from tokencover_models.pebble.data.sprites import (
    ANIMAL_SPRITES,
    DECORATION_SPRITES,
    DIGIT_SPRITES,
    SPRITE_INK,
    stamp,
)
from tokencover_models.pebble.vocabulary import COLOR_WORDS, STUFF

Pixels = NDArray[np.float32]

PICTURE_SIZE: Final = GRID * PATCH
FRAME_SIZE: Final = FRAME_GRID * PATCH
FLICKER: Final = 3
TILE: Final = 32
OVERSAMPLING: Final = 8
THING_RADIUS: Final = 10.5

PAINT: Final = {
    "red": (214, 40, 48),
    "orange": (246, 134, 24),
    "yellow": (252, 222, 48),
    "green": (34, 150, 66),
    "blue": (42, 92, 222),
    "purple": (128, 48, 176),
    "pink": (250, 140, 196),
    "white": (244, 244, 248),
}

GROUND_PAINT: Final = {
    "grass": (122, 184, 92),
    "soil": (166, 128, 86),
    "sand": (232, 208, 150),
    "water": (96, 176, 208),
    "sky": (40, 46, 92),
    "cloud": (92, 92, 136),
    "frost": (226, 234, 244),
    "ice": (176, 210, 232),
    "rock": (176, 132, 104),
}


def draw_scene(scene: Scene) -> Image.Image:
    """Paint a scene.

    Parameters
    ----------
    scene
        What to paint.

    Returns
    -------
    PIL.Image.Image
        RGB, 192 x 192.
    """
    canvas = _paint_ground(scene.ground, scene.seed)
    for thing in scene.things:
        _paint_thing(canvas, thing)
    for animal in scene.animals:
        _paint_animal(canvas, animal)
    return _make_picture(canvas)


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
    ground = _paint_ground(clip.ground, clip.seed)
    rng = np.random.default_rng([clip.seed, 0xF11C])
    frames = []
    for frame in range(FRAME_COUNT):
        flicker = rng.standard_normal((FRAME_SIZE, FRAME_SIZE, 1), dtype=np.float32) * FLICKER
        canvas = ground + flicker
        for thing in clip.things_in(frame):
            _paint_thing(canvas, thing)
        for animal in clip.animals_in(frame):
            _paint_animal(canvas, animal)
        _paint_counter(canvas, frame)
        frames.append(_make_picture(canvas))
    return frames


def _paint_counter(canvas: Pixels, frame: int) -> None:
    row, column = (PATCH * index for index in COUNTER)
    canvas[row : row + PATCH, column : column + PATCH] = SPRITE_INK
    stamp(canvas, DIGIT_SPRITES[str(frame + 1)], (255, 255, 255), row + 1, column + 2)


def _make_picture(canvas: Pixels) -> Image.Image:
    return Image.fromarray(np.clip(canvas, 0, 255).astype(np.uint8))


def _paint_animal(canvas: Pixels, animal: Animal) -> None:
    """Paint an animal into its patch."""
    top, left = animal.row * PATCH, animal.column * PATCH
    stamp(canvas, ANIMAL_SPRITES[animal.kind], PAINT[animal.color], top, left)


def _paint_ground(ground: Ground, seed: int) -> Pixels:
    """A canvas with nothing but ground, shape (height, width, 3), values around 0 to 255."""
    size = len(ground.area) * PATCH
    colors = np.zeros((len(STUFF), 3), dtype=np.float32)
    for kind, color in GROUND_PAINT.items():
        colors[STUFF.index(kind)] = color
    patches = colors[ground.area] * (1 + 0.2 * ground.light[..., None])
    small = Image.fromarray(np.clip(patches, 0, 255).astype(np.uint8))
    canvas = np.asarray(small.resize((size, size), Image.Resampling.BICUBIC)).astype(np.float32)
    rng = np.random.default_rng([seed, 0x6A1])
    grain = rng.standard_normal((size, size, 1), dtype=np.float32) * 5
    streaks = rng.standard_normal((size // 2, size // 8), dtype=np.float32) * 5
    canvas += grain + streaks.repeat(2, axis=0).repeat(8, axis=1)[..., None]
    for row, column in np.argwhere(ground.stuff != ground.area):
        kind = STUFF[ground.stuff[row, column]]
        stamp(
            canvas,
            DECORATION_SPRITES[kind],
            PAINT[COLOR_WORDS[ground.color[row, column]]],
            int(row) * PATCH,
            int(column) * PATCH,
        )
    return canvas


def _paint_thing(canvas: Pixels, thing: Thing) -> None:
    """Paint an object around its patch, with shadow and number."""
    down, right = thing.jitter
    top = thing.row * PATCH + PATCH // 2 - TILE // 2 + down
    left = thing.column * PATCH + PATCH // 2 - TILE // 2 + right
    tile, alpha = _paint_tile(thing.shape, thing.color)
    # A tile is wider than what it shows, so near the border part of it lies outside the canvas.
    y0, x0 = max(0, -top), max(0, -left)
    y1, x1 = min(TILE, len(canvas) - top), min(TILE, len(canvas) - left)
    view = canvas[top + y0 : top + y1, left + x0 : left + x1]
    cover = alpha[y0:y1, x0:x1]
    view *= 1 - cover
    view += tile[y0:y1, x0:x1] * cover
    dark = thing.color in {"red", "green", "blue", "purple"}
    stamp(
        canvas,
        DIGIT_SPRITES[thing.digit],
        (255, 255, 255) if dark else SPRITE_INK,
        thing.row * PATCH + 1 + down,
        thing.column * PATCH + 2 + right,
    )


@cache
def _paint_tile(shape: str, color: str) -> tuple[Pixels, Pixels]:
    """Colour and opacity of one shaded object with outline and shadow, (32, 32, 3), (32, 32, 1)."""
    body = _measure_coverage(shape, THING_RADIUS - 1.1)
    outline = _measure_coverage(shape, THING_RADIUS)
    shadow = Image.fromarray((outline * 255).astype(np.uint8))
    blurred = np.asarray(shadow.filter(ImageFilter.GaussianBlur(1.2)), dtype=np.float32) / 255
    dim = np.roll(blurred, (1, 1), axis=(0, 1)) * 0.35
    paint = np.array(PAINT[color], dtype=np.float32)
    y, x = np.mgrid[0:TILE, 0:TILE].astype(np.float32) - TILE / 2 + 0.5
    gloss = np.exp(-((x + 4) ** 2 + (y + 5) ** 2) / 30)[..., None]
    shade = (1 - 0.014 * np.clip(x + y, 0, None))[..., None]
    lit = paint * shade + (255 - paint * shade) * gloss * 0.4
    edge = paint * 0.32
    inside = body[..., None]
    rgb = lit * inside + edge * (1 - inside)
    solid = outline[..., None]
    alpha = solid + dim[..., None] * (1 - solid)
    mixed = np.where(alpha > 0, rgb * solid / np.maximum(alpha, 1e-6), 0)
    return mixed.astype(np.float32), alpha.astype(np.float32)


def _measure_coverage(shape: str, radius: float) -> Pixels:
    """Share of every pixel that a shape covers, shape (32, 32)."""
    side = TILE * OVERSAMPLING
    mask = Image.new("L", (side, side), 0)
    pen = ImageDraw.Draw(mask)
    unit, middle = radius * OVERSAMPLING, side / 2
    for circle_x, circle_y, size in _list_discs(shape):
        x, y = middle + circle_x * unit, middle + circle_y * unit
        pen.ellipse((x - size * unit, y - size * unit, x + size * unit, y + size * unit), fill=255)
    for outline in _list_polygons(shape):
        pen.polygon([(middle + x * unit, middle + y * unit) for x, y in outline], fill=255)
    small = mask.resize((TILE, TILE), Image.Resampling.BOX)
    return np.asarray(small, dtype=np.float32) / np.float32(255)


def _list_discs(shape: str) -> list[tuple[float, float, float]]:
    if shape == "circle":
        return [(0.0, 0.0, 1.0)]
    if shape == "heart":
        return [(-0.5, -0.38, 0.55), (0.5, -0.38, 0.55)]
    if shape == "flower":
        turns = np.arange(5) * 2 * np.pi / 5
        petals = [(0.6 * float(np.sin(t)), -0.6 * float(np.cos(t)), 0.42) for t in turns]
        return [*petals, (0.0, 0.0, 0.5)]
    return []


_POLYGONS: Final[dict[str, list[list[tuple[float, float]]]]] = {
    "square": [[(-0.86, -0.86), (0.86, -0.86), (0.86, 0.86), (-0.86, 0.86)]],
    "triangle": [[(0.0, -1.1), (1.08, 0.86), (-1.08, 0.86)]],
    "diamond": [[(0.0, -1.12), (0.86, 0.0), (0.0, 1.12), (-0.86, 0.0)]],
    "cross": [
        [(-0.45, -1.0), (0.45, -1.0), (0.45, 1.0), (-0.45, 1.0)],
        [(-1.0, -0.45), (1.0, -0.45), (1.0, 0.45), (-1.0, 0.45)],
    ],
    "heart": [
        [(-1.02, -0.2), (-0.5, -0.6), (0.0, -0.38), (0.5, -0.6), (1.02, -0.2), (0.0, 1.05)],
    ],
}


def _list_polygons(shape: str) -> list[list[tuple[float, float]]]:
    if shape != "star":
        return _POLYGONS.get(shape, [])
    turns = np.arange(10) * np.pi / 5
    sizes = np.where(np.arange(10) % 2 == 0, 1.15, 0.56)
    tips = zip(turns, sizes, strict=True)
    return [[(float(size * np.sin(turn)), float(-size * np.cos(turn))) for turn, size in tips]]
