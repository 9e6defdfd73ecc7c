"""Tell where patches lie in words that mean it, by changing the projector's last layer.

Of its own words for places ("row2", "column4") the base model has only the parts, and the numbers
of rows and columns are the same words: what is at row 2, column 4 is described as what is at row 4,
column 2. Here a patch's description gets "top" and "left" and what lies between on top, by least
squares from what the projector's hidden layer knows, which is rows and columns alike.
"""

from __future__ import annotations

from typing import Any, Final

import torch
from torch import Tensor

from research.boulder_training.assembly import Boulder, see
from research.boulder_training.stages import RUN
from tokencover_models.pebble.data import (
    GRID,
    PICTURE_TOKENS,
    draw_scene,
    get_training_seed,
    make_scene,
)
from tokencover_models.pebble.model import normalise_pictures

ROWS: Final = ("top", "top upper", "upper", "lower", "lower bottom", "bottom")
COLUMNS: Final = ("left", "left west", "west", "east", "east right", "right")
"""Words for every sixth of the image."""
PICTURES: Final = 24
RIDGE: Final = 1e-2


def list_place_vectors(boulder: Boulder) -> Tensor:
    """What is added to the description of each patch, shape (576, width)."""
    sixth = torch.arange(GRID) * len(ROWS) // GRID
    lines = []
    for names in (ROWS, COLUMNS):
        vectors = boulder.average_words(names)
        lines.append((vectors - vectors.mean(0))[sixth])
    rows, columns = lines
    return (rows[:, None] + columns[None]).reshape(PICTURE_TOKENS, -1)


def teach_places(boulder: Boulder) -> None:
    """Change the projector's last layer once; everything else stays as it is."""
    projector: Any = boulder.llava.model.multi_modal_projector
    scenes = [make_scene(get_training_seed(RUN, 0, index)) for index in range(PICTURES)]
    with torch.no_grad():
        features = see(boulder.llava, normalise_pictures([draw_scene(scene) for scene in scenes]))
        known = projector.act(projector.linear_1(features)).flatten(0, 1).double()
        known = torch.cat([known, torch.ones(len(known), 1, dtype=torch.float64)], dim=1)
        wanted = list_place_vectors(boulder).double().repeat(PICTURES, 1)
        gram = known.T @ known + RIDGE * torch.eye(known.shape[1], dtype=torch.float64)
        change = torch.linalg.solve(gram, known.T @ wanted).float()
        projector.linear_2.weight += change[:-1].T
        projector.linear_2.bias += change[-1]
