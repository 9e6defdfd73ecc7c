"""What a training run leaves on disk so that it can go on."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from tokencover.errors import InputError
from tokencover.files import write_atomically


@dataclass
class Position:
    """The next step of a run: of which stage, which step in it, and how many were done in all.

    `unknown` are the kinds of questions that the model turned out not to know, in stages that teach
    these once more.
    """

    stage: int = 0
    step: int = 0
    done: int = 0
    unknown: tuple[str, ...] = ()


def save_state(
    path: Path,
    model: nn.Module,
    helpers: nn.Module,
    optimizer: dict[str, Any] | None,
    position: Position,
) -> None:
    """Write the state of a run so that a crash in between leaves the previous one whole."""
    state = {
        "model": model.state_dict(),
        "helpers": helpers.state_dict(),
        "optimizer": optimizer,
        "progress": [position.stage, position.step, position.done],
        "unknown": list(position.unknown),
    }
    write_atomically(path, lambda file: torch.save(state, file))


def load_state(
    path: Path, model: nn.Module, helpers: nn.Module
) -> tuple[Position, dict[str, Any] | None]:
    """Read a run's state into a model and its helpers; the inverse of `save_state`."""
    try:
        state = torch.load(path, weights_only=True)
        model.load_state_dict(state["model"])
        helpers.load_state_dict(state["helpers"])
        position = Position(*state["progress"])
        position.unknown = tuple(state.get("unknown", ()))  # none in states of earlier versions
        return position, state["optimizer"]
    except (RuntimeError, KeyError, EOFError, TypeError, pickle.UnpicklingError) as error:
        raise InputError(
            f"{path} is not a readable training state ({error}); delete it to start afresh"
        ) from error
