"""What a model does not know at the end of its schedule, and is taught once more.

Some kinds of questions are learned all at once or not at all: of some seeds one never finds how to
tell whether there is a red star, and answers by chance to the end. Asked that alone, about six
patches, it finds it in a hundred steps, and keeps it when it is shown whole images again.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import torch
from torch import nn

from research.pebble_training.learners import Learner
from research.pebble_training.lessons import Lesson
from research.pebble_training.run_log import Tally
from research.pebble_training.schedules import Schedule
from tokencover_models.pebble.data import PICTURE_TOKENS, list_seeds

KNOWN: Final = 0.75
"""Share of correct answers; by chance a question with two answers has half."""
EXAMINED: Final = 40
"""Validation scenes."""
AT_ONCE: Final = 4


def list_unknown(
    learner: Learner, model: Any, helpers: nn.Module, schedule: Schedule
) -> tuple[str, ...]:
    """Kinds of questions that a model does not know, by its answers about validation scenes.

    Parameters
    ----------
    learner, model, helpers
        What was trained.
    schedule
        By which it was trained; its kinds are asked, about whole images.
    """
    stage = replace(schedule.stages[-1], vision_rate=0.0)
    seeds, tally = tuple(list_seeds("validation", EXAMINED)), Tally()
    with torch.no_grad():
        for first in range(0, EXAMINED, AT_ONCE):
            some = seeds[first : first + AT_ONCE]
            lesson = Lesson(stage, some, schedule.kinds, True, PICTURE_TOKENS)
            learner.compute_loss(model, helpers, lesson, tally)
    return tuple(
        kind
        for kind in schedule.kinds
        if kind in tally.right and tally.right[kind][0] < KNOWN * tally.right[kind][1]
    )
