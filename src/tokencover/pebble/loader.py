"""Loads a Pebble checkpoint: the one shipped in the package, or one you trained."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

from safetensors import SafetensorError
from transformers import LlavaForConditionalGeneration, LlavaProcessor

from tokencover.errors import TokenCoverError

SHIPPED: Final = Path(__file__).parent / "checkpoint"
NEEDED: Final = ("config.json", "model.safetensors", "processor_config.json", "tokenizer.json")
TRAIN: Final = "python -m tokencover.pebble.train --out DIR"


class CheckpointError(TokenCoverError):
    """A folder does not hold a whole Pebble checkpoint."""


def load_pebble(
    folder: str | os.PathLike[str] | None = None,
) -> tuple[LlavaForConditionalGeneration, LlavaProcessor]:
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
        Makes its inputs from pictures and text.
    """
    path = SHIPPED if folder is None else Path(folder)
    classes = (LlavaForConditionalGeneration, LlavaProcessor)
    model, processor = load_checkpoint(path, classes, NEEDED, TRAIN)
    return model, processor


def load_checkpoint(
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
        model, info = model_class.from_pretrained(
            path, output_loading_info=True, local_files_only=True
        )
        processor = processor_class.from_pretrained(path, local_files_only=True)
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
        raise CheckpointError(
            f"{path} cannot be read ({error}); the files are damaged or from another model, "
            "reinstall tokencover or train again"
        ) from error
    wrong = [*info["missing_keys"], *info["mismatched_keys"]]
    if wrong:
        raise CheckpointError(
            f"{path} has no usable weights for {wrong[0]} and {len(wrong) - 1} more; "
            "reinstall tokencover or train again"
        )
    return model.eval(), processor
