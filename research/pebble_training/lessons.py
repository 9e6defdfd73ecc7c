"""One training step as a learner gets it."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import cycle, islice

import torch

from research.pebble_training.schedules import Schedule, Stage


@dataclass(frozen=True)
class Lesson:
    """What one process is to learn from in one step.

    Attributes
    ----------
    stage
        The stage that the step belongs to.
    seeds
        Of the scenes or videos.
    kinds
        Kinds of questions to ask about each.
    early_sight
        Whether text may attend to the image in the first two blocks.
    visual_tokens
        How many visual tokens the decoder is shown.
    renumbered
        Whether those are renumbered, without gaps.
    """

    stage: Stage
    seeds: tuple[int, ...]
    kinds: tuple[str, ...]
    early_sight: bool
    visual_tokens: int
    renumbered: bool = False


def draw_lesson(
    schedule: Schedule,
    stage: Stage,
    seeds: tuple[int, ...],
    coin_seed: int,
    unknown: tuple[str, ...] = (),
) -> Lesson:
    """Draw what is left to chance in a step; all processes pass the same `coin_seed`.

    Parameters
    ----------
    schedule, stage
        What is run.
    seeds
        Of the scenes or videos of this process.
    coin_seed
        Same seed, same choices.
    unknown
        Kinds that the model does not know: stages that revise ask these alone.
    """
    coin = torch.Generator().manual_seed(coin_seed)
    early_sight = bool(torch.rand((), generator=coin) >= stage.blind)
    choices = stage.choices or (stage.visual_tokens,)
    visual_tokens = choices[int(torch.randint(len(choices), (), generator=coin))]
    renumbered = bool(torch.rand((), generator=coin) < stage.renumber)
    kinds = (*schedule.kinds, *schedule.extra)
    if stage.revised:
        kinds = tuple(islice(cycle(unknown), stage.revised))
    return Lesson(stage, seeds, kinds, early_sight, visual_tokens, renumbered)
