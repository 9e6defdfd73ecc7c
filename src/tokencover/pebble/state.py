"""What a training run leaves on disk: its state, so that it can go on, and the finished model."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import LlavaForConditionalGeneration

from tokencover.errors import InputError
from tokencover.pebble.model import make_processor


@dataclass
class Position:
    """The next step of a run: of which stage, which step in it, and how many were done in all."""

    stage: int = 0
    step: int = 0
    done: int = 0


def save_state(
    path: Path,
    model: LlavaForConditionalGeneration,
    optimizer: dict[str, Any] | None,
    position: Position,
) -> None:
    """Write the state of a run so that a crash in between leaves the previous one whole."""
    state = {
        "model": model.state_dict(),
        "optimizer": optimizer,
        "progress": [position.stage, position.step, position.done],
    }
    draft = path.with_suffix(".tmp")
    torch.save(state, draft)
    draft.replace(path)


def load_state(
    path: Path, model: LlavaForConditionalGeneration
) -> tuple[Position, dict[str, Any] | None]:
    """Read a run's state into a model; the inverse of `save_state`."""
    try:
        state = torch.load(path, weights_only=True)
        model.load_state_dict(state["model"])
        return Position(*state["progress"]), state["optimizer"]
    except (RuntimeError, KeyError, EOFError, TypeError, pickle.UnpicklingError) as error:
        raise InputError(
            f"{path} is not a readable training state ({error}); delete it to start afresh"
        ) from error


def save_checkpoint(model: LlavaForConditionalGeneration, folder: Path) -> None:
    """Write model and processor as transformers expects them."""
    model.save_pretrained(folder)
    make_processor().save_pretrained(folder)
