"""The content of a whole image, which the vision encoder's class token learns to predict.

The labels are how often each word ("red", "star", "7", "cat") and each pair of words ("red star",
"star 7", "blue cat") describes an object of the image. Words are learned first; pairs do not follow
from the colors and shapes of an image alone, so they require attention to single objects.
"""

from __future__ import annotations

from itertools import accumulate, pairwise
from math import prod
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tokencover_models.pebble.data.scene import Scene
from tokencover_models.pebble.vocabulary import ANIMALS, COLOR_WORDS, DIGITS, PLACES, SHAPES

WORDS: Final = {
    "things": {"color": COLOR_WORDS, "shape": SHAPES, "digit": DIGITS},
    "animals": {"kind": ANIMALS, "color": COLOR_WORDS},
}
ASKED: Final = (
    *(("things", "color"), ("things", "shape"), ("things", "digit"), ("animals", "kind")),
    *(("things", "color", "shape"), ("things", "shape", "digit"), ("animals", "kind", "color")),
)
"""What each table is about: things or animals, and which of their words."""
TABLE_SIZES: Final = (
    *(prod(len(WORDS[members][name]) for name in names) for members, *names in ASKED),
    len(PLACES),
)
TABLES: Final = tuple(pairwise(accumulate(TABLE_SIZES, initial=0)))
"""Where each table begins and ends among the labels; the last is that of places."""
HOLDINGS: Final = sum(TABLE_SIZES)


def label_holdings(scene: Scene, *, whole: bool = True) -> NDArray[np.float32]:
    """Tell how often each word and each pair of words fits.

    Parameters
    ----------
    scene
        What the image shows.
    whole
        Whether to tell the place too; a few patches need not show it.

    Returns
    -------
    array of shape (HOLDINGS,)
        Table after table; each sums to 1, or to 0 where there is nothing to tell.
    """
    tables = []
    for members, *names in ASKED:
        words, shown = WORDS[members], getattr(scene, members)
        table = np.zeros([len(words[name]) for name in names], dtype=np.float32)
        for member in shown:
            table[tuple(words[name].index(getattr(member, name)) for name in names)] += 1
        tables.append(table.reshape(-1) / max(1, len(shown)))
    tables.append(np.array([whole and place == scene.place for place in PLACES], dtype=np.float32))
    return np.concatenate(tables)
