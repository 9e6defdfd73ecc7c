"""How the models that are shipped are trained, one call each."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Final

from research.pebble_training.clip_starting_weights import load_lookup_model
from research.pebble_training.learners import ClipLearner, LookupLearner
from research.pebble_training.loop import PebbleTrainingSettings, refuse_overwriting, train
from research.pebble_training.schedules import CLIP_SCHEDULE, LOOKUP_SCHEDULE
from tokencover.errors import InputError

START_FOLDER: Final = "start"


def run_training(
    out: str | os.PathLike[str],
    *,
    clips: bool = False,
    seed: int = 0,
    workers: int = 2,
    resume: bool = False,
    start: str | os.PathLike[str] | None = None,
) -> None:
    """Train one of the models as those that are shipped are trained.

    Parameters
    ----------
    out
        Folder for the state, the log and the finished model.
    videos
        Train the model for videos instead of the one for images.
    seed
        Of starting weights, scenes and noise.
    workers
        Processes; each uses one thread.
    resume
        Resume from the state in `out`.
    start
        Checkpoint of the look-up model that a model for videos starts from; by default one is
        trained first, in a folder below `out`.
    """
    settings = PebbleTrainingSettings(Path(out), seed, workers)
    if clips:
        _train_for_clips(settings, resume, start)
    elif start is not None:
        raise InputError(
            f"the model for images starts from random weights, so --start {start} is of no use; "
            "it goes with `--clips`"
        )
    else:
        train(settings, resume=resume)


def _train_for_clips(
    settings: PebbleTrainingSettings, resume: bool, start: str | os.PathLike[str] | None
) -> None:
    """Train a look-up model where none is given, then the model for videos."""
    if not resume:  # before an hour is spent on the look-up model
        refuse_overwriting(settings)
    if start is None:
        start = _train_start(settings, resume)
    load_lookup_model(start)  # refused here, and not in each of the processes
    learner = ClipLearner(Path(start))
    train(replace(settings, schedule=CLIP_SCHEDULE, learner=learner), resume=resume)


def _train_start(settings: PebbleTrainingSettings, resume: bool) -> Path:
    """Train the look-up model of a run for videos; return its checkpoint."""
    out = settings.out / START_FOLDER
    if settings.state.exists() and not out.exists():
        raise InputError(f"the run in {settings.out} began from a --start; pass it again")
    print(f"training the look-up model that videos start from, in {out}", flush=True)
    train(replace(settings, out=out, schedule=LOOKUP_SCHEDULE, learner=LookupLearner()), resume)
    return out / "checkpoint"
