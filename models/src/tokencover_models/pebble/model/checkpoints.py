"""Load checkpoints: those shipped in the package, or those you trained."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from safetensors import SafetensorError
from transformers import (
    LlavaForConditionalGeneration,
    LlavaProcessor,
    PreTrainedTokenizerFast,
    VideoLlavaForConditionalGeneration,
)
from transformers.utils import logging

from tokencover.errors import TokenCoverError
from tokencover_models.pebble.model.processors import ClipProcessor

PICTURE_FILES: Final = (
    "config.json",
    "model.safetensors",
    "processor_config.json",
    "tokenizer.json",
)
CLIP_FILES: Final = ("config.json", "model.safetensors", "tokenizer.json")
TRAIN_COMMAND: Final = "python -m research.pebble_training --out DIR"


class CheckpointError(TokenCoverError):
    """A folder does not hold a whole Pebble checkpoint."""


def load_picture_checkpoint(
    folder: str | os.PathLike[str],
) -> tuple[LlavaForConditionalGeneration, LlavaProcessor]:
    """Load the model for pictures and its processor, ready to answer.

    Returns
    -------
    model
        In float32 on the CPU, in evaluation mode.
    processor
        Makes its inputs from pictures and text.
    """
    classes = (LlavaForConditionalGeneration, LlavaProcessor)
    model, processor = _load_checkpoint(Path(folder), classes, PICTURE_FILES, TRAIN_COMMAND)
    return model, processor


def load_clip_checkpoint(
    folder: str | os.PathLike[str],
) -> tuple[VideoLlavaForConditionalGeneration, ClipProcessor]:
    """Load the model for clips and its processor, ready to answer.

    Returns
    -------
    model
        In float32 on the CPU, in evaluation mode.
    processor
        Makes its inputs from clips of eight frames and text.
    """
    classes = (VideoLlavaForConditionalGeneration, PreTrainedTokenizerFast)
    command = f"{TRAIN_COMMAND} --clips"
    model, tokenizer = _load_checkpoint(Path(folder), classes, CLIP_FILES, command)
    return model, ClipProcessor(tokenizer)


def load_clip_processor(folder: str | os.PathLike[str]) -> ClipProcessor:
    """Load the processor of a checkpoint for clips alone."""
    return ClipProcessor(PreTrainedTokenizerFast.from_pretrained(folder, local_files_only=True))


def _load_checkpoint(
    path: Path, classes: tuple[Any, Any], needed: tuple[str, ...], train: str
) -> tuple[Any, Any]:
    """Load a whole model, or say what its folder lacks.

    Parameters
    ----------
    path
        The folder.
    classes
        Of the model, and of its processor or tokenizer.
    needed
        Files that must be there.
    train
        Command that makes such a folder, for the error.
    """
    missing = [name for name in needed if not (path / name).is_file()]
    if missing:
        raise CheckpointError(
            f"{path} lacks {', '.join(missing)}; train a checkpoint with "
            f"`{train}` and pass DIR/checkpoint"
        )
    model_class, processor_class = classes
    try:
        with hide_progress():
            model, info = model_class.from_pretrained(
                path, output_loading_info=True, local_files_only=True
            )
        processor = processor_class.from_pretrained(path, local_files_only=True)
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
        raise CheckpointError(
            f"{path} cannot be read ({error}); the files are damaged or from another model, "
            "reinstall tokencover-models or train again"
        ) from error
    wrong = [*info["missing_keys"], *info["mismatched_keys"]]
    if wrong:
        raise CheckpointError(
            f"{path} has no usable weights for {wrong[0]} and {len(wrong) - 1} more; "
            "reinstall tokencover-models or train again"
        )
    return model.eval(), processor


@contextmanager
def hide_progress() -> Iterator[None]:
    """Load without transformers' bar: small models are there before it could be read."""
    was_shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if was_shown:
            logging.enable_progress_bar()
