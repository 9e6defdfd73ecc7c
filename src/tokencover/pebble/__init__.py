"""Pebble: small vision-language models of our own, their pictures, clips and questions.

Importing this package imports nothing heavy; `load_pebble` and `load_pebble_clips` load the models,
`tokencover.pebble.benchmark.examples` and `tokencover.pebble.clips.benchmark.clip_examples` go
through the questions.
"""

from __future__ import annotations

import os
from typing import Any


def load_pebble(folder: str | os.PathLike[str] | None = None) -> tuple[Any, Any]:
    """Load model and processor, ready to answer; see `tokencover.pebble.loader`.

    Parameters
    ----------
    folder
        A checkpoint folder; by default the one shipped with tokencover.
    """
    from tokencover.pebble import loader

    return loader.load_pebble(folder)


def load_pebble_clips(folder: str | os.PathLike[str] | None = None) -> tuple[Any, Any]:
    """Load the model for clips and its processor; see `tokencover.pebble.clips.loader`.

    Parameters
    ----------
    folder
        A checkpoint folder; by default the one shipped with tokencover.
    """
    from tokencover.pebble.clips import loader

    return loader.load_pebble_clips(folder)


__all__ = ["load_pebble", "load_pebble_clips"]
