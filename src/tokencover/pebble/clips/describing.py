"""Describes every token of a clip in words: as in a picture, and with the frame it belongs to."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from tokencover.pebble.clips.clip import COUNTER, FRAME_COUNT, GRID, Clip
from tokencover.pebble.describing import GROUPS as PICTURE_GROUPS
from tokencover.pebble.describing import NONE, Group, describe_objects
from tokencover.pebble.scene import CELL_PATCHES, covered
from tokencover.pebble.vocabulary import COLUMNS, FRAMES, PLACES, STUFF

# Three rows and columns of cells are what regions say already. One of their words stays, for all
# tokens: it is how the decoder tells a picture from words.
GROUPS: Final = (
    *(group for group in PICTURE_GROUPS if group.name not in {"row", "column"}),
    Group("frame", FRAMES, 1.0),
    Group("seen", COLUMNS[-1:], 1.0),
)
GROUP_INDEX: Final = {group.name: index for index, group in enumerate(GROUPS)}
FRAME_TOKENS: Final = 1 + GRID * GRID
VISUAL_TOKENS: Final = FRAME_COUNT * FRAME_TOKENS


def describe_clip(clip: Clip) -> NDArray[np.int64]:
    """Labels of every visual token.

    Parameters
    ----------
    clip
        What is shown.

    Returns
    -------
    array of shape (1160, len(GROUPS))
        Frame after frame, each with its class token first, which tells the frame and the place:
        index of the token's word within each group, or -1 where it has none.
    """
    return np.concatenate([_describe_frame(clip, frame) for frame in range(FRAME_COUNT)])


def _describe_frame(clip: Clip, frame: int) -> NDArray[np.int64]:
    index = GROUP_INDEX
    place = PLACES.index(clip.place)
    labels = np.full((GRID, GRID, len(GROUPS)), NONE, dtype=np.int64)
    labels[..., index["stuff"]] = clip.ground.stuff
    labels[..., index["color"]] = clip.ground.color
    hidden = covered(clip.things_in(frame), GRID)
    hidden[COUNTER] = True
    labels[hidden, index["stuff"]] = STUFF.index("rim")
    labels[hidden, index["color"]] = NONE
    labels[..., index["tint"]] = clip.ground.tint
    labels[..., index["place"]] = place
    third = np.arange(GRID) // CELL_PATCHES
    labels[..., index["region"]] = third[:, None] * 3 + third
    labels[..., index["frame"]] = frame
    labels[..., index["seen"]] = 0
    describe_objects(labels, index, clip.things_in(frame), clip.animals_in(frame))
    summary = np.full((1, len(GROUPS)), NONE, dtype=np.int64)
    summary[0, [index["place"], index["frame"], index["seen"]]] = place, frame, 0
    return np.concatenate([summary, labels.reshape(-1, len(GROUPS))])
