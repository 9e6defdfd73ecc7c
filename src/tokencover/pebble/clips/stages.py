"""The course of training the model for clips; see `tokencover.pebble.stages`.

The picture model knows objects and how to look them up; what is new is time. The decoder is blind
in its first two blocks for part of the batches here too, and the last stage shows it parts of the
ground only, as for pictures.
"""

from __future__ import annotations

from tokencover.pebble.clips.questions import KINDS
from tokencover.pebble.stages import Plan, Stage

EXTRA_KINDS = ("exist", "more", "half", "order")

CLIP_PLAN = Plan(
    (
        Stage("vision", "vision", 120, 3, vision_rate=4e-4, cost=0.8),
        Stage("words-160", "words", 600, 4, rate=4e-4, visual_tokens=160, cost=0.4),
        Stage("words-576", "words", 200, 3, rate=3e-4, visual_tokens=576, cost=0.8),
        Stage("joint", "joint", 800, 2, rate=1.5e-4, vision_rate=1e-4, cost=1.2),
        Stage("finish", "joint", 200, 2, rate=8e-5, vision_rate=4e-5, blind=0.5, cost=1.2),
        Stage(
            "vary",
            "joint",
            150,
            2,
            rate=8e-5,
            vision_rate=3e-5,
            blind=0.5,
            choices=(136, 192, 320, 576, 1160, 1160),
            cost=0.9,
        ),
    ),
    kinds=KINDS,
    extra=EXTRA_KINDS,
)
