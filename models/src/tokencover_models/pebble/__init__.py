"""Pebble: small test models for images and videos, with their scenes and questions.

Importing this package loads nothing heavy; `load_pebble` and `load_pebble_clips` load the models.
`tokencover_models.pebble.data` draws scenes and asks questions, `.model` has the architecture.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

PICTURE_CHECKPOINT: Final = Path(__file__).parent / "checkpoints" / "pictures"
CLIP_CHECKPOINT: Final = Path(__file__).parent / "checkpoints" / "clips"
"""Folders of the checkpoints."""
NUM_TEST_SCENES: Final = 400
"""How many scenes the test split has, of images and of videos."""


def load_pebble(folder: str | os.PathLike[str] | None = None) -> tuple[Any, Any]:
    """Load model and processor, ready to answer; see `tokencover_models.pebble.model`.

    Parameters
    ----------
    folder
        A checkpoint folder; by default the one in this package.
    """
    from tokencover_models.pebble.model import load_picture_checkpoint

    return load_picture_checkpoint(PICTURE_CHECKPOINT if folder is None else folder)


def load_pebble_clips(folder: str | os.PathLike[str] | None = None) -> tuple[Any, Any]:
    """Load the model for clips and its processor; see `tokencover_models.pebble.model`.

    Parameters
    ----------
    folder
        A checkpoint folder; by default the one in this package.
    """
    from tokencover_models.pebble.model import load_clip_checkpoint

    return load_clip_checkpoint(CLIP_CHECKPOINT if folder is None else folder)


__all__ = [
    "CLIP_CHECKPOINT",
    "NUM_TEST_SCENES",
    "PICTURE_CHECKPOINT",
    "load_pebble",
    "load_pebble_clips",
]
