"""Pebble: a small vision-language model of our own, its pictures and its questions.

Importing this package imports nothing heavy; `load_pebble` loads the model,
`tokencover.pebble.benchmark.examples` goes through the questions.
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


__all__ = ["load_pebble"]
