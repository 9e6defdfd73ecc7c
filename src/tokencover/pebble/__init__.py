"""Pebble: small vision-language models of our own, their pictures, clips and questions.

Importing this package imports nothing heavy; `load_pebble` and `load_pebble_clips` load the models.
The rest has rooms of its own: `tokencover.pebble.data` (scenes, clips, questions), `.model` (what
the models are made of) and `.training`.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

PICTURE_CHECKPOINT: Final = Path(__file__).parent / "checkpoints" / "pictures"
CLIP_CHECKPOINT: Final = Path(__file__).parent / "checkpoints" / "clips"
"""Folders of the models that come with tokencover."""


def load_pebble(folder: str | os.PathLike[str] | None = None) -> tuple[Any, Any]:
    """Load model and processor, ready to answer; see `tokencover.pebble.model`.

    Parameters
    ----------
    folder
        A checkpoint folder; by default the one shipped with tokencover.
    """
    from tokencover.pebble.model import load_picture_checkpoint

    return load_picture_checkpoint(PICTURE_CHECKPOINT if folder is None else folder)


def load_pebble_clips(folder: str | os.PathLike[str] | None = None) -> tuple[Any, Any]:
    """Load the model for clips and its processor; see `tokencover.pebble.model`.

    Parameters
    ----------
    folder
        A checkpoint folder; by default the one shipped with tokencover.
    """
    from tokencover.pebble.model import load_clip_checkpoint

    return load_clip_checkpoint(CLIP_CHECKPOINT if folder is None else folder)


__all__ = ["CLIP_CHECKPOINT", "PICTURE_CHECKPOINT", "load_pebble", "load_pebble_clips"]
