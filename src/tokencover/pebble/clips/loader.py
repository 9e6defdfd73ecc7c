"""Loads the model for clips: the one shipped in the package, or one you trained."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from transformers import PreTrainedTokenizerFast, VideoLlavaForConditionalGeneration

from tokencover.pebble.clips.processor import ClipProcessor
from tokencover.pebble.loader import TRAIN, load_checkpoint

SHIPPED: Final = Path(__file__).parent / "checkpoint"
NEEDED: Final = ("config.json", "model.safetensors", "tokenizer.json")


def load_pebble_clips(
    folder: str | os.PathLike[str] | None = None,
) -> tuple[VideoLlavaForConditionalGeneration, ClipProcessor]:
    """Load model and processor, ready to answer.

    Parameters
    ----------
    folder
        A checkpoint folder; by default the one shipped with tokencover.

    Returns
    -------
    model
        In float32 on the CPU, in evaluation mode.
    processor
        Makes its inputs from clips of eight frames and text.
    """
    path = SHIPPED if folder is None else Path(folder)
    classes = (VideoLlavaForConditionalGeneration, PreTrainedTokenizerFast)
    model, tokenizer = load_checkpoint(path, classes, NEEDED, f"{TRAIN} --clips")
    return model, ClipProcessor(tokenizer)
