"""Small pixel drawings: numbers, animals and the decorations of the ground.

``#`` takes the sprite's colour, ``+`` a lighter and ``-`` a darker one, ``o`` is ink, ``w`` white
and ``.`` leaves what is underneath; ``/`` ends a row.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

DIGIT_SPRITES: Final = {
    "0": ".##./#..#/#..#/#..#/#..#/.##.",
    "1": ".##./#.#./..#./..#./..#./####",
    "2": "###./...#/..##/.#../#.../####",
    "3": "####/...#/.##./...#/...#/###.",
    "4": "#..#/#..#/#..#/####/...#/...#",
    "5": "####/#.../###./...#/...#/###.",
    "6": ".###/#.../###./#..#/#..#/.##.",
    "7": "####/...#/...#/..#./.#../.#..",
    "8": ".##./#..#/.##./#..#/#..#/.##.",
    "9": ".##./#..#/#..#/.###/...#/###.",
}

ANIMAL_SPRITES: Final = {
    "cat": "o.....o./#o...o#./#######./#o###o#./###o###./.#www#../.#####.o/.#o.#ooo",
    "fish": "......../..ooo..o/.#####o#/#o######/########/.#####o#/..ooo..o/........",
    "bird": "...ooo../..####o./..#o##oo/oo#####./o######./.#++###./..####../...o.o..",
    "snail": "...ooo../..o###o./.o#oo##o/.o#o.#oo/o.o##o#o/#o.oo##./########/oooooooo",
    "crab": "o......o/#o....o#/#..oo..#/.######./##o##o##/.######./#.####.#/o.o..o.o",
    "bee": "..w..w../.www.ww./..wwww../o#o#o#oo/#o#o#o#o/o#o#o#oo/..oooo../........",
    "frog": ".oo..oo./o#o..o#o/########/#oooooo#/########/.#wwww#./##.##.##/oo....oo",
    "mouse": "##....##/##o..o##/.######./.#o##o#./..####../...oo.../..w##w../.....ooo",
    "duck": "..ooo.../.o###o../oo#o#o../oo###o../..o##ooo/.o#####o/.o####o./..oooo..",
    "turtle": "......../..oooo../.o-##-o./o-#-#-oo/o#-#-#o#/ooooooo#/.##..##./.oo..oo.",
}

DECORATION_SPRITES: Final = {
    "leaf": "......../....##../..####../.##-##../.#-##.../.-##..../-......./........",
    "bloom": "......../..#.#.../.#####../..#w#.../.#####../..#-#.../...-..../..--....",
    "shell": "......../..+#+.../.#-#-#../.#-#-#../.+-#-+../..###.../...#..../........",
    "sparkle": "...#..../...#..../..+#+.../###w###./..+#+.../...#..../...#..../........",
    "flake": "...#..../.#.#.#../..###.../#######./..###.../.#.#.#../...#..../........",
    "cactus": "...##.../.#.##.../.#.##.#./.####.#./...####./...##.../...##.../..----..",
    "lily": "......../..####../.####+#./#####.../####..../.####+#./..####../........",
    "bubble": "......../..###.../.#...#../.#.#.#../.#...#../..###.../......#./........",
    "pebble": "......../......../...##.../..#++#../.#+###../.####-../..---.../........",
    "twig": "......#./.#...#../..#.#.../...#.#../..#...#./.#....../#......./........",
}

SPRITE_INK: Final = (34, 28, 44)


def stamp(
    canvas: NDArray[np.float32],
    sprite: str,
    color: tuple[int, int, int],
    top: int,
    left: int,
) -> None:
    """Draw a sprite onto a canvas, in place.

    Parameters
    ----------
    canvas
        Picture, shape (height, width, 3), values 0 to 255.
    sprite
        Its rows of letters.
    color
        What ``#`` stands for.
    top, left
        Pixel of the canvas where the sprite's corner goes.
    """
    base = np.array(color, dtype=np.float32)
    inks = {
        "#": base,
        "+": base + (255 - base) * 0.45,
        "-": base * 0.62,
        "o": np.array(SPRITE_INK, dtype=np.float32),
        "w": np.full(3, 250, dtype=np.float32),
    }
    for down, row in enumerate(sprite.split("/")):
        for right, letter in enumerate(row):
            if letter != ".":
                canvas[top + down, left + right] = inks[letter]
